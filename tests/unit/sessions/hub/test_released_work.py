"""The notice that a hub gives with a lease: whether the next owner has something to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, SqliteStore, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call
from tests.support.intercepted_store import InterceptedStore, StoreCall
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

WRITE = call("file_write", {"path": "a.txt", "content": "x"})


@pytest.mark.parametrize("ends", [True, False], ids=["a turn that ended", "a turn that waits for an answer"])
async def test_a_session_is_released_with_work_only_if_some_is_left(tmp_path: Path, ends: bool) -> None:
    released: list[bool] = []

    async def record(store_call: StoreCall) -> Any:
        if store_call.name == "release":
            released.append(store_call.keywords["work_left"])
        return await store_call.run()

    store = InterceptedStore(SqliteStore(tmp_path / "s.db"), lambda write: write.make(), record)
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, environ={})
    model = ScriptedModel(["done"] if ends else [WRITE])
    tools = builtin_tools()
    hub = Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings, clock=PatientClock())
    await hub.recover()
    session = await hub.create()
    await hub.start(session.id, TurnRequest(input="write"))
    if ends:
        await wait_for_turn_end(store, session.id)
        await wait_for_event(store, session.id, "session_changed")  # the name that the turn gave it
    else:
        await wait_for_event(store, session.id, "confirm_required")
        await hub.submit(session.id, TurnRequest(input="queued", when_busy="queue"))
    await hub.close()
    assert released == [not ends]
    assert [id_ async for id_ in store.ownership.orphans()] == ([] if ends else [session.id])
    await store.aclose()
