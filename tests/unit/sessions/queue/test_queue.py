"""Tests of messages for a busy session: queued or steered, in order, and never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionBusy
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    SqliteStore,
    TurnConflict,
)
from agenticx.sessions.log.records import MessageTaken
from agenticx.sessions.store.base import find_fact
from agenticx.testing import call, hang, say
from tests.support.message_queue import QueueHarness, outline_of
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio


async def test_queued_messages_run_in_order_each_as_the_message_that_was_announced(harness: QueueHarness) -> None:
    await harness.open(ScriptedModel([call("note", {"text": "x"}), "one done", "two done", "three done"]))
    first = await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    queued = [await harness.submit("two", client_turn_id="c2"), await harness.submit("three", attachments=(PNG,))]
    assert [posted.state for posted in (first, *queued)] == ["started", "queued", "queued"]
    assert [posted.after_seq for posted in queued] == [
        await harness.store.log.head(harness.record.id) - 1 + n for n in (0, 1)
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
    await harness.hub.close()
    id_, log = harness.record.id, harness.store.log
    facts = [await find_fact(log, id_, MessageTaken, f"{id_} {key}") for key in ("c2", "c3")]
    assert PNG.data not in str(facts)  # the attachments of messages that were taken are only in the log
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
    before = await harness.store.log.head(harness.record.id)
    for mode in ("queue", "steer", "interrupt"):
        with pytest.raises(SessionBusy, match="100 messages are queued"):
            await harness.submit("too much", mode)
    assert await harness.store.log.head(harness.record.id) == before


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
    before = await harness.store.log.head(harness.record.id)
    await harness.store.aclose()

    harness.store = SqliteStore(tmp_path / "sessions.db")
    await harness.open(ScriptedModel(["one done", "two done"]))
    assert await harness.store.log.head(harness.record.id) == before
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
