"""Tests of queued messages in a store that refuses writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import Store
from agenticx.testing import call, hang, say
from tests.support.intercepted_store import FailingCommits
from tests.support.message_queue import QueueHarness, outline_of
from tests.support.timeouts import wait_until
from tests.support.two_hubs import end_lease, end_takeover

pytestmark = pytest.mark.anyio

NewStore = Callable[[], Store]


@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
async def test_a_message_that_cannot_be_stored_is_refused_and_leaves_no_trace(
    tmp_path: Path, new_store: NewStore, when_busy: str
) -> None:
    store = FailingCommits(new_store())
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


async def test_queued_messages_survive_a_storage_failure_and_are_handed_back(
    tmp_path: Path, new_store: NewStore
) -> None:
    store = FailingCommits(new_store())
    harness = QueueHarness(tmp_path, store)
    await harness.open(ScriptedModel([[say("so"), hang()], "three done"]))
    await harness.submit("one")
    await harness.wait_for("token")
    await harness.submit("two")
    store.broken = True
    await harness.hub.stop(harness.record.id)
    await wait_until(lambda: not harness.hub.running_turn_id(harness.record.id))
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


@pytest.mark.keeps_owner("the gate of this owner gets the answer, which is not stored")
async def test_the_model_is_never_sent_a_message_that_was_not_stored(tmp_path: Path, new_store: NewStore) -> None:
    store = FailingCommits(new_store())
    harness = QueueHarness(tmp_path, store)
    model = ScriptedModel([call("note", {"text": "x"}), *["yes"] * 3])
    await harness.open(model)
    await harness.submit("one")
    asked = (await harness.wait_for("confirm_required"))[-1]["data"]
    await harness.submit("two", "steer")
    store.broken = True
    harness.hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    await wait_until(lambda: not harness.hub.running_turn_id(harness.record.id))
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


async def test_the_input_of_a_turn_that_could_not_begin_is_not_sent_with_the_next(
    tmp_path: Path, new_store: NewStore
) -> None:
    store = FailingCommits(new_store())
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


async def test_a_session_whose_recovery_cannot_be_stored_is_recovered_by_its_next_operation(
    tmp_path: Path, new_store: NewStore
) -> None:
    working = new_store()
    harness = QueueHarness(tmp_path, working)
    await harness.open(ScriptedModel([[say("so"), hang()]]))
    await harness.submit("one")
    await harness.submit("two")
    await end_takeover(harness.hub)
    await end_lease(working, harness.record.id)

    store = harness.store = FailingCommits(working)
    store.broken = True
    await harness.open(ScriptedModel(["three done"]))
    with pytest.raises(StoreError, match="disk full"):
        await harness.submit("three")
    store.broken = False
    assert (await harness.submit("three")).state == "started"
    assert outline_of(await harness.wait_for("final"))[-4:] == [
        "error interrupted",
        "handed_back two",
        "turn_started three",
        "final three done",
    ]
    await harness.hub.close()
