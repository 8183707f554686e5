"""Rows of the database: writing and reading of records, messages and facts."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import attrgetter
from typing import Any, Literal, TypeVar

from agenticx.errors import SessionNotFound
from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.events import ASKING_EVENTS
from agenticx.sessions.log.commits import DamagedFact, SessionState
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent, request_id
from agenticx.sessions.log.records import (
    Fact,
    FactT,
    PartChanged,
    RequestAsked,
    StoredRecord,
    decode_message,
    decode_record,
    decode_session,
    encode_record,
    encode_session,
)
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import ArchivedFilter, ListedSession, ListPlace
from agenticx.sessions.store.decoding import decode_facts, decode_rows
from agenticx.sessions.store.segments import (
    PAGE_BYTES,
    decode_segment,
)
from agenticx.sessions.store.sqlite._cursors import log_end, session_number
from agenticx.sessions.store.sqlite.schema import IS_OPEN, fact_classes, kind_in

__all__ = [
    "LIST_FILTER",
    "add_messages",
    "add_record",
    "add_session",
    "all_facts",
    "apply_fact",
    "change_part",
    "complete_session",
    "delete_session",
    "delete_some_rows",
    "events_after",
    "find_facts",
    "find_message",
    "hide_session",
    "incomplete_sessions",
    "list_filter_values",
    "list_sessions",
    "message_count",
    "next_part_place",
    "open_facts",
    "open_requests",
    "part_place",
    "read_compacted",
    "read_messages",
    "read_parts",
    "read_record",
    "read_record_row",
    "read_state",
    "record_rows",
    "remove_part",
    "replace_messages",
    "session_names",
    "session_of_request",
    "sessions_with_work",
    "update_session",
]

T = TypeVar("T")

MessageTable = Literal["messages", "compacted"]

_log = get_logger(__name__)


# --- sessions ---------------------------------------------------------------------------------------------------------


def add_session(connection: sqlite3.Connection, record: SessionRecord, *, is_complete: bool = True) -> int:
    """Store a new session; return its number. Nobody sees one that is not complete."""
    added = connection.execute(
        "INSERT INTO sessions (id, record, pinned, archived) VALUES (?, ?, ?, ?)",
        (record.id if is_complete else None, encode_session(record), record.pinned, record.archived),
    )
    return added.lastrowid or 0


def complete_session(connection: sqlite3.Connection, number: int, session_id: str) -> None:
    """Let all see a session that was not complete."""
    connection.execute("UPDATE sessions SET id = ? WHERE number = ?", (session_id, number))


def hide_session(connection: sqlite3.Connection, number: int) -> None:
    """Make a session incomplete, so that nobody sees it, and delete its newest commits."""
    connection.execute("UPDATE sessions SET id = NULL, running = NULL WHERE number = ?", (number,))
    connection.execute("UPDATE turns SET is_open_child = 0 WHERE session = ? AND is_open_child", (number,))
    connection.execute("DELETE FROM commits WHERE session = ?", (number,))


def incomplete_sessions(connection: sqlite3.Connection, record: SessionRecord | None = None) -> list[int]:
    """Return the numbers of incomplete sessions; with `record` only of the session with this record.

    A session is incomplete while it is being created, and while it is being deleted.
    """
    found = connection.execute(
        "SELECT number FROM sessions WHERE id IS NULL AND (?1 IS NULL OR record = ?1)",
        (None if record is None else encode_session(record),),
    )
    return [number for (number,) in found]


def update_session(connection: sqlite3.Connection, number: int, record: SessionRecord) -> None:
    """Replace the session's record."""
    connection.execute(
        "UPDATE sessions SET record = ?, pinned = ?, archived = ? WHERE number = ?",
        (encode_session(record), record.pinned, record.archived, number),
    )


def read_record(connection: sqlite3.Connection, number: int) -> SessionRecord:
    """Return the session's record; raise `DamagedData`."""
    (text,) = connection.execute("SELECT record FROM sessions WHERE number = ?", (number,)).fetchone()
    return decode_session(text)


LIST_FILTER = """sessions.id IS NOT NULL AND (sessions.pinned, sessions.number) < (?, ?)
            AND (? = 'with' OR sessions.archived = (? = 'only'))"""
"""The condition for sessions after a place in a list, with the values of `list_filter_values`."""

_FIRST, _LAST = (2, 0), (-1, 0)  # `pinned` and number before and after those of all sessions


