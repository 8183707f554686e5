"""Writing of records, and of the tables that are derived from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import (
    EventsCopied,
    Fact,
    MessageAdded,
    MessageRecord,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    PartRemoved,
    SessionChanged,
    StoredRecord,
    TextsCopied,
    TextsRemoved,
    TurnAccepted,
)
from agenticx.sessions.log.searchable_texts import searchable_texts
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite import _turns as turns

__all__ = ["StoredHead", "add_records", "delete_part", "delete_session"]

_ROWS_AT_ONCE = 16  # a few milliseconds, as several sessions may be deleted at once


@dataclass(slots=True, eq=False)  # not frozen: one is made for each commit
class StoredHead:
    """The session as it is before a commit, read from the database."""

    connection: sqlite3.Connection
    number: int

    @property
    def message_count(self) -> int:
        return rows.message_count(self.connection, "messages", self.number)

    @property
    def compacted_count(self) -> int:
        return rows.message_count(self.connection, "compacted", self.number)

    def has_message(self, key: str) -> bool:
        return rows.find_message(self.connection, self.number, key) is not None

    def part_place(self, name: str) -> int | None:
        return rows.part_place(self.connection, self.number, name)

    def next_part_place(self) -> int:
        return rows.next_part_place(self.connection, self.number)


def add_records(connection: sqlite3.Connection, number: int, records: Iterable[StoredRecord]) -> None:
    """Store the records of a commit of the session, and change the tables that are derived from them."""
    for stored in records:
        rows.add_record(connection, number, stored)
        _apply(connection, number, stored)


def delete_session(connection: sqlite3.Connection, number: int) -> None:
    """Delete the session with everything stored of it; the words of its texts stay in the file until a purge."""
    index.remove_session(connection, number)
    index.mark_purge_pending(connection)
    rows.delete_session(connection, number)


def delete_part(connection: sqlite3.Connection, number: int) -> bool:
    """Delete some of what is stored of a session that nobody sees; return False once `delete_session` is quick."""
    return (
        index.remove_session(connection, number, _ROWS_AT_ONCE) > 0
        or rows.delete_some_rows(connection, number, _ROWS_AT_ONCE) > 0
    )


def _apply(connection: sqlite3.Connection, number: int, stored: StoredRecord) -> None:
    """Change the tables that are made of records as this one says; `FoldedSession` does the same in memory."""
    place = stored.rev, stored.record_index
    match stored.record:
        case Fact() as fact:
            rows.apply_fact(connection, number, *place, fact)
        case SessionChanged(record=record):
            rows.update_session(connection, number, record)
            index.set_name(connection, number, record.name)
        case EventsCopied():
            pass  # their usage is not added
        case TurnAccepted(turn=turn):
            turns.begin_turn(connection, number, turn, *place)
        case PartChanged() as part:
            rows.change_part(connection, number, part, *place)
        case PartRemoved(key=name):
            rows.remove_part(connection, number, name)
        case record:
            _apply_to_messages(connection, number, record, place)


def _apply_to_messages(
    connection: sqlite3.Connection, number: int, record: MessageRecord, place: tuple[int, int]
) -> None:
    match record:
        case MessageAdded(message=message):
            count = rows.message_count(connection, "messages", number)
            rows.add_messages(connection, "messages", number, count, [place])
            index.add_texts(connection, number, searchable_texts([message]))
        case MessagesReplaced(keep=keep, messages=keys):
            rows.replace_messages(connection, "messages", number, keep, _places(connection, number, keys))
            messages = rows.read_messages(connection, "messages", number, keep)
            index.add_texts(connection, number, searchable_texts(messages))
        case MessagesCompacted(keep=keep, messages=keys):
            rows.replace_messages(connection, "compacted", number, keep, _places(connection, number, keys))
        case TextsCopied(texts=texts):
            index.add_texts(connection, number, texts)
        case TextsRemoved(message_ids=ids):
            index.remove_texts(connection, number, ids)
        case _:
            assert_never(record)


def _places(connection: sqlite3.Connection, number: int, keys: Sequence[str]) -> list[tuple[int, int]]:
    places = [rows.find_message(connection, number, key) for key in keys]
    if None in places:
        raise DamagedData("a record of a session names a message that is not in its log")
    return [place for place in places if place is not None]
