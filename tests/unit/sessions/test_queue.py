"""Messages for a busy session: queued, steered or handed back, and never lost."""

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
    SessionRecord,
    SqliteStore,
    Store,
    StoredEvent,
    Submission,
    TurnConflict,
    TurnRequest,
    transcript,
)
from agenticx.sessions.hub.message_queue import QueuedMessage
from agenticx.settings import load_settings
from agenticx.testing import check_grammar
from agenticx.tools.registry import tool
from tests.support.patience import PATIENCE, PatientClock
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


class QueueHarness:
    """One session of a hub, and what is in its log."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.store = store
        self.record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        self._settings = load_settings({"home": folder / "home"}, environ={})
        self.models: dict[str | None, ScriptedModel] = {}

    async def open(self, model: ScriptedModel) -> Hub:
        """Return a hub that runs the session with `model`, as a new process would make it."""
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

    async def submit(self, text: str, when_busy: Any = "queue", **fields: Any) -> Submission:
        return await self.hub.submit(self.record.id, TurnRequest(input=text, when_busy=when_busy, **fields))

    async def wait_until(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Return the session's envelopes once they are `done`; they must follow the grammar."""
        wakeup = asyncio.Event()
        with self.store.subscribe(self.record.id, wakeup):
            while True:
                wakeup.clear()
                events = [json.loads(event.frame_json) for event in await self.store.read(self.record.id, 0, 10_000)]
                if done(events):
                    check_grammar(events, complete=False)
                    return events
                await asyncio.wait_for(wakeup.wait(), PATIENCE)

    async def wait_for(self, type_: str, times: int = 1) -> list[dict[str, Any]]:
        return await self.wait_until(lambda events: sum(event["type"] == type_ for event in events) >= times)

    async def transcript(self) -> list[str]:
        events = await self.store.read(self.record.id, 0, 10_000)
        return [f"{message['role']}: {message['content']}" for message in transcript(events)]


