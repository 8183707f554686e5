"""Two hubs on one store, and a store that is as unreliable as a network."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import pytest

from agenticx.errors import SessionNotFound, StoreError
from agenticx.llms import ChatModel
from agenticx.messages import new_id
from agenticx.runtime import ConfirmAnswer, ConfirmRequest
from agenticx.sessions import (
    Catalog,
    Durability,
    Hub,
    Log,
    MemoryBlobs,
    MemoryStore,
    OutcomeUnknown,
    Ownership,
    OwnershipLost,
    Position,
    SessionRecord,
    Store,
    StoredEvent,
    TurnRecord,
    TurnRequest,
)
from agenticx.sessions.log.records import FactT
from agenticx.tools import Tool
from tests.support.intercepted_store import InterceptedCalls, InterceptedStore, StoreCall, Write
from tests.support.memory_store import apply, empty_copy, expire_lease, follow
from tests.support.timeouts import PatientClock

__all__ = [
    "Faults",
    "TwoHubs",
    "UnreliableStore",
    "UnreliableWorker",
    "authority",
    "end_lease",
    "end_takeover",
    "hub_over",
    "loss_options",
    "unreliable_store",
]

COMMANDS = ("submit", "start", "stop", "change", "rewind", "delete", "answer")
READS = ("open_requests", "current_turn_id", "sessions")
LONGEST_DELAY_SECONDS = 0.002

UNKNOWN_RATE = 0.1
"""The part of the commits that an unreliable store leaves without an answer."""

SILENCE_RATE = 0.3
"""The part of these whose first repetition has no answer either; all of them have one the second time."""

LONG_SILENCE_RATE = 0.8
"""The part of all repetitions without an answer in a store that also refuses commits."""

IDLE_LOSS_RATE = 0.3
"""The part of the commands before which a session loses its owner, if its work goes on with the next one."""

ATTEMPTS = 10
"""Attempts of a client at a command."""

LOSS_RATE = 0.2
"""The part of the commits after which a session loses its owner, also in the middle of a turn."""


@dataclass(eq=False)
class Faults:
    """The order in which sessions are written first and claimed: with `seed` it decides which commits fail."""

    seed: int
    sessions: dict[str, int] = field(default_factory=dict[str, int])
    claims: Counter[str] = field(default_factory=Counter[str])


class _Records:
    """The changes of a store in memory, in their order, and the copies that follow them."""

    def __init__(self, store: MemoryStore, seed: int) -> None:
        self.faults = Faults(seed)
        self.changes: list[Callable[[Any], None]] = []
        self.copies: list[_Copy] = []
        follow(store, self._add)

    def _add(self, change: Callable[[Any], None]) -> None:
        self.changes.append(change)
        for copy in self.copies:
            copy.apply_later(len(self.changes))


class _Copy:
    """A copy of a store for one worker's readers, which has each change some time later."""

    def __init__(self, store: MemoryStore, records: _Records, rng: random.Random) -> None:
        self.store = empty_copy(store)
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
            apply(self.store, change)
        self.place = max(place, self.place)

    async def reach(self, place: int) -> None:
        """Wait until the copy has that place."""
        while self.place < place:
            await self.pause()

    async def pause(self) -> None:
        """Wait for as long as a change may take."""
        await asyncio.sleep(self._rng.random() * LONGEST_DELAY_SECONDS)

    async def reach_head(self) -> None:
        """Wait until the copy has all that is stored now."""
        await self.reach(len(self._records.changes))


