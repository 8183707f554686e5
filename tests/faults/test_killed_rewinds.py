"""Processes that are killed in the middle of a rewind, or of a write in place that a rewind undoes."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store, read_messages
from agenticx.settings import Settings, load_settings
from agenticx.testing import call
from tests.support.faults.killed_process import killed_at_commit, random_delay, run_until_killed
from tests.support.lanes import Count
from tests.support.sessions import wait_for_turn_end
from tests.support.timeouts import PATIENCE
from tests.support.unreplaceable import drop_file_capabilities

pytestmark = pytest.mark.anyio

NAMES = ["a.txt", "b.txt", "c.txt"]
COMMITS = len(NAMES) + 1  # of the rewind: one before each file, and its end
RECORD = SessionRecord(id="ses_1", name="x", workspace="", permission_mode="auto", created_at="2026-01-01")


def hub_over(store: Store, settings: Settings) -> Hub:
    one, two = ([call("file_write", {"path": name, "content": text}) for name in NAMES] for text in ("one", "two"))
    model, tools = ScriptedModel([one, "first", two, "second"]), builtin_tools()
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings)


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


async def rewind_killed(folder: Path, commit: int, seconds: float | None) -> None:
    """Change files in two turns and rewind the second one; the process is killed at that commit of the rewind.

    It is killed before it is made, or so many seconds after that.
    """
    is_rewinding = False
    settings, workspace = settings_in(folder), folder / "work"
    workspace.mkdir(parents=True)
    store = killed_at_commit(open_store(settings), commit, seconds, lambda: is_rewinding)
    await store.create(replace(RECORD, workspace=str(workspace)))
    hub = hub_over(store, settings)
    for ends in (1, 2):
        await hub.start(RECORD.id, TurnRequest(input=str(ends), permission_mode="auto"))
        await wait_for_turn_end(store, RECORD.id, ends=ends)
    (target,) = [one["message_id"] for one in await read_messages(store.log, RECORD.id) if one["content"] == "first"]
    is_rewinding = True
    await hub.rewind(RECORD.id, target)
    await asyncio.sleep(PATIENCE)


async def state_in(folder: Path) -> tuple[list[str], str, int]:
    """Return the files, the last message and the number of rewinds, as the next process finds and leaves them."""
    store = open_store(settings_in(folder))
    hub = hub_over(store, settings_in(folder))
    await hub.recover()
    lease = await store.ownership.claim(RECORD.id)
    assert [fact for fact in (await lease.load()).open_facts if fact.kind == "rewind_began"] == []
    last = (await read_messages(store.log, RECORD.id))[-1]["content"]
    events = await store.log.read(RECORD.id, 0, 10_000)
    rewinds = sum(event.type is EventType.SESSION_CHANGED for event in events)
    await hub.close()
    await store.aclose()
    return [(folder / "work" / name).read_text() for name in NAMES], last, rewinds


async def test_a_rewind_whose_process_is_killed_is_completed_or_has_changed_nothing(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    unchanged, completed = (["two"] * len(NAMES), "second", 0), (["one"] * len(NAMES), "first", 1)
    for number in range(count(2, 16, 80)):
        folder, commit = tmp_path / str(number), number % COMMITS + 1
        seconds = random_delay(rng, 0.003)
        await run_until_killed(rewind_killed, folder, commit, seconds)
        is_begun = commit > 1 or seconds is not None
        assert await state_in(folder) == (completed if is_begun else unchanged), (commit, seconds)
        assert await state_in(folder) == (completed if is_begun else unchanged)


# --- writes in place --------------------------------------------------------------------------------------------------

MEGABYTE = 1024 * 1024
IN_PLACE = {  # the texts that an edit replaces, 1,048,576 times, and the size at which the process is killed
    "equal": ("aaa", "bbb", MEGABYTE + 5),
    "shorter": ("aaa", "bb", MEGABYTE),
    "longer": ("a", "bbb", 2 * MEGABYTE + 4_097),
}


def in_place_hub(store: Store, settings: Settings, old: str, new: str) -> Hub:
    edit = call("file_edit", {"path": "f", "old_text": old, "new_text": new, "replace_all": True})
    model = ScriptedModel(["nothing", [edit], "written"])
    return Hub(store, models=lambda _: model, tools=lambda _: builtin_tools(), settings=settings)


async def write_in_place_killed(folder: Path, old: str, new: str, size: int, rewinds: bool) -> None:
    """Edit a file that can only be written in place, in the second turn, and with `rewinds` rewind that turn.

    The system kills the process when it is about to write more than `size` bytes of the file.
    """
    settings, workspace = settings_in(folder), folder / "work"
    workspace.mkdir(parents=True)
    (workspace / "f").write_text(old * MEGABYTE)
    workspace.chmod(0o555)
    drop_file_capabilities()
    store = open_store(settings)
    await store.create(replace(RECORD, workspace=str(workspace)))
    hub = in_place_hub(store, settings, old, new)

    def kill_at_size() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    for ends in (1, 2):
        if ends == 2 and not rewinds:
            kill_at_size()
        await hub.start(RECORD.id, TurnRequest(input=str(ends), permission_mode="auto"))
        await wait_for_turn_end(store, RECORD.id, ends=ends)
    kill_at_size()
    await hub.rewind(RECORD.id, (await read_messages(store.log, RECORD.id))[1]["message_id"])


@pytest.mark.ci_lane
@pytest.mark.promise("H2")
@pytest.mark.parametrize("rewinds", [False, True], ids=["write", "rewind"])
@pytest.mark.parametrize(("old", "new", "size"), IN_PLACE.values(), ids=IN_PLACE)
async def test_a_rewind_restores_a_file_that_a_kill_left_written_in_part(
    tmp_path: Path, old: str, new: str, size: int, rewinds: bool
) -> None:
    if rewinds:
        old, new = new, old
    file = tmp_path / "work" / "f"
    await run_until_killed(write_in_place_killed, tmp_path, old, new, size, rewinds, by=signal.SIGXFSZ)
    before, after = (new, old) if rewinds else (old, new)
    assert file.read_text() == (after * MEGABYTE)[:size] + (before * MEGABYTE)[size:]

    file.parent.chmod(0o755)
    store = open_store(settings_in(tmp_path))
    hub = in_place_hub(store, settings_in(tmp_path), old, new)
    await hub.recover()
    if not rewinds:
        result = await hub.rewind(RECORD.id, (await read_messages(store.log, RECORD.id))[1]["message_id"])
        assert [(item.path, item.outcome) for item in result.files] == [("f", "restored")]
    assert file.read_text() == old * MEGABYTE
    await hub.close()
    await store.aclose()