@pytest.fixture(params=["memory", "sqlite"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    harness = QueueHarness(tmp_path, store)
    yield harness
    await harness.hub.close()
    await harness.store.aclose()


def outline_of(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the events other than those of the model and of state: `turn_started one`, `queued two`, `final`, …"""
    wanted = {"turn_started": "input", "queued": "input", "handed_back": "input", "steered": "text", "error": "code"}
    wanted |= {"final": "text", "tool_result": "outcome", "confirm_required": "question"}
    lines = [f"{event['type']} {event['data'][wanted[event['type']]]}" for event in events if event["type"] in wanted]
    return ["confirm_required" if line.startswith("confirm") else line for line in lines]


async def test_queued_messages_run_in_order_each_as_the_message_that_was_announced(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "one done", "two done", "three done"]))
    first = await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    queued = [await harness.submit("two", client_turn_id="c2"), await harness.submit("three", attachments=(PNG,))]
    assert [posted.state for posted in (first, *queued)] == ["started", "queued", "queued"]
    assert [posted.after_seq for posted in queued] == [
        await harness.store.last_seq(harness.record.id) - 1 + n for n in (0, 1)
    ]
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await harness.wait_for("final", 3)
    assert outline_of(events) == [
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
    kept = [entry for event in begun for entry in await harness.store.turn_journal(harness.record.id, event["turn_id"])]
    assert [entry.kind for entry in kept] == ["taken", "taken"]  # their attachments are only in the log
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
    sent = [message for message in harness.models[None].requests[-1].messages if isinstance(message, UserMessage)]
    assert [(message.content, message.attachments) for message in sent] == [("one", ()), ("two", ()), ("three", (PNG,))]
    assert await harness.transcript() == [
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
async def test_a_free_session_begins_a_turn_in_any_mode(harness: QueueHarness, when_busy: str) -> None:
    await harness.open(ScriptedModel(["yes"]))
    posted = await harness.submit("go", when_busy)
    assert (posted.state, posted.after_seq, posted.message_id) == ("started", 0, None)
    assert outline_of(await harness.wait_for("final")) == ["turn_started go", "final yes"]


async def test_a_steered_message_follows_the_results_of_the_running_round(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "as you say"]))
    first = await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    steered = await harness.submit("rather so", "steer", attachments=(PNG,))
    assert (steered.state, steered.turn.id) == ("steered", first.turn.id)
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await harness.wait_for("final")
    assert outline_of(events) == [
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
    assert harness.models[None].requests[1].messages[-1].content == "rather so"
    assert await harness.transcript() == [
        "user: one",
        "assistant: ",
        "tool: noted x",
        "user: rather so",
        "assistant: as you say",
    ]


async def test_an_interrupt_ends_the_running_turn_and_runs_before_other_queued_messages(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()], "instead", "later"]))
    await harness.submit("one")
    await harness.submit("two")
    posted = await harness.submit("three", "interrupt")
    events = await harness.wait_for("final", 2)
    assert outline_of(events) == [
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


async def test_a_steered_message_has_an_event_when_accepted_and_another_when_taken_in(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "as you say"]))
    first = await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    steered = await harness.submit("rather so", "steer", client_turn_id="c2", attachments=(PNG,))
    queued = (await harness.wait_for("queued"))[-1]
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
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await harness.wait_for("final")
    ours = [event for event in events if event["data"].get("message_id") == steered.message_id]
    assert [(event["type"], event["turn_id"]) for event in ours] == [("queued", None), ("steered", first.turn.id)]
    assert (await harness.transcript()).count("user: rather so") == 1


async def test_simultaneous_interrupts_begin_in_order_each_stopped_for_the_next(
    harness: QueueHarness,
) -> None:
    model = ScriptedModel([[say("so"), hang()], "the last word", "later"])
    await harness.open(model)
    await harness.submit("one")
    await harness.wait_for("token")
    await harness.submit("two")
    posted = await asyncio.gather(*(harness.submit(text, "interrupt") for text in ("A", "B", "C")))
    events = await harness.wait_for("final", 2)
    assert [line for line in outline_of(events) if not line.startswith("queued")] == [
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
    sent = [message.content for message in model.requests[1].messages if isinstance(message, UserMessage)]
    assert sent == ["one", "A", "B", "C"], "the model is not called for superseded messages"


async def test_interrupts_keep_their_order_over_a_restart_and_end_the_resumed_turn(tmp_path: Path) -> None:
    harness = QueueHarness(tmp_path, SqliteStore(tmp_path / "sessions.db"))
    await harness.open(ScriptedModel([call("note", {"text": "x"})]))
    first = await harness.submit("one")
    await harness.wait_for("confirm_required")
    await harness.submit("two")
    for name in ("A", "B"):  # accepted, and then the process dies before it has stopped the turn
        request = TurnRequest(input=name, when_busy="interrupt")
        entry = QueuedMessage.from_request(harness.record.id, request).to_journal_entry()
        await harness.store.add_journal_entry(entry)
    await harness.hub.close()
    await harness.store.aclose()

    harness.store = SqliteStore(tmp_path / "sessions.db")
    await harness.open(ScriptedModel(["B done", "two done"]))
    events = await harness.wait_for("final", 2)
    assert first.turn.id == events[0]["turn_id"]
    assert [line for line in outline_of(events) if line.split()[0] in ("turn_started", "error", "final")] == [
        "turn_started one",
        "error stopped",
        "turn_started A",
        "error stopped",
        "turn_started B",
        "final B done",
        "turn_started two",
        "final two done",
    ]
    await harness.hub.close()
    await harness.store.aclose()


async def test_a_stop_hands_back_all_queued_messages_and_a_later_one_runs(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()], "next"]))
    first = await harness.submit("one")
    posted = [await harness.submit("two", attachments=(PNG,)), await harness.submit("three", "steer")]
    await harness.hub.stop(harness.record.id)
    after = await harness.submit("four")
    events = await harness.wait_for("final")
    assert [line for line in outline_of(events) if line != "queued four"] == [
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
    assert await harness.transcript() == ["user: one", "assistant: so", "user: four", "assistant: next"]


class HeldClock(SystemClock):
    """A clock whose pauses do not end before `runs` is set."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.runs.wait()


async def test_a_failed_turn_hands_back_untaken_messages_and_the_next_one_runs(harness: QueueHarness) -> None:
    failing, clock = [say("so"), pause(0.2), fail(ModelError("gone", code="provider.transport"))], HeldClock()
    await harness.open(ScriptedModel([failing, "fine"], clock=clock))
    await harness.submit("one")
    await harness.wait_for("token")
    await harness.submit("two")
    await harness.submit("hurry", "steer")
    clock.runs.set()
    assert outline_of(await harness.wait_for("final")) == [
        "turn_started one",
        "queued two",
        "queued hurry",
        "error provider.transport",
        "handed_back hurry",
        "turn_started two",
        "final fine",
    ]


async def test_a_repeated_client_turn_id_returns_the_state_of_the_message_in_any_mode(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "one done", "two done", [say("so"), hang()]]))
    first = await harness.submit("one", "reject", client_turn_id="c1")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    queued, again = await asyncio.gather(*(harness.submit("two", client_turn_id="c2") for _ in range(2)))
    steered = await harness.submit("so", "steer", client_turn_id="c3")

    async def all_modes(text: str, client_turn_id: str) -> set[tuple[str, str, str | None]]:
        modes = ("reject", "queue", "steer", "interrupt")
        answers = [await harness.submit(text, mode, client_turn_id=client_turn_id) for mode in modes]
        return {(answer.state, answer.turn.id, answer.message_id) for answer in answers}

    assert await all_modes("one", "c1") == {("started", first.turn.id, None)}
    assert await all_modes("two", "c2") == {("queued", queued.turn.id, queued.message_id)}
    assert (again.turn.id, again.message_id) == (queued.turn.id, queued.message_id)
    assert await all_modes("so", "c3") == {("steered", first.turn.id, steered.message_id)}
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await harness.wait_for("final", 2)
    assert outline_of(events)[4:] == [
        "tool_result ok",
        "steered so",
        "final one done",
        "turn_started two",
        "final two done",
    ]
    assert await all_modes("two", "c2") == {("started", queued.turn.id, queued.message_id)}
    assert await all_modes("so", "c3") == {("steered", first.turn.id, steered.message_id)}
    begun = next(event for event in events if event["data"].get("client_turn_id") == "c2" and event["turn_id"])
    assert (await harness.submit("two", client_turn_id="c2")).after_seq == begun["seq"] - 1

    await harness.submit("three")
    back = await harness.submit("four", client_turn_id="c4")
    await harness.hub.stop(harness.record.id)
    await harness.wait_for("handed_back")
    assert await all_modes("four", "c4") == {("handed_back", back.turn.id, back.message_id)}
    for used in ("c1", "c2", "c3", "c4"):
        for mode in ("reject", "queue", "steer", "interrupt"):
            with pytest.raises(TurnConflict, match=used):
                await harness.submit("other", mode, client_turn_id=used)
    with pytest.raises(TurnConflict, match="c2"):
        await harness.submit("two", client_turn_id="c2", attachments=(PNG,))


async def test_no_more_than_a_hundred_messages_are_queued(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    for number in range(100):
        await harness.submit(str(number))
    before = await harness.store.last_seq(harness.record.id)
    for mode in ("queue", "steer", "interrupt"):
        with pytest.raises(SessionBusy, match="100 messages are queued"):
            await harness.submit("too much", mode)
    assert await harness.store.last_seq(harness.record.id) == before


async def test_deleting_a_session_drops_its_queued_messages(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    await harness.submit("two")
    await harness.hub.delete(harness.record.id)
    with pytest.raises(SessionNotFound):
        await harness.submit("three")
    assert await harness.store.open_journal_entries("posted", "taken") == []


@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
async def test_deleting_a_session_while_messages_arrive_logs_no_error(
    harness: QueueHarness, when_busy: str, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()], *["yes"] * 10]))
    await harness.submit("one")
    await harness.wait_for("token")
    posting = [asyncio.create_task(harness.submit(str(number), when_busy)) for number in range(5)]
    await asyncio.sleep(0)
    await harness.hub.delete(harness.record.id)
    for result in await asyncio.gather(*posting, return_exceptions=True):
        assert isinstance(result, (Submission, SessionNotFound))
    await harness.hub.close()
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [one for one in logged if "ignores cancellation" not in one] == []  # a slow machine is no error