class UnreliableWorker(InterceptedStore):
    """A store of one of several workers, over a network, that outlives them.

    Of `unknown_rate` of the commits, either the commit or its acknowledgement is lost: the worker gets `OutcomeUnknown`
    and must repeat it. With `repeats` the leases do so themselves, for tests that write without a hub. After
    `loss_rate` of the commits their session loses its owner. With a `failure_rate` the store also refuses
    so many commits, and its silences are long. A worker that `has_died` writes nothing more and claims nothing.

    Which commits fail depends on `rng`, and on the session, the lease and the number of each commit alone, so that a
    test sees the same failures in each run.
    """

    def __init__(
        self,
        store: Store,
        rng: random.Random,
        faults: Faults,
        *,
        unknown_rate: float = UNKNOWN_RATE,
        failure_rate: float = 0.0,
        loss_rate: float = 0.0,
        only_idle: bool = False,
        repeats: bool = False,
    ) -> None:
        super().__init__(store, self._commit)
        self.rng = rng
        self.unknown_rate = unknown_rate
        self.failure_rate = failure_rate
        self.loss_rate = loss_rate
        self.only_idle = only_idle
        self.repeats = repeats
        self.has_died = False
        self.claims = faults.claims
        self._faults = faults
        self._delays = random.Random(faults.seed)

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of another worker's store."""
        names = ("unknown_rate", "failure_rate", "loss_rate", "only_idle", "repeats")
        return {name: getattr(self, name) for name in names}

    @property
    def authority(self) -> Store:
        """The store whose log and catalog have what is stored at once."""
        raise NotImplementedError

    def other_worker(self) -> UnreliableWorker:
        """Return a store with the same sessions for another worker."""
        raise NotImplementedError

    async def expire(self, session_id: str, *, only_idle: bool = False, noticed: bool = True) -> None:
        """End the lease of the session's owner, as `expire_lease` does."""
        raise NotImplementedError

    async def take_lease(self, session_id: str) -> None:
        """End the session's lease if its next owner goes on with all that it does.

        That is so if it has no work, or only waits for answers; with `only_idle` if it has no work.
        """
        try:
            waits = not self.only_idle and await self._only_waits(session_id)
        except SessionNotFound:
            return
        await self.expire(session_id, only_idle=not waits)

    async def _only_waits(self, session_id: str) -> bool:
        """Return True if all calls of the running turn wait for answers."""
        asked = map(_data, await self.authority.catalog.open_requests(session_id))
        waiting = {data.get("context", data)["tool_call_id"] for data in asked}
        events = await self.authority.log.read(session_id, 0, 100_000) if waiting else ()
        ended = {_data(event)["tool_call_id"] for event in events if event.type == "tool_result"}
        called = {_data(event)["tool_call_id"] for event in events if event.type == "tool_call"}
        return bool(waiting) and called - ended == waiting

    @property
    def ownership(self) -> Ownership:
        if self.has_died:
            raise OwnershipLost("the process has died")
        return super().ownership

    def _expire_soon(self, session_id: str, *, noticed: bool) -> None:
        raise NotImplementedError

    def _show_own_write(self) -> None:
        """Give this worker's readers what it has written, and all before that."""

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        if not self.repeats:
            return await self._try(write)
        with suppress(OutcomeUnknown):
            return await self._try(write)
        return await self._try(replace(write, repetition=2))

    async def _try(self, write: Write) -> Sequence[StoredEvent]:
        await self._pause()
        if self.has_died:
            raise OwnershipLost("the process has died")
        number = self._faults.sessions.setdefault(write.session_id, len(self._faults.sessions))
        place = (self._faults.seed, number, write.epoch, write.number, write.repetition)
        rng = random.Random("/".join(map(str, place)))
        if not write.repetition and rng.random() < self.failure_rate:
            raise StoreError("the store refused the commit")
        if rng.random() < self._silence(write.repetition):
            await self._leave_unanswered(write, arrives=rng.random() < 0.5)
        stored = await write.make()
        self._show_own_write()
        if rng.random() < self.loss_rate:
            self._expire_soon(write.session_id, noticed=rng.random() < 0.5)
        await self._pause()
        return stored

    def _silence(self, repetition: int) -> float:
        """Return the probability that a commit, or that repetition of it, has no answer."""
        if repetition == 0:
            return max(self.unknown_rate, self.failure_rate)
        if self.failure_rate:
            return LONG_SILENCE_RATE
        return SILENCE_RATE if repetition == 1 else 0.0

    async def _leave_unanswered(self, write: Write, *, arrives: bool) -> NoReturn:
        """Make the commit if it `arrives`, and raise `OutcomeUnknown`, whatever comes of it."""
        if arrives:
            with suppress(OwnershipLost, SessionNotFound):
                await write.make()
            await self._pause()
        raise OutcomeUnknown("the store did not answer")

    async def _pause(self) -> None:
        for _ in range(self._delays.randrange(5)):
            await asyncio.sleep(0)


