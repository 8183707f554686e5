"""The stores that the suites of the store's protocols run against, and what these suites write."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agenticx import UserMessage
from agenticx.clocks import SystemClock, rfc3339
from agenticx.messages import AssistantMessage, Message
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    Lease,
    MemoryStore,
    SessionRecord,
    ShardedStore,
    SqliteStore,
    StateChange,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.log.records import CallBegan, MessagePosted, MessageTaken, RequestAsked
from tests.support.commits import append
from tests.support.two_hubs import UnreliableStore

__all__ = [
    "STORES",
    "USAGE",
    "RandomSession",
    "asked",
    "began",
    "created_at",
    "final",
    "in_a_file",
    "in_memory",
    "in_pages",
    "orphans",
    "over_a_network",
    "over_two_databases",
    "posted",
    "question",
    "record",
    "running_in",
    "session_in",
    "started",
    "taken",
    "token",
    "two_sessions_in_order",
]


def in_memory(_folder: Path) -> Store:
    return MemoryStore()


def in_a_file(folder: Path) -> Store:
    return SqliteStore(folder / "sessions.db")


def over_a_network(_folder: Path) -> Store:
    return UnreliableStore(MemoryStore(), random.Random(0), repeats=True)


def over_two_databases(folder: Path) -> Store:
    clock = RisingClock()
    return ShardedStore([("memory", MemoryStore(clock)), ("file", SqliteStore(folder / "sessions.db", clock=clock))])


STORES = [in_memory, in_a_file, over_a_network, over_two_databases]


class RisingClock(SystemClock):
    """A clock whose time of day is a millisecond later at each look."""

    _looks = itertools.count()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=next(self._looks))


def created_at() -> str:
    """Return a time after those that were returned before."""
    return rfc3339(RisingClock().now())


def record(name: str | None = None) -> SessionRecord:
    return SessionRecord(name=name, workspace="/tmp", created_at=created_at())


def token(text: str, offset: int = 0) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": offset})


def started(text: str = "hi") -> RuntimeEvent:
    return RuntimeEvent(EventType.TURN_STARTED, {"input": text, "model": "demo", "message_id": "u"})


def final() -> RuntimeEvent:
    data = {
        "text": "",
        "message_id": "m",
        "reason": "answer",
        "usage": {"input_tokens": None, "output_tokens": None},
    }
    return RuntimeEvent(EventType.FINAL, data)


def asked(id_: str) -> RuntimeEvent:
    data: dict[str, Any] = {"id": id_, "question": "Run it?", "digest": "d", "context": {}, "expires_at": ""}
    return RuntimeEvent(EventType.CONFIRM_REQUIRED, data)


def posted(key: str, turn_id: str = "turn_1") -> MessagePosted:
    return MessagePosted(key=key, turn_id=turn_id, message=UserMessage(content="later", message_id=key))


def taken(key: str, turn_id: str = "turn_1") -> MessageTaken:
    said = {"message_id": key, "client_turn_id": None, "input": "later", "attached": ""}
    return MessageTaken(key=key, turn_id=turn_id, state="started", after_seq=0, **said)


def began(key: str, turn_id: str = "turn_1", call_id: str = "c") -> CallBegan:
    return CallBegan(key=key, turn_id=turn_id, call_id=call_id, name="note", arguments="{}")


def question(key: str, turn_id: str = "turn_1", seq: int = 2) -> RequestAsked:
    return RequestAsked(key=key, turn_id=turn_id, seq=seq)


async def in_pages(events: Sequence[StoredEvent], size: int = 256) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the events in pages of that size."""
    for start in range(0, len(events), size):
        yield events[start : start + size]


async def session_in(store: Store) -> str:
    made = record()
    await store.create(made)
    return made.id


async def two_sessions_in_order(store: Store) -> tuple[str, str]:
    """Create two sessions whose commits have an order: in a store of several databases, they are in the same one."""
    first, second = record(), record()
    while isinstance(store, ShardedStore) and store.shard(first.id) is not store.shard(second.id):
        second = record()
    for made in (first, second):
        await store.create(made)
    return first.id, second.id


async def running_in(store: Store, turn_id: str) -> str:
    """Create a session in which a turn runs."""
    session_id = await session_in(store)
    await append(
        store, session_id, turn_id, [started()], begins=TurnRecord(id=turn_id, session_id=session_id, input="x")
    )
    return session_id


async def orphans(store: Store) -> list[str]:
    return [session_id async for session_id in store.ownership.orphans()]


USAGE = {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1}


class RandomSession:
    """Random commits of one session: turns and child turns, conversations, compaction, rewinds, state and facts."""

    def __init__(self, rng: random.Random, lease: Lease) -> None:
        self._rng = rng
        self._lease = lease
        self._open: list[TurnRecord] = []
        self._messages: list[Message] = []
        self._stored: list[Message] = []
        self._compacted = 0
        self._parts = list[str]()
        self._made = record()

    async def commit(self, number: int) -> Commit:
        """Make a random commit and return it."""
        rng, turn, begins = self._rng, None, None
        if not self._open or rng.random() < 0.2:
            above = self._open[-1].id if self._open else None
            id_ = f"turn_{number}"
            begins = TurnRecord(id=id_, session_id=self._lease.session_id, input="x", parent_turn_id=above)
            self._open.append(begins)
            turn, events = begins, [started()]
        else:
            turn = rng.choice(self._open)
            usage = RuntimeEvent(EventType.USAGE, USAGE)
            events = rng.choice([[], [token(f"{number}")], [token("a"), usage], [final()]])
            if events and events[-1].terminal:
                if any(one.parent_turn_id == turn.id for one in self._open):
                    events = []
                else:
                    self._open.remove(turn)
        key = f"{turn.id} {rng.randrange(5)}"
        some = [made(key, turn.id) for made in (began, posted, taken, question)]
        commit = Commit(
            turn_id=turn.id,
            begins=begins,
            events=events,
            state=self._change(number) if rng.random() < 0.6 else None,
            facts=rng.sample(some, rng.randrange(3)),
            record=replace(self._made, id=self._lease.session_id, name=f"n{number}") if rng.random() < 0.1 else None,
        )
        await self._lease.commit(commit)
        return commit

    def _change(self, number: int) -> StateChange:
        rng, keep, compacted, ids = self._rng, len(self._messages), list[Message](), list[str]()
        keep_compacted = self._compacted if self._compacted else None
        kind = rng.choice([UserMessage, AssistantMessage])
        new: list[Message] = [kind(content=f"text {number} {rng.random()}", message_id=f"m{number}")]
        what = rng.random()
        if what < 0.2 and keep > 2:  # a summary takes the place of the first ones
            compacted, new, keep = self._messages[:2], [*new, *self._messages[2:]], 0
            keep_compacted = self._compacted
            self._compacted += 2
        elif what < 0.4 and self._stored:  # back to some that were there before
            keep = rng.randrange(keep + 1)
            new = rng.sample(self._stored, min(3, len(self._stored)))
            self._compacted, keep_compacted = 0, 0
            left = {message.message_id for message in [*self._messages[:keep], *new]}
            ids = [message.message_id for message in self._stored if message.message_id not in left]
        self._messages[keep:] = new
        self._stored += new
        parts = {name: str(number) for name in rng.sample("abc", rng.randrange(3))}
        removed = rng.sample(self._parts, rng.randrange(len(self._parts) + 1))  # some of which are added again
        self._parts = [*dict.fromkeys([*(name for name in self._parts if name not in removed), *parts])]
        return StateChange(
            new, parts, keep, ids, compacted=compacted, keep_compacted=keep_compacted, removed_parts=removed
        )
