"""Faults of servers, each of which breaks a promise; the test of that promise must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agenticx.errors import StoreError
from agenticx.runtime import ConfirmClosed, EventType, RuntimeEvent
from agenticx.sessions import SqliteStore, Store, StoredEvent, TurnRecord
from agenticx.sessions.store.base import read_log_pages
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.records import encode_events
from studio.services import Services
from tests.support.faults.broken_streams import STREAMS
from tests.support.faults.faulty_stores import Operation, WrappedStore

Around = Callable[[Operation], Awaitable[Any]]
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


def _around(good: Store, around: Around) -> Store:
    return WrappedStore(good, around)  # type: ignore[return-value]


class EarlyStore:
    """A store that shows events to readers before they are stored.

    With `hides_failures` it also shows those that are never stored.
    """

    def __init__(self, good: SqliteStore, *, hides_failures: bool = False) -> None:
        self._good = good
        self._hides = hides_failures
        self._notifier = Notifier()
        self._shown: dict[str, list[StoredEvent]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._good, name)

    def subscribe(self, session_id: str | None, news: asyncio.Event) -> Any:
        return self._notifier.subscribe(session_id, news)

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        **more: Any,
    ) -> Sequence[StoredEvent]:
        ts = "2026-01-01T00:00:00.000Z"
        early = encode_events(session_id, turn_id, events, seq=expected_seq, position=10**9, ts=ts)
        self._shown.setdefault(session_id, []).extend(early)
        self._notifier.notify(session_id)
        await asyncio.sleep(0.02)
        try:
            return await self._good.append(session_id, turn_id, events, **more)
        except StoreError:
            if self._hides:
                return early
            raise

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        shown = [event for event in self._shown.get(session_id, []) if event.seq > after]
        if shown and shown[0].seq == after + 1:
            return shown[:limit]
        return await self._good.read(session_id, after, limit)


def _show_early(good: SqliteStore, *, hides_failures: bool = False) -> Store:
    return EarlyStore(good, hides_failures=hides_failures)  # type: ignore[return-value]


def _without_sync(good: SqliteStore) -> Store:
    writer: Any = good._writer  # pyright: ignore[reportPrivateUsage]
    usual = writer.submit

    def submit(work: Any, *, synced: bool = False, on_commit: Any = None) -> Any:
        return usual(work, synced=False, on_commit=on_commit)

    writer.submit = submit
    return good


def _without_entries(*kinds: str) -> StoreFault:
    return lambda good: _around(good, lambda operation: _drop_entries(operation, *kinds))


async def _drop_entries(operation: Operation, *kinds: str) -> Any:
    if operation.kind in kinds:
        return operation.args[0]
    if operation.name == "append":
        facts = operation.run.keywords.get("journal", ())
        return await operation.run(facts=[fact for fact in facts if fact.kind not in kinds])
    return await operation.run()


def _allow_any_turn(good: SqliteStore) -> Store:
    async def around(operation: Operation) -> Any:
        if operation.name != "claim":
            return await operation.run()
        turn: TurnRecord = operation.args[0]
        running = [one for one in await good.unfinished_turns() if one.session_id == turn.session_id]
        for one in running:
            await good.release(one)
        return await operation.run()

    return _around(good, around)


def _without_lock(good: SqliteStore) -> Store:
    owner: Any = good._owner  # pyright: ignore[reportPrivateUsage]
    owner.release()
    return good


def _read_whole_log(good: SqliteStore) -> Store:
    """Read the whole log of a session before each read after its first event, and keep 4 KiB of memory per event."""
    kept: list[bytes] = []

    async def around(operation: Operation) -> Any:
        if operation.name == "read" and operation.args[1] > 0:
            pages: list[bytes] = []
            async for events in read_log_pages(good, operation.args[0]):
                pages.extend(event.frame_json.ljust(4096) for event in events)
            kept[:] = pages
        return await operation.run()

    return _around(good, around)


def _append_after_end(make_event: Callable[[RuntimeEvent], RuntimeEvent]) -> StoreFault:
    """Append after the terminal event of each turn the event that `make_event` returns for it."""

    async def around(operation: Operation) -> Any:
        if operation.name != "append" or not operation.args[2][-1].terminal:
            return await operation.run()
        session_id, turn_id, events = operation.args
        return await operation.run.func(
            session_id, turn_id, [*events, make_event(events[-1])], **operation.run.keywords
        )

    return lambda good: _around(good, around)


def _token_after_end(_final: RuntimeEvent) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": "more", "message_id": "msg_more", "offset": 0})


def _same_event(final: RuntimeEvent) -> RuntimeEvent:
    return final


def _forget_begun_calls(services: Services) -> None:
    """Resume interrupted turns as if none of their calls had begun."""
    turns: Any = services.hub._turns  # pyright: ignore[reportPrivateUsage]
    usual = turns.read_interrupted

    async def read_without_begun_calls(turn: TurnRecord) -> Any:
        interrupted = await usual(turn)
        interrupted.begun_calls = frozenset()
        return interrupted

    def replaced(_self: object, turn: TurnRecord) -> Any:
        return read_without_begun_calls(turn)

    type(turns).read_interrupted = replaced


def _accept_all_answers(services: Services) -> None:
    """Report every answer to a question as accepted."""
    confirms: Any = services.hub.confirms
    usual = confirms.answer

    async def answer(request_id: str, given: Any, *, digest: str) -> Any:
        with suppress(ConfirmClosed):
            await usual(request_id, given, digest=digest)
        return given

    confirms.answer = answer


_STORES: dict[str, StoreFault] = {
    "shows before it stores": _show_early,
    "never syncs": _without_sync,
    "forgets that calls began": _without_entries("began"),
    "forgets answers": _without_entries("answered", "closed"),
    "lets any turn begin": _allow_any_turn,
    "takes no lock": _without_lock,
    "hides storage failures": partial(_show_early, hides_failures=True),
    "reads the whole log to resume": _read_whole_log,
    "appends events after the end": _append_after_end(_token_after_end),
    "ends twice": _append_after_end(_same_event),
}

_SERVICES: dict[str, Callable[[Services], None]] = {
    "runs calls again": _forget_begun_calls,
    "accepts every answer": _accept_all_answers,
    **STREAMS,
}

MUTANTS = frozenset(_STORES) | frozenset(_SERVICES)
"""The names of all faults."""