def list_filter_values(
    connection: sqlite3.Connection, before: str | ListPlace | None, archived: ArchivedFilter
) -> tuple[int, int, str, str]:
    """Return the values of `LIST_FILTER`; no session comes after an unknown `before`."""
    if before is None:
        pinned, number = _FIRST
    elif isinstance(before, ListPlace):
        pinned, number = _place_number(connection, before)
    else:
        found = connection.execute("SELECT pinned, number FROM sessions WHERE id = ?", (before,)).fetchone()
        pinned, number = found or _LAST
    return pinned, number, archived, archived


def _place_number(connection: sqlite3.Connection, place: ListPlace) -> tuple[int, int]:
    """Return the least `pinned` and number that are not after the place; this reads all sessions before it."""
    rows = connection.execute(
        "SELECT record, pinned, number FROM sessions WHERE id IS NOT NULL ORDER BY pinned DESC, number DESC"
    )
    listed = decode_rows(rows, lambda row: (decode_session(row[0]), row[1], row[2]))
    return next(((pinned, number + 1) for record, pinned, number in listed if place.precedes(record)), _LAST)


def list_sessions(
    connection: sqlite3.Connection, *, limit: int, before: str | ListPlace | None, archived: ArchivedFilter
) -> list[ListedSession]:
    """Return sessions, pinned sessions first, then newest first; a session that cannot be decoded is left out."""
    rows = connection.execute(
        f"SELECT record, running FROM sessions WHERE {LIST_FILTER} ORDER BY pinned DESC, number DESC LIMIT ?",
        (*list_filter_values(connection, before, archived), limit),
    )
    return list(decode_rows(rows, lambda row: ListedSession(decode_session(row[0]), row[1])))


