"""The check of the schema and of the tables that are derived from the log: each session is folded again.

It does not notice a changed text in an event or a record that can still be decoded, nor a changed id of a commit. It
does notice changed events of segments, whose compression has a checksum, and changed messages, whose keys are digests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from pathlib import Path
from typing import Any

from agenticx.messages import clean_text
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent, check_envelope
from agenticx.sessions.log.records import StoredRecord
from agenticx.sessions.log.state import FoldedSession, fold
from agenticx.sessions.store.log_rows import (
    LogRow,
    check_record,
    entry_place,
    misplaced_records,
    missing_revs,
    wrong_ids,
    wrong_positions,
)
from agenticx.sessions.store.segments import line_position, segment_lines
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import log_end
from agenticx.sessions.store.sqlite._file import map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite._usage import read_usage
from agenticx.sessions.store.sqlite.schema import create_schema

__all__ = ["check_projections", "differences"]

_PAGE_EVENTS = 1000
_SHOWN_DAMAGES = 5
_SESSIONS = "SELECT number, id FROM sessions WHERE id IS NOT NULL ORDER BY number"
_TABLES = ("commits", "segments", "records", "turns", "messages", "compacted", "parts", "facts", "usage", "texts")
_META_KEYS = ("log_id", "position", "search")


def check_projections(path: Path, *, has_owner: bool = False) -> list[str]:
    """Return a sentence for each damage of the schema, and for each table of a session that differs from its log.

    Raises `StoreError`. The file is not changed; one that `has_owner` may be written to meanwhile.
    """
    require_database_file(path)
    uri = read_only_uri(path, has_owner=has_owner)
    with map_file_errors(path), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as opened:
        opened.execute("BEGIN")
        damages = [*_damages(opened), *_schema_differences(opened, ("index", "view", "trigger"))]
        if tables := list(_schema_differences(opened, ("table",))):
            return [*damages, *tables]  # without them nothing else can be read
        return [*damages, *_meta_damages(opened), *differences(opened)]


def _damages(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds damaged in the file, the first few of it; also indexes that differ from their tables."""
    found = connection.execute(f"PRAGMA integrity_check({_SHOWN_DAMAGES})").fetchall()
    return [f"the file is damaged: {sentence}" for (sentence,) in found if sentence != "ok"]


