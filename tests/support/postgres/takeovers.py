"""The time until sessions of a worker that was killed or frozen have another owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

import asyncpg

from tests.support.postgres.workers import StudioWorker
from tests.support.timeouts import LoopDelays, explained_timeout

__all__ = ["ExpectedTakeover", "Takeovers"]

_MOST_LATE_SECONDS = 2.0

_WORK = """SELECT fences.session FROM fences JOIN workers ON workers.id = fences.owner
    WHERE fences.has_work AND workers.pid = $1"""
_OWNED_ELSEWHERE = """SELECT count(*) FROM fences
    JOIN workers ON workers.id = fences.owner AND workers.until > clock_timestamp()
    WHERE fences.session = ANY ($1::bigint[]) AND workers.pid <> $2"""
_OWNERS = """SELECT fences.session, has_work, pid, until > clock_timestamp() AS is_alive
    FROM fences LEFT JOIN workers ON workers.id = fences.owner WHERE fences.session = ANY ($1::bigint[])"""


@dataclass(eq=False)
class Takeovers:
    """The takeovers of sessions in a database, and the `seconds` that each took, without delays of this process."""

    connection: asyncpg.Connection
    delays: LoopDelays
    seconds: list[float] = field(default_factory=list[float])

    @classmethod
    @asynccontextmanager
    async def watching(cls, url: str) -> AsyncGenerator[Takeovers]:
        connection = await asyncpg.connect(url)
        try:
            async with LoopDelays.watching() as delays:
                yield cls(connection, delays)
        finally:
            await connection.close()

    async def expect(self, worker: StudioWorker) -> ExpectedTakeover:
        """Return the takeover of a worker's sessions that have work, just before it is killed or frozen."""
        sessions = [number for (number,) in await self.connection.fetch(_WORK, worker.pid)]
        lease_end = await self.connection.fetchval("SELECT until FROM workers WHERE pid = $1", worker.pid)
        return ExpectedTakeover(self, worker.pid, sessions, lease_end, time.monotonic(), self.delays.total)

    def check(self, within: float) -> None:
        """Assert that most takeovers took at most `within` seconds, and print the times.

        A takeover is a few queries of several processes, each of which waits for a CPU on a busy machine: so the limit
        is that of the median, and a single takeover may take two seconds more. Without the lock of a worker it would
        take the rest of the lease, which is longer than that.
        """
        print(f"{len(self.seconds)} times owned elsewhere after {median(self.seconds):.2f} s", end=", ")
        print(f"at most {max(self.seconds):.2f} s")
        assert median(self.seconds) <= within
        assert max(self.seconds) <= within + _MOST_LATE_SECONDS


@dataclass(eq=False)
class ExpectedTakeover:
    """A takeover of sessions of the worker with that process id, whose lease ended at `lease_end` or later."""

    takeovers: Takeovers
    pid: int
    sessions: Collection[int]
    lease_end: datetime
    _since: float
    _delays_before: float

    async def wait(self) -> None:
        """Wait until workers that live, and not this one, own all these sessions."""
        connection, delays = self.takeovers.connection, self.takeovers.delays
        async with explained_timeout(self._describe):
            while await connection.fetchval(_OWNED_ELSEWHERE, [*self.sessions], self.pid) < len(self.sessions):
                await asyncio.sleep(0.005)
        delay = delays.total - self._delays_before
        self.takeovers.seconds.append(time.monotonic() - self._since - delay)

    async def _describe(self) -> str:
        owners = await self.takeovers.connection.fetch(_OWNERS, [*self.sessions])
        return f"process {self.pid} had sessions {self.sessions}; now: {[*map(dict, owners)]}"

    async def is_lease_over(self) -> bool:
        """Return whether the lease has ended by the clock of the database."""
        return await self.takeovers.connection.fetchval("SELECT clock_timestamp() >= $1", self.lease_end)
