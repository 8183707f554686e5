"""One confirmation has one answer, also if a stop or the end of the program comes at the same moment."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.messages import ToolMessage
from agenticx.runtime import ConfirmAnswer, ConfirmClosed, ConfirmRequest
from agenticx.sessions import Hub, SqliteStore, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call
from tests.support.intercepted_store import InterceptedStore, StoreCall
from tests.support.sessions import SessionHarness, wait_for_event, wait_for_turn_end
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2", "E3")]

YES, NO = ConfirmAnswer(approved=True), ConfirmAnswer(approved=False)


def answering(hub: Hub, confirm: ConfirmRequest, answer: ConfirmAnswer = YES) -> asyncio.Task[ConfirmAnswer]:
    return asyncio.create_task(hub.answer(confirm.id, answer, digest=confirm.digest))


async def decided(hub: Hub, confirm: ConfirmRequest) -> None:
    """Return in the very step in which the gate has an answer, before the turn has received it."""
    async with asyncio.timeout(PATIENCE):
        while hub.gate.decided(confirm.id) is None:
            await asyncio.sleep(0)


async def test_an_answer_at_the_moment_of_a_stop_is_the_one_in_the_log(harness: SessionHarness) -> None:
    hub, confirm = await harness.open_with_confirmation()
    giving = answering(hub, confirm)
    await decided(hub, confirm)
    await hub.stop(harness.session_id)
    assert await giving == YES
    assert await harness.responses() == [(True, "user")]
    assert await hub.answer(confirm.id, YES, digest=confirm.digest) == YES
    await harness.close(hub)


@pytest.mark.keeps_owner("the hub that owns the confirmation must begin to close in the very step of the answer")
@pytest.mark.parametrize("when", ["before", "at the same time", "after"])
async def test_an_answer_while_the_program_ends_is_accepted_and_the_call_runs_after_the_next_start(
    harness: SessionHarness, when: str
) -> None:
    hub, confirm = await harness.open_with_confirmation()
    steps: dict[str, Callable[[], Any]] = {
        "before": lambda: asyncio.gather(answering(hub, confirm), hub.close()),
        "at the same time": lambda: asyncio.gather(hub.close(), answering(hub, confirm)),
        "after": lambda: None,
    }
    if (both := steps[when]()) is not None:
        await both
    await hub.close()
    assert [one.id for one in await hub.open_requests()] == ([confirm.id] if when == "after" else [])
    assert await hub.answer(confirm.id, YES, digest=confirm.digest) == YES
    with pytest.raises(ConfirmClosed):
        await hub.answer(confirm.id, NO, digest=confirm.digest)
    await harness.store.aclose()
    hub = await harness.open("done")
    assert await harness.responses() == [(True, "user")]
    assert harness.noted_texts == ["x"]
    await harness.close(hub)


async def test_an_answer_that_the_gate_had_when_the_program_ended_is_in_the_log(harness: SessionHarness) -> None:
    hub, confirm = await harness.open_with_confirmation()
    giving = answering(hub, confirm)
    await decided(hub, confirm)
    await hub.close()
    assert await giving == YES
    assert await harness.responses() == [(True, "user")]
    await harness.store.aclose()


async def test_a_record_change_during_a_suspended_turn_does_not_store_its_cancelled_call(
    harness: SessionHarness,
) -> None:
    hub, confirm = await harness.open_with_confirmation()
    await hub.close()
    await hub.change(harness.session_id, {"pinned": True})
    await harness.store.aclose()
    hub = await harness.open("done")
    await hub.answer(confirm.id, YES, digest=confirm.digest)
    await wait_for_turn_end(harness.store, harness.session_id)
    (request,) = harness.model.requests
    results = [message.content for message in request.messages if isinstance(message, ToolMessage)]
    assert results == ["noted x"]
    await harness.close(hub)


async def test_a_resumed_turn_announces_the_name_that_it_gave(harness: SessionHarness) -> None:
    hub, confirm = await harness.open_with_confirmation()
    await harness.close(hub)
    hub = await harness.open("done")
    await hub.answer(confirm.id, YES, digest=confirm.digest)
    assert await wait_for_event(harness.store, harness.session_id, "session_changed") == {"name": "Note something"}
    await harness.close(hub)


@pytest.mark.keeps_owner("another owner of the session would go on with the turn")
async def test_a_confirmation_outlives_ends_of_the_program_right_after_its_starts(
    harness: SessionHarness, caplog: pytest.LogCaptureFixture
) -> None:
    hub, confirm = await harness.open_with_confirmation()
    caplog.set_level(logging.INFO, logger="agenticx")
    for _ in range(3):
        await hub.close()
        await harness.store.aclose()
        hub = await harness.open("done")
    assert "approved=" not in caplog.text
    assert "outcome=" not in caplog.text
    assert set(re.findall(r"reason=\S+", caplog.text)) == {"reason='suspended'"}
    assert await hub.answer(confirm.id, YES, digest=confirm.digest) == YES
    assert await harness.responses() == [(True, "user")]
    assert harness.noted_texts == ["x"]
    await harness.close(hub)


@pytest.mark.keeps_owner("another owner of the session would go on with the turn")
async def test_a_turn_that_asks_again_is_logged_as_suspended_at_the_end_of_the_program(
    harness: SessionHarness, caplog: pytest.LogCaptureFixture
) -> None:
    hub, confirm = await harness.open_with_confirmation()
    await hub.close()
    await harness.store.aclose()
    hub = await harness.open("done")
    async with asyncio.timeout(PATIENCE):
        while not hub.gate.pending(harness.session_id):
            await asyncio.sleep(0)
    caplog.set_level(logging.INFO, logger="agenticx")
    await harness.close(hub)
    assert [line.split()[0] for line in caplog.messages if "reason=" in line or "outcome=" in line] == ["turn"]
    assert "reason='suspended'" in caplog.text
    hub = await harness.open("done")
    await hub.answer(confirm.id, YES, digest=confirm.digest)
    assert await harness.responses() == [(True, "user")]
    await harness.close(hub)


@pytest.mark.keeps_owner("the hub that owns the confirmation closes before it expires")
async def test_a_confirmation_that_expires_after_a_restart_tells_the_time_since_it_was_asked(
    harness: SessionHarness,
) -> None:
    harness.settings["confirm_timeout_seconds"] = 0.2
    hub = await harness.open(call("note", {"text": "x"}), "done")
    await hub.start(harness.session_id, TurnRequest(input="Note something"))
    await wait_for_event(harness.store, harness.session_id, "confirm_required")
    await harness.close(hub)
    hub = await harness.open("done")
    events = [json.loads(one.frame_json) for one in await wait_for_turn_end(harness.store, harness.session_id)]
    (stall,) = [event["data"] for event in events if event["type"] == "stall"]
    assert 0.19 <= stall["elapsed_seconds"] < PATIENCE, stall  # the times of events are rounded
    await harness.close(hub)


async def test_an_answer_given_while_its_turn_is_being_resumed_counts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    harness = SessionHarness(tmp_path, lambda: store)
    hub, confirm = await harness.open_with_confirmation()
    await hub.close()
    is_resuming, given = False, list[asyncio.Task[ConfirmAnswer]]()

    async def answer_meanwhile(call: StoreCall) -> object:
        if call.name == "read" and is_resuming and not given:
            given.append(answering(hub, confirm))
            await asyncio.sleep(0.05)  # as from a slow disk
        return await call.run()

    slow = InterceptedStore(store, lambda write: write.make(), answer_meanwhile)
    settings = load_settings({"home": tmp_path}, environ={})
    model = ScriptedModel(["done"])
    hub = Hub(slow, models=lambda _: model, tools=lambda _: harness.tools, settings=settings)
    await hub.recover(resume_only=())
    is_resuming = True
    await hub.recover(resume_only=[harness.session_id])
    await asyncio.gather(*given)
    assert (await wait_for_turn_end(store, harness.session_id))[-1].type == "final"
    assert harness.noted_texts == ["x"]
    await hub.close()
    await store.aclose()
