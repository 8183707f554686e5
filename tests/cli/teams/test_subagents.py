"""Sub-agents at the terminal: who asks, and those that the end of a command stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agenticx.testing import FakeOpenAIServer, call
from tests.support.server.cli_studio import CliStudio

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def main_agent(agx: Any, *replies: Any) -> AsyncGenerator[None]:
    """Make the replies those of the main agent of `agx`; sub-agents with the model `demo` have their own."""
    async with FakeOpenAIServer(replies) as server:
        agx.environment |= {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "sk-test",
            "AGX_MODEL": "openai-chat:main",
        }
        yield


def start(task: str, name: str = "kid") -> Any:
    return call("spawn_subagent", {"task": task, "name": name, "model": "demo"})


STOPPED = "2 sub-agents are still at work and will be stopped; beside a running `agx serve` they go on\n"


@pytest.mark.ci_lane
async def test_a_run_says_how_many_subagents_its_end_stops(agx: Any) -> None:
    async with main_agent(agx, [start("run sleep 300"), start("run sleep 300")], "They work."):
        done = await asyncio.to_thread(agx, "run", "go", "--yes")
    assert (done.returncode, done.stdout) == (0, "They work.\n")
    assert done.stderr.endswith(STOPPED)


async def test_a_piped_chat_says_how_many_subagents_its_end_stops(agx: Any) -> None:
    async with main_agent(agx, [start("run sleep 300")], "It works.", [start("run sleep 300")], "They work."):
        done = await asyncio.to_thread(agx, "chat", "--yes", stdin="go\n/new\ngo\n")
    assert done.stderr.endswith(STOPPED)


@pytest.mark.ci_lane
async def test_subagents_of_a_server_are_not_said_to_stop(agx: Any) -> None:
    async with main_agent(agx, [start("run sleep 300")], "It works."):
        studio = await asyncio.to_thread(CliStudio, agx)
        done = await asyncio.to_thread(agx, "run", "go", "--yes")
        assert (done.returncode, done.stdout) == (0, "It works.\n")
        assert "stopped" not in done.stderr
        session = studio.call("GET", "/api/sessions")["sessions"][0]["id"]
        (agent,) = studio.call("GET", f"/api/sessions/{session}/subagents")["subagents"]
        assert agent["state"] == "running"
        studio.end()


async def test_a_question_names_the_subagent_that_asks(agx: Any, terminal: Callable[..., Any]) -> None:
    tasks = [start("ask me: Which colour? (red, blue)"), call("wait_subagents")]
    async with main_agent(agx, tasks, call("ask_user", {"text": "Who?"}), "Done."):
        screen = terminal("run", "go")

        async def answer(question: str, keys: str) -> None:
            await asyncio.to_thread(screen.wait_for, question)
            screen.type(keys)

        await answer("? Send text to demo, another provider than openai-chat?", "")
        await answer("[e]dit: ", "y\n")
        await answer("? Which colour?\n  agent    kid-1\n  1   red\n  2   blue\nYour answer, or 1 to 2", "2\n")
        await answer("  answered by you: blue\n", "")
        await answer("? Who?\nYour answer (Ctrl-D: none): ", "you\n")
        assert await asyncio.to_thread(screen.exit_code) == 0
    replayed = agx("sessions", "replay", "last").stderr
    assert "? Which colour?\n  agent    kid-1\n  1   red\n  2   blue\n  answered by you: blue\n" in replayed
    assert replayed.startswith("› go\n")
    assert replayed.count("›") == 1


@pytest.mark.ci_lane
async def test_the_last_turn_of_a_chat_that_goes_on_is_that_of_the_user(agx: Any, terminal: Callable[..., Any]) -> None:
    async with main_agent(agx, [start("say hello"), call("wait_subagents")], "It said hello."):
        await asyncio.to_thread(agx, "run", "go")
    screen = terminal("chat", "-c")
    await asyncio.to_thread(screen.wait_for, "It said hello.")
    messages = [line.strip() for line in screen.screen.splitlines() if line.startswith("› ")]
    assert [text for text in messages if text != "›"] == ["› go"]  # the empty one is the prompt
