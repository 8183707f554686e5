"""Messages for a session that is busy: each becomes a turn, a part of one, or is handed back; none is lost."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.errors import ModelError, SessionBusy, SessionNotFound, StoreError
from agenticx.llms.scripted import ScriptedModel, call, fail, hang, pause, say
from agenticx.messages import UserMessage
from agenticx.sessions import (
    Hub,
    HubClosed,
    JournalEntry,
    MemoryStore,
    Posted,
    SessionRecord,
    SqliteStore,
    Store,
    StoredEvent,
    TurnConflict,
    TurnRequest,
    transcript,
)
from agenticx.sessions.waiting import WaitingMessage
from agenticx.settings import load_settings
from agenticx.testing import check_grammar
from agenticx.tools.registry import tool
from tests.llms.files import PNG
from tests.patience import PATIENCE, PatientClock

pytestmark = pytest.mark.anyio


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


class Desk:
    """One session of a hub, and what its log tells."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.store = store
        self.record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        self._settings = load_settings({"home": folder / "home"}, environ={})
        self.models: dict[str | None, ScriptedModel] = {}

    async def open(self, model: ScriptedModel) -> Hub:
        """A hub that runs the session with `model`, as a new process would make it."""
        self.models = {None: model}
        self.hub = Hub(
            self.store,
            models=lambda name: self.models[name],
            tools=lambda _record: [note],
            settings=self._settings,
            clock=PatientClock(),
        )
        if self.record.id not in [record.id for record in await self.store.sessions()]:
            await self.store.create(self.record)
        await self.hub.recover()
        return self.hub

    async def post(self, text: str, when_busy: Any = "queue", **fields: Any) -> Posted:
        return await self.hub.post(self.record.id, TurnRequest(input=text, when_busy=when_busy, **fields))

    async def until(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The session's envelopes once they are `done`; they are held to the grammar."""
        news = asyncio.Event()
        with self.store.subscribe(self.record.id, news):
            while True:
                news.clear()
                events = [json.loads(event.frame_json) for event in await self.store.read(self.record.id, 0, 10_000)]
                if done(events):
                    check_grammar(events, complete=False)
                    return events
                await asyncio.wait_for(news.wait(), PATIENCE)

    async def seen(self, type_: str, times: int = 1) -> list[dict[str, Any]]:
        return await self.until(lambda events: sum(event["type"] == type_ for event in events) >= times)

    async def transcript(self) -> list[str]:
        events = await self.store.read(self.record.id, 0, 10_000)
        return [f"{message['role']}: {message['content']}" for message in transcript(events)]


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    desk = Desk(tmp_path, store)
    yield desk
    await desk.hub.close()
    await desk.store.aclose()


def told(events: Sequence[dict[str, Any]]) -> list[str]:
    """The events without those of the model and of state: `turn_started one`, `queued two`, `final`, …"""
    wanted = {"turn_started": "input", "queued": "input", "handed_back": "input", "steered": "text", "error": "code"}
    wanted |= {"final": "text", "tool_result": "outcome", "confirm_required": "question"}
    told = [f"{event['type']} {event['data'][wanted[event['type']]]}" for event in events if event["type"] in wanted]
    return ["confirm_required" if line.startswith("confirm") else line for line in told]


async def test_queued_messages_run_in_order_each_as_the_message_that_was_announced(desk: Desk) -> None:
    await desk.open(ScriptedModel([call("note", {"text": "x"}), "one done", "two done", "three done"]))
    first = await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    queued = [await desk.post("two", client_turn_id="c2"), await desk.post("three", attachments=(PNG,))]
    assert [posted.state for posted in (first, *queued)] == ["started", "queued", "queued"]
    assert [posted.after_seq for posted in queued] == [
        await desk.store.last_seq(desk.record.id) - 1 + n for n in (0, 1)
    ]
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await desk.seen("final", 3)
    assert told(events) == [
        "turn_started one",
        "confirm_required",
        "queued two",
        "queued three",
        "tool_result ok",
        "final one done",
        "turn_started two",
        "final two done",
        "turn_started three",
        "final three done",
    ]
    announced = [event for event in events if event["type"] == "queued"]
    begun = [event for event in events if event["type"] == "turn_started"][1:]
    kept = [entry for event in begun for entry in await desk.store.turn_journal(desk.record.id, event["turn_id"])]
    assert [entry.kind for entry in kept] == ["taken", "taken"]  # what came with them is in the log alone
    assert PNG.data not in str(kept)
    assert [event["turn_id"] for event in announced] == [None, None]
    assert announced[0]["data"] == {
        "turn_id": queued[0].turn.id,
        "message_id": queued[0].message_id,
        "input": "two",
        "client_turn_id": "c2",
    }
    assert announced[1]["data"]["attachments"] == begun[1]["data"]["attachments"] == [PNG.summary]
    for posted, event in zip(queued, begun, strict=True):
        assert (event["turn_id"], event["data"]["message_id"]) == (posted.turn.id, posted.message_id)
    said = [message for message in desk.models[None].requests[-1].messages if isinstance(message, UserMessage)]
    assert [(message.content, message.attachments) for message in said] == [("one", ()), ("two", ()), ("three", (PNG,))]
    assert await desk.transcript() == [
        "user: one",
        "assistant: ",
        "tool: noted x",
        "assistant: one done",
        "user: two",
        "assistant: two done",
        "user: three",
        "assistant: three done",
    ]


@pytest.mark.parametrize("when_busy", ["reject", "queue", "steer", "interrupt"])
async def test_a_free_session_begins_a_turn_in_any_mode(desk: Desk, when_busy: str) -> None:
    await desk.open(ScriptedModel(["yes"]))
    posted = await desk.post("go", when_busy)
    assert (posted.state, posted.after_seq, posted.message_id) == ("started", 0, None)
    assert told(await desk.seen("final")) == ["turn_started go", "final yes"]


async def test_a_message_is_taken_into_the_turn_that_runs_after_the_results_of_its_round(desk: Desk) -> None:
    await desk.open(ScriptedModel([call("note", {"text": "x"}), "as you say"]))
    first = await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    steered = await desk.post("rather so", "steer", attachments=(PNG,))
    assert (steered.state, steered.turn.id) == ("steered", first.turn.id)
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await desk.seen("final")
    assert told(events) == [
        "turn_started one",
        "confirm_required",
        "queued rather so",
        "tool_result ok",
        "steered rather so",
        "final as you say",
    ]
    (event,) = (event for event in events if event["type"] == "steered")
    data = {"message_id": steered.message_id, "text": "rather so", "attachments": [PNG.summary]}
    assert (event["turn_id"], event["data"]) == (first.turn.id, data)
    assert desk.models[None].requests[1].messages[-1].content == "rather so"
    assert await desk.transcript() == [
        "user: one",
        "assistant: ",
        "tool: noted x",
        "user: rather so",
        "assistant: as you say",
    ]


async def test_an_interrupt_ends_the_turn_and_runs_right_behind_it_while_the_others_wait_on(desk: Desk) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()], "instead", "later"]))
    await desk.post("one")
    await desk.post("two")
    posted = await desk.post("three", "interrupt")
    events = await desk.seen("final", 2)
    assert told(events) == [
        "turn_started one",
        "queued two",
        "queued three",
        "error stopped",
        "turn_started three",
        "final instead",
        "turn_started two",
        "final later",
    ]
    types = [event["type"] for event in events]
    ended = types.index("error")
    assert types[ended + 1] == "turn_started"
    assert (posted.state, posted.turn.id) == ("started", events[ended + 1]["turn_id"])
    assert posted.after_seq == events[ended]["seq"]