def _schema_differences(connection: sqlite3.Connection, types: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each table, or else of these types, that a new database does not have in the same way."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        create_schema(new)
        expected, found = _schema(new, types), _schema(connection, types)
    for type_, name in sorted(expected.keys() | found.keys()):
        if (type_, name) not in found:
            yield f"the {type_} {name!r} is missing"
        elif (type_, name) not in expected:
            yield f"the {type_} {name!r} is not one of this database"
        elif found[type_, name] != expected[type_, name]:
            yield f"the {type_} {name!r} is not as in a new database"


def _schema(connection: sqlite3.Connection, types: Sequence[str]) -> dict[tuple[str, str], tuple[str, str | None]]:
    """Return the table and the statement of each item of the schema with one of these types.

    Tables of `ANALYZE` are left out. So are the statements of FTS5's own tables, which depend on its version.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'")
    return {
        (type_, name): (table, None if name.startswith("found_") else sql)
        for type_, name, table, sql in rows
        if type_ in types
    }


def _meta_damages(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each value about the whole file that is missing or wrong."""
    meta: dict[str, Any] = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    for key in _META_KEYS:
        if key not in meta:
            yield f"the table 'meta' has no {key!r}"
    if "position" in meta and not str(meta["position"]).isdecimal():
        yield "in the table 'meta', 'position' is no number"
    if "log_id" in meta and not str(meta["log_id"]).startswith("log_"):
        yield "in the table 'meta', 'log_id' is not the id of a log"


def differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each table that differs from the log of its session, or has rows of no session."""
    for table in _TABLES:
        query = f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT number FROM sessions)"
        (count,) = connection.execute(query).fetchone()
        if count:
            yield f"the table {table!r} has {count} rows of no session"
    for number, session_id in connection.execute(_SESSIONS).fetchall():
        try:
            with map_decode_errors("the order of its records"):  # their columns may have values of any type
                folded = fold(_entries(connection, number, session_id))
        except DamagedData as exc:
            yield f"session {session_id!r}: its log cannot be folded: {exc}"
            continue
        for what, read, expected in _projections(connection, number, folded):
            try:
                with map_decode_errors("a table"):
                    stored = read()
            except DamagedData as exc:
                yield f"session {session_id!r}: {what} cannot be read: {exc}"
                continue
            if stored != expected:
                yield f"session {session_id!r} differs from its log in {what}"


def _entries(connection: sqlite3.Connection, number: int, session_id: str) -> Iterator[StoredEvent | StoredRecord]:
    """Yield the entries of a session in the order of its log; raise `DamagedData`."""
    records = (check_record(rows.read_record_row(row)) for row in rows.record_rows(connection, number))
    return merge(_events(connection, session_id), records, key=entry_place)


def _events(connection: sqlite3.Connection, session_id: str) -> Iterator[StoredEvent]:
    seq = 0
    while page := rows.events_after(connection, session_id, seq, _PAGE_EVENTS):
        for event in page:
            check_envelope(event)
            seq = event.seq
            yield event


def _projections(
    connection: sqlite3.Connection, number: int, folded: FoldedSession
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Yield the name of each part of the tables, what reads it, and its value as the log says."""
    record, session_id = folded.record, folded.record.id

    def row(columns: str) -> tuple[Any, ...]:
        return connection.execute(f"SELECT {columns} FROM sessions WHERE number = ?", (number,)).fetchone()

    yield "its properties", lambda: rows.read_record(connection, number), record
    yield "the columns of the list", lambda: row("pinned, archived"), (int(record.pinned), int(record.archived))
    yield "the running turn", lambda: row("running"), (None if folded.main_turn is None else folded.main_turn.id,)
    yield "its turns", lambda: turns.all_turns(connection, number), list(folded.turns.values())
    client_ids = {turn.client_turn_id: turn.id for turn in folded.turns.values() if turn.client_turn_id is not None}
    yield "the client_turn_ids of its turns", lambda: _client_turn_ids(connection, number), client_ids
    yield "its open child turns", lambda: turns.open_children(connection, number), folded.child_turns
    yield "its messages", lambda: rows.read_messages(connection, "messages", number), folded.messages
    yield "its compacted messages", lambda: rows.read_messages(connection, "compacted", number), folded.compacted
    yield "its state", lambda: [*rows.read_parts(connection, number).items()], [*folded.parts.items()]
    yield "its facts", lambda: rows.all_facts(connection, number), list(folded.all_facts.values())
    texts = {(text.message_id or "", text.role, text.text) for text in folded.texts.values()}
    name = {("", "name", record.name)} if record.name else set[tuple[str, str, str]]()
    yield "the texts of the search", lambda: _texts(connection, number), name | texts
    usage = {(row.day, row.model, clean_text(row.agent_id)): row.counts for row in folded.daily_usage}
    yield "the words of the search", lambda: list(_texts_without_words(connection, number)), []
    yield "its usage", lambda: _usage(connection, session_id), usage
    yield "the end of its log", lambda: log_end(connection, number).last_seq, folded.last_seq
    log = _log_rows(connection, number)

    def positions_of(row: LogRow) -> list[int]:
        return [line_position(line) for line in _lines(connection, number, row)]

    yield "the numbers of its commits", lambda: list(missing_revs(log)), []
    yield "the ids of its commits", lambda: list(wrong_ids(log)), []
    yield "the positions of its commits", lambda: list(wrong_positions(log, positions_of)), []
    yield "the places of its records", lambda: list(misplaced_records(_record_places(connection, number), log)), []
    yield "the commits of its records", lambda: min(folded.rev, log_end(connection, number).rev), folded.rev


def _texts(connection: sqlite3.Connection, number: int) -> set[tuple[str, str, str]]:
    found: Iterable[tuple[str, str, str]] = connection.execute(
        "SELECT message_id, role, text FROM texts WHERE session = ?", (number,)
    )
    return set(found)


def _usage(connection: sqlite3.Connection, session_id: str) -> dict[tuple[str, str, str], Any]:
    found = read_usage(connection, session_id=session_id, since=None, until=None)
    return {(row.day, row.model, row.agent_id): row.counts for row in found}


def _log_rows(connection: sqlite3.Connection, number: int) -> list[LogRow]:
    """Return the rows of a session's log in its order, without their bodies."""
    found: Iterable[tuple[Any, ...]] = connection.execute(
        """SELECT last_seq, first_rev, last_rev, commit_id, first_position, last_position, 1 FROM segments
           WHERE session = ?1
           UNION ALL SELECT last_seq, rev, rev, commit_id, position, position, 0 FROM commits
           WHERE session = ?1 ORDER BY 3, 2, 1""",
        (number,),
    )
    log, seq = list[LogRow](), 0
    for last_seq, *values in found:
        log.append(LogRow(seq, last_seq, *values, may_continue=values[-1]))
        seq = last_seq
    return log


def _lines(connection: sqlite3.Connection, number: int, row: LogRow) -> list[bytes]:
    """Return the lines of a row, one per event."""
    if row.is_segment:
        query = "SELECT body FROM segments WHERE session = ? AND last_seq = ? AND last_rev = ?"
        (body,) = connection.execute(query, (number, row.last_seq, row.last_rev)).fetchone()
    else:
        (body,) = connection.execute("SELECT body FROM commits WHERE position = ?", (row.last_position,)).fetchone()
    return segment_lines(body, compressed=row.is_segment)


def _record_places(connection: sqlite3.Connection, number: int) -> Iterable[Sequence[Any]]:
    return connection.execute(
        "SELECT rev, seq, kind FROM records WHERE session = ? ORDER BY rev, record_index", (number,)
    )


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
