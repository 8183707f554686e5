"""Sessions renamed, pinned, archived, forked, rewound and counted; and read beside another owner."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenticx import open_hub
from agenticx.settings import load_settings
from agenticx.subagents import session_tools
from agenticx.teams import AssistantAgent, SelectorGroupChat
from agenticx.testing import ScriptedModel, call, collect, say, usage
from tests.support.timeouts import PATIENCE


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def show(agx: Any, session: str = "last") -> dict[str, Any]:
    return rows(agx("sessions", "show", session, "--json").stdout)[0]


@pytest.fixture(params=["in this process", "at a server"])
def shell(request: pytest.FixtureRequest, agx: Any) -> Iterator[Any]:
    """Return the shell, with and without a server that owns the sessions."""
    if request.param == "in this process":
        yield agx
        return
    with agx.start("serve", "--port", "0") as server:
        assert "/#" in server.stderr.readline()
        while not list(Path(agx.environment["AGX_HOME"]).glob("studio*.json")):  # written just after the line
            time.sleep(0.005)
        yield agx
        server.terminate()


@pytest.mark.ci_lane
def test_a_session_is_renamed_pinned_and_archived(shell: Any) -> None:
    shell("run", "say one")
    assert " A new name  " in shell("sessions", "rename", "last", " A new name ").stdout
    assert " [pinned]" in shell("sessions", "pin", "last").stdout
    assert " [pinned] [archived]" in shell("sessions", "archive", "last").stdout
    session = show(shell)
    assert (session["name"], session["pinned"], session["archived"]) == ("A new name", True, True)
    shell("sessions", "pin", "last", "--off")
    shell("sessions", "archive", "last", "--off")
    shell("sessions", "rename", "last", "")
    session = show(shell)
    assert (session["name"], session["pinned"], session["archived"]) == (None, False, False)
    for name in ("a\nb", "x" * 201, "a\x1b[2Jb", "\u202ea"):
        refused = shell("sessions", "rename", "last", name)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("agx: a name is one line of at most 200 characters")


@pytest.mark.ci_lane
def test_a_session_goes_back_to_a_message_with_its_files_and_forward_again(shell: Any) -> None:
    shell("run", "say one")
    shell("run", "Write a.txt with the text hi", "--session", "last", "--yes")
    first, answer, *later = [message["message_id"] for message in show(shell)["messages"]]
    assert f"\n[{answer}]\none\n" in shell("sessions", "show", "last", "--ids").stdout
    done = shell("sessions", "rewind", "last", answer[:-1])
    assert (done.returncode, done.stdout) == (0, "removed a.txt\n")
    assert not (shell.folder / "a.txt").exists()
    assert [message["message_id"] for message in show(shell)["messages"]] == [first, answer]
    undo = done.stderr.splitlines()[-1].removesuffix(" takes this back").split()
    assert shell(*undo[1:]).returncode == 0
    assert (shell.folder / "a.txt").read_text() == "hi"
    assert [message["message_id"] for message in show(shell)["messages"]] == [first, answer, *later]
    shell("sessions", "rewind", "last", answer)
    opened = shell("chat", stdin=f"/open {show(shell)['id']}\n")
    assert ("one" in opened.stdout, "a.txt" in opened.stdout + opened.stderr) == (True, False)
    assert shell("sessions", "rewind", "last", "start").returncode == 0
    assert show(shell)["messages"] == []
    assert "one" not in shell("chat", stdin=f"/open {show(shell)['id']}\n").stdout
    unknown = shell("sessions", "rewind", "last", "msg_nothing")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    listing = f"`agx sessions show {show(shell)['id']} --ids` lists them"
    assert unknown.stderr == f"agx: no message of this session has the id 'msg_nothing'; {listing}\n"
    assert shell("sessions", "fork", "last", "--message", "msg_nothing").stderr == unknown.stderr
    assert shell("sessions", "rewind", "last", "msg_", stdin="").returncode in (1, 2)


@pytest.mark.cases(quick=1)
def test_rewind_takes_messages_back_with_their_files_and_undo_brings_them_back(shell: Any) -> None:
    lines = ["/rewind", "say one", "Write a.txt with the text hi", "/rewind", "/rewind undo", "/rewind undo"]
    done = shell("chat", "--yes", stdin="\n".join([*lines, "/rewind 3", "/rewind x", "/rewind 2", "say two", ""]))
    answers = [line for line in done.stderr.splitlines() if line[0] not in "→←" and "allowed" not in line]
    assert answers == [
        "there is no message to take back; your next one starts a session",
        "taken back: Write a.txt with the text hi",
        "files: removed a.txt",
        "the messages are back",
        "files: restored a.txt",
        "nothing was taken back since your last message",
        "3 messages cannot be taken back: this conversation has 2 messages of yours",
        "/rewind 'x': a number of messages to take back, or undo",
        "taken back: say one",
        "taken back: Write a.txt with the text hi",
        "files: removed a.txt",
    ]
    assert done.returncode == 0
    assert not (shell.folder / "a.txt").exists()
    assert [message["content"] for message in show(shell)["messages"]] == ["say two", "two"]


@pytest.mark.ci_lane
def test_a_session_whose_folder_is_gone_continues_in_another_one(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    shell("run", "say one", "--cwd", str(tmp_path / "short"))
    (tmp_path / "short").rmdir()
    for command in ("run", "chat"):
        done = shell(command, *["say two"] * (command == "run"), "--session", "last")
        assert (done.returncode, done.stdout) == (2, "")
        assert "which is not a folder any more; `agx sessions move ses_" in done.stderr
    done = shell("run", "Write a.txt with the text hi", "--yes", "--session", "last", "--cwd", ".")
    assert (done.returncode, (shell.folder / "a.txt").read_text()) == (0, "hi")
    (shell.folder / "b").mkdir()
    done = shell("sessions", "move", "last", "b")
    assert (done.returncode, done.stdout.strip().endswith("/work/b")) == (0, True)
    assert shell("run", "-c", "-m", "demo", "say three").stdout == "three\n"
    assert [len(show(shell)["messages"]), len(shell("sessions", "list").stdout.splitlines())] == [8, 1]
    refused = shell("run", "-c", "--session", "last", "say four")
    assert (refused.returncode, "--session: not allowed with argument -c/--continue" in refused.stderr) == (2, True)
    refused = shell("sessions", "move", "last", "nowhere")
    assert (refused.returncode, refused.stderr) == (2, "agx: 'nowhere' is not a folder; give one that exists\n")


@pytest.mark.cases(quick=1)
def test_a_session_is_forked_from_a_message(shell: Any) -> None:
    shell("run", "say one")
    shell("run", "say two", "--session", "last")
    messages = show(shell)["messages"]
    forked = shell("sessions", "fork", "last", "--message", messages[1]["message_id"]).stdout.split()[0]
    assert [message["content"] for message in show(shell, forked)["messages"]] == ["say one", "one"]
    whole = shell("sessions", "fork", "last").stdout.split()[0]
    assert len(show(shell, whole)["messages"]) == len(messages)
    assert show(shell, whole)["forked_from"] == show(shell)["id"]


@pytest.mark.ci_lane
def test_the_usage_of_models_is_summed(shell: Any, provider: Any) -> None:
    assert shell("sessions", "usage").stderr == "no model call was counted\n"
    shell("run", "say one")
    shell("run", "say two", "--session", "last")
    text = shell("sessions", "usage").stdout
    assert text.splitlines()[0].split() == ["model", "calls", "input", "cached", "output", "reasoning", "cost", "(USD)"]
    assert text.splitlines()[1].split()[:2] == ["demo", "2"]
    report = json.loads(shell("sessions", "usage", "last", "--since", "2020-01-01", "--json").stdout)
    assert report["total"]["calls"] == 2
    assert [row["session_id"] for row in report["rows"]] == [show(shell)["id"]]
    assert json.loads(shell("sessions", "usage", "--until", "2020-01-01", "--json").stdout)["rows"] == []
    assert shell("sessions", "usage", "--since", "yesterday").returncode == 2


@pytest.mark.ci_lane
def test_the_usage_of_each_agent_of_a_session_is_shown_also_that_of_the_choice_of_a_speaker(agx: Any) -> None:
    asyncio.run(talk_in(Path(agx.environment["AGX_HOME"])))
    shown = agx("sessions", "show", "last").stdout
    assert (
        "usage   4 calls, 100 tokens in, 10 out\n"
        "        critic: 1 call, 30 tokens in, 3 out\n"
        "        meta: 2 calls, 50 tokens in, 4 out\n"
        "        writer: 1 call, 20 tokens in, 3 out\n"
    ) in shown
    usage = show(agx)["usage"]
    assert (usage["total"]["calls"], usage["total"]["input_tokens"]) == (4, 100)
    assert {agent["agent_id"]: agent["input_tokens"] for agent in usage["agents"]} == {
        "meta": 50,
        "writer": 20,
        "critic": 30,
    }
    table = [line.split()[:3] for line in agx("sessions", "usage", "last").stdout.splitlines() if line]
    assert table[3:] == [
        ["agent", "calls", "input"],
        ["critic", "1", "30"],
        ["meta", "2", "50"],
        ["writer", "1", "20"],
        ["total", "4", "100"],
    ]


LONG_TASK = f"Find it\n{'now ' * 100}"


def test_show_lists_the_subagents_of_a_session(agx: Any) -> None:
    asyncio.run(delegate_in(Path(agx.environment["AGX_HOME"])))
    shown = agx("sessions", "show", "last").stdout
    (line,) = (line for line in shown.splitlines() if line.startswith("agents"))
    task = " ".join(LONG_TASK.split())
    assert line == f"agents  searcher-1: completed, 1 round, 23 tokens: {task[:99]}…"
    (whole,) = rows(agx("sessions", "show", "last", "--json").stdout)
    assert whole["subagents"] == [
        {
            "agent_id": "searcher-1",
            "state": "completed",
            "rounds": 1,
            "task": LONG_TASK,
            "parent_agent_id": "meta",
            "depth": 1,
        }
    ]


async def delegate_in(home: Path) -> None:
    """Run a turn that starts a sub-agent and waits for it, in a session of the store in `home`."""
    spawn = call("spawn_subagent", {"task": LONG_TASK, "name": "searcher"})
    script = [[spawn, call("wait_subagents")], [say("Found."), usage(20, 3)], "It is found."]
    settings = load_settings({"home": home}, environ={})
    with ScriptedModel(script) as model:
        async with open_hub(model=model, tools=session_tools(), settings=settings) as hub:
            session = await hub.create(name="Search")
            await collect(hub.run_turn(session.id, "Where is it?"))


async def talk_in(home: Path) -> None:
    """Run a team, whose speakers a model chooses, in a session of the store in `home`."""
    script = [
        [say("writer"), usage(20, 1)],
        [say("Leaves fall."), usage(20, 3)],
        [say("critic"), usage(30, 3)],
        [say("APPROVE"), usage(30, 3)],
    ]
    settings = load_settings({"home": home}, environ={})
    with ScriptedModel(script) as model:
        async with open_hub(model=model, settings=settings) as hub:
            session = await hub.create(name="Autumn")
            agents = [AssistantAgent(name, model) for name in ("writer", "critic", "reader")]
            team = SelectorGroupChat(agents, model, max_turns=2, session=session.id, settings=settings)
            await team.run(task="Write about autumn.")


@pytest.mark.ci_lane
def test_the_sessions_of_a_chat_can_be_read_and_renamed_elsewhere(
    agx: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    agx("run", "say one")
    chat = terminal("chat")
    chat.wait_for("› ")
    chat.type("say two\r")
    chat.wait_for("\ntwo\n")
    chat.type("Write a.txt with the text hi\r")
    chat.wait_for("[e]dit: ")
    second, first = rows(agx("sessions", "list", "--json").stdout)
    assert (second["name"], first["running_turn_id"]) == ("say two", None)
    assert second["running_turn_id"] is not None
    assert rows(agx("sessions", "list", "two", "--json").stdout)[0]["matches"]
    assert [message["content"] for message in show(agx)["messages"]][:2] == ["say two", "two"]
    assert agx("sessions", "show", "last").returncode == 0
    exported = rows(agx("sessions", "export", "last").stdout)
    assert (exported[0]["type"], exported[-1]["type"]) == ("turn_started", "confirm_required")
    assert "## Assistant\n\ntwo\n" in agx("sessions", "export", "last", "--format", "markdown").stdout
    assert agx("sessions", "replay", "last", "--json").stdout.count("\n") == len(exported)
    assert json.loads(agx("sessions", "usage", "--json").stdout)["total"]["calls"] >= 2
    unknown = agx("sessions", "show", "nothing")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    renamed = agx("sessions", "rename", "last", "x")
    assert (renamed.returncode, " x [running]  " in renamed.stdout) == (0, True)
    chat.type("y\n")
    chat.wait_for("← file_write ok")
    chat.wait_for("› ")
    chat.type("\x04")
    assert chat.exit_code() == 0


@pytest.mark.ci_lane
def test_reading_beside_an_owner_writes_nothing(agx: Any, terminal: Callable[..., Any]) -> None:
    agx("run", "say one")
    chat = terminal("chat")
    chat.wait_for("› ")
    home = Path(agx.environment["AGX_HOME"])
    before = {
        path.name: path.read_bytes() for path in home.iterdir() if path.is_file() and not path.name.endswith("-shm")
    }
    assert agx("sessions", "list").stdout.count("\n") == 1
    after = {
        path.name: path.read_bytes() for path in home.iterdir() if path.is_file() and not path.name.endswith("-shm")
    }
    assert after == before
    os.killpg(chat.process.pid, 9)
    chat.process.wait(PATIENCE)
    assert agx("sessions", "pin", "last").returncode == 0
