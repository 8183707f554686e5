"""Reading of sessions from the database: their events, turns, state, facts and requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from operator import attrgetter
from typing import TypeVar

from agenticx.errors import SessionNotFound
from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.events import ASKING_EVENTS
from agenticx.sessions.log.commits import DamagedFact, LoadedSession, LogEnd, SessionState
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import Position, StoredEvent, request_id
from agenticx.sessions.log.records import (
    FACT_CLASSES,
    Fact,
    FactT,
    MessageAdded,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    RequestAsked,
    SessionChanged,
    StoredRecord,
    SubagentFact,
    TurnAccepted,
    decode_message,
    decode_record,
)
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.decoding import decode_facts
from agenticx.sessions.store.postgres._changes import LogHead
from agenticx.sessions.store.postgres._connection import PostgresConnection, Row
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.segments import PAGE_BYTES, decode_segment
from agenticx.threads import run_sized

__all__ = [
    "RECORD",
    "decode_commit",
    "decode_record_row",
    "events_after",
    "find_facts",
    "find_turn",
    "load_session",
    "log_end",
    "open_requests",
    "read_compacted",
    "read_record",
    "read_record_row",
    "read_state",
    "session_number",
    "session_of_request",
]

T = TypeVar("T")

_SEGMENTS_AT_ONCE = 16

_log = get_logger(__name__)


async def session_number(connection: PostgresConnection, session_id: str) -> int:
    """Return the session's key in all other tables; raises `SessionNotFound`."""
    rows = await connection.fetch("SELECT number FROM sessions WHERE id = $1", to_text(session_id))
    if not rows:
        raise SessionNotFound(f"no session has the id {session_id!r}")
    return rows[0][0]


async def read_record(connection: PostgresConnection, session_id: str) -> SessionRecord:
    """Return the session's record; raises `SessionNotFound`, `DamagedData`."""
    rows = await connection.fetch(
        f"SELECT {RECORD} FROM sessions WHERE id = $1",
        to_text(session_id),
    )
    if not rows:
        raise SessionNotFound(f"no session has the id {session_id!r}")
    return decode_record_row(session_id, rows[0][0])


RECORD = """(SELECT data FROM records WHERE records.session = sessions.number AND records.kind = 'session_changed'
             AND records.in_force LIMIT 1)"""
"""The record of a row of `sessions`, for `decode_record_row`."""


def decode_record_row(session_id: str, data: str | None) -> SessionRecord:
    """Return the session's record; raises `DamagedData`."""
    record = decode_record(SessionChanged.kind, session_id, "", "" if data is None else from_text(data))
    assert isinstance(record, SessionChanged)
    return record.record


def read_record_row(row: Row) -> StoredRecord:
    """Return the record of a row; raises `DamagedData`."""
    rev, index, seq, kind, key, turn_id, data = row
    return StoredRecord(rev, index, seq, decode_record(kind, from_text(key), from_text(turn_id), from_text(data)))


_EVENTS = """SELECT * FROM (
        (SELECT last_seq, true, 0, body, last_rev AS rev FROM segments WHERE session = $1 AND last_seq > $2
         ORDER BY last_seq LIMIT $3)
        UNION ALL
        (SELECT last_seq, false, position, body, rev FROM commits WHERE session = $1 AND last_seq > $2
         ORDER BY rev LIMIT $4)) AS found (last_seq, packed, position, body, rev) ORDER BY last_seq, rev"""

_LAST_EVENTS = """SELECT sessions.id, newest.* FROM sessions CROSS JOIN LATERAL (
        (SELECT last_seq, false, position, body FROM commits WHERE session = sessions.number AND body <> ''
         ORDER BY rev DESC LIMIT 1)
        UNION ALL
        (SELECT last_seq, true, 0, body FROM segments WHERE session = sessions.number
         ORDER BY last_seq DESC, last_rev LIMIT 1)
        ORDER BY 1 DESC LIMIT 1) AS newest (last_seq, packed, position, body)
    WHERE sessions.id = ANY ($1::text[])"""


# --- events -----------------------------------------------------------------------------------------------------------


async def log_end(connection: PostgresConnection, number: int) -> LogEnd:
    """Return the end of the session's log: its last commit is never packed."""
    rows = await connection.fetch(
        "SELECT rev, last_seq, commit_id FROM commits WHERE session = $1 ORDER BY rev DESC LIMIT 1", number
    )
    if not rows:
        raise DamagedData("the log of a session is damaged in the storage: its last commit is missing")
    return LogEnd(*rows[0])


