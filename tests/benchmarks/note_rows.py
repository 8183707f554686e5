"""Benchmarks of notes: the index of a vault, search in it, and a stream beside an index run."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from agenticx.knowledge import VaultIndex, search_notes
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, EventType, Session
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, pause, say
from agenticx.threads import run_in_thread
from tests.benchmarks.rows import Row, Scale
from tests.support.knowledge.large_vault import random_words, write_large_vault

__all__ = ["note_rows"]

MILLI = 1e3
TOKEN_SECONDS = 0.01
QUERIES, QUERY_WORDS = 100, 5


async def note_rows(scale: Scale) -> list[Row]:
    """Measure a vault of notes of 2 kB; its searches wait for nothing, so their time is the CPU's and the disk's."""
    with tempfile.TemporaryDirectory() as name:
        root, folder = Path(name, "vault"), Path(name)
        size = write_large_vault(root, notes=scale.notes)
        files = [file for file in root.rglob("*") if file.is_file()]
        floor = median(_cpu(lambda: _read_and_hash(files)) for _ in range(scale.repeats))
        memory = _peak_memory()
        index = VaultIndex(root, folder / "index.db")
        took = _cpu(index.refresh)
        memory = _peak_memory() - memory
        index.close()
        index_size = (folder / "index.db").stat().st_size
        index = VaultIndex(root, folder / "index.db")
        notes = f"{scale.notes:,} notes"
        return [
            Row(name=f"first index of {notes}, CPU", value=took, unit="s", floor=floor, first_light=40, goal=20),
            Row(name=f"memory of the first index of {notes}", value=memory / 2**20, unit="MB", first_light=80),
            Row(name=f"index of {notes}", value=index_size / 1e6, unit="MB", floor=size / 1e6, first_light=3),
            _rescan(index, notes, scale),
            *_searches(index, notes),
            *await _stream_beside_an_index_run(root, folder, scale),
        ]


def _cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _read_and_hash(files: Sequence[Path]) -> None:
    for file in files:
        hashlib.sha256(file.read_bytes()).digest()


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _scan(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _scan(entry.path)
            else:
                entry.stat(follow_symlinks=False)


def _rescan(index: VaultIndex, notes: str, scale: Scale) -> Row:
    index.refresh()  # reads the notes again that were written just before they were indexed
    floor = median(_cpu(lambda: _scan(str(index.root))) for _ in range(scale.repeats))
    took = median(_cpu(index.refresh) for _ in range(scale.repeats))
    return Row(
        name=f"rescan of {notes} without changes, CPU",
        value=took * MILLI,
        unit="ms",
        floor=floor * MILLI,
        first_light=4,
    )


def _searches(index: VaultIndex, notes: str) -> list[Row]:
    """Measure searches for words that are neither the most frequent nor the rarest, beside a query of FTS5."""
    rng, words = random.Random(3), random_words(6_000)[100:]
    queries = [rng.sample(words, QUERY_WORDS) for _ in range(QUERIES)]
    statement = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT 60"
    floors, spent, waited = list[float](), list[float](), list[float]()
    for query in (*queries[:10], *queries):
        floors.append(_cpu(lambda: index.query(statement, (" OR ".join(query),))) * MILLI)  # noqa: B023
        begun = time.perf_counter()
        spent.append(_cpu(lambda: search_notes(index, " ".join(query))) * MILLI)  # noqa: B023
        waited.append((time.perf_counter() - begun) * MILLI)
    half = "0[0-4]*/**" if index.state().total > 5_000 else "00[0-4]/**"
    limited = [_cpu(lambda: search_notes(index, " ".join(query), path=half)) * MILLI for query in queries]  # noqa: B023
    name = f"search in {notes}"
    return [
        Row(name=f"{name}, CPU, p50", value=median(spent[10:]), unit="ms", floor=median(floors[10:]), first_light=4),
        Row(
            name=f"{name} limited to half of them, CPU, p50",
            value=median(limited),
            unit="ms",
            floor=median(floors[10:]),
            first_light=20,
        ),
        Row(name=f"{name}, p99", value=quantiles(waited[10:], n=100)[-1], unit="ms", first_light=60),
    ]


async def _stream_beside_an_index_run(root: Path, folder: Path, scale: Scale) -> list[Row]:
    """Measure the delays of a turn's tokens, of which one is due every 10 ms, alone and while notes are indexed."""
    alone = await _token_delays(scale)
    index, ended = VaultIndex(root, folder / "beside.db"), False
    run = asyncio.create_task(run_in_thread(index.refresh, stopped=lambda: ended, name="index"))
    beside = await _token_delays(scale)
    ended = True
    await run
    return [
        Row(
            name="a token of a streaming turn beside an index run, p99 added",
            value=max(quantiles(beside, n=100)[-1] - quantiles(alone, n=100)[-1], 0) * MILLI,
            unit="ms",
            first_light=20,
        )
    ]


async def _token_delays(scale: Scale) -> list[float]:
    script = [part for _ in range(scale.paced_tokens) for part in (pause(TOKEN_SECONDS), say("word "))]
    agent = AgentRuntime(ScriptedModel([script]), AutoApproveConfirmGate(), settings=load_settings(environ={}))
    times = [time.perf_counter()]
    async for event in agent.run_turn("go", Session(workspace=Path.cwd())):
        if event.type is EventType.TOKEN:
            times.append(time.perf_counter())
    return [later - earlier - TOKEN_SECONDS for earlier, later in pairwise(times)]
