"""Two hubs on one store, and a store that is as unreliable as a network."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from agenticx.errors import SessionNotFound, StoreError
from agenticx.llms.base import ChatModel
from agenticx.runtime import ConfirmAnswer, ConfirmRequest
from agenticx.sessions import Doubtful, Hub, MemoryStore, OwnershipLost, SessionRecord, Store, StoredEvent
from agenticx.sessions.store.base import Catalog, Durability, Log, Ownership
from agenticx.sessions.store.records import Position
from agenticx.tools.base import Tool
from tests.support.intercepted_store import InterceptedCalls, InterceptedStore, StoreCall, Write
from tests.support.timeouts import PatientClock

__all__ = ["TwoHubs", "UnreliableStore", "authority", "end_takeover", "hub_over"]

COMMANDS = ("submit", "start", "stop", "change", "rewind", "delete", "answer_confirm")
READS = ("open_confirms", "running_turn_ids")
LONGEST_DELAY_SECONDS = 0.002


class _Records:
    """The changes of a store in memory, in their order, and the copies that follow them."""

    def __init__(self, store: MemoryStore) -> None:
        self.changes: list[Callable[[Any], None]] = []
        self.copies: list[_Copy] = []
        store.follow(self._add)

    def _add(self, change: Callable[[Any], None]) -> None:
        self.changes.append(change)
        for copy in self.copies:
            copy.apply_later(len(self.changes))


class _Copy:
    """A copy of a store for one worker's readers, which has each change some time later."""

    def __init__(self, store: MemoryStore, records: _Records, rng: random.Random) -> None:
        self.store = store.empty_copy()
        self.place = 0
        self.is_held = False
        self._records = records
        self._rng = rng
        self.apply(len(records.changes))
        records.copies.append(self)

    def apply_later(self, place: int) -> None:
        delay = self._rng.random() * LONGEST_DELAY_SECONDS
        asyncio.get_running_loop().call_later(delay, self.apply, place)

    def apply(self, place: int) -> None:
        """Make all changes up to that place."""
        if self.is_held:
            return
        for change in self._records.changes[self.place : place]:
            self.store.apply(change)
        self.place = max(place, self.place)

    async def reach(self, place: int) -> None:
        """Wait until the copy has that place."""
        while self.place < place:
            await asyncio.sleep(self._rng.random() * LONGEST_DELAY_SECONDS)

    async def reach_head(self) -> None:
        """Wait until the copy has all that is stored now."""
        await self.reach(len(self._records.changes))


class UnreliableStore(InterceptedStore):
    """A store of one of several workers, over a network, that outlives them.

    A worker's log and catalog are copies that lag behind. A writer is delayed; of `lost_answers` of the commits, the
    first acknowledgement does not arrive, and the worker repeats them. With a `failure_rate` the store refuses so many
    commits, and leaves as many without an answer (`Doubtful`). A worker that `has_died` writes nothing more
    and claims nothing.
    """

    def __init__(
        self,
        store: MemoryStore,
        rng: random.Random,
        *,
        failure_rate: float = 0.0,
        lost_answers: float = 0.1,
        records: _Records | None = None,
    ) -> None:
        super().__init__(store, self._commit)
        self.memory = store
        self.rng = rng
        self.failure_rate = failure_rate
        self.lost_answers = lost_answers
        self.has_died = False
        self._records = records or _Records(store)
        self._log_copy, self._catalog_copy = (_Copy(store, self._records, rng) for _ in range(2))

    def other_worker(self) -> UnreliableStore:
        """Return a store with the same sessions for another worker."""
        rates = {"failure_rate": self.failure_rate, "lost_answers": self.lost_answers}
        return UnreliableStore(self.memory.other_worker(), self.rng, records=self._records, **rates)

    @contextmanager
    def held_log(self) -> Generator[None]:
        """Let this worker's readers of the log get nothing new while the block runs."""
        self._log_copy.is_held = True
        try:
            yield
        finally:
            self._log_copy.is_held = False
            self._show_own_write()

    @property
    def log(self) -> Log:
        return _CopiedLog(self.memory, self._log_copy)  # type: ignore[return-value]

    @property
    def catalog(self) -> Catalog:
        async def once_it_has_what_was_seen(call: StoreCall) -> Any:
            await asyncio.sleep(self.rng.random() * LONGEST_DELAY_SECONDS)
            if call.name in ("get", "session_of", "open_questions"):
                await self._catalog_copy.reach_head()
            await self._catalog_copy.reach(self._log_copy.place)
            return await call.run()

        return InterceptedCalls(self._catalog_copy.store, once_it_has_what_was_seen)  # type: ignore[return-value]

    @property
    def ownership(self) -> Ownership:
        if self.has_died:
            raise OwnershipLost("the process has died")
        return super().ownership

    async def create(self, record: Any, **more: Any) -> None:
        await super().create(record, **more)
        self._show_own_write()

    async def delete(self, lease: Any) -> None:
        await super().delete(lease)
        self._show_own_write()

    def _show_own_write(self) -> None:
        """Give this worker's readers what it has written, and all before that."""
        self._log_copy.apply(len(self._records.changes))

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        await self._pause()
        if self.has_died:
            raise OwnershipLost("the process has died")
        outcome = self.rng.random()
        if outcome < self.failure_rate:
            raise StoreError("the store refused the commit")
        stored = await write.make()
        if self.rng.random() < self.lost_answers:
            await self._pause()
            try:
                stored = await write.repeat()
            except OwnershipLost as exc:
                raise Doubtful("the store did not answer, and another owner has the session") from exc
        if outcome > 1 - self.failure_rate:
            raise Doubtful("the store did not answer")
        self._show_own_write()
        await self._pause()
        return stored

    async def _pause(self) -> None:
        for _ in range(self.rng.randrange(5)):
            await asyncio.sleep(0)