async def test_a_steered_message_is_told_at_once_and_once_more_when_it_is_taken_in(desk: Desk) -> None:
    await desk.open(ScriptedModel([call("note", {"text": "x"}), "as you say"]))
    first = await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    steered = await desk.post("rather so", "steer", client_turn_id="c2", attachments=(PNG,))
    queued = (await desk.seen("queued"))[-1]
    assert (queued["turn_id"], queued["data"]) == (
        None,
        {
            "turn_id": first.turn.id,
            "message_id": steered.message_id,
            "input": "rather so",
            "attachments": [PNG.summary],
            "client_turn_id": "c2",
        },
    )
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await desk.seen("final")
    ours = [event for event in events if event["data"].get("message_id") == steered.message_id]
    assert [(event["type"], event["turn_id"]) for event in ours] == [("queued", None), ("steered", first.turn.id)]
    assert (await desk.transcript()).count("user: rather so") == 1


async def test_of_interrupts_posted_at_once_each_begins_in_its_order_and_is_stopped_for_the_next(desk: Desk) -> None:
    model = ScriptedModel([[say("so"), hang()], "the last word", "later"])
    await desk.open(model)
    await desk.post("one")
    await desk.seen("token")
    await desk.post("two")
    posted = await asyncio.gather(*(desk.post(text, "interrupt") for text in ("A", "B", "C")))
    events = await desk.seen("final", 2)
    assert [line for line in told(events) if not line.startswith("queued")] == [
        "turn_started one",
        "error stopped",
        "turn_started A",
        "error stopped",
        "turn_started B",
        "error stopped",
        "turn_started C",
        "final the last word",
        "turn_started two",
        "final later",
    ]
    begun = [event["turn_id"] for event in events if event["type"] == "turn_started"]
    assert [one.turn.id for one in posted] == begun[1:4]
    said = [message.content for message in model.requests[1].messages if isinstance(message, UserMessage)]
    assert said == ["one", "A", "B", "C"], "nobody was paid for an answer to those that were superseded"