async def events_after(
    connection: PostgresConnection, session_id: str, number: int, after: int, limit: int
) -> list[StoredEvent]:
    """Return up to `limit` events of a session with a higher number than `after`.

    It returns fewer if they are large, but at least one if there is one. Raises `DamagedData` if an event is missing.
    """
    events: list[StoredEvent] = []
    size = 0
    while True:
        rows = await connection.fetch(_EVENTS, number, after + len(events), _SEGMENTS_AT_ONCE, limit - len(events))
        has_more = sum(packed for _, packed, *_ in rows) == _SEGMENTS_AT_ONCE  # there may be more before the commits
        for last_seq, packed, position, body, _ in rows:
            if has_more and not packed:
                continue
            last, left = after + len(events), limit - len(events)
            if packed:
                some = decode_segment(session_id, last_seq, body, compressed=True, after=last, limit=left)
            else:
                some = decode_commit(session_id, last_seq, position, body, after=last, limit=left)
            if not some:
                continue
            if some[0].seq != last + 1:  # those of one row follow each other
                raise DamagedData(f"event {last + 1} of session {session_id!r} is missing")
            sizes = list(accumulate([len(event.frame_json) for event in some], initial=size))
            full = next((place for place, end in enumerate(sizes[1:], 1) if end >= PAGE_BYTES), len(some))
            events += some[:full]
            size = sizes[-1]
            if len(events) == limit or size >= PAGE_BYTES:
                return events
        if not has_more:
            return events


async def last_events(connection: PostgresConnection, session_ids: Collection[str]) -> dict[str, StoredEvent]:
    """Return the last event of each of these sessions; sessions without a readable last event are left out."""
    events = dict[str, StoredEvent]()
    for id_, last_seq, packed, position, body in await connection.fetch(_LAST_EVENTS, list(map(to_text, session_ids))):
        session_id = from_text(id_)
        with suppress(DamagedData):
            if packed:
                some = decode_segment(session_id, last_seq, body, compressed=True, after=last_seq - 1)
            else:
                some = decode_commit(session_id, last_seq, position, body, after=last_seq - 1)
            events.update((session_id, event) for event in some)
    return events


def decode_commit(
    session_id: str, last_seq: int, position: int, body: bytes, *, after: int = 0, limit: int | None = None
) -> list[StoredEvent]:
    """Return the events of a row of `commits`, as `decode_segment` does; `position` is the last event's."""
    events = decode_segment(session_id, last_seq, body, compressed=False, after=after, limit=limit)
    base = position - (body.count(b"\n") + 1)
    return [event._replace(position=Position(base + event.position)) for event in events]


# --- turns ------------------------------------------------------------------------------------------------------------


async def find_turn(
    connection: PostgresConnection, session_id: str, turn_id: str | None, client_turn_id: str | None
) -> TurnRecord | None:
    """Return the session's turn with this id or `client_turn_id`, without either the running turn, or None."""
    number = await session_number(connection, session_id)
    query = "SELECT key, seq, data FROM records WHERE session = $1 AND kind = 'turn_accepted' AND in_force AND "
    if client_turn_id is not None:
        rows = await connection.fetch(f"{query} client_turn_id = $2", number, to_text(client_turn_id))
    elif turn_id is not None:
        rows = await connection.fetch(f"{query} key = $2", number, to_text(turn_id))
    else:
        rows = await connection.fetch(f"{query} key = (SELECT running FROM sessions WHERE number = $1)", number)
    return _decode_turn(*rows[0]) if rows else None


def _decode_turn(key: str, seq: int, data: str) -> TurnRecord:
    id_ = from_text(key)
    record = decode_record(TurnAccepted.kind, id_, id_, from_text(data))
    assert isinstance(record, TurnAccepted)
    return replace(record.turn, after_seq=seq)


# --- what the next turn builds on -------------------------------------------------------------------------------------