class UnreliableStore(UnreliableWorker):
    """An unreliable store in memory.

    A worker's log and catalog are copies that lag behind, and a writer is delayed.
    """

    def __init__(
        self, store: MemoryStore, rng: random.Random, *, records: _Records | None = None, **options: Any
    ) -> None:
        self._records = records or _Records(store, rng.getrandbits(32))
        super().__init__(store, rng, self._records.faults, **options)
        self.memory = store
        self._log_copy, self._catalog_copy = (_Copy(store, self._records, self._delays) for _ in range(2))

    @property
    def authority(self) -> Store:
        return self.memory

    def other_worker(self) -> UnreliableStore:
        return UnreliableStore(self.memory.other_worker(), self.rng, records=self._records, **self.options)

    async def expire(self, session_id: str, *, only_idle: bool = False, noticed: bool = True) -> None:
        expire_lease(self.memory, session_id, only_idle=only_idle, noticed=noticed)

    def _expire_soon(self, session_id: str, *, noticed: bool) -> None:
        asyncio.get_running_loop().call_soon(partial(expire_lease, self.memory, session_id, noticed=noticed))

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
            await asyncio.sleep(self._delays.random() * LONGEST_DELAY_SECONDS)
            if call.name in ("get", "session_of_request", "open_requests"):
                await self._catalog_copy.reach_head()
            await self._catalog_copy.reach(self._log_copy.place)
            return await call.run()

        return InterceptedCalls(self._catalog_copy.store, once_it_has_what_was_seen)  # type: ignore[return-value]

    async def create(self, record: Any, **more: Any) -> None:
        await super().create(record, **more)
        self._show_own_write()

    async def delete(self, lease: Any) -> None:
        await super().delete(lease)
        self._show_own_write()

    def _show_own_write(self) -> None:
        self._log_copy.apply(len(self._records.changes))


def _data(event: StoredEvent) -> dict[str, Any]:
    return json.loads(event.frame_json)["data"]


class _CopiedLog:
    """A worker's copy of the log, and what it asks the store itself."""

    durability: Durability = "replicas"
    is_shared = True

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

    async def turn(
        self, session_id: str, turn_id: str | None = None, *, client_turn_id: str | None = None
    ) -> TurnRecord | None:
        await self._copy.pause()
        return await self._store.turn(session_id, turn_id, client_turn_id=client_turn_id)

    async def facts(self, session_id: str, *types: type[FactT], key: str | None = None) -> Sequence[FactT]:
        await self._copy.pause()
        return await self._store.facts(session_id, *types, key=key)

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        return await self._copy.store.read_all(after, limit)

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> Any:
        return self._copy.store.subscribe(session_id, wakeup)


def unreliable_store(request: pytest.FixtureRequest, rng: random.Random) -> UnreliableStore:
    """Return a store over which `hub_over` makes two hubs.

    A session often loses its owner before a command while it has no work, or only waits for answers. In a test marked
    `loses_owner` it does so at any time, in one marked `keeps_owner` only while it has no work.
    """
    return UnreliableStore(MemoryStore(blobs=MemoryBlobs()), rng, **loss_options(request))


