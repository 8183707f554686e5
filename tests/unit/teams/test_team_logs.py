"""The log of a session as the state of a team: rewinds, resets and the runs of other objects count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import open_hub
from agenticx.errors import SessionBusy, SessionNotFound
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub
from agenticx.settings import load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TaskResult, TeamError
from agenticx.testing import check_grammar
from tests.support.teams.sessions import log_of, open_session
from tests.unit.teams.chat_agents import Saying

pytestmark = pytest.mark.anyio


class Pair:
    """A team of `a` and `b`, who speak in turn, with their models."""

    def __init__(self, session: str | None) -> None:
        self.models = {name: ScriptedModel([f"{name}1", f"{name}2", f"{name}3"]) for name in "ab"}
        agents = [AssistantAgent(name, model) for name, model in self.models.items()]
        self.team = RoundRobinGroupChat(agents, name="Pair", max_turns=1, session=session)

    async def say(self, task: str | None = None) -> str:
        result: TaskResult = await self.team.run(task=task)
        message: Any = result.messages[-1]
        return f"{message.source}: {message.content}"

    def sent_to(self, name: str) -> list[str]:
        return [message.content for message in self.models[name].requests[-1].messages if message.role != "system"]

    async def said(self) -> Sequence[str]:
        state = await self.team.save_state()
        return [entry["message"]["content"] for entry in state["transcript"]["entries"]]


def reopened(folder: Path) -> Any:
    settings = load_settings({"home": folder / "home"}, environ={})
    return open_hub(
        f"sqlite:///{folder}/sessions.db", model=ScriptedModel([]), tools=[], workspace=folder, settings=settings
    )


async def user_messages(hub: Hub, session_id: str) -> dict[str, str]:
    return {row["content"]: row["message_id"] for row in await hub.messages(session_id) if row["role"] == "user"}


async def test_a_team_that_was_reset_begins_anew_in_the_next_process_too(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        pair = Pair(session_id)
        assert await pair.say("SECRET") == "a: a1"
        await pair.team.reset()
        (reset,) = [event for event in await log_of(hub, session_id) if event["type"] == "session_changed"]
        assert (reset["data"], reset["turn_id"]) == ({"team_reset": "Pair"}, None)
    async with reopened(tmp_path):
        pair = Pair(session_id)
        assert await pair.said() == []
        assert await pair.say("second") == "a: a1"
        assert pair.sent_to("a") == ["second"]
    async with reopened(tmp_path):
        pair = Pair(session_id)
        assert (await pair.said(), await pair.say("third")) == (["second", "a1"], "b: b1")
        assert pair.sent_to("b") == ["second", "a said:\na1", "third"]


async def test_a_reset_that_was_rewound_away_does_not_count(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        pair = Pair(session_id)
        await pair.say("first")
        kept = (await hub.messages(session_id))[-1]["message_id"]
        await pair.say("second")
        await pair.team.reset()
        assert await pair.say("third") == "a: a2"
        await hub.rewind(session_id, kept)
        assert await pair.said() == ["first", "a1"]
        assert await pair.say("fourth") == "b: b2"
        assert pair.sent_to("b") == ["first", "a said:\na1", "fourth"]


async def test_a_reset_is_kept_when_the_conversation_is_rewound_to_a_message_after_it(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        pair = Pair(session_id)
        await pair.say("first")
        await pair.team.reset()
        await pair.say("second")
        kept = (await hub.messages(session_id))[-1]["message_id"]
        await pair.say("third")
        await hub.rewind(session_id, kept)
        assert await pair.said() == ["second", "a2"]


async def test_a_rewind_between_two_runs_takes_back_what_the_team_said(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        pair = Pair(session_id)
        assert await pair.say("first") == "a: a1"
        kept = (await hub.messages(session_id))[-1]["message_id"]
        assert await pair.say("SECRET") == "b: b1"
        await hub.rewind(session_id, kept)
        assert await pair.say("third") == "b: b2"
        assert pair.sent_to("b") == ["first", "a said:\na1", "third"]
        check_grammar(await log_of(hub, session_id))


async def test_two_objects_of_a_team_in_one_session_go_on_with_each_other(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        one, other = Pair(session_id), Pair(session_id)
        assert [await one.say("first"), await other.say("second"), await one.say("third")] == [
            "a: a1",
            "b: b1",
            "a: a2",
        ]
        assert one.sent_to("a") == ["first", "a1", "second", "b said:\nb1", "third"]


async def test_a_second_start_while_the_first_reads_the_log_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        await Pair(session_id).say("first")
        pair = Pair(session_id)
        said, refused = await asyncio.gather(pair.say("MAIN"), pair.say("SECOND"), return_exceptions=True)
        assert said == "b: b1"
        assert str(refused) == "The team is already running, it cannot run again until it is stopped."
        assert pair.sent_to("b") == ["first", "a said:\na1", "MAIN"]
        assert await pair.said() == ["first", "a1", "MAIN", "b1"]


async def test_the_state_of_a_team_in_a_session_can_be_saved_before_its_first_run(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        await Pair(session_id).say("first")
        state = await Pair(session_id).team.save_state()
        in_memory = Pair(None)
        await in_memory.team.load_state(state)
        assert await in_memory.say("second") == "b: b1"


async def test_a_team_in_a_session_loads_no_state_beside_its_log(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        pair = Pair(session_id)
        await pair.say("first")
        with pytest.raises(ValueError, match="team 'Pair' goes on from the log of its session, and loads no other"):
            await pair.team.load_state(await Pair(None).team.save_state())
        assert await pair.say("second") == "b: b1"


async def test_a_reset_in_a_session_that_no_open_hub_has_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        pair = Pair(session_id)
        await pair.say("first")
    with pytest.raises(SessionNotFound):
        await pair.team.reset()
    async with reopened(tmp_path):
        assert await pair.say("second") == "b: b1"


async def test_a_reset_while_another_object_runs_in_the_session_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        began, release = asyncio.Event(), asyncio.Event()

        class Blocking(Saying):
            async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
                began.set()
                await release.wait()
                return await super().on_messages(messages, cancellation_token)

        one, other = (
            RoundRobinGroupChat([Blocking("a"), Saying("b")], name="Two", max_turns=1, session=session_id)
            for _ in range(2)
        )
        running = asyncio.create_task(one.run(task="first"))
        await began.wait()
        with pytest.raises(RuntimeError, match="already runs turn") as raised:
            await other.reset()
        assert isinstance(raised.value.__cause__, SessionBusy)
        release.set()
        await running
        states = [await team.save_state() for team in (one, other)]
        assert states[0]["transcript"] == states[1]["transcript"]
        assert [event for event in await log_of(hub, session_id) if "team_reset" in event["data"]] == []
        await other.reset()
        assert (await one.save_state())["transcript"]["entries"] == []


async def test_what_another_object_writes_right_after_a_run_counts_for_the_next_one(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, _):
        session_id = (await hub.create()).id  # the turn gives it a name, which is stored after its end
        one, other = Pair(session_id), Pair(session_id)

        async def reset_after_turn() -> None:
            for is_running in (True, False):
                while (hub.running_turn_id(session_id) is not None) is not is_running:
                    await asyncio.sleep(0)
            await other.team.reset()

        await asyncio.gather(one.say("first"), reset_after_turn())
        assert await one.said() == await other.said() == []


class Refusing(Saying):
    """An agent that cannot be reset, paused or resumed."""

    async def on_reset(self, cancellation_token: object) -> None:
        raise ValueError("no reset")

    async def on_pause(self, cancellation_token: object) -> None:
        raise ValueError("no pause")

    on_resume = on_pause


async def test_the_failed_reset_of_a_participant_leaves_no_other_one_and_no_team_behind() -> None:
    first, refusing, last = Saying("first"), Refusing("refusing"), Saying("last")
    team = RoundRobinGroupChat([first, refusing, last], name="Three", max_turns=3)
    await team.run(task="go")
    with pytest.raises(TeamError, match=r"on_reset of 'refusing'.*no reset") as raised:
        await team.reset()
    assert isinstance(raised.value.__cause__, ValueError)
    assert (raised.value.participant, first.spoken, last.spoken) == ("refusing", 0, 0)
    assert (await team.save_state())["transcript"]["entries"] == []


async def test_the_failed_pause_of_a_participant_pauses_the_others_and_the_team_resumes() -> None:
    refusing, other = Refusing("refusing"), Saying("other")
    team = RoundRobinGroupChat([refusing, other], max_turns=2)
    for call in (team.pause, team.resume):
        with pytest.raises(TeamError, match="no pause"):
            await call()
    assert other.calls == ["pause", "resume"]
    assert (await team.run(task="go")).messages[-1].source == "other"