def working_sessions(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the ids of all sessions with a turn that has not ended: the running one, else the oldest child turn."""
    children = connection.execute(
        """SELECT sessions.id, turns.id FROM turns JOIN sessions ON sessions.number = turns.session
           WHERE is_open_child AND sessions.id IS NOT NULL ORDER BY turns.number DESC"""
    )
    turns: dict[str, str] = dict(children)
    running = connection.execute("SELECT id, running FROM sessions WHERE id IS NOT NULL AND running IS NOT NULL")
    return turns | dict(running)


def session_names(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Return the numbers and names of all sessions with a name; a session that cannot be decoded is left out."""
    rows = connection.execute("SELECT number, record FROM sessions ORDER BY number")
    return (
        (number, name) for number, name in decode_rows(rows, lambda row: (row[0], decode_session(row[1]).name)) if name
    )


# --- sessions with work -----------------------------------------------------------------------------------------------


def sessions_with_work(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the sessions with an open turn or fact, the one with the oldest running turn first."""
    found = connection.execute(
        f"""SELECT sessions.id FROM sessions LEFT JOIN turns ON turns.id = sessions.running
            WHERE sessions.id IS NOT NULL AND (
                sessions.running IS NOT NULL OR sessions.number IN (SELECT session FROM facts WHERE {IS_OPEN})
                OR sessions.number IN (SELECT session FROM turns WHERE is_open_child))
            ORDER BY turns.number"""
    )
    return [session_id for (session_id,) in found]


# --- events -----------------------------------------------------------------------------------------------------------


_KEYS = {  # of the tables that have many rows of a long session
    "segments": "last_seq, last_rev",
    "records": "rev, record_index",
    "messages": "message_index",
    "compacted": "message_index",
    "turns": "number",
    "facts": "number",
}


def delete_some_rows(connection: sqlite3.Connection, number: int, limit: int) -> int:
    """Delete up to `limit` rows of the session, all of one table; return how many, 0 if few or none are left.

    Its texts are not deleted.
    """
    for table, key in _KEYS.items():
        deleted = connection.execute(
            f"""DELETE FROM {table} WHERE session = ?1
                AND ({key}) IN (SELECT {key} FROM {table} WHERE session = ?1 LIMIT ?2)""",
            (number, limit),
        )
        if deleted.rowcount:
            return deleted.rowcount
    return 0


def delete_session(connection: sqlite3.Connection, number: int) -> None:
    """Delete the session with everything stored of it but its texts."""
    connection.execute("DELETE FROM commits WHERE session = ?", (number,))
    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))


def events_after(connection: sqlite3.Connection, session_id: str, after: int, limit: int) -> list[StoredEvent]:
    """Return up to `limit` events of a session with a higher number than `after`.

    It returns fewer if they are large, but at least one if there is one. Raises `DamagedData` if an event is missing.
    """
    number = session_number(connection, session_id)
    rows = connection.execute(
        """SELECT last_seq, 1, body FROM segments WHERE session = ?1 AND last_seq > ?2
           UNION ALL SELECT last_seq, 0, body FROM commits WHERE session = ?1 AND last_seq > ?2 ORDER BY 1""",
        (number, after),
    )
    events: list[StoredEvent] = []
    size = 0
    for last_seq, packed, body in rows:
        left = limit - len(events)
        some = decode_segment(session_id, last_seq, body, compressed=packed, after=after, limit=left)
        if some and some[0].seq != after + len(events) + 1:  # those of one row follow each other
            raise DamagedData(f"event {after + len(events) + 1} of session {session_id!r} is missing")
        sizes = list(accumulate([len(event.frame_json) for event in some], initial=size))
        events += some[: bisect_left(sizes, PAGE_BYTES)]  # with the first event at which the page is full
        size = sizes[-1]
        if len(events) == limit or size >= PAGE_BYTES:
            break
    return events


def last_events(connection: sqlite3.Connection, session_ids: Collection[str]) -> dict[str, StoredEvent]:
    """Return the last event of each of these sessions; sessions without a readable last event are left out."""
    events = dict[str, StoredEvent]()
    for session_id in session_ids:
        with suppress(SessionNotFound, DamagedData):
            end = log_end(connection, session_number(connection, session_id))
            for event in events_after(connection, session_id, end.last_seq - 1, 1):
                events[session_id] = event
    return events


# --- what the next turn builds on -------------------------------------------------------------------------------------


def message_count(connection: sqlite3.Connection, table: MessageTable, number: int) -> int:
    """Return the number of the session's messages in that table; raise `DamagedData`."""
    query = f"SELECT message_index + 1 FROM {table} WHERE session = ? ORDER BY message_index DESC LIMIT 1"
    (count,) = connection.execute(query, (number,)).fetchone() or (0,)
    if not isinstance(count, int):
        raise DamagedData("the list of messages of a session is damaged in the storage: a place in it is no number")
    return count


def find_message(connection: sqlite3.Connection, number: int, key: str) -> tuple[int, int] | None:
    """Return the place of the record of the message with this key, or None."""
    return connection.execute(
        """SELECT rev, record_index FROM records INDEXED BY message_records
           WHERE session = ? AND key = ? AND kind = 'message_added'""",  # by itself SQLite takes the primary key
        (number, key),
    ).fetchone()


def replace_messages(
    connection: sqlite3.Connection, table: MessageTable, number: int, keep: int, places: Iterable[tuple[int, int]]
) -> None:
    """Replace all messages of the table after the first `keep` by the messages in the records at `places`."""
    connection.execute(f"DELETE FROM {table} WHERE session = ? AND message_index >= ?", (number, keep))
    add_messages(connection, table, number, keep, places)


def add_messages(
    connection: sqlite3.Connection, table: MessageTable, number: int, count: int, places: Iterable[tuple[int, int]]
) -> None:
    """Add the messages of the records at `places` to the `count` messages that the table has of the session."""
    connection.executemany(
        f"INSERT INTO {table} (session, message_index, rev, record_index) VALUES (?, ?, ?, ?)",
        ((number, index, *place) for index, place in enumerate(places, count)),
    )


def read_compacted(connection: sqlite3.Connection, session_id: str) -> Sequence[Message]:
    """Return the originals of the session's compacted messages, in order."""
    return tuple(read_messages(connection, "compacted", session_number(connection, session_id)))


def read_parts(connection: sqlite3.Connection, number: int) -> dict[str, str]:
    """Return the parts of the session's state, in order; raise `DamagedData`."""
    found = connection.execute(
        """SELECT name, turn, data FROM parts LEFT JOIN records USING (session, rev, record_index)
           WHERE session = ? ORDER BY place""",
        (number,),
    )
    return {name: _decode_part(name, turn_id, data).text for name, turn_id, data in found}


def _decode_part(name: str, turn_id: str, data: str) -> PartChanged:
    record = decode_record(PartChanged.kind, name, turn_id, data)
    assert isinstance(record, PartChanged)
    return record


def part_place(connection: sqlite3.Connection, number: int, name: str) -> int | None:
    """Return the place of the part of the session's state with this name, or None."""
    found = connection.execute("SELECT place FROM parts WHERE session = ? AND name = ?", (number, name)).fetchone()
    return None if found is None else found[0]


def next_part_place(connection: sqlite3.Connection, number: int) -> int:
    """Return the place behind all parts of the session's state."""
    query = "SELECT coalesce(max(place), 0) + 1 FROM parts WHERE session = ?"
    return connection.execute(query, (number,)).fetchone()[0]


def change_part(connection: sqlite3.Connection, number: int, part: PartChanged, rev: int, index: int) -> None:
    """Store a part of the session's state; it replaces the part of the same name, whose record is deleted."""
    remove_part(connection, number, part.key)
    connection.execute(
        "INSERT INTO parts (session, name, place, rev, record_index) VALUES (?, ?, ?, ?, ?)",
        (number, part.key, part.place, rev, index),
    )


def remove_part(connection: sqlite3.Connection, number: int, name: str) -> None:
    """Remove a part of the session's state, if it has one of that name, with its record."""
    removed = connection.execute(
        "DELETE FROM parts WHERE session = ? AND name = ? RETURNING rev, record_index", (number, name)
    )
    _delete_records(connection, number, removed.fetchall())


def read_state(connection: sqlite3.Connection, session_id: str) -> SessionState:
    """Return the state that the session's next turn starts from."""
    number = session_number(connection, session_id)
    return SessionState(read_messages(connection, "messages", number), read_parts(connection, number))


def read_messages(connection: sqlite3.Connection, table: MessageTable, number: int, after: int = 0) -> list[Message]:
    """Return the session's messages in that table but for the first `after`; raise `DamagedData`."""
    rows = connection.execute(
        f"""SELECT data FROM {table} LEFT JOIN records USING (session, rev, record_index)
            WHERE session = ? AND message_index >= ? ORDER BY message_index""",
        (number, after),
    )
    with map_decode_errors("the list of messages of a session"):
        return [decode_message(text) for (text,) in rows]


# --- records ----------------------------------------------------------------------------------------------------------


def add_record(connection: sqlite3.Connection, number: int, stored: StoredRecord) -> None:
    """Store a record."""
    record = stored.record
    connection.execute(
        """INSERT INTO records (session, rev, record_index, seq, turn, kind, key, data)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(number, stored.rev, stored.record_index, stored.seq),
            *(record.turn_id, record.kind, record.key, encode_record(record)),
        ),
    )


def _delete_records(connection: sqlite3.Connection, number: int, places: Iterable[tuple[int, int]]) -> None:
    """Delete the session's records at these places: others have taken theirs."""
    connection.executemany(
        "DELETE FROM records WHERE session = ? AND rev = ? AND record_index = ?", ((number, *place) for place in places)
    )


def record_rows(connection: sqlite3.Connection, number: int) -> sqlite3.Cursor:
    """Return the records of a session in the order of the log, for `read_record_row`."""
    return connection.execute(
        """SELECT rev, record_index, seq, kind, key, turn, data FROM records
           WHERE session = ? ORDER BY rev, record_index""",
        (number,),
    )


def read_record_row(row: tuple[Any, ...]) -> StoredRecord:
    """Return the record of a row; raise `DamagedData`."""
    rev, index, seq, *values = row
    return StoredRecord(rev, index, seq, decode_record(*values))


# --- facts ------------------------------------------------------------------------------------------------------------


def apply_fact(connection: sqlite3.Connection, number: int, rev: int, index: int, fact: Fact) -> None:
    """Put a fact into force unless one of its kind and key is to be kept; end the one that it closes.

    The record of a fact that it replaces is deleted.
    """
    if fact.closes is not None:
        connection.execute(f"DELETE FROM facts WHERE {_IS_FACT}", (number, fact.closes.kind, fact.key))
    if fact.is_replaced:
        replaced = connection.execute(
            f"DELETE FROM facts WHERE {_IS_FACT} RETURNING rev, record_index", (number, fact.kind, fact.key)
        )
        _delete_records(connection, number, replaced.fetchall())
    connection.execute(
        """INSERT INTO facts (session, turn, kind, key, rev, record_index) VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT (kind, key, session) DO NOTHING""",
        (number, fact.turn_id, fact.kind, fact.key, rev, index),
    )


_IS_FACT = "session = ?1 AND kind = ?2 AND key = ?3"


def find_facts(
    connection: sqlite3.Connection, number: int, types: tuple[type[FactT], ...], key: str | None = None
) -> list[FactT]:
    """Return the session's facts of these classes, with `key` only facts with this key, as `SessionLog.facts` does."""
    classes = fact_classes(*types)
    where = f"facts.session = ? AND {kind_in(classes)}"
    if key is None:
        found = _select_facts(connection, where, (number,))
    else:
        found = _select_facts(connection, f"{where} AND facts.key = ?", (number, key))
    facts = decode_facts(found, _decode_fact, {each.kind for each in classes if each.is_skippable})
    return [fact for fact in facts if isinstance(fact, types)]


def all_facts(connection: sqlite3.Connection, number: int) -> list[Fact]:
    """Return the session's facts in force, in the order of storage; raise `DamagedData`."""
    return [_decode_fact(*row) for row in _select_facts(connection, "facts.session = ?", (number,))]


def session_of_request(connection: sqlite3.Connection, request_id: str) -> str | None:
    """Return the id of the session that asked this request, or None."""
    found = connection.execute(
        "SELECT id FROM sessions WHERE number = (SELECT session FROM facts WHERE kind = ? AND key = ?)",
        (RequestAsked.kind, request_id),
    ).fetchone()
    return None if found is None else found[0]


def open_facts(
    connection: sqlite3.Connection, number: int, turn_ids: Collection[str]
) -> tuple[list[Fact], list[DamagedFact]]:
    """Return the facts of these turns and all open facts, in the order of storage.

    The second list has the facts that cannot be decoded.
    """
    of_turns = "facts.session = ?1 AND facts.turn IN (SELECT value FROM json_each(?2))"
    where = f"{of_turns} OR number IN (SELECT number FROM facts WHERE facts.session = ?1 AND {IS_OPEN})"
    facts, damaged = list[Fact](), list[DamagedFact]()
    for kind, key, turn_id, data in _select_facts(connection, where, (number, json.dumps(list(turn_ids)))):
        try:
            facts.append(_decode_fact(kind, key, turn_id, data))
        except DamagedData:
            damaged.append(DamagedFact(kind, *(value if isinstance(value, str) else "" for value in (key, turn_id))))
    return facts, damaged


def open_requests(connection: sqlite3.Connection, session_id: str | None) -> list[StoredEvent]:
    """Return the `ASKING_EVENTS` of open turns without an answer, oldest first."""
    number = None if session_id is None else session_number(connection, session_id)
    found = connection.execute(
        """WITH open_turns AS (
               SELECT turns.session, turns.id FROM sessions JOIN turns ON turns.id = sessions.running
               WHERE sessions.running IS NOT NULL
               UNION ALL SELECT session, id FROM turns WHERE is_open_child)
           SELECT sessions.id, facts.key, facts.turn, records.data
           FROM open_turns JOIN sessions ON sessions.number = open_turns.session
           JOIN facts ON facts.session = sessions.number AND facts.turn = open_turns.id
           JOIN records ON records.session = facts.session
               AND records.rev = facts.rev AND records.record_index = facts.record_index
           WHERE sessions.id IS NOT NULL AND (?1 IS NULL OR sessions.number = ?1)
           AND facts.kind = 'request_asked' AND NOT EXISTS (
               SELECT 1 FROM facts AS other
               WHERE other.kind IN ('request_answered', 'request_decided')
               AND other.key = facts.key AND other.session = facts.session)""",
        (number,),
    ).fetchall()
    events = decode_rows(found, lambda row: _find_request(connection, *row))
    return sorted((event for event in events if event is not None), key=attrgetter("position"))


def _find_request(
    connection: sqlite3.Connection, session_id: str, id_: str, turn_id: str, fact_data: str
) -> StoredEvent | None:
    """Return the event that asked the request of a fact, None if it is not at the number that the fact says."""
    asked = decode_record(RequestAsked.kind, id_, turn_id, fact_data)
    assert isinstance(asked, RequestAsked)
    found = events_after(connection, session_id, asked.seq - 1, 1)
    return next((event for event in found if event.type in ASKING_EVENTS and request_id(event) == id_), None)


def _decode_fact(kind: str, key: str, turn_id: str, data: str) -> Fact:
    record = decode_record(kind, key, turn_id, data)
    assert isinstance(record, Fact)
    return record


def _select_facts(connection: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
    return connection.execute(
        f"""SELECT facts.kind, facts.key, facts.turn, data
            FROM facts LEFT JOIN records USING (session, rev, record_index) WHERE {where} ORDER BY number""",
        values,
    )
