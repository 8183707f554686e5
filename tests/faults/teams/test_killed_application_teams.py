"""Teams of an application that wait for a person as the process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx import open_hub
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, QuestionAnswer, QuestionRequest
from agenticx.sessions import Hub
from agenticx.settings import load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, UserProxyAgent
from agenticx.testing import call
from agenticx.tools import tool
from agenticx.tools.builtin import ask_user
from tests.support.faults.killed_process import kill_this_process, run_until_killed
from tests.support.sessions import wait_for_event
from tests.support.teams.sessions import log_of

pytestmark = pytest.mark.anyio

ASKS: dict[str, Sequence[Any]] = {
    "person": [],
    "question": [call("look"), call("ask_user", {"text": "Which size?"})],
    "confirm": [call("look"), call("note")],
}
ASKED = {"person": "question_asked", "question": "question_asked", "confirm": "confirm_required"}
SAID = {"person": "Large", "question": "Large it is.", "confirm": "Noted."}
ANSWERS = {ConfirmRequest: ConfirmAnswer(approved=True), QuestionRequest: QuestionAnswer(answer="Large")}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Hub]:
    settings = load_settings({"home": folder / "home"}, environ={})
    url = f"sqlite:///{folder}/sessions.db"
    async with open_hub(url, model=ScriptedModel([]), tools=[], workspace=folder, settings=settings) as hub:
        yield hub


def team(folder: Path, kind: str, session_id: str, script: Sequence[Any], last: ScriptedModel) -> RoundRobinGroupChat:
    """Return a team of teams whose innermost participant asks a person."""

    def done(what: str) -> str:
        with (folder / "done").open("a") as file:
            file.write(f"{what}\n")
        return what

    @tool(risk="read")
    def look() -> str:
        """Look."""
        return done("look")

    @tool(risk="write")
    def note() -> str:
        """Note something."""
        return done("note")

    writer = AssistantAgent("writer", ScriptedModel(list(script)), tools=[look, note, ask_user])
    asker = UserProxyAgent("person") if kind == "person" else writer
    inner = RoundRobinGroupChat([asker], name="inner", max_turns=1)
    middle = RoundRobinGroupChat([inner], name="middle", max_turns=1)
    closer = AssistantAgent("closer", last)
    return RoundRobinGroupChat([middle, closer], name="outer", max_turns=2, session=session_id)


async def run_until_asked(folder: Path, kind: str) -> None:
    """Run the team until it asks; the process is killed then."""
    async with opened(folder) as hub:
        session_id = (await hub.create(name="Talk")).id
        (folder / "session").write_text(session_id)
        running = asyncio.create_task(team(folder, kind, session_id, ASKS[kind], ScriptedModel([])).run(task="Go"))
        await wait_for_event(hub.store, session_id, ASKED[kind])
        kill_this_process()
        await running


async def run_again(folder: Path, kind: str) -> None:
    """Let the team go on until it waits for the answer again; the process is killed then."""
    async with opened(folder) as hub:
        session_id = (folder / "session").read_text()
        running = asyncio.create_task(team(folder, kind, session_id, [], ScriptedModel([])).run())
        while not (hub.gate.pending() or hub.gate.pending_questions()):
            await asyncio.sleep(0)
        kill_this_process()
        await running


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.cases(quick=1)
async def test_what_a_team_asked_before_two_kills_is_answered_and_nothing_runs_twice(tmp_path: Path, kind: str) -> None:
    await run_until_killed(run_until_asked, tmp_path, kind)
    await run_until_killed(run_again, tmp_path, kind)
    session_id = (tmp_path / "session").read_text()
    async with opened(tmp_path) as hub:
        asked = await hub.open_requests(session_id)
        assert [one.agent_path[:3] for one in asked] == [("meta", "middle", "inner")]
        for request in asked:
            await hub.answer(request.id, ANSWERS[type(request)], digest=request.digest)
        last = ScriptedModel(["Bye."])
        result = await team(tmp_path, kind, session_id, [SAID[kind]], last).run()
        assert [message.to_text() for message in result.messages][-2:] == [SAID[kind], "Bye."]
        assert last.requests[0].messages[-1].content.endswith(SAID[kind])
        log = await log_of(hub, session_id)
        types = [event["type"] for event in log]
        assert (types.count(ASKED[kind]), types.count("error"), types.count("turn_started")) == (1, 0, 5)
    done = (tmp_path / "done").read_text().split() if kind != "person" else []
    assert done == {"person": [], "question": ["look"], "confirm": ["look", "note"]}[kind]
