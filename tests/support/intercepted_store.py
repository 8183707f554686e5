"""A store whose commits, and other calls, can be delayed, refused, changed or left without an answer."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agenticx.errors import StoreError
from agenticx.sessions import (
    Blobs,
    Catalog,
    Commit,
    Lease,
    Log,
    OutcomeUnknown,
    Ownership,
    SessionRecord,
    Store,
    StoredEvent,
)
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.store.base import CommandHandler
from agenticx.sessions.store.workers import WorkersReport
from agenticx.shared_state.state import SharedState

__all__ = ["FailingCommits", "InterceptedCalls", "InterceptedStore", "StoreCall", "Write"]


@dataclass(frozen=True)
class Write:
    """A commit of a session that is about to be made or repeated by `run`.

    It is the `number`th one of the session's lease number `epoch`, from 1; `repetition` 0 is the first attempt.
    """

    session_id: str
    commit: Commit
    run: Callable[[Commit], Awaitable[Sequence[StoredEvent]]]
    epoch: int
    number: int
    repetition: int = 0

    @property
    def types(self) -> set[str]:
        """The types of the commit's events."""
        return {str(event.type.value) for event in self.commit.events}

    @property
    def fact_kinds(self) -> set[str]:
        """The kinds of the commit's facts."""
        return {fact.kind for fact in self.commit.facts}

    async def make(self, **changes: Any) -> Sequence[StoredEvent]:
        """Make the commit, with changed fields."""
        return await self.run(replace(self.commit, **changes) if changes else self.commit)


@dataclass(frozen=True)
class StoreCall:
    """A call of a coroutine method that is about to be made."""

    name: str
    args: Sequence[Any]
    keywords: Mapping[str, Any]
    run: Callable[[], Awaitable[Any]]


class InterceptedCalls:
    """An object whose coroutine methods are those of `target`, and all go through `around`."""

    def __init__(self, target: Any, around: Callable[[StoreCall], Awaitable[Any]]) -> None:
        self._target = target
        self._around = around

    def __getattr__(self, name: str) -> Any:
        method: Any = getattr(self._target, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(StoreCall(name, args, kwargs, partial(method, *args, **kwargs)))

        return call


class InterceptedStore:
    """A `Store` whose commits all go through `around`, and whose other calls go through `around_call`, if given.

    `claims` are the leases so far, by session.
    """

    def __init__(
        self,
        store: Store,
        around: Callable[[Write], Awaitable[Sequence[StoredEvent]]],
        around_call: Callable[[StoreCall], Awaitable[Any]] | None = None,
    ) -> None:
        self.store = store
        self._around = around
        self._around_call = around_call
        self.claims = Counter[str]()

    def other_worker(self) -> Store:
        """Return a store for another worker whose calls go through the same functions."""
        other = copy(self)
        other.store = self.store.other_worker()  # type: ignore[attr-defined]
        return other

    def _intercepted(self, target: Any) -> Any:
        return target if self._around_call is None else InterceptedCalls(target, self._around_call)

    @property
    def log(self) -> Log:
        return self._intercepted(self.store.log)

    @property
    def catalog(self) -> Catalog:
        return self._intercepted(self.store.catalog)

    @property
    def ownership(self) -> Ownership:
        return _Ownership(self.store.ownership, self._around, self._intercepted, self.claims)

    @property
    def blobs(self) -> Blobs | None:
        return self.store.blobs

    @property
    def address(self) -> str:
        return self.store.address

    @address.setter
    def address(self, address: str) -> None:
        self.store.address = address

    @property
    def shared(self) -> SharedState | None:
        return self.store.shared

    async def create(self, record: SessionRecord, **more: Any) -> None:
        await self._intercepted(self.store).create(record, **more)

    async def delete(self, lease: Lease) -> None:
        await self._intercepted(self.store).delete(lease.lease if isinstance(lease, _Lease) else lease)

    async def workers(self) -> WorkersReport:
        return await self.store.workers()

    async def check(self) -> None:
        await self._intercepted(self.store).check()

    async def aclose(self) -> None:
        await self.store.aclose()


class _Ownership:
    def __init__(
        self,
        ownership: Ownership,
        around: Callable[[Write], Awaitable[Sequence[StoredEvent]]],
        intercepted: Callable[[Any], Any],
        claims: Counter[str],
    ) -> None:
        self._ownership = ownership
        self._around = around
        self._intercepted = intercepted
        self._claims = claims

    async def claim(self, session_id: str) -> Lease:
        lease: Lease = await self._intercepted(self._ownership).claim(session_id)
        self._claims[session_id] += 1
        return _Lease(lease, self._around, self._intercepted(lease), self._claims[session_id])

    async def call(self, session_id: str, command: bytes) -> bytes:
        return await self._intercepted(self._ownership).call(session_id, command)

    def serve(self, handler: CommandHandler) -> Any:
        return self._ownership.serve(handler)

    def orphans(self, *, follow: bool = False) -> Any:
        return self._ownership.orphans(follow=follow)


class _Lease:
    """A lease whose commits go through `around`, and whose other calls are those of `others`."""

    def __init__(
        self, lease: Lease, around: Callable[[Write], Awaitable[Sequence[StoredEvent]]], others: Lease, epoch: int
    ) -> None:
        self.lease = lease
        self.session_id, self.lost = lease.session_id, lease.lost
        self._epoch = epoch
        self._around = around
        self._others = others
        self._last_id = ""
        self._number = self._repetition = 0

    async def check(self) -> None:
        await self._others.check()

    async def load(self) -> LoadedSession:
        return await self._others.load()

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        is_new = commit.id != self._last_id
        self._last_id = commit.id
        self._number, self._repetition = (self._number + 1, 0) if is_new else (self._number, self._repetition + 1)
        numbers = self._epoch, self._number, self._repetition
        return await self._around(Write(self.session_id, commit, self.lease.commit, *numbers))

    async def release(self, *, work_left: bool = False) -> None:
        await self._others.release(work_left=work_left)


class FailingCommits(InterceptedStore):
    """A store whose `nth` commit fails with `error`, and those after it up to `times`; none once `nth` is None.

    `carried_out`: the failing commits are stored, and their callers get `OutcomeUnknown`. A repetition counts as the
    next commit and gets the same.
    """

    def __init__(
        self,
        store: Store,
        nth: int | None = None,
        error: Exception | None = None,
        *,
        times: int = 1,
        carried_out: bool = False,
    ) -> None:
        super().__init__(store, self._commit)
        self.has_failed = False
        self.broken = False
        self._left = nth
        self._error = error or StoreError("disk full")
        self._times = times
        self._carried_out = carried_out
        self._unanswered = ""

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        if write.repetition and write.commit.id != self._unanswered:  # another store left it without an answer
            return await write.make()
        fails = self.broken
        if self._left is not None:
            self._left -= 1
            fails = fails or -self._times < self._left <= 0
        self.has_failed = self.has_failed or fails
        if fails and not self._carried_out:
            raise self._error
        self._unanswered = write.commit.id if fails else ""
        stored = await write.make()
        if fails:
            raise OutcomeUnknown("the disk did not answer")
        return stored
