"""The cost of opening and resuming a session of very many events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from httpx_sse import aconnect_sse

from tests.support.faults.long_logs import append_long_turn
from tests.support.faults.servers import KillableStudio, RecordedFolder, server_forker

__all__ = ["LargeLogFigures", "large_log_figures"]

MEGABYTE = 1024 * 1024
OPEN_SECONDS = 2.0
RESUME_SECONDS = 0.2
MOST_MEMORY = 100 * MEGABYTE
RESUMES = 5


@dataclass(frozen=True)
class LargeLogFigures:
    """The cost of a large log, in seconds of the server's CPU time and bytes."""

    opened: float
    resumed: float
    grown: int

    def findings(self) -> list[str]:
        """Return the costs that are too high."""
        found = [f"opened in {self.opened:.2f} s"] if self.opened >= OPEN_SECONDS else []
        found += [f"resumed in {self.resumed * 1000:.0f} ms"] if self.resumed >= RESUME_SECONDS else []
        return [*found, *([f"memory + {self.grown // MEGABYTE} MB"] if self.grown >= MOST_MEMORY else [])]


async def large_log_figures(home: Path, events: int, *, resumes: int = RESUMES, **options: Any) -> LargeLogFigures:
    """Measure the cost of a session of so many events for a server that is started with `options`."""
    recorded = RecordedFolder(home)
    async with server_forker() as forker:
        empty = await forker.serve(recorded.home)
        async with empty.client() as client:
            await recorded.make_sessions(client, ["auto"])
            resident_before = resident(empty)
        await empty.end()
        session = await append_long_turn(recorded, events, "turn_long", over=True)
        studio = await forker.serve(recorded.home, **options)
        opened = studio.cpu_seconds
        async with studio.client() as client:
            await client.get("/api/health")
            cursor = (await last_cursors(client, session, events))[0]
            before = studio.cpu_seconds
            for _ in range(resumes):
                event = await first_event(client, session, cursor)
                assert event["seq"] == events + 2
            resumed = (studio.cpu_seconds - before) / resumes
            grown = resident(studio) - resident_before
        await studio.end()
    return LargeLogFigures(opened, resumed, grown)


async def last_cursors(client: httpx.AsyncClient, session: str, events: int) -> list[str]:
    """Return the cursors just before the last event and of it, made from one that the server gave."""
    async with aconnect_sse(client, "GET", f"/api/sessions/{session}/events") as source:
        async for event in source.aiter_sse():
            if event.data:
                tag = event.id.partition("-")[2]
                return [f"{place:x}-{tag}" for place in (events + 1, events + 2)]
    raise AssertionError("the stream ended")


async def first_event(client: httpx.AsyncClient, session: str, cursor: str) -> dict[str, int]:
    headers = {"Last-Event-ID": cursor}
    async with aconnect_sse(client, "GET", f"/api/sessions/{session}/events", headers=headers) as source:
        async for event in source.aiter_sse():
            if event.data:
                return json.loads(event.data)
    raise AssertionError("the stream ended")


def resident(studio: KillableStudio) -> int:
    """Return the server's resident memory in bytes."""
    lines = Path(f"/proc/{studio.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