async def test_interrupts_keep_their_place_over_a_restart_and_end_the_turn_that_goes_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path, SqliteStore(tmp_path / "sessions.db"))
    await desk.open(ScriptedModel([call("note", {"text": "x"})]))
    first = await desk.post("one")
    await desk.seen("confirm_required")
    await desk.post("two")
    for name in ("A", "B"):  # accepted, and then the process dies before it has stopped the turn
        request = TurnRequest(input=name, when_busy="interrupt")
        entry = WaitingMessage.of_request(desk.record.id, request).entry()
        await desk.store.add_journal_entry(entry)
    await desk.hub.close()
    await desk.store.aclose()

    desk.store = SqliteStore(tmp_path / "sessions.db")
    await desk.open(ScriptedModel(["B done", "two done"]))
    events = await desk.seen("final", 2)
    assert first.turn.id == events[0]["turn_id"]
    assert [line for line in told(events) if line.split()[0] in ("turn_started", "error", "final")] == [
        "turn_started one",
        "error stopped",
        "turn_started A",
        "error stopped",
        "turn_started B",
        "final B done",
        "turn_started two",
        "final two done",
    ]
    await desk.hub.close()
    await desk.store.aclose()


async def test_a_stop_hands_back_all_that_waits_and_what_comes_afterwards_runs(desk: Desk) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()], "next"]))
    first = await desk.post("one")
    posted = [await desk.post("two", attachments=(PNG,)), await desk.post("three", "steer")]
    await desk.hub.stop(desk.record.id)
    after = await desk.post("four")
    events = await desk.seen("final")
    assert [line for line in told(events) if line != "queued four"] == [
        "turn_started one",
        "queued two",
        "queued three",
        "error stopped",
        "handed_back two",
        "handed_back three",
        "turn_started four",
        "final next",
    ]
    back = [event for event in events if event["type"] == "handed_back"]
    assert [(event["turn_id"], event["data"]["message_id"]) for event in back] == [
        (None, one.message_id) for one in posted
    ]
    assert [event["data"]["turn_id"] for event in back] == [posted[0].turn.id, first.turn.id]
    assert back[0]["data"]["attachments"] == [PNG.summary]
    assert after.turn.id == events[-1]["turn_id"]
    assert await desk.transcript() == ["user: one", "assistant: so", "user: four", "assistant: next"]


