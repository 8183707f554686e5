"""A session's name and its event in the log, whenever the program ends in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType
from agenticx.sessions import Hub, SessionRecord, Store, StoredEvent, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import hang, say
from tests.support.commits import load
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.sessions import wait_for_turn_end
from tests.support.two_hubs import hub_over

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]


def dying_store(store: Store, *, before: EventType) -> InterceptedStore:
    """Return a store that writes nothing from the first event of a type on, as if the process had died there."""
    is_dead = False

    async def commit(write: Write) -> Sequence[StoredEvent]:
        nonlocal is_dead
        is_dead = is_dead or before in write.types
        if is_dead:
            raise StoreError("the process has died")
        return await write.make()

    return InterceptedStore(store, commit)


def make_hub(store: Store, home: Path, *script: Any) -> Hub:
    settings = load_settings({"home": home}, environ={})
    model = ScriptedModel(script)
    return hub_over(store, models=lambda _: model, tools=lambda _: [], settings=settings)


async def create_session(store: Store, home: Path) -> str:
    record = SessionRecord(workspace=str(home), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    return record.id


async def announced_names(store: Store, session_id: str) -> list[str]:
    events = await store.log.read(session_id, 0, 1000)
    return [json.loads(event.frame_json)["data"]["name"] for event in events if event.type == "session_changed"]


@pytest.mark.parametrize("death", [EventType.FINAL, EventType.SESSION_CHANGED])
async def test_a_name_that_was_not_announced_is_announced_once_after_a_restart(
    tmp_path: Path, open_store: OpenStore, death: EventType
) -> None:
    store = dying_store(open_store(), before=death)
    session_id = await create_session(store, tmp_path)
    hub = make_hub(store, tmp_path, "done")
    await hub.start(session_id, TurnRequest(input="Fix the build"))
    await hub.close()
    assert (await store.catalog.get(session_id)).name == "Fix the build"
    await store.aclose()
    for _ in range(2):
        again = open_store()
        await make_hub(again, tmp_path).recover()
        assert await announced_names(again, session_id) == ["Fix the build"]
        await again.aclose()


async def test_a_name_that_the_user_gave_meanwhile_is_the_only_one_announced(
    tmp_path: Path, open_store: OpenStore
) -> None:
    store = open_store()
    session_id = await create_session(store, tmp_path)
    hub = make_hub(store, tmp_path, [say("a"), hang()])
    await hub.start(session_id, TurnRequest(input="Fix the build"))
    await hub.change(session_id, {"name": "Mine"})
    await hub.stop(session_id)
    await wait_for_turn_end(store, session_id)
    await hub.close()
    await make_hub(store, tmp_path).recover()
    assert await announced_names(store, session_id) == ["Mine"]
    assert (await load(store, session_id)).open_facts == []
    await store.aclose()


@pytest.mark.loses_owner
async def test_a_change_whose_event_the_storage_refuses_has_not_happened(tmp_path: Path, open_store: OpenStore) -> None:
    store = dying_store(open_store(), before=EventType.SESSION_CHANGED)
    session_id = await create_session(store, tmp_path)
    with pytest.raises(StoreError):
        await make_hub(store, tmp_path).change(session_id, {"name": "Mine"})
    assert (await store.catalog.get(session_id)).name is None
    await store.aclose()
