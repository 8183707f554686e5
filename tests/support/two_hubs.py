"""Two hubs on one store, each the worker of some of its sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from agenticx.errors import StoreError
from agenticx.runtime import AsyncConfirmGate
from agenticx.sessions import Doubtful, Hub, MemoryStore, StoredEvent
from agenticx.sessions.store.base import Log
from tests.support.intercepted_store import InterceptedStore, Write

__all__ = ["TwoHubs", "UnreliableStore"]

FORWARDED = ("submit", "start", "stop", "change", "rewind", "delete", "answer_confirm", "open_confirms")


class UnreliableStore(InterceptedStore):
    """A store in memory that delays its readers and writers.

    With a `failure_rate` it refuses so many of its commits, and leaves as many without an answer.
    """

    def __init__(self, store: MemoryStore, rng: random.Random, *, failure_rate: float = 0.0) -> None:
        super().__init__(store, self._commit)
        self.memory = store
        self.failure_rate = failure_rate
        self._rng = rng

    def other_worker(self) -> UnreliableStore:
        """Return a store with the same sessions for another worker."""
        return UnreliableStore(self.memory.other_worker(), self._rng, failure_rate=self.failure_rate)

    @property
    def log(self) -> Log:
        return _SlowLog(self.memory.log, self._rng)  # type: ignore[return-value]

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        for _ in range(self._rng.randrange(5)):
            await asyncio.sleep(0)
        fate = self._rng.random()
        if fate < self.failure_rate:
            raise StoreError("the store refused the commit")
        stored = await write.make()
        if fate > 1 - self.failure_rate:
            raise Doubtful("the store did not answer")
        for _ in range(self._rng.randrange(5)):
            await asyncio.sleep(0)
        return stored


class _SlowLog:
    """A log that is read late."""

    def __init__(self, log: Log, rng: random.Random) -> None:
        self._log = log
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        await asyncio.sleep(self._rng.random() * 0.002)
        return await self._log.read(session_id, after, limit)


class TwoHubs:
    """Two hubs that get the operations in turn; the first one is asked to recover first."""

    def __init__(self, first: Hub, second: Hub) -> None:
        self.hubs = (first, second)
        self._next = cycle(self.hubs)

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._next) if name in FORWARDED else self.hubs[0], name)

    @property
    def gate(self) -> AsyncConfirmGate:
        """The gate of the hub that has questions."""
        return next((hub.gate for hub in self.hubs if hub.gate.pending()), self.hubs[0].gate)

    def running_turn_id(self, session_id: str) -> str | None:
        return self.hubs[0].running_turn_id(session_id) or self.hubs[1].running_turn_id(session_id)

    async def recover(self) -> None:
        for hub in self.hubs:
            await hub.recover()

    async def close(self) -> None:
        for hub in self.hubs:
            await hub.close()