class HeldClock(SystemClock):
    """No pause ends before it `runs`."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.runs.wait()


async def test_a_turn_that_fails_hands_back_what_it_did_not_take_in_and_the_next_one_runs(desk: Desk) -> None:
    failing, clock = [say("so"), pause(0.2), fail(ModelError("gone", code="provider.transport"))], HeldClock()
    await desk.open(ScriptedModel([failing, "fine"], clock=clock))
    await desk.post("one")
    await desk.seen("token")
    await desk.post("two")
    await desk.post("hurry", "steer")
    clock.runs.set()
    assert told(await desk.seen("final")) == [
        "turn_started one",
        "queued two",
        "queued hurry",
        "error provider.transport",
        "handed_back hurry",
        "turn_started two",
        "final fine",
    ]


async def test_the_same_client_turn_id_tells_what_became_of_the_message_in_any_mode(desk: Desk) -> None:
    await desk.open(ScriptedModel([call("note", {"text": "x"}), "one done", "two done", [say("so"), hang()]]))
    first = await desk.post("one", "reject", client_turn_id="c1")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    queued, again = await asyncio.gather(*(desk.post("two", client_turn_id="c2") for _ in range(2)))
    steered = await desk.post("so", "steer", client_turn_id="c3")

    async def all_modes(text: str, client_turn_id: str) -> set[tuple[str, str, str | None]]:
        modes = ("reject", "queue", "steer", "interrupt")
        answers = [await desk.post(text, mode, client_turn_id=client_turn_id) for mode in modes]
        return {(answer.state, answer.turn.id, answer.message_id) for answer in answers}

    assert await all_modes("one", "c1") == {("started", first.turn.id, None)}
    assert await all_modes("two", "c2") == {("queued", queued.turn.id, queued.message_id)}
    assert (again.turn.id, again.message_id) == (queued.turn.id, queued.message_id)
    assert await all_modes("so", "c3") == {("steered", first.turn.id, steered.message_id)}
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await desk.seen("final", 2)
    assert told(events)[4:] == ["tool_result ok", "steered so", "final one done", "turn_started two", "final two done"]
    assert await all_modes("two", "c2") == {("started", queued.turn.id, queued.message_id)}
    assert await all_modes("so", "c3") == {("steered", first.turn.id, steered.message_id)}
    begun = next(event for event in events if event["data"].get("client_turn_id") == "c2" and event["turn_id"])
    assert (await desk.post("two", client_turn_id="c2")).after_seq == begun["seq"] - 1

    await desk.post("three")
    back = await desk.post("four", client_turn_id="c4")
    await desk.hub.stop(desk.record.id)
    await desk.seen("handed_back")
    assert await all_modes("four", "c4") == {("handed_back", back.turn.id, back.message_id)}
    for used in ("c1", "c2", "c3", "c4"):
        for mode in ("reject", "queue", "steer", "interrupt"):
            with pytest.raises(TurnConflict, match=used):
                await desk.post("other", mode, client_turn_id=used)
    with pytest.raises(TurnConflict, match="c2"):
        await desk.post("two", client_turn_id="c2", attachments=(PNG,))


async def test_no_more_than_a_hundred_messages_wait(desk: Desk) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()]]))
    await desk.post("one")
    for number in range(100):
        await desk.post(str(number))
    before = await desk.store.last_seq(desk.record.id)
    for mode in ("queue", "steer", "interrupt"):
        with pytest.raises(SessionBusy, match="100 messages wait"):
            await desk.post("too much", mode)
    assert await desk.store.last_seq(desk.record.id) == before


async def test_a_deleted_session_takes_what_waits_with_it(desk: Desk) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()]]))
    await desk.post("one")
    await desk.post("two")
    await desk.hub.delete(desk.record.id)
    with pytest.raises(SessionNotFound):
        await desk.post("three")
    assert await desk.store.open_journal_entries("posted", "taken") == []


@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
async def test_deleting_a_session_while_messages_come_in_is_nothing_to_log_an_error_of(
    desk: Desk, when_busy: str, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()], *["yes"] * 10]))
    await desk.post("one")
    await desk.seen("token")
    posting = [asyncio.create_task(desk.post(str(number), when_busy)) for number in range(5)]
    await asyncio.sleep(0)
    await desk.hub.delete(desk.record.id)
    for told in await asyncio.gather(*posting, return_exceptions=True):
        assert isinstance(told, (Posted, SessionNotFound))
    await desk.hub.close()
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [
        one for one in logged if "ignores cancellation" not in one
    ] == []  # that the machine stood still is no error


async def test_a_message_whose_model_is_gone_is_handed_back_and_the_next_one_runs(desk: Desk) -> None:
    await desk.open(ScriptedModel([call("note", {"text": "x"}), "one done", "three done"]))
    desk.models["other"] = ScriptedModel([])
    await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    await desk.post("two", model="other")
    await desk.post("three")

    def refuse(name: str | None) -> ScriptedModel:
        if name == "other":
            raise StoreError("no such model")
        return desk.models[name]

    desk.hub._models = refuse  # pyright: ignore[reportPrivateUsage]
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    assert told(await desk.seen("final", 2))[-4:] == [
        "final one done",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]


# --- the end of a process ---------------------------------------------------------------------------------------------


async def test_a_clean_end_hands_back_what_waits_for_a_turn_that_it_stops(desk: Desk) -> None:
    await desk.open(ScriptedModel([[say("so"), hang()]]))
    await desk.post("one")
    await desk.post("two")
    await desk.post("three", "steer")
    await desk.hub.close()
    events = await desk.seen("handed_back", 2)
    assert told(events) == [
        "turn_started one",
        "queued two",
        "queued three",
        "error stopped",
        "handed_back two",
        "handed_back three",
    ]
    with pytest.raises(HubClosed):
        await desk.post("four")


async def test_what_waits_for_a_turn_that_waits_for_a_person_does_so_after_a_restart(tmp_path: Path) -> None:
    desk = Desk(tmp_path, SqliteStore(tmp_path / "sessions.db"))
    await desk.open(ScriptedModel([call("note", {"text": "x"})]))
    first = await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    posted = [await desk.post("two", client_turn_id="c2"), await desk.post("so", "steer", client_turn_id="c3")]
    await desk.hub.close()
    before = await desk.store.last_seq(desk.record.id)
    await desk.store.aclose()

    desk.store = SqliteStore(tmp_path / "sessions.db")
    await desk.open(ScriptedModel(["one done", "two done"]))
    assert await desk.store.last_seq(desk.record.id) == before
    again = [await desk.post("two", client_turn_id="c2"), await desk.post("so", "steer", client_turn_id="c3")]
    assert [(one.state, one.turn.id, one.message_id) for one in again] == [
        ("queued", posted[0].turn.id, posted[0].message_id),
        ("steered", first.turn.id, posted[1].message_id),
    ]
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    assert told(await desk.seen("final", 2)) == [
        "turn_started one",
        "confirm_required",
        "queued two",
        "queued so",
        "tool_result ok",
        "steered so",
        "final one done",
        "turn_started two",
        "final two done",
    ]
    await desk.hub.close()
    await desk.store.aclose()


class StoreThatTarries(MemoryStore):
    """Lets whoever stored the end of a turn wait, while everybody else sees it already."""

    def __init__(self) -> None:
        super().__init__()
        self.ended, self.on = asyncio.Event(), asyncio.Event()

    async def append(self, session_id: str, turn_id: str | None, *rest: Any, **more: Any) -> Sequence[StoredEvent]:
        stored = await super().append(session_id, turn_id, *rest, **more)
        if stored[-1].terminal:
            self.ended.set()
            await self.on.wait()
        return stored


async def test_nothing_overtakes_what_waits_in_the_moment_when_a_turn_ends(tmp_path: Path) -> None:
    store = StoreThatTarries()
    desk = Desk(tmp_path, store)
    await desk.open(ScriptedModel([[say("so"), hang()], "two done", "three done"]))
    await desk.post("one")
    two = asyncio.create_task(desk.post("two", "interrupt"))
    await store.ended.wait()
    later = [asyncio.create_task(desk.post("three")), asyncio.create_task(desk.post("four", "reject"))]
    for _ in range(100):
        await asyncio.sleep(0)
    store.on.set()
    with pytest.raises(SessionBusy):
        await later[1]
    assert [(await posted).state for posted in (two, later[0])] == ["started", "queued"]
    assert [line for line in told(await desk.seen("final", 2)) if not line.startswith("queued")] == [
        "turn_started one",
        "error stopped",
        "turn_started two",
        "final two done",
        "turn_started three",
        "final three done",
    ]
    await desk.hub.close()


class StoreThatBreaks(MemoryStore):
    """Refuses everything that is written while it is `broken`."""

    broken = False

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Any,
        *,
        expected_seq: int,
        **beside: Any,
    ) -> Sequence[StoredEvent]:
        self._check()
        return await super().append(session_id, turn_id, events, expected_seq=expected_seq, **beside)

    async def add_journal_entry(self, entry: JournalEntry) -> JournalEntry:
        self._check()
        return await super().add_journal_entry(entry)

    def _check(self) -> None:
        if self.broken:
            raise StoreError("disk full")


@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
async def test_a_message_that_cannot_be_stored_is_refused_and_leaves_no_trace(tmp_path: Path, when_busy: str) -> None:
    store = StoreThatBreaks()
    desk = Desk(tmp_path, store)
    await desk.open(ScriptedModel([[say("so"), hang()]]))
    await desk.post("one")
    await desk.seen("token")
    store.broken = True
    with pytest.raises(StoreError, match="disk full"):
        await desk.post("two", when_busy, client_turn_id="c2")
    store.broken = False
    again = await desk.post("two", client_turn_id="c2")
    assert again.state == "queued"
    await desk.hub.close()
    assert told(await desk.seen("handed_back")) == [
        "turn_started one",
        "queued two",
        "error stopped",
        "handed_back two",
    ]


async def test_what_waits_outlasts_a_storage_failure_and_is_handed_back(tmp_path: Path) -> None:
    store = StoreThatBreaks()
    desk = Desk(tmp_path, store)
    await desk.open(ScriptedModel([[say("so"), hang()], "three done"]))
    await desk.post("one")
    await desk.seen("token")
    await desk.post("two")
    store.broken = True
    await desk.hub.stop(desk.record.id)
    while desk.hub.running_turn(desk.record.id):
        await asyncio.sleep(0.01)
    store.broken = False
    posted = await desk.post("three")
    assert posted.state == "started"
    assert told(await desk.seen("final"))[-4:] == [
        "error storage",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]
    await desk.hub.close()


async def test_the_model_never_hears_what_was_not_stored(tmp_path: Path) -> None:
    store = StoreThatBreaks()
    desk = Desk(tmp_path, store)
    model = ScriptedModel([call("note", {"text": "x"}), *["yes"] * 3])
    await desk.open(model)
    await desk.post("one")
    asked = (await desk.seen("confirm_required"))[-1]["data"]
    await desk.post("two", "steer")
    store.broken = True
    desk.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    while desk.hub.running_turn(desk.record.id):
        await asyncio.sleep(0.01)
    with pytest.raises(StoreError):
        await desk.post("lost", "reject")
    store.broken = False
    await desk.post("three")
    assert told(await desk.seen("final"))[-4:] == [
        "error storage",
        "handed_back two",
        "turn_started three",
        "final yes",
    ]
    said = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert said == ["one", "three"]
    await desk.hub.close()


async def test_a_turn_that_could_not_begin_is_not_heard_of_by_the_next(tmp_path: Path) -> None:
    store = StoreThatBreaks()
    desk = Desk(tmp_path, store)
    model = ScriptedModel(["yes"] * 4)
    await desk.open(model)
    store.broken = True
    with pytest.raises(StoreError, match="disk full"):
        await desk.post("lost")
    store.broken = False
    for text in ("one", "three"):
        await desk.post(text)
    assert told(await desk.seen("final", 2))[-2:] == ["turn_started three", "final yes"]
    said = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert said == ["one", "three"]
    await desk.hub.close()
