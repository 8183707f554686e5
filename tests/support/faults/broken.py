"""Servers that break a promise on purpose: each of them must be found by the test of that promise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agenticx.errors import StoreError
from agenticx.runtime import ConfirmClosed, EventType, RuntimeEvent
from agenticx.sessions import SqliteStore, Store, StoredEvent, TurnRecord
from agenticx.sessions.store.base import encode_events, read_log_pages
from agenticx.sessions.store.notify import Notifier
from studio.services import Services
from tests.support.faults.broken_streams import STREAMS
from tests.support.faults.faulty_stores import Operation, Surrounded

Around = Callable[[Operation], Awaitable[Any]]
BreaksStore = Callable[[SqliteStore], Store]


def store(name: str | None, good: SqliteStore) -> Store:
    """Return the `good` store with the fault `name`."""
    return _STORES.get(checked_name(name) or "", _unchanged_store)(good)


def services(name: str | None, services: Services) -> None:
    """Install a fault outside the store."""
    _SERVICES.get(checked_name(name) or "", _unchanged_services)(services)


def checked_name(name: str | None) -> str | None:
    """Return `name`; raise `ValueError` unless it is None or one of `MUTANTS`."""
    if name is not None and name not in MUTANTS:
        raise ValueError(f"no server is broken so that it {name}; known: {', '.join(sorted(MUTANTS))}")
    return name


def _unchanged_store(good: SqliteStore) -> Store:
    return good


def _unchanged_services(services: Services) -> None: ...


def _around(good: Store, around: Around) -> Store:
    return Surrounded(good, around)  # type: ignore[return-value]


class EarlyStore:
    """A store that shows events to readers before they are stored; with `hides_failures` also those that never are."""

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
            return await self._good.append(session_id, turn_id, events, expected_seq=expected_seq, **more)
        except StoreError:
            if self._hides:
                return early
            raise

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        shown = [event for event in self._shown.get(session_id, []) if event.seq > after]
        if shown and shown[0].seq == after + 1:
            return shown[:limit]
        return await self._good.read(session_id, after, limit)


def _early(good: SqliteStore, *, hides_failures: bool = False) -> Store:
    return EarlyStore(good, hides_failures=hides_failures)  # type: ignore[return-value]


def _never_syncs(good: SqliteStore) -> Store:
    writer: Any = good._writer  # pyright: ignore[reportPrivateUsage]
    usual = writer.submit

    def submit(work: Any, *, synced: bool = False, on_commit: Any = None) -> Any:
        return usual(work, synced=False, on_commit=on_commit)

    writer.submit = submit
    return good


def _forgetting(*kinds: str) -> BreaksStore:
    return lambda good: _around(good, lambda operation: _forget(operation, *kinds))


async def _forget(operation: Operation, *kinds: str) -> Any:
    if operation.kind in kinds:
        return operation.args[0]
    if operation.name == "append":
        facts = operation.do.keywords.get("journal", ())
        return await operation.do(journal=[fact for fact in facts if fact.kind not in kinds])
    return await operation.do()


def _any_turn(good: SqliteStore) -> Store:
    async def around(operation: Operation) -> Any:
        if operation.name != "claim":
            return await operation.do()
        turn: TurnRecord = operation.args[0]
        running = [one for one in await good.unfinished_turns() if one.session_id == turn.session_id]
        for one in running:
            await good.release(one)
        return await operation.do()

    return _around(good, around)


def _locks_nothing(good: SqliteStore) -> Store:
    owner: Any = good._owner  # pyright: ignore[reportPrivateUsage]
    owner.release()
    return good


def _reads_all(good: SqliteStore) -> Store:
    """Read the whole log of a session before each read behind its beginning, and keep a page of memory per event."""
    kept: list[bytes] = []

    async def around(operation: Operation) -> Any:
        if operation.name == "read" and operation.args[1] > 0:
            pages: list[bytes] = []
            async for events in read_log_pages(good, operation.args[0]):
                pages.extend(event.frame_json.ljust(4096) for event in events)
            kept[:] = pages
        return await operation.do()

    return _around(good, around)


def _appending(behind: Callable[[RuntimeEvent], RuntimeEvent]) -> BreaksStore:
    """Append the event that `behind` returns for a turn's last event behind that event."""

    async def around(operation: Operation) -> Any:
        if operation.name != "append" or not operation.args[2][-1].terminal:
            return await operation.do()
        session_id, turn_id, events = operation.args
        return await operation.do.func(session_id, turn_id, [*events, behind(events[-1])], **operation.do.keywords)

    return lambda good: _around(good, around)


def _more(_final: RuntimeEvent) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": "more", "message_id": "msg_more", "offset": 0})


def _again(final: RuntimeEvent) -> RuntimeEvent:
    return final


def _run_again(services: Services) -> None:
    """Continue calls that had begun as if they had not."""
    turns: Any = services.hub._turns  # pyright: ignore[reportPrivateUsage]
    usual = turns.read_interrupted

    async def cut(turn: TurnRecord) -> Any:
        checked_name = await usual(turn)
        checked_name.begun_calls = frozenset()
        return checked_name

    def cut_again(_self: object, turn: TurnRecord) -> Any:
        return cut(turn)

    type(turns).read_interrupted = cut_again


def _accept_all_answers(services: Services) -> None:
    """Report every answer as the one that counts."""
    confirms: Any = services.hub.confirms
    usual = confirms.answer

    async def answer(request_id: str, given: Any, *, digest: str) -> Any:
        with suppress(ConfirmClosed):
            await usual(request_id, given, digest=digest)
        return given

    confirms.answer = answer


_STORES: dict[str, BreaksStore] = {
    "shows before it stores": _early,
    "never syncs": _never_syncs,
    "forgets that calls began": _forgetting("began"),
    "forgets answers": _forgetting("answered", "closed"),
    "lets any turn begin": _any_turn,
    "locks nothing": _locks_nothing,
    "says that all is well": partial(_early, hides_failures=True),
    "reads the whole log to resume": _reads_all,
    "goes on behind the end": _appending(_more),
    "ends twice": _appending(_again),
}

_SERVICES: dict[str, Callable[[Services], None]] = {
    "runs calls again": _run_again,
    "agrees with everybody": _accept_all_answers,
    **STREAMS,
}

MUTANTS = frozenset(_STORES) | frozenset(_SERVICES)
"""Every way in which a server can be broken."""
