"""Benchmarks of the studio, from the provider's bytes to the bytes that its readers receive."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from agenticx.llms import NamedModels, OpenAIChatModel
from agenticx.settings import load_settings
from studio.server import StudioServer, listen
from studio.services import make_services
from tests.benchmarks.floor import RawClient, cpu_of, medians
from tests.benchmarks.peer import Peer
from tests.benchmarks.rows import Row, Scale

__all__ = ["studio_rows"]

TOKEN = "benchmark-token-benchmark-token-benchmark"
MICRO = 1e6


@asynccontextmanager
async def studio(peer: Peer) -> AsyncGenerator[int]:
    """Run a studio in this process, with the peer as its provider and its client, and yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        work.mkdir()
        settings = load_settings({"home": home, "workspace_root": work}, environ={}, project=work)
        models = NamedModels(settings, lambda spec: OpenAIChatModel(spec, base_url=peer.base_url))
        listening = listen("127.0.0.1", 0)
        port = listening.getsockname()[1]
        ready = asyncio.Event()
        server = StudioServer(make_services(settings, token=TOKEN, models=models), ready.set)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await ready.wait()
            await peer.command("studio", port, TOKEN)
            yield port
        finally:
            server.should_exit = True
            await serving
            listening.close()


async def studio_rows(peer: Peer, scale: Scale) -> list[Row]:
    """Measure tokens in a burst and paced, both beside their floor, readers of one session, and memory."""
    raw = await RawClient.connect(peer.port)
    burst_model, paced_model = f"burst:{scale.tokens}", f"paced:{scale.paced_tokens}"

    async def turn(model: str) -> None:
        (session,) = await peer.command("create", 1)
        await peer.command("turn", session, model)

    async with studio(peer):
        memory = await _memory(peer, scale)  # first: later, freed memory would be reused
        took = await medians(
            scale.repeats,
            {
                "bare": lambda: turn("burst:1"),
                "bare floor": lambda: raw.ask("burst:1"),
                "burst": lambda: turn(burst_model),
                "burst floor": lambda: raw.ask(burst_model),
                "paced": lambda: turn(paced_model),
                "paced floor": lambda: raw.ask(paced_model),
            },
        )
        fan_out = [
            Row(
                name=f"fan-out to {readers} readers, per event and reader",
                value=await _fan_out(peer, scale, readers) * MICRO,
                unit="µs",
                first_light=15 if readers == scale.readers else None,
                goal=2.5 if readers == scale.readers else None,
            )
            for readers in (1, 10, scale.readers)
        ]
    burst, burst_floor = (
        (took[name] - took[bare]) / scale.tokens for name, bare in (("burst", "bare"), ("burst floor", "bare floor"))
    )
    paced, paced_floor = (
        (took[name] - took[bare]) / scale.paced_tokens
        for name, bare in (("paced", "bare"), ("paced floor", "bare floor"))
    )
    await raw.close()
    return [
        Row(
            name="provider byte → durable log → SSE byte, burst, per token",
            value=burst * MICRO,
            unit="µs",
            floor=burst_floor * MICRO,
        ),
        Row(
            name="provider byte → durable log → SSE byte, paced, per token",
            value=paced * MICRO,
            unit="µs",
            floor=paced_floor * MICRO,
            first_light=6,
            goal=2.4,
        ),
        *fan_out,
        *memory,
    ]


async def _fan_out(peer: Peer, scale: Scale, readers: int) -> float:
    """Return the CPU seconds that each further reader adds per token of a paced turn."""
    alone, watched = await peer.command("create", 2)
    model = f"paced:{scale.paced_tokens}"
    base = await cpu_of(lambda: peer.command("turn", alone, model))
    await peer.command("open", watched, readers)
    with_readers = await cpu_of(lambda: peer.command("turn", watched, model))
    await peer.command("close")
    return (with_readers - base) / (scale.paced_tokens * readers)


async def _memory(peer: Peer, scale: Scale) -> list[Row]:
    """Measure the memory of an idle session and of an open stream."""
    (first,) = await peer.command("create", 1)
    await peer.command("turn", first, "burst:1")
    before = _resident()
    sessions = await peer.command("create", scale.sessions)
    with_sessions = _resident()
    await peer.command("open", sessions[0], scale.readers)
    with_streams = _resident()
    await peer.command("close")
    session = (with_sessions - before) / scale.sessions
    stream = (with_streams - with_sessions) / scale.readers
    return [
        Row(name="memory per idle session", value=session, unit="kB", goal=8),
        Row(name="memory per open stream", value=stream, unit="kB", goal=40),
    ]


def _resident() -> float:
    """Return the resident kilobytes of this process."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))