async def load_session(
    connection: PostgresConnection, session_id: str, number: int
) -> tuple[LogEnd, LogHead, LoadedSession]:
    """Return all that the session's owner starts from; raises `DamagedData`."""
    end, head = await log_end(connection, number), await _read_head(connection, number)
    ((last,),) = await connection.fetch("SELECT max(rev) FROM records WHERE session = $1", number)
    if last is not None and last > end.rev:
        raise DamagedData(f"the log of a session is damaged in the storage: commits after number {end.rev} are missing")
    turns = await connection.fetch(
        """SELECT records.key, seq, data, records.key = sessions.running FROM records
           JOIN sessions ON sessions.number = records.session
           WHERE session = $1 AND kind = 'turn_accepted' AND is_open ORDER BY rev, record_index""",
        number,
    )
    running = next((_decode_turn(*row[:3]) for row in turns if row[3]), None)
    children = [_decode_turn(*row[:3]) for row in turns if not row[3]]
    head.open_turns = {from_text(row[0]) for row in turns}
    facts, damaged = await _open_facts(connection, number, [row[0] for row in turns])
    loaded = LoadedSession(
        record=await read_record(connection, session_id),
        state=SessionState(await _messages(connection, number, head.messages), await _parts(connection, number)),
        last_seq=end.last_seq,
        main_turn=running,
        child_turns=children,
        open_facts=facts,
        subagent_facts=await find_facts(connection, number, (SubagentFact,)),
        damaged_facts=damaged,
    )
    return end, head, loaded


async def _read_head(connection: PostgresConnection, number: int) -> LogHead:
    head = await _read_messages_head(connection, number)
    rows = await connection.fetch(
        "SELECT key, data FROM records WHERE session = $1 AND kind = 'part_changed' AND in_force", number
    )
    head.parts = {part.key: part.place for part in (_decode_part(*row) for row in rows)}
    turns = await connection.fetch(
        "SELECT key FROM records WHERE session = $1 AND kind = 'turn_accepted' AND in_force", number
    )
    head.turns = {from_text(key) for (key,) in turns}
    return head


async def _read_messages_head(connection: PostgresConnection, number: int) -> LogHead:
    """Return the keys of the session's messages, folded from the records that change its conversation."""
    rows = await connection.fetch(
        """SELECT kind, key, CASE WHEN kind = 'message_added' THEN '' ELSE data END FROM records
           WHERE session = $1 AND kind IN ('message_added', 'messages_replaced', 'messages_compacted')
           ORDER BY rev, record_index""",
        number,
    )
    head = LogHead()
    for kind, key, data in rows:
        if kind == MessageAdded.kind:
            head.known.add(key)
            head.messages.append(key)
            continue
        match decode_record(kind, key, "", from_text(data)):
            case MessagesReplaced(keep=keep, messages=keys):
                head.messages[keep:] = keys
            case MessagesCompacted(keep=keep, messages=keys):
                head.compacted[keep:] = keys
            case record:
                raise AssertionError(record)
    return head


async def _messages(connection: PostgresConnection, number: int, keys: Sequence[str]) -> list[Message]:
    rows = await connection.fetch(
        """SELECT key, data FROM records
           WHERE session = $1 AND kind = 'message_added' AND in_force AND key = ANY ($2::text[])""",
        number,
        list(set(keys)),
    )
    size = sum(len(data) for _, data in rows)
    return await run_sized(_decode_messages, rows, keys, size=size, name="agx messages")


def _decode_messages(rows: Sequence[Row], keys: Sequence[str]) -> list[Message]:
    with map_decode_errors("the list of messages of a session"):
        texts = {key: from_text(data) for key, data in rows}
        return [decode_message(texts[key]) for key in keys]


async def _parts(connection: PostgresConnection, number: int) -> dict[str, str]:
    rows = await connection.fetch(
        "SELECT key, data FROM records WHERE session = $1 AND kind = 'part_changed' AND in_force", number
    )
    return {part.key: part.text for part in sorted((_decode_part(*row) for row in rows), key=attrgetter("place"))}


def _decode_part(key: str, data: str) -> PartChanged:
    record = decode_record(PartChanged.kind, from_text(key), "", from_text(data))
    assert isinstance(record, PartChanged)
    return record


async def read_state(connection: PostgresConnection, session_id: str) -> SessionState:
    """Return the state that the session's next turn starts from."""
    number = await session_number(connection, session_id)
    head = await _read_messages_head(connection, number)
    return SessionState(await _messages(connection, number, head.messages), await _parts(connection, number))


