"""The check of the tables that are made of the log, for which each session is folded anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from heapq import merge
from pathlib import Path
from typing import Any

from agenticx.messages import clean_text
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.events import StoredEvent, check_envelope
from agenticx.sessions.store.records import MessageAdded, StoredRecord, message_key
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import log_end
from agenticx.sessions.store.sqlite._file import map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite._usage import read_usage
from agenticx.sessions.store.state import StoredSession, fold

__all__ = ["check_projections", "differences"]

_PAGE_EVENTS = 1000
_SHOWN_DAMAGES = 5
_TABLES = ("commits", "segments", "records", "turns", "messages", "compacted", "parts", "facts", "usage", "texts")


def check_projections(path: Path, *, has_owner: bool = False) -> list[str]:
    """Return a sentence for each table of a session that differs from its log; raise `StoreError`.

    The file is not changed; one that `has_owner` may be written to meanwhile.
    """
    require_database_file(path)
    uri = read_only_uri(path, has_owner=has_owner)
    with map_file_errors(path), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as opened:
        opened.execute("BEGIN")
        return [*_damages(opened), *differences(opened)]


def _damages(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds damaged in the file, the first few of it; also indexes that differ from their tables."""
    found = connection.execute(f"PRAGMA integrity_check({_SHOWN_DAMAGES})").fetchall()
    return [f"the file is damaged: {sentence}" for (sentence,) in found if sentence != "ok"]


def differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each table that differs from the log of its session, or has rows of no session."""
    for table in _TABLES:
        query = f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT number FROM sessions)"
        (count,) = connection.execute(query).fetchone()
        if count:
            yield f"the table {table!r} has {count} rows of no session"
    for number, session_id in connection.execute("SELECT number, id FROM sessions ORDER BY number").fetchall():
        try:
            folded = fold(_entries(connection, number, session_id))
        except DamagedData as exc:
            yield f"session {session_id!r}: its log cannot be folded: {exc}"
            continue
        for what, read, expected in _projections(connection, number, folded):
            try:
                stored = read()
            except DamagedData as exc:
                yield f"session {session_id!r}: {what} cannot be read: {exc}"
                continue
            if stored != expected:
                yield f"session {session_id!r} differs from its log in {what}"


def _entries(connection: sqlite3.Connection, number: int, session_id: str) -> Iterator[StoredEvent | StoredRecord]:
    """Yield the entries of a session in the order of its log; raise `DamagedData`."""
    records = map(_checked_record, rows.record_rows(connection, number))
    return merge(_events(connection, session_id), records, key=_place)


def _events(connection: sqlite3.Connection, session_id: str) -> Iterator[StoredEvent]:
    seq = 0
    while page := rows.events_after(connection, session_id, seq, _PAGE_EVENTS):
        for event in page:
            check_envelope(event)
            seq = event.seq
            yield event


def _checked_record(row: tuple[Any, ...]) -> StoredRecord:
    stored = rows.read_record_row(row)
    if isinstance(stored.record, MessageAdded) and message_key(stored.record.text) != stored.record.key:
        raise DamagedData(f"a message in commit {stored.rev} is not the one that was stored")
    return stored


def _place(entry: StoredEvent | StoredRecord) -> tuple[int, int, int]:
    """Return the place of an entry in the log: that of a record is behind the event that it follows."""
    return (entry.seq, 0, 0) if isinstance(entry, StoredEvent) else (entry.seq, entry.rev, entry.record_index)


def _projections(
    connection: sqlite3.Connection, number: int, folded: StoredSession
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Yield the name of each part of the tables, what reads it, and its value as the log says."""
    record, session_id = folded.record, folded.record.id

    def row(columns: str) -> tuple[Any, ...]:
        return connection.execute(f"SELECT {columns} FROM sessions WHERE number = ?", (number,)).fetchone()

    yield "its properties", lambda: rows.read_record(connection, number), record
    yield "the columns of the list", lambda: row("pinned, archived"), (int(record.pinned), int(record.archived))
    yield "the running turn", lambda: row("running"), (folded.running_turn_id,)
    yield "its turns", lambda: turns.all_turns(connection, number), list(folded.turns.values())
    children = [folded.turns[id_] for id_ in folded.open_children]
    client_ids = {turn.client_turn_id: turn.id for turn in folded.turns.values() if turn.client_turn_id is not None}
    yield "the client_turn_ids of its turns", lambda: _client_turn_ids(connection, number), client_ids
    yield "its open child turns", lambda: turns.open_children(connection, number), children
    yield "its messages", lambda: rows.read_messages(connection, "messages", number), folded.messages
    yield "its compacted messages", lambda: rows.read_messages(connection, "compacted", number), folded.compacted
    yield "its state", lambda: [*rows.read_parts(connection, number).items()], [*folded.parts.items()]
    yield "its facts", lambda: rows.all_facts(connection, number), list(folded.facts.values())
    texts = {(text.message_id or "", text.role, text.text) for text in folded.texts.values()}
    name = {("", "name", record.name)} if record.name else set[tuple[str, str, str]]()
    yield "the texts of the search", lambda: _texts(connection, number), name | texts
    usage = {(row.day, row.model, clean_text(row.agent_id)): row.counts for row in folded.daily_usage}
    yield "the words of the search", lambda: list(_texts_without_words(connection, number)), []
    yield "its usage", lambda: _usage(connection, session_id), usage
    yield "the end of its log", lambda: log_end(connection, number).last_seq, folded.last_seq
    yield "the numbers of its commits", lambda: list(_missing_revs(connection, number)), []
    yield "the commits of its records", lambda: min(folded.rev, log_end(connection, number).rev), folded.rev


def _texts(connection: sqlite3.Connection, number: int) -> set[tuple[str, str, str]]:
    found: Iterable[tuple[str, str, str]] = connection.execute(
        "SELECT message_id, role, text FROM texts WHERE session = ?", (number,)
    )
    return set(found)


def _usage(connection: sqlite3.Connection, session_id: str) -> dict[tuple[str, str, str], Any]:
    found = read_usage(connection, session_id=session_id, since=None, until=None)
    return {(row.day, row.model, row.agent_id): row.counts for row in found}


def _missing_revs(connection: sqlite3.Connection, number: int) -> Iterator[int]:
    """Yield the first commit that is missing before each segment, and before each of the newest commits."""
    rev = 0
    found: Iterable[tuple[int, int, bool]] = connection.execute(
        """SELECT first_rev, last_rev, 1 FROM segments WHERE session = ?1
           UNION ALL SELECT rev, rev, 0 FROM commits WHERE session = ?1 ORDER BY 2, 1""",
        (number,),
    )
    for first, last, may_repeat in found:
        if first != rev + 1 and not (may_repeat and first == rev):
            yield rev + 1
        rev = last


def _client_turn_ids(connection: sqlite3.Connection, number: int) -> dict[str, str]:
    found: Iterable[tuple[str, str]] = connection.execute(
        "SELECT client_turn_id, id FROM turns WHERE session = ? AND client_turn_id IS NOT NULL", (number,)
    )
    return dict(found)


def _texts_without_words(connection: sqlite3.Connection, number: int) -> Iterator[str]:
    """Yield the message ids of the texts that the index of the search does not have."""
    found: Iterable[tuple[str]] = connection.execute(
        """SELECT message_id FROM texts WHERE session = ?
           AND NOT EXISTS (SELECT 1 FROM found_docsize WHERE id = texts.number)""",
        (number,),
    )
    return (message_id for (message_id,) in found)