def loss_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the keywords of an unreliable store that loses its owners as the test is marked."""
    markers = {name: request.node.get_closest_marker(name) for name in ("loses_owner", "keeps_owner")}
    return {
        "loss_rate": LOSS_RATE if markers["loses_owner"] else 0.0,
        "only_idle": markers["keeps_owner"] is not None,
    }


def hub_over(
    store: Store,
    *,
    models: Callable[[str | None], ChatModel],
    tools: Callable[[SessionRecord], Sequence[Tool]],
    **options: Any,
) -> Any:
    """Return a hub over `store`, or two of them if the store is one of several workers; see `Hub` for the options."""
    options = {"clock": PatientClock(), "models": models, "tools": tools} | options
    unreliable = _unreliable(store)
    if unreliable is None or not isinstance(store, InterceptedStore):
        return Hub(store, **options)
    hubs = Hub(store, **options), Hub(store.other_worker(), **options)
    return TwoHubs(*hubs, unreliable)


async def end_takeover(hub: Hub | TwoHubs) -> None:
    """Let a hub, which stands for a process that has died, take over no more sessions."""
    for each in hub.hubs if isinstance(hub, TwoHubs) else (hub,):
        await each._takeover.close()  # pyright: ignore[reportPrivateUsage]


async def end_lease(store: Store, session_id: str) -> None:
    """End the lease of the session's owner, as if its process had died."""
    unreliable = _unreliable(store)
    if unreliable is not None:
        await unreliable.expire(session_id)
    elif isinstance(store, MemoryStore):
        expire_lease(store, session_id)
    else:
        await (await store.ownership.claim(session_id)).release(work_left=True)


def authority(store: Store) -> Store:
    """Return the store whose log and catalog have what is stored at once."""
    unreliable = _unreliable(store)
    return store if unreliable is None else unreliable.authority


def _unreliable(store: Store) -> UnreliableWorker | None:
    if isinstance(store, UnreliableWorker):
        return store
    return _unreliable(store.store) if isinstance(store, InterceptedStore) else None


class TwoHubs:
    """Two hubs of which one, chosen at random, gets an operation; they are asked to recover before the first one.

    Before a command a session often loses its owner, if its next owner goes on with all that it does. In a store that
    takes leases at any time, a command whose outcome is unknown for that reason is repeated, a message with the same
    `client_turn_id`.
    """

    def __init__(self, first: Hub, second: Hub, store: UnreliableWorker) -> None:
        self.hubs = (first, second)
        self.gate = _Gates(self.hubs)
        self._store = store
        self._rng = random.Random(store.rng.getrandbits(32))
        self._commands: Counter[str] = Counter()  # under way, by session
        self._has_begun = False
        self._beginning = asyncio.Lock()  # no session may lose its owner after the first command

    def __getattr__(self, name: str) -> Any:
        if name not in COMMANDS + READS:
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            async with self._beginning:
                if not self._has_begun:
                    await self.recover()
            key = (args or [""])[0]
            session_id = await self._store.authority.catalog.session_of_request(key) or key
            if name in COMMANDS and not self._commands[session_id] and self._rng.random() < IDLE_LOSS_RATE:
                await self._store.take_lease(session_id)
            self._commands[session_id] += 1
            try:
                return await self._call_one(name, *args, **kwargs)
            finally:
                self._commands[session_id] -= 1

        return call

    async def _call_one(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call one of the hubs; repeat a command whose session has lost its owner as a client does."""
        args = tuple(_with_id(arg) if isinstance(arg, TurnRequest) else arg for arg in args)
        for attempt in range(1, ATTEMPTS + 1):
            operation: Callable[..., Awaitable[Any]] = getattr(self._rng.choice(self.hubs), name)
            try:
                return await operation(*args, **kwargs)
            except OwnershipLost:
                if not self._store.loss_rate or attempt == ATTEMPTS:
                    raise
            except SessionNotFound:
                if name != "delete" or attempt == 1:
                    raise
                return None

    def running_turn_id(self, session_id: str) -> str | None:
        return self.hubs[0].running_turn_id(session_id) or self.hubs[1].running_turn_id(session_id)

    async def recover(self, **options: Any) -> None:
        if not self._has_begun:  # the workers before these have ended
            for record in await self._store.authority.catalog.sessions(limit=10_000, archived="with"):
                await self._store.expire(record.id)
            self._has_begun = True
        for hub in self.hubs:
            await hub.recover(**options)

    async def close(self) -> None:
        """Close both hubs at once; one with questions begins in this very step."""
        first, second = sorted(self.hubs, key=lambda hub: not hub.gate.pending())
        closing = asyncio.create_task(second.close())
        await first.close()
        await closing


def _with_id(request: TurnRequest) -> TurnRequest:
    return request if request.client_turn_id else replace(request, client_turn_id=new_id("ctid"))


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
