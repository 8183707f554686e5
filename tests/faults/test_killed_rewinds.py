"""Rewinds in the middle of which the process is killed: the next one completes them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx.llms.scripted import ScriptedModel, call
from agenticx.runtime import EventType
from agenticx.sessions import Hub, SessionRecord, Store, StoredEvent, TurnRequest
from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.store.factory import open_store
from agenticx.settings import Settings, load_settings
from agenticx.tools.builtin import builtin_tools
from tests.support.forked import ROOT, Process
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.lanes import Count
from tests.support.program import PROGRAM
from tests.support.sessions import wait_for_turn_end
from tests.support.timeouts import PATIENCE

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


async def rewind_until_killed(folder: Path, commit: int, seconds: float | None) -> None:
    """Change files in two turns and rewind the second one; the process is killed at that commit of the rewind.

    It is killed before it is made, or so many seconds after that.
    """
    commits = 0

    async def around(write: Write) -> Sequence[StoredEvent]:
        nonlocal commits
        commits += is_rewinding
        if not is_rewinding or commits != commit:
            return await write.make()
        if seconds is None:
            os.kill(os.getpid(), signal.SIGKILL)
        stored = await write.make()
        asyncio.get_running_loop().call_later(seconds or 0.0, os.kill, os.getpid(), signal.SIGKILL)
        return stored

    is_rewinding = False
    settings, workspace = settings_in(folder), folder / "work"
    workspace.mkdir(parents=True)
    store = InterceptedStore(open_store(settings), around)
    await store.create(replace(RECORD, workspace=str(workspace)))
    hub = hub_over(store, settings)
    for ends in (1, 2):
        await hub.start(RECORD.id, TurnRequest(input=str(ends)))
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
    for number in range(count(4, 16, 80)):
        folder, commit = tmp_path / str(number), number % COMMITS + 1
        seconds = None if rng.random() < 0.5 else rng.random() * 0.003
        body = f"asyncio.run(rewind_until_killed(Path({str(folder)!r}), {commit}, {seconds}))"
        source = f"import asyncio\nfrom pathlib import Path\nfrom {__name__} import rewind_until_killed\n{body}"
        process = Process(PROGRAM, [source], cwd=ROOT, env=os.environ)
        _, error = await asyncio.to_thread(process.communicate, "", PATIENCE)
        assert process.returncode == -signal.SIGKILL, error
        is_begun = commit > 1 or seconds is not None
        assert await state_in(folder) == (completed if is_begun else unchanged), (commit, seconds)
        assert await state_in(folder) == (completed if is_begun else unchanged)
