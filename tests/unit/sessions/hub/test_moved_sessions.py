"""Sessions moved to another folder, and what was allowed in the former one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import SessionBusy, SettingsError
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, SqliteStore, WorkspaceGone
from agenticx.settings import load_settings
from agenticx.testing import Script, call, say
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

TOUCH = call("bash_exec", {"command": "touch made"})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


def hub_in(tmp_path: Path, *replies: Script) -> Hub:
    model = ScriptedModel(replies)
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    store, tools = SqliteStore(tmp_path / "s.db"), builtin_tools()
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings, clock=PatientClock())


async def questions_of(hub: Hub, session_id: str) -> int:
    """Run a turn whose questions are allowed for the session, and return their number."""
    number = 0
    async for event in hub.run_turn(session_id, "go"):
        if event.type == "confirm_required":
            number += 1
            yes = ConfirmAnswer(approved=True, remember="session")
            await hub.answer(event.data["id"], yes, digest=event.data["digest"])
        assert event.type != "error"
    return number


async def test_what_was_allowed_for_a_session_ends_when_it_is_moved(tmp_path: Path, old: Path) -> None:
    hub = hub_in(tmp_path, *[TOUCH, "done"] * 2)
    session = await hub.create(workspace=old, name="Moved")
    for number in (1, 0):
        assert await questions_of(hub, session.id) == number
        (old / "made").unlink()
    new = old.rename(tmp_path / "new")
    moved = await hub.change(session.id, {"workspace": f"{new}/../new"})
    assert moved.workspace == str(new)
    await hub.close()
    await hub.store.aclose()
    hub = hub_in(tmp_path, TOUCH, "done")
    assert (await hub.store.catalog.get(session.id)).workspace == str(new)
    assert await questions_of(hub, session.id) == 1
    assert (new / "made").exists()
    await hub.close()
    await hub.store.aclose()


async def test_a_turn_needs_the_folder_and_a_session_is_not_moved_during_one(tmp_path: Path, old: Path) -> None:
    hub = hub_in(tmp_path, TOUCH, "done", say("back"))
    session = await hub.create(workspace=old, name="Moved")
    new: dict[str, Any] = {"workspace": str(tmp_path)}
    async for event in hub.run_turn(session.id, "go"):
        if event.type == "confirm_required":
            with pytest.raises(SessionBusy):
                await hub.change(session.id, new)
            no = ConfirmAnswer(approved=False)
            await hub.answer(event.data["id"], no, digest=event.data["digest"])
    old.rmdir()
    with pytest.raises(WorkspaceGone, match=f"session {session.id} works in {str(old)!r}, which is not a folder"):
        await anext(hub.run_turn(session.id, "again"))
    head = await hub.store.log.head(session.id)
    for folder in (str(old), "/dev/null", "a\0b", "\ud800", "x" * 5000):
        with pytest.raises((SettingsError, ValueError)):
            await hub.change(session.id, {"workspace": folder})
    assert await hub.store.log.head(session.id) == head
    await hub.change(session.id, new)
    events = [event async for event in hub.run_turn(session.id, "again")]
    assert events[-1].type == "final"
    follower = hub.follow(session.id, after=head)
    first = await anext(follower)
    assert (first.event.type, first.event.data) == ("session_changed", new)
    await follower.aclose()
    await hub.close()
    await hub.store.aclose()
