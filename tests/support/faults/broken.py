"""Faults of servers, each of which breaks a promise; the test of that promise must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agenticx.clocks import SystemClock, rfc3339
from agenticx.errors import StoreError
from agenticx.runtime import ConfirmClosed, EventType, RuntimeEvent, UserAnswer
from agenticx.sessions import Log, SqliteStore, Store, StoredEvent, read_log_pages
from agenticx.sessions.history.interrupted import InterruptedTurn
from agenticx.sessions.hub.turn_runner import TurnRunner
from agenticx.sessions.log.events import encode_events
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.sqlite import _lease as sqlite_lease
from studio.services import Services
from tests.support.faults.broken_streams import STREAMS
from tests.support.intercepted_store import InterceptedStore, StoreCall, Write

StoreFault = Callable[[SqliteStore], Store]


def store(name: str | None, good: SqliteStore) -> Store:
    """Return the `good` store with the fault `name`."""
    return _STORES.get(checked_name(name) or "", _unchanged_store)(good)


def services(name: str | None, services: Services) -> None:
    """Install a fault outside the store."""
    _SERVICES.get(checked_name(name) or "", _unchanged_services)(services)


def checked_name(name: str | None) -> str | None:
    """Return `name`; raise `ValueError` unless it is None or one of `MUTANTS`."""
    if name is not None and name not in MUTANTS:
        raise ValueError(f"unknown fault {name!r}; known faults: {', '.join(sorted(MUTANTS))}")
    return name


def _unchanged_store(good: SqliteStore) -> Store:
    return good


def _unchanged_services(services: Services) -> None: ...


class EarlyStore(InterceptedStore):
    """A store that shows events to readers before they are stored.

    With `hides_failures` it also shows those that are never stored, and reports their commits as stored.
    """

    def __init__(self, good: SqliteStore, *, hides_failures: bool = False) -> None:
        super().__init__(good, self._show_and_store)
        good._database.clock = _StoppedClock()  # so that the early events are those that are stored
        self._hides = hides_failures
        self._early_log = _EarlyLog(good.log)

    @property
    def log(self) -> Log:
        return self._early_log  # type: ignore[return-value]

    async def _show_and_store(self, write: Write) -> Sequence[StoredEvent]:
        early = await self._early_log.show(write, after_shown=self._hides)
        await asyncio.sleep(0.02)
        try:
            return await write.make()
        except StoreError:
            if self._hides:
                return early
            raise


class _StoppedClock(SystemClock):
    """A clock whose time of day never changes."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


class _EarlyLog:
    """The log of a store with the events that are about to be stored."""

    def __init__(self, good: Log) -> None:
        self._good = good
        self._notifier = Notifier()
        self._shown: dict[str, list[StoredEvent]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._good, name)

    async def show(self, write: Write, *, after_shown: bool) -> Sequence[StoredEvent]:
        """Show the events of `write`, behind the stored ones or, with `after_shown`, behind the shown ones."""
        shown = self._shown.setdefault(write.session_id, [])
        seq = shown[-1].seq if shown and after_shown else await self._good.head(write.session_id)
        ts = rfc3339(_StoppedClock().now())
        early = encode_events(
            write.session_id, write.commit.turn_id, write.commit.events, seq=seq, position=10**9, ts=ts
        )
        shown.extend(early)
        self._notifier.notify(write.session_id)
        return early

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> Any:
        return self._notifier.subscribe(session_id, wakeup)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        shown = [event for event in self._shown.get(session_id, []) if event.seq > after]
        if shown and shown[0].seq == after + 1:
            return shown[:limit]
        return await self._good.read(session_id, after, limit)


def _without_sync(good: SqliteStore) -> Store:
    writer: Any = good._database.writer  # pyright: ignore[reportPrivateUsage]
    usual = writer.put

    def put(job: Any) -> Any:
        job.synced = False
        return usual(job)

    writer.put = put
    return good


def _without_facts(*kinds: str) -> StoreFault:
    async def around(write: Write) -> Sequence[StoredEvent]:
        return await write.make(facts=[fact for fact in write.commit.facts if fact.kind not in kinds])

    return lambda good: InterceptedStore(good, around)


def _without_lock(good: SqliteStore) -> Store:
    owner: Any = good._database._owner  # pyright: ignore[reportPrivateUsage]
    owner.release()
    return good


def _read_whole_log(good: SqliteStore) -> Store:
    """Read the whole log of a session before each read after its first event, and keep 4 KiB of memory per event."""
    kept: list[bytes] = []

    async def around_call(call: StoreCall) -> Any:
        if call.name == "read" and call.args[1] > 0:
            pages: list[bytes] = []
            async for events in read_log_pages(good.log, call.args[0]):
                pages.extend(event.frame_json.ljust(4096) for event in events)
            kept[:] = pages
        return await call.run()

    return InterceptedStore(good, Write.make, around_call)


def _append_after_end(make_event: Callable[[RuntimeEvent], RuntimeEvent]) -> StoreFault:
    """Append after the terminal event of each turn what `make_event` returns for it, past the store's check."""

    async def around(write: Write) -> Sequence[StoredEvent]:
        events = write.commit.events
        if not events or not events[-1].terminal:
            return await write.make()
        return await write.make(events=[*events, make_event(events[-1])])

    def broken(good: Store) -> Store:
        lease: Any = sqlite_lease
        lease.check_turn = lambda *_: None
        return InterceptedStore(good, around)

    return broken


def _token_after_end(_final: RuntimeEvent) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": "more", "message_id": "msg_more", "offset": 0})


def _same_event(final: RuntimeEvent) -> RuntimeEvent:
    return final


def _let_any_turn_begin(_services: Services) -> None:
    """Begin a turn for each message at once, also while another one runs."""
    turns: Any = TurnRunner
    assert isinstance(turns.is_free, property)
    turns.is_free = property(lambda _self: True)


def _forget_begun_calls(_services: Services) -> None:
    """Resume interrupted turns as if none of their calls had begun."""
    turns: Any = InterruptedTurn
    usual = turns.with_facts
    turns.with_facts = lambda *args: replace(usual(*args), begun_calls=frozenset())


def _accept_all_answers(services: Services) -> None:
    """Report every answer to a confirmation as accepted."""
    hub: Any = services.hub
    usual: Callable[..., Awaitable[UserAnswer]] = hub.answer

    async def answer(request_id: str, answer: UserAnswer, *, digest: str = "") -> UserAnswer:
        with suppress(ConfirmClosed):
            await usual(request_id, answer, digest=digest)
        return answer

    hub.answer = answer


_STORES: dict[str, StoreFault] = {
    "shows before it stores": EarlyStore,
    "never syncs": _without_sync,
    "forgets that calls began": _without_facts("call_began"),
    "forgets answers": _without_facts("request_answered", "request_decided"),
    "takes no lock": _without_lock,
    "hides storage failures": partial(EarlyStore, hides_failures=True),
    "reads the whole log to resume": _read_whole_log,
    "appends events after the end": _append_after_end(_token_after_end),
    "ends twice": _append_after_end(_same_event),
}

_SERVICES: dict[str, Callable[[Services], None]] = {
    "lets any turn begin": _let_any_turn_begin,
    "runs calls again": _forget_begun_calls,
    "accepts every answer": _accept_all_answers,
    **STREAMS,
}

MUTANTS = frozenset(_STORES) | frozenset(_SERVICES)
"""The names of all faults."""