async def test_a_message_whose_model_is_unknown_is_handed_back_and_the_next_one_runs(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "one done", "three done"]))
    harness.models["other"] = ScriptedModel([])
    await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    await harness.submit("two", model="other")
    await harness.submit("three")

    def refuse(name: str | None) -> ScriptedModel:
        if name == "other":
            raise StoreError("no such model")
        return harness.models[name]

    harness.hub._models = refuse  # pyright: ignore[reportPrivateUsage]
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    assert outline_of(await harness.wait_for("final", 2))[-4:] == [
        "final one done",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]


# --- the end of a process ---------------------------------------------------------------------------------------------


async def test_closing_hands_back_messages_queued_behind_a_turn_that_it_stops(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    await harness.submit("two")
    await harness.submit("three", "steer")
    await harness.hub.close()
    events = await harness.wait_for("handed_back", 2)
    assert outline_of(events) == [
        "turn_started one",
        "queued two",
        "queued three",
        "error stopped",
        "handed_back two",
        "handed_back three",
    ]
    with pytest.raises(HubClosed):
        await harness.submit("four")


async def test_messages_behind_a_turn_that_waits_for_a_confirmation_stay_queued_over_a_restart(tmp_path: Path) -> None:
    harness = QueueHarness(tmp_path, SqliteStore(tmp_path / "sessions.db"))
    await harness.open(ScriptedModel([call("note", {"text": "x"})]))
    first = await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    posted = [
        await harness.submit("two", client_turn_id="c2"),
        await harness.submit("so", "steer", client_turn_id="c3"),
    ]
    await harness.hub.close()
    before = await harness.store.last_seq(harness.record.id)
    await harness.store.aclose()

    harness.store = SqliteStore(tmp_path / "sessions.db")
    await harness.open(ScriptedModel(["one done", "two done"]))
    assert await harness.store.last_seq(harness.record.id) == before
    again = [await harness.submit("two", client_turn_id="c2"), await harness.submit("so", "steer", client_turn_id="c3")]
    assert [(one.state, one.turn.id, one.message_id) for one in again] == [
        ("queued", posted[0].turn.id, posted[0].message_id),
        ("steered", first.turn.id, posted[1].message_id),
    ]
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    assert outline_of(await harness.wait_for("final", 2)) == [
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
    await harness.hub.close()
    await harness.store.aclose()


class SlowFinishStore(MemoryStore):
    """A store that delays the caller that stored the end of a turn, while all others see the end already."""

    def __init__(self) -> None:
        super().__init__()
        self.ended, self.on = asyncio.Event(), asyncio.Event()

    async def append(self, session_id: str, turn_id: str | None, *rest: Any, **more: Any) -> Sequence[StoredEvent]:
        stored = await super().append(session_id, turn_id, *rest, **more)
        if stored[-1].terminal:
            self.ended.set()
            await self.on.wait()
        return stored


async def test_no_message_overtakes_queued_ones_at_the_moment_when_a_turn_ends(tmp_path: Path) -> None:
    store = SlowFinishStore()
    harness = QueueHarness(tmp_path, store)
    await harness.open(ScriptedModel([[say("so"), hang()], "two done", "three done"]))
    await harness.submit("one")
    two = asyncio.create_task(harness.submit("two", "interrupt"))
    await store.ended.wait()
    later = [asyncio.create_task(harness.submit("three")), asyncio.create_task(harness.submit("four", "reject"))]
    for _ in range(100):
        await asyncio.sleep(0)
    store.on.set()
    with pytest.raises(SessionBusy):
        await later[1]
    assert [(await posted).state for posted in (two, later[0])] == ["started", "queued"]
    assert [line for line in outline_of(await harness.wait_for("final", 2)) if not line.startswith("queued")] == [
        "turn_started one",
        "error stopped",
        "turn_started two",
        "final two done",
        "turn_started three",
        "final three done",
    ]
    await harness.hub.close()


class BreakableStore(MemoryStore):
    """A store that refuses every write while it is `broken`."""

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
    store = BreakableStore()
    harness = QueueHarness(tmp_path, store)
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    await harness.wait_for("token")
    store.broken = True
    with pytest.raises(StoreError, match="disk full"):
        await harness.submit("two", when_busy, client_turn_id="c2")
    store.broken = False
    again = await harness.submit("two", client_turn_id="c2")
    assert again.state == "queued"
    await harness.hub.close()
    assert outline_of(await harness.wait_for("handed_back")) == [
        "turn_started one",
        "queued two",
        "error stopped",
        "handed_back two",
    ]


async def test_queued_messages_survive_a_storage_failure_and_are_handed_back(tmp_path: Path) -> None:
    store = BreakableStore()
    harness = QueueHarness(tmp_path, store)
    await harness.open(ScriptedModel([[say("so"), hang()], "three done"]))
    await harness.submit("one")
    await harness.wait_for("token")
    await harness.submit("two")
    store.broken = True
    await harness.hub.stop(harness.record.id)
    while harness.hub.running_turn_id(harness.record.id):
        await asyncio.sleep(0.01)
    store.broken = False
    posted = await harness.submit("three")
    assert posted.state == "started"
    assert outline_of(await harness.wait_for("final"))[-4:] == [
        "error storage",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]
    await harness.hub.close()


async def test_the_model_is_never_sent_a_message_that_was_not_stored(tmp_path: Path) -> None:
    store = BreakableStore()
    harness = QueueHarness(tmp_path, store)
    model = ScriptedModel([call("note", {"text": "x"}), *["yes"] * 3])
    await harness.open(model)
    await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    await harness.submit("two", "steer")
    store.broken = True
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    while harness.hub.running_turn_id(harness.record.id):
        await asyncio.sleep(0.01)
    with pytest.raises(StoreError):
        await harness.submit("lost", "reject")
    store.broken = False
    await harness.submit("three")
    assert outline_of(await harness.wait_for("final"))[-4:] == [
        "error storage",
        "handed_back two",
        "turn_started three",
        "final yes",
    ]
    sent = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert sent == ["one", "three"]
    await harness.hub.close()


async def test_the_input_of_a_turn_that_could_not_begin_is_not_sent_with_the_next(tmp_path: Path) -> None:
    store = BreakableStore()
    harness = QueueHarness(tmp_path, store)
    model = ScriptedModel(["yes"] * 4)
    await harness.open(model)
    store.broken = True
    with pytest.raises(StoreError, match="disk full"):
        await harness.submit("lost")
    store.broken = False
    for text in ("one", "three"):
        await harness.submit(text)
    assert outline_of(await harness.wait_for("final", 2))[-2:] == ["turn_started three", "final yes"]
    sent = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert sent == ["one", "three"]
    await harness.hub.close()
