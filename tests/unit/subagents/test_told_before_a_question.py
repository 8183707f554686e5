"""Agents that are told an ending, then wait for a person as their process ends, are not told it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.assembly import make_hub
from agenticx.core import Agent, AgentExecutor, Task
from agenticx.llms import ModelRequest, NamedModels, ScriptedModel
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, QuestionAnswer, QuestionRequest
from agenticx.sessions import Hub, TurnRequest, open_store
from agenticx.settings import load_settings
from agenticx.subagents import session_tools
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, UserProxyAgent
from agenticx.testing import call
from agenticx.tools import Toolbox, tool
from agenticx.tools.builtin import ask_user
from tests.support.endings import ending_text
from tests.support.sessions import wait_for_turn_end
from tests.support.teams.sessions import log_of
from tests.support.teams.subagent_sessions import notices, spawn
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

START = [spawn("k"), call("wait_subagents")]

Run = Callable[[Hub, str, ScriptedModel], Awaitable[object]]
"""A function that runs, or goes on with, what is tested in a session: its agent has the model."""


@tool(risk="write")
def note() -> str:
    """Note something."""
    return "noted"


TOOLS = [*session_tools(), note, ask_user]
CONFIRM, QUESTION = call("note"), call("ask_user", {"text": "Which?"})
ANSWERS = {ConfirmRequest: ConfirmAnswer(approved=True), QuestionRequest: QuestionAnswer(answer="Large")}


async def run_team(hub: Hub, session_id: str, model: ScriptedModel) -> object:
    team = RoundRobinGroupChat([AssistantAgent("lead", model, tools=TOOLS)], max_turns=1, session=session_id)
    return await team.run(task=None if await hub.suspended_turn(session_id) else "Go")


async def run_nested_team(hub: Hub, session_id: str, model: ScriptedModel) -> object:
    inner = RoundRobinGroupChat([AssistantAgent("lead", model, tools=TOOLS)], name="inner", max_turns=1)
    team = RoundRobinGroupChat([inner], max_turns=1, session=session_id)
    return await team.run(task=None if await hub.suspended_turn(session_id) else "Go")


async def run_team_with_person(hub: Hub, session_id: str, model: ScriptedModel) -> object:
    """Run a team whose second participant asks, after the first one has been told the ending and has spoken."""
    members = [AssistantAgent("lead", model, tools=TOOLS), UserProxyAgent("person")]
    team = RoundRobinGroupChat(members, max_turns=3, session=session_id)
    return await team.run(task=None if await hub.suspended_turn(session_id) else "Go")


async def run_executor(_hub: Hub, session_id: str, model: ScriptedModel) -> object:
    agent = Agent(id="lead", name="lead", role="Lead", goal="Lead", tools=TOOLS)
    return await AgentExecutor(model, session=session_id).arun(agent, Task(description="Go", expected_output=""))


async def run_subagent(hub: Hub, session_id: str, _model: ScriptedModel) -> object:
    """Run the main agent, whose sub-agent is told the ending of one of its own."""
    if (await hub.store.log.head(session_id)) == 0:
        return await hub.start(session_id, TurnRequest(input="go"))
    return await wait_for_turn_end(hub.store, session_id, ends=3)


@asynccontextmanager
async def opened(folder: Path, lead: ScriptedModel) -> AsyncGenerator[Hub]:
    settings = load_settings({"home": folder / "home"}, environ={})
    main = ScriptedModel([spawn("lead"), "Later."])
    own = {"main": main, "k": ScriptedModel(["A result."]), "lead": lead}
    store = open_store(settings)
    models = NamedModels(settings, own=own)
    hub = make_hub(store, models=models, toolbox=Toolbox(TOOLS), settings=settings)
    await hub.recover()
    yield hub
    await hub.close()
    await store.aclose()


async def until_asked(hub: Hub, session_id: str) -> None:
    """Wait until a question is stored, and asked in this process."""
    async with asyncio.timeout(PATIENCE):
        while not await hub.open_requests(session_id):
            await asyncio.sleep(0)
        while not hub.gate.pending_requests():
            await asyncio.sleep(0)


def told(requests: Sequence[ModelRequest]) -> list[list[str]]:
    return [notices(request) for request in requests]


@pytest.mark.parametrize(
    ("run", "asks"),
    [
        (run_team, CONFIRM),
        (run_team, QUESTION),
        (run_nested_team, QUESTION),
        (run_team_with_person, "Said."),
        (run_executor, CONFIRM),
        (run_subagent, CONFIRM),
    ],
)
@pytest.mark.cases(quick=1)
async def test_an_ending_told_before_a_question_is_not_told_again_after_restarts(
    tmp_path: Path, run: Run, asks: Any
) -> None:
    ending = ending_text(f"k-{2 if run is run_subagent else 1} completed", "A result.")
    lead = ScriptedModel([*START, asks])
    async with opened(tmp_path, lead) as hub:
        session_id = (await hub.create(name="Work", workspace=tmp_path)).id
        running = [asyncio.ensure_future(run(hub, session_id, lead))]
        await until_asked(hub, session_id)
        assert told(lead.requests)[-1] == [ending]
    lead = ScriptedModel(["Done."])
    async with opened(tmp_path, lead) as hub:
        running.append(asyncio.ensure_future(run(hub, session_id, lead)))
        await until_asked(hub, session_id)
    async with opened(tmp_path, lead) as hub:
        for request in await hub.open_requests(session_id):
            await hub.answer(request.id, ANSWERS[type(request)], digest=request.digest)
        await run(hub, session_id, lead)
        await log_of(hub, session_id)
    assert told(lead.requests) == [[ending]]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