async def read_compacted(connection: PostgresConnection, session_id: str) -> Sequence[Message]:
    """Return the originals of the session's compacted messages, in order."""
    number = await session_number(connection, session_id)
    head = await _read_messages_head(connection, number)
    return tuple(await _messages(connection, number, head.compacted))


# --- facts ------------------------------------------------------------------------------------------------------------


async def find_facts(
    connection: PostgresConnection, number: int, types: tuple[type[FactT], ...], key: str | None = None
) -> list[FactT]:
    """Return the session's facts of these classes, with `key` only facts with this key, as `SessionLog.facts` does."""
    classes = [each for each in FACT_CLASSES if issubclass(each, types)]
    rows = await connection.fetch(
        """SELECT kind, key, turn, data FROM records
           WHERE session = $1 AND kind = ANY ($2::text[]) AND in_force AND ($3::text IS NULL OR key = $3)
           ORDER BY rev, record_index""",
        *(number, [each.kind for each in classes], None if key is None else to_text(key)),
    )
    facts = decode_facts(rows, _decode_fact, {each.kind for each in classes if each.is_skippable})
    return [fact for fact in facts if isinstance(fact, types)]


def _decode_fact(kind: str, key: str, turn_id: str, data: str) -> Fact:
    record = decode_record(kind, from_text(key), from_text(turn_id), from_text(data))
    assert isinstance(record, Fact)
    return record


async def _open_facts(
    connection: PostgresConnection, number: int, turn_keys: Sequence[str]
) -> tuple[list[Fact], list[DamagedFact]]:
    """Return the facts of these turns and all open facts; the second list has the damaged ones."""
    rows = await connection.fetch(
        """SELECT kind, key, turn, data FROM records
           WHERE session = $1 AND in_force AND kind = ANY ($2::text[]) AND (is_open OR turn = ANY ($3::text[]))
           ORDER BY rev, record_index""",
        *(number, [each.kind for each in FACT_CLASSES], turn_keys),
    )
    facts, damaged = list[Fact](), list[DamagedFact]()
    for kind, key, turn_id, data in rows:
        try:
            facts.append(_decode_fact(kind, key, turn_id, data))
        except DamagedData:
            damaged.append(DamagedFact(kind, from_text(key), from_text(turn_id)))
    return facts, damaged


# --- requests ---------------------------------------------------------------------------------------------------------


async def open_requests(connection: PostgresConnection, session_id: str | None) -> list[StoredEvent]:
    """Return the `ASKING_EVENTS` of open turns without an answer, oldest first."""
    number = None if session_id is None else await session_number(connection, session_id)
    rows = await connection.fetch(
        """SELECT sessions.id, sessions.number, asked.key, asked.turn, asked.data
           FROM records AS turns JOIN sessions ON sessions.number = turns.session
           JOIN records AS asked ON asked.session = turns.session AND asked.turn = turns.key
               AND asked.kind = 'request_asked' AND asked.in_force
           WHERE turns.is_open AND turns.kind = 'turn_accepted' AND sessions.id IS NOT NULL
           AND ($1::bigint IS NULL OR turns.session = $1) AND NOT EXISTS (
               SELECT FROM records AS other WHERE other.session = turns.session AND other.key = asked.key
               AND other.kind IN ('request_answered', 'request_decided') AND other.in_force)""",
        number,
    )
    events = list[StoredEvent]()
    for id_, owner, key, turn, data in rows:
        try:
            asked = decode_record(RequestAsked.kind, from_text(key), from_text(turn), from_text(data))
            assert isinstance(asked, RequestAsked)
            found = await events_after(connection, from_text(id_), owner, asked.seq - 1, 1)
            events += (event for event in found if event.type in ASKING_EVENTS and request_id(event) == asked.key)
        except DamagedData as exc:
            _log.error("corrupt row skipped", error=str(exc))
    return sorted(events, key=attrgetter("position"))


async def session_of_request(connection: PostgresConnection, request: str) -> str | None:
    """Return the id of the session that asked this request, or None."""
    rows = await connection.fetch(
        """SELECT sessions.id FROM records JOIN sessions ON sessions.number = records.session
           WHERE kind = 'request_asked' AND key = $1 AND in_force AND sessions.id IS NOT NULL LIMIT 1""",
        to_text(request),
    )
    return from_text(rows[0][0]) if rows else None
