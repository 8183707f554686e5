"""A message that steers a turn, as the process is killed while the turn is ahead of what is stored of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, Store, StoredEvent, TurnRequest, open_store
from agenticx.settings import Settings, load_settings
from agenticx.testing import call, hang
from tests.support.faults.killed_process import kill_this_process, run_until_killed
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.message_queue import note, outline_of
from tests.support.sessions import wait_for_event, wait_for_turn_end

pytestmark = pytest.mark.anyio

SESSION = "ses_1"
STEPS = 1_000
"""The steps of the event loop for which the turn goes on while its events wait for another commit."""


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


def hub_over(store: Store, folder: Path, model: ScriptedModel) -> Hub:
    return Hub(store, models=lambda _: model, tools=lambda _: [note], settings=settings_in(folder))


async def deny_and_run_ahead(folder: Path, is_answered: bool) -> None:
    """Deny a call while the session is being renamed; die once the denial is stored, and nothing behind it."""

    async def around(write: Write) -> Sequence[StoredEvent]:
        if "session_changed" in write.types:
            hub.gate.resolve(asked["id"], False, digest=asked["digest"])
            for _ in range(STEPS):
                await asyncio.sleep(0)
        stored = await write.make()
        if "confirm_response" in write.types:
            kill_this_process()
        return stored

    store = InterceptedStore(open_store(settings_in(folder)), around)
    await store.create(SessionRecord(id=SESSION, name="x", workspace=str(folder), created_at="2026-01-01"))
    hub = hub_over(store, folder, ScriptedModel([call("note", {"text": "x"}), "Yes." if is_answered else hang()]))
    await hub.recover()
    await hub.submit(SESSION, TurnRequest(input="one"))
    asked = await wait_for_event(store, SESSION, "confirm_required")
    await hub.submit(SESSION, TurnRequest(input="two", when_busy="steer"))
    await hub.change(SESSION, {"name": "y"})
    await wait_for_turn_end(store, SESSION)


@pytest.mark.promise("A3")
@pytest.mark.parametrize("is_answered", [False, True], ids=["before the next reply", "after it"])
async def test_a_turn_that_was_ahead_of_its_log_when_the_process_was_killed_takes_in_a_message_once(
    tmp_path: Path, is_answered: bool
) -> None:
    await run_until_killed(deny_and_run_ahead, tmp_path, is_answered)
    store, model = open_store(settings_in(tmp_path)), ScriptedModel(["Yes."] * 2)
    hub = hub_over(store, tmp_path, model)
    await hub.recover()
    log = [json.loads(event.frame_json) for event in await wait_for_turn_end(store, SESSION)]
    assert outline_of(log)[-3:] == ["tool_result denied", "steered two", "final Yes."]
    sent = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert sent == ["one", "two"]
    await hub.close()
    await store.aclose()
