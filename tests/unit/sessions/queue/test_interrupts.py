"""Tests of messages that interrupt the running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionBusy
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    MemoryStore,
    SqliteStore,
    StoredEvent,
    TurnRequest,
)
from agenticx.sessions.hub.queue import QueuedMessage
from agenticx.testing import call, hang, say
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.message_queue import QueueHarness, outline_of
from tests.support.two_hubs import TwoHubs

pytestmark = pytest.mark.anyio


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


async def test_simultaneous_interrupts_begin_in_order_each_stopped_for_the_next(
    harness: QueueHarness,
) -> None:
    model = ScriptedModel([[say("so"), hang()], "the last word", "later"])
    await harness.open(model)
    await harness.submit("one")
    await harness.wait_for("token")
    await harness.submit("two")
    requests = [TurnRequest(input=text, when_busy="interrupt") for text in ("A", "B", "C")]
    hubs = harness.hub.hubs if isinstance(harness.hub, TwoHubs) else [harness.hub]
    (hub,) = (hub for hub in hubs if hub.running_turn_id(harness.record.id))  # the other one would reorder them
    posted = await asyncio.gather(*(hub.submit(harness.record.id, request) for request in requests))
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
        fact = QueuedMessage.from_request(harness.record.id, request).to_fact()
        actor = await harness.hub._actors.open(harness.record.id)  # pyright: ignore[reportPrivateUsage]
        await actor.turns.write_fact(fact)
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


class SlowFinishStore(InterceptedStore):
    """A store that delays the caller that stored the end of a turn, while all others see the end already."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), self._commit)
        self.ended, self.on = asyncio.Event(), asyncio.Event()

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        stored = await write.make()
        if stored and stored[-1].terminal:
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
