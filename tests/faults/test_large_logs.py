"""Promise A6: a session of very many events opens and resumes as quickly as a small one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from tests.support.faults.long_logs import append_long_turn
from tests.support.faults.servers import Studio, World, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
OPEN_SECONDS = 2.0
RESUME_SECONDS = 0.2
MOST_MEMORY = 100 * MEGABYTE
RESUMES = 5


@dataclass(frozen=True)
class Figures:
    """The cost of a large log, in seconds of the server's CPU time and bytes."""

    opened: float
    resumed: float
    grown: int

    def findings(self) -> list[str]:
        """Return the costs that are too high."""
        found = [f"opened in {self.opened:.2f} s"] if self.opened >= OPEN_SECONDS else []
        found += [f"resumed in {self.resumed * 1000:.0f} ms"] if self.resumed >= RESUME_SECONDS else []
        return [*found, *([f"memory + {self.grown // MEGABYTE} MB"] if self.grown >= MOST_MEMORY else [])]


@pytest.mark.promise("A6")
async def test_a_session_of_very_many_events_opens_and_resumes_within_limits(tmp_path: Path, count: Count) -> None:
    figures = await large_log_figures(tmp_path / "home", count(20_000, 200_000, 1_000_000))
    print(figures)
    assert figures.findings() == []


async def large_log_figures(home: Path, events: int, *, resumes: int = RESUMES, **order: Any) -> Figures:
    """Measure the cost of a session of so many events for a server that is started with `order`."""
    world = World(home)
    async with server_forker() as forker:
        empty = await forker.serve(world.home)
        async with empty.client() as client:
            await world.make_sessions(client, ["auto"])
            resident_before = resident(empty)
        await empty.end()
        session = await append_long_turn(world, events, "turn_long", over=True)
        studio = await forker.serve(world.home, **order)
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
    return Figures(opened, resumed, grown)


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


def resident(studio: Studio) -> int:
    """Return the server's resident memory in bytes."""
    lines = Path(f"/proc/{studio.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
