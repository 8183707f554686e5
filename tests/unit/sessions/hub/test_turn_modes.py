"""A turn with a permission mode of its own, which changes nothing about its session."""

from __future__ import annotations

import json

import pytest

from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import TurnRequest
from agenticx.testing import call
from tests.support.sessions import SessionHarness, wait_for_event, wait_for_turn_end

pytestmark = pytest.mark.anyio


async def test_a_turn_keeps_its_own_mode_while_it_is_queued_and_across_a_restart(harness: SessionHarness) -> None:
    hub = await harness.open(call("note", {"text": "asked"}))
    session_id = harness.session_id
    await hub.change(session_id, {"permission_mode": "auto"})
    await hub.start(session_id, TurnRequest(input="one", permission_mode="default"))
    await wait_for_event(harness.store, session_id, "confirm_required")
    await hub.submit(session_id, TurnRequest(input="two", when_busy="queue", permission_mode="plan"))
    await harness.close(hub)

    refused, allowed = call("note", {"text": "refused"}), call("note", {"text": "allowed"})
    hub = await harness.open("one done", refused, "two done", allowed, "three done")
    (question,) = await hub.open_requests(session_id)
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await wait_for_turn_end(harness.store, session_id, ends=2)
    assert harness.noted_texts == ["asked"]
    await hub.start(session_id, TurnRequest(input="three"))
    await wait_for_event(harness.store, session_id, "confirm_required", count=2)  # auto is not resumed in silence
    (question,) = await hub.open_requests(session_id)
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    events = await wait_for_turn_end(harness.store, session_id, ends=3)
    assert harness.noted_texts == ["asked", "allowed"]
    changes = [json.loads(event.frame_json)["data"] for event in events if event.type == "session_changed"]
    assert [change for change in changes if "permission_mode" in change] == [{"permission_mode": "auto"}]
    await harness.close(hub)
