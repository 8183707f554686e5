"""The time until sessions of a worker that was killed or frozen have another owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

import asyncpg

from tests.support.postgres.workers import StudioWorker
from tests.support.timeouts import PATIENCE

__all__ = ["Takeovers"]

_MOST_LATE_SECONDS = 2.0

_WORK = """SELECT fences.session FROM fences JOIN workers ON workers.id = fences.owner
    WHERE fences.has_work AND workers.pid = $1"""
_OWNED_ELSEWHERE = """SELECT count(*) FROM fences
    JOIN workers ON workers.id = fences.owner AND workers.until > clock_timestamp()
    WHERE fences.session = ANY ($1::bigint[]) AND workers.pid <> $2"""


@dataclass(eq=False)
class Takeovers:
    """The takeovers of sessions in a database, and the `seconds` that each took."""

    connection: asyncpg.Connection
    seconds: list[float] = field(default_factory=list[float])

    @classmethod
    @asynccontextmanager
    async def watching(cls, url: str) -> AsyncGenerator[Takeovers]:
        connection = await asyncpg.connect(url)
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def sessions_with_work(self, worker: StudioWorker) -> list[int]:
        """Return the numbers of the sessions that a worker owns and that another one would go on with."""
        return [number for (number,) in await self.connection.fetch(_WORK, worker.pid)]

    async def wait(self, sessions: Collection[int], worker: StudioWorker, *, since: float) -> float:
        """Wait until workers that live, and not this one, own all these sessions; return the seconds from `since`."""
        async with asyncio.timeout(PATIENCE):
            while await self.connection.fetchval(_OWNED_ELSEWHERE, [*sessions], worker.pid) < len(sessions):
                await asyncio.sleep(0.005)
        self.seconds.append(time.monotonic() - since)
        return self.seconds[-1]

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
