"""The server, worker, writer and follower that the parts of one PostgreSQL store share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from agenticx.clocks import Clock, rfc3339
from agenticx.sessions.store.base import Durability
from agenticx.sessions.store.postgres._announcer import Announcer
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.postgres._follower import Follower
from agenticx.sessions.store.postgres._maintenance import Maintenance
from agenticx.sessions.store.postgres._opening import Opened
from agenticx.sessions.store.postgres._worker import WORK, Worker
from agenticx.sessions.store.postgres._writer import GroupWriter

__all__ = ["PostgresDatabase"]

_MILLISECOND = timedelta(milliseconds=1)


class PostgresDatabase:
    """A database that this process uses as one of its workers, from the first call of `start` on."""

    def __init__(
        self,
        server: Server,
        opened: Opened,
        clock: Clock,
        *,
        lease: float,
        configuration: Callable[[], Mapping[str, str]],
    ) -> None:
        self.server = server
        self.clock = clock
        self.log_id = opened.log_id
        self.durability: Durability = opened.durability
        self.worker = Worker(server, clock, lease=lease, configuration=configuration)
        self.announcer = Announcer(server, self.worker)
        self.follower = Follower(server, self.worker, self.announcer)
        self.writer = GroupWriter(server, self.worker, opened.position_offset, self.timestamp, self.announcer.stored)
        self.maintenance = Maintenance(server, self.worker)
        self._is_started = False

    async def start(self) -> None:
        """Register the worker and begin its tasks, once."""
        if not self._is_started:
            await self.worker.start()
            self.announcer.start()
            self.follower.start()
            self.maintenance.start()
            self._is_started = True

    def timestamp(self) -> str:
        """Return the time as events have it: RFC 3339, UTC."""
        return rfc3339(self.clock.now())

    async def release(self, number: int, epoch: int) -> None:
        """Release a session so that any worker can claim it; notify the other workers if it has work."""
        released = await self.server.fetch(
            "UPDATE fences SET owner = NULL WHERE session = $1 AND epoch = $2 RETURNING has_work", number, epoch
        )
        if released and released[0][0]:
            await self.worker.notify(WORK, str(number))

    async def close(self) -> None:
        """Store what was given, give up all sessions and end the connections."""
        await self.writer.close()
        await self.maintenance.close()
        await self.follower.close()
        await self.announcer.close()
        await self.worker.close()
        await self.server.close()
