"""A session's turns run on the host that has its workspace."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, MemoryStore, SqliteStore, Store, TurnRequest
from agenticx.sessions.store.hosts import WorkspaceElsewhere
from agenticx.settings import load_settings
from agenticx.testing import Script, call
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.timeouts import PatientClock
from tests.support.two_hubs import UnreliableStore

pytestmark = pytest.mark.anyio


WRITE = call("file_write", {"path": "a.txt", "content": "x"})


def hub_on(store: Store, tmp_path: Path, *replies: Script, **settings_of: Any) -> Hub:
    model = ScriptedModel(replies or [WRITE, "written"])
    options = {"home": tmp_path / "home", "permission_mode": "auto", "workspace_root": tmp_path, **settings_of}
    tools, settings = builtin_tools(), load_settings(options, environ={})
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings, clock=PatientClock())


async def test_a_worker_on_another_host_refuses_a_turn_and_touches_no_file(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UnreliableStore(MemoryStore(), rng)
    hub = hub_on(store, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "elsewhere")
        record = await hub.create()
    assert record.workspace_host == "elsewhere"
    for request in (TurnRequest(input="hi"), TurnRequest(input="hi", when_busy="queue", client_turn_id="c1")):
        with pytest.raises(WorkspaceElsewhere, match=rf"on the host 'elsewhere', and this is '{platform.node()}'"):
            await hub.submit(record.id, request)
    assert await store.memory.head(record.id) == 0
    assert not (tmp_path / "a.txt").exists()
    assert (await hub.change(record.id, {"pinned": True})).workspace_host == "elsewhere"
    await hub.close()


async def test_turns_of_a_session_in_a_shared_folder_run_on_each_host(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UnreliableStore(MemoryStore(), rng)
    (shared := tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(shared)
    hub = hub_on(store, tmp_path, WRITE, "written", shared_workspaces=tmp_path / "link")
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "elsewhere")
        record = await hub.create(workspace=shared)
        other = await hub.create(workspace=tmp_path)
    assert (record.workspace_host, other.workspace_host) == (None, "elsewhere")
    await hub.start(record.id, TurnRequest(input="hi"))
    await wait_for_turn_end(store, record.id)
    assert (shared / "a.txt").read_text() == "x"
    with pytest.raises(WorkspaceElsewhere, match="change its workspace to a folder of this host"):
        await hub.submit(other.id, TurnRequest(input="hi"))
    assert (await hub.change(other.id, {"workspace": str(shared)})).workspace_host is None
    await hub.close()


@pytest.mark.parametrize("kind", ["renamed", "unnamed"])
async def test_turns_run_on_the_only_host_of_a_log_and_for_records_without_a_host(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store: Store = SqliteStore(tmp_path / "s.db") if kind == "renamed" else UnreliableStore(MemoryStore(), rng)
    hub = hub_on(store, tmp_path)
    record = await hub.create()
    assert record.workspace_host == platform.node()
    if kind == "unnamed":
        record = replace(record, id="ses_old", workspace_host=None)
        await store.create(record)
    monkeypatch.setattr(platform, "node", lambda: "renamed")
    await hub.start(record.id, TurnRequest(input="hi"))
    await wait_for_turn_end(store, record.id)
    assert (tmp_path / "a.txt").read_text() == "x"
    await hub.close()
    await store.aclose()


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function after which this process has that host name."""
    return lambda name: monkeypatch.setattr(platform, "node", lambda: name)


async def test_a_turn_that_waits_for_an_answer_is_left_to_the_host_of_its_workspace(
    tmp_path: Path, rng: random.Random, on_host: Callable[[str], None]
) -> None:
    on_host("here")
    store = UnreliableStore(MemoryStore(), rng)
    hub = hub_on(store, tmp_path)
    record = await hub.create(permission_mode="default")
    await hub.start(record.id, TurnRequest(input="write"))
    asked = await wait_for_event(store, record.id, "confirm_required")
    await hub.close()
    on_host("elsewhere")
    other = hub_on(store.other_worker(), tmp_path)
    await other.recover()
    assert [question.id for question in await other.open_requests(record.id)] == [asked["id"]]
    await other.close()
    on_host("here")
    hub = hub_on(store.other_worker(), tmp_path, "written")
    await hub.recover()
    await hub.answer(asked["id"], ConfirmAnswer(approved=True), digest=asked["digest"])
    await wait_for_turn_end(store, record.id)
    assert (tmp_path / "a.txt").read_text() == "x"
    await hub.close()


async def test_a_session_that_another_host_changed_goes_on_at_its_own(
    tmp_path: Path, rng: random.Random, on_host: Callable[[str], None]
) -> None:
    on_host("here")
    store = UnreliableStore(MemoryStore(), rng)
    hub, other = hub_on(store, tmp_path), hub_on(store.other_worker(), tmp_path)
    record = await hub.create()
    on_host("elsewhere")
    assert (await other.change(record.id, {"pinned": True})).pinned
    with pytest.raises(WorkspaceElsewhere):
        await other.rewind(record.id, None)
    on_host("here")
    await hub.start(record.id, TurnRequest(input="write"))
    await wait_for_turn_end(store, record.id)
    assert (tmp_path / "a.txt").read_text() == "x"
    await hub.close()
    await other.close()
