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
from agenticx.sessions.store.entries import StoredEvent, StoredRecord
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import log_end
from agenticx.sessions.store.sqlite._file import map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite._usage import read_usage
from agenticx.sessions.store.state import StoredSession, fold

__all__ = ["check_projections", "differences"]

_PAGE_EVENTS = 1000


def check_projections(path: Path, *, has_owner: bool = False) -> list[str]:
    """Return a sentence for each table of a session that differs from its log; raise `StoreError`.

    The file is not changed; one that `has_owner` may be written to meanwhile.
    """
    require_database_file(path)
    uri = read_only_uri(path, has_owner=has_owner)
    with map_file_errors(path), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as opened:
        opened.execute("BEGIN")
        return list(differences(opened))


def differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each table of a session that differs from its log."""
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
    records = map(rows.read_record_row, rows.record_rows(connection, number))
    return merge(_events(connection, session_id), records, key=_place)


def _events(connection: sqlite3.Connection, session_id: str) -> Iterator[StoredEvent]:
    seq = 0
    while page := rows.events_after(connection, session_id, seq, _PAGE_EVENTS):
        for event in page:
            if event.seq != seq + 1:
                raise DamagedData(f"event {seq + 1} is missing")
            seq = event.seq
            yield event


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
    yield "its open child turns", lambda: turns.open_children(connection, number), children
    yield "its messages", lambda: rows.read_messages(connection, "messages", number), folded.messages
    yield "its compacted messages", lambda: rows.read_messages(connection, "compacted", number), folded.compacted
    yield "its state", lambda: [*rows.read_parts(connection, number).items()], [*folded.parts.items()]
    yield "its facts", lambda: rows.all_facts(connection, number), list(folded.facts.values())
    texts = {(text.message_id or "", text.role, text.text) for text in folded.texts.values()}
    name = {("", "name", record.name)} if record.name else set[tuple[str, str, str]]()
    yield "the texts of the search", lambda: _texts(connection, number), name | texts
    usage = {(row.day, row.model, clean_text(row.agent_id)): row.counts for row in folded.daily_usage}
    yield "its usage", lambda: _usage(connection, session_id), usage
    yield "the end of its log", lambda: log_end(connection, number).last_seq, folded.last_seq
    yield "the numbers of its commits", lambda: list(_missing_revs(connection, number)), []


def _texts(connection: sqlite3.Connection, number: int) -> set[tuple[str, str, str]]:
    found: Iterable[tuple[str, str, str]] = connection.execute(
        "SELECT message_id, role, text FROM texts WHERE session = ?", (number,)
    )
    return set(found)


def _usage(connection: sqlite3.Connection, session_id: str) -> dict[tuple[str, str, str], Any]:
    found = read_usage(connection, session_id=session_id, since=None, until=None)
    return {(row.day, row.model, row.agent_id): row.counts for row in found}


def _missing_revs(connection: sqlite3.Connection, number: int) -> Iterator[int]:
    """Yield the first commit that is missing before each of the newest ones."""
    (rev,) = connection.execute(
        "SELECT coalesce(max(last_rev), 0) FROM segments WHERE session = ?", (number,)
    ).fetchone()
    newest = connection.execute(
        "SELECT rev FROM commits WHERE session = ? AND rev > ? ORDER BY position", (number, rev)
    )
    for (found,) in newest:
        if found != rev + 1:
            yield rev + 1
        rev = found