class _CopiedLog:
    """A worker's copy of the log, and what it asks the store itself."""

    durability: Durability = "replicas"

    def __init__(self, store: MemoryStore, copy: _Copy) -> None:
        self._store = store
        self._copy = copy

    def __getattr__(self, name: str) -> Any:
        async def in_the_whole_copy(call: StoreCall) -> Any:
            await self._copy.reach_head()
            return await call.run()

        return getattr(InterceptedCalls(self._copy.store, in_the_whole_copy), name)

    @property
    def log_id(self) -> str:
        return self._store.log_id

    async def head(self, session_id: str) -> int:
        return await self._store.head(session_id)

    async def position(self, given: int | None = None) -> Position | None:
        return await (self._copy.store if given is None else self._store).position(given)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        await self._store.head(session_id)
        try:
            return await self._copy.store.read(session_id, after, limit)
        except SessionNotFound:  # a new session
            await self._copy.reach_head()
            return await self._copy.store.read(session_id, after, limit)

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        return await self._copy.store.read_all(after, limit)

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> Any:
        return self._copy.store.subscribe(session_id, wakeup)


def hub_over(
    store: Store,
    *,
    models: Callable[[str | None], ChatModel],
    tools: Callable[[SessionRecord], Sequence[Tool]],
    loses_leases: bool = True,
    **options: Any,
) -> Any:
    """Return a hub over `store`, or two of them if the store is one of several workers; see `Hub` for the options."""
    options = {"clock": PatientClock(), "models": models, "tools": tools} | options
    unreliable = _unreliable(store)
    if unreliable is None or not isinstance(store, InterceptedStore):
        return Hub(store, **options)
    hubs = Hub(store, **options), Hub(store.other_worker(), **options)
    return TwoHubs(*hubs, unreliable, loses_leases=loses_leases)


async def end_takeover(hub: Hub | TwoHubs) -> None:
    """Let a hub, which stands for a process that has died, take over no more sessions."""
    for each in hub.hubs if isinstance(hub, TwoHubs) else (hub,):
        await each._takeover.close()  # pyright: ignore[reportPrivateUsage]


def authority(store: Store) -> Store:
    """Return the store whose log and catalog have what is stored at once."""
    unreliable = _unreliable(store)
    return store if unreliable is None else unreliable.memory


def _unreliable(store: Store) -> UnreliableStore | None:
    if isinstance(store, UnreliableStore):
        return store
    return _unreliable(store.store) if isinstance(store, InterceptedStore) else None


class TwoHubs:
    """Two hubs of which one, chosen at random, gets an operation; they are asked to recover before the first one.

    With `loses_leases` a session that no turn runs in, and that has no queue, often loses its owner before a command.
    """

    def __init__(self, first: Hub, second: Hub, store: UnreliableStore, *, loses_leases: bool = True) -> None:
        self.hubs = (first, second)
        self.gate = _Gates(self.hubs)
        self.loses_leases = loses_leases
        self._store = store
        self._commands: Counter[str] = Counter()  # under way, by session
        self._has_begun = False

    def __getattr__(self, name: str) -> Any:
        if name not in COMMANDS + READS:
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if not self._has_begun:
                await self.recover()
            key, rng = (args or [""])[0], self._store.rng
            if name in COMMANDS and self.loses_leases and not self._commands[key] and rng.random() < 0.3:
                self._store.memory.expire(key, only_idle=True)
            operation: Callable[..., Awaitable[Any]] = getattr(rng.choice(self.hubs), name)
            self._commands[key] += 1
            try:
                return await operation(*args, **kwargs)
            finally:
                self._commands[key] -= 1

        return call

    def running_turn_id(self, session_id: str) -> str | None:
        return self.hubs[0].running_turn_id(session_id) or self.hubs[1].running_turn_id(session_id)

    async def recover(self, **options: Any) -> None:
        if not self._has_begun:  # the workers before these have ended
            self._has_begun = True
            for record in await self._store.memory.sessions(limit=10_000, archived="with"):
                self._store.memory.expire(record.id)
        for hub in self.hubs:
            await hub.recover(**options)

    async def close(self) -> None:
        """Close both hubs at once; one with questions begins in this very step."""
        first, second = sorted(self.hubs, key=lambda hub: not hub.gate.pending())
        closing = asyncio.create_task(second.close())
        await first.close()
        await closing


class _Gates:
    """The gates of several hubs as one."""

    def __init__(self, hubs: Sequence[Hub]) -> None:
        self._hubs = hubs

    def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        return [question for hub in self._hubs for question in hub.gate.pending(session_id)]

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        return next((answer for hub in self._hubs if (answer := hub.gate.decided(request_id)) is not None), None)

    def resolve(self, request_id: str, *args: Any, **kwargs: Any) -> Any:
        for hub in self._hubs:
            if any(question.id == request_id for question in hub.gate.pending()):
                return hub.gate.resolve(request_id, *args, **kwargs)
        return self._hubs[0].gate.resolve(request_id, *args, **kwargs)
