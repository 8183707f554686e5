"""Tests of queued messages that are handed back or dropped: stop, failure, closing, deletion."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agenticx.clocks import SystemClock
from agenticx.errors import ModelError, SessionNotFound
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    HubClosed,
    Submission,
)
from agenticx.sessions.log.records import MessagePosted
from agenticx.sessions.store.base import find_fact
from agenticx.testing import call, fail, hang, pause, say
from tests.support.message_queue import QueueHarness, outline_of
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio


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


async def test_a_message_whose_model_is_unknown_is_handed_back_and_the_next_one_runs(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "one done", "three done"]))
    harness.models["other"] = ScriptedModel([])
    await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    await harness.submit("two", model="other")
    await harness.submit("three")

    harness.unknown_models.add("other")
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    assert outline_of(await harness.wait_for("final", 2))[-4:] == [
        "final one done",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]


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


@pytest.mark.loses_owner
async def test_deleting_a_session_drops_its_queued_messages(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    queued = await harness.submit("two")
    await harness.hub.delete(harness.record.id)
    with pytest.raises(SessionNotFound):
        await harness.submit("three")
    with pytest.raises(SessionNotFound):
        await find_fact(harness.store.log, harness.record.id, MessagePosted, queued.message_id or "")


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
