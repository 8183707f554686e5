"""Benchmarks of `agx serve` as a process on a core of its own, with many paced streams at once."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.paced_streams import Load
from tests.benchmarks.peer import Peer, peer
from tests.benchmarks.rows import Row, Scale

__all__ = ["carried", "server_rows"]

LATEST_MS = 50
GOALS_IN_MICROS = {20: 90}
GOAL_IN_STREAMS = 150
_READY = re.compile(rb"http://127\.0\.0\.1:(\d+)/")


@dataclass(frozen=True)
class Server:
    """A running `agx serve`."""

    pid: int
    port: int
    token: str


async def server_rows(scale: Scale) -> list[Row]:
    """Measure paced streams with readers on sockets and with stock ones: CPU time of the server, and latency."""
    own, others = _cores()
    with _on_cores(others):
        async with peer() as other, _serving(other, own) as server:
            await other.command("studio", server.port, server.token)
            await _load(other, server, "raw", 2, scale)  # not counted: it imports what a turn needs
            raw = {streams: await _load(other, server, "raw", streams, scale) for streams in scale.streams}
            for streams in scale.further_streams:
                if raw and carried(raw) < max(raw):
                    break
                raw[streams] = await _load(other, server, "raw", streams, scale)
            stock = {streams: await _load(other, server, "httpx", streams, scale) for streams in scale.stock_streams}
    return [
        *(row for streams, load in raw.items() for row in _rows(streams, load, "agx serve", GOALS_IN_MICROS)),
        Row(
            name=f"10-ms streams through agx serve on one core, p99 ≤ {LATEST_MS} ms",
            value=carried(raw),
            unit="streams",
            goal=GOAL_IN_STREAMS,
            at_least=True,
        ),
        *(row for streams, load in stock.items() for row in _rows(streams, load, "agx serve, httpx readers", {})),
    ]


def _rows(streams: int, load: Load, through: str, goals: Mapping[int, float]) -> Sequence[Row]:
    name = f"{streams} paced streams through {through}" if streams > 1 else f"a paced stream through {through}"
    return (
        Row(name=f"{name}, CPU per token", value=load.cpu_micros, unit="µs", goal=goals.get(streams)),
        Row(name=f"{name}, p50", value=load.p50_ms, unit="ms"),
        Row(name=f"{name}, p99", value=load.p99_ms, unit="ms"),
    )


def carried(loads: Mapping[int, Load]) -> int:
    """Return the largest number of streams up to which all were in time."""
    most = 0
    for streams, load in sorted(loads.items()):
        if load.p99_ms > LATEST_MS:
            break
        most = streams
    return most


async def _load(peer: Peer, server: Server, reader: str, streams: int, scale: Scale) -> Load:
    """Run so many streams that begin one after the other, and return what they cost while all of them run."""
    sessions = await peer.command("create", streams)
    load = Load(**await peer.command("load", sessions, reader, scale.stream_tokens + streams, server.pid))
    delays = f"p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms, peer busy {load.peer_share:.0%}"
    print(f"  agx serve, {streams} streams, {reader} readers: {load.cpu_micros:.0f} µs, {delays}", file=sys.stderr)
    return load


# --- the server -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _serving(peer: Peer, cores: Set[int]) -> AsyncGenerator[Server]:
    """Run `agx serve` on `cores`, with the peer as its provider."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        work.mkdir()
        variables = {name: value for name, value in os.environ.items() if not name.startswith("AGX_")}
        variables |= {"AGX_HOME": str(home), "AGX_WORKSPACE_ROOT": str(work), "AGX_MODEL": "openai-chat:burst:1"}
        variables |= {"OPENAI_BASE_URL": peer.base_url, "OPENAI_API_KEY": "sk-benchmark"}
        with _on_cores(cores):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "agenticx.cli", "serve", "--port", "0"),
                env=variables,
                stderr=asyncio.subprocess.PIPE,
            )
        assert process.stderr is not None
        port = await _ready(process.stderr)
        log = asyncio.create_task(process.stderr.read())  # a full pipe would block the server
        try:
            yield Server(process.pid, port, (home / "token").read_text(encoding="ascii").strip())
        finally:
            process.terminate()
            await log
            await process.wait()


async def _ready(stderr: asyncio.StreamReader) -> int:
    """Return the port in the ready line."""
    printed = b""
    async for line in stderr:
        printed += line
        if found := _READY.search(line):
            return int(found[1])
    raise RuntimeError(f"the server did not start: {printed.decode()}")


# --- cores ----------------------------------------------------------------------------------------------------------


def _cores() -> tuple[Set[int], Set[int]]:
    """Return a core for the server and those for everything else; both are empty where processes cannot be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return set(), set()
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


@contextmanager
def _on_cores(cores: Set[int]) -> Generator[None]:
    """Restrict this thread, and the processes that it starts, to `cores` within the block."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
