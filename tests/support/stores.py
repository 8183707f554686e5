"""The stores that the suites of the store's protocols run against, and what these suites write."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from agenticx.messages import UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import MemoryStore, SessionRecord, SqliteStore, Store, TurnRecord
from agenticx.sessions.store.records import CallBegan, MessagePosted, MessageTaken, RequestAsked
from tests.support.commits import append
from tests.support.two_hubs import UnreliableStore

__all__ = [
    "STORES",
    "asked",
    "began",
    "final",
    "in_a_file",
    "in_memory",
    "orphans",
    "over_a_network",
    "posted",
    "question",
    "record",
    "running_in",
    "session_in",
    "started",
    "taken",
    "token",
]


def in_memory(_folder: Path) -> Store:
    return MemoryStore()


def in_a_file(folder: Path) -> Store:
    return SqliteStore(folder / "sessions.db")


def over_a_network(_folder: Path) -> Store:
    return UnreliableStore(MemoryStore(), random.Random(0), settles=True)


STORES = [in_memory, in_a_file, over_a_network]


def record(name: str | None = None) -> SessionRecord:
    return SessionRecord(name=name, workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")


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


async def session_in(store: Store) -> str:
    made = record()
    await store.create(made)
    return made.id


async def running_in(store: Store, turn_id: str) -> str:
    """Create a session in which a turn runs."""
    session_id = await session_in(store)
    await append(
        store, session_id, turn_id, [started()], begins=TurnRecord(id=turn_id, session_id=session_id, input="x")
    )
    return session_id


async def orphans(store: Store) -> list[str]:
    return [session_id async for session_id in store.ownership.orphans()]
