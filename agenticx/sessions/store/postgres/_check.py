"""The check of the tables of a PostgreSQL database: the log of each session is folded anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge

from agenticx.clocks import Clock
from agenticx.messages import clean_text
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent, check_envelope
from agenticx.sessions.log.records import Fact
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
from agenticx.sessions.store.postgres import _rows as rows
from agenticx.sessions.store.postgres._catalog import read_usage
from agenticx.sessions.store.postgres._connection import PostgresConnection, Row, Server, describe_url
from agenticx.sessions.store.postgres._opening import check_server, has_tables, run_blocking
from agenticx.sessions.store.postgres._search import lexemes
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.postgres.schema import CONTENT_TABLES
from agenticx.sessions.store.search import MAX_SEARCHED_CHARS
from agenticx.sessions.store.segments import line_position, segment_lines

__all__ = ["check_database"]

_PAGE_EVENTS = 1000
_TEXTS_AT_ONCE = 200


def check_database(
    url: str, clock: Clock, *, timeout: float, progress: Callable[[int, int], None]
) -> tuple[str, list[str] | None]:
    """Return the name of a database and a sentence for each damage in it, None without tables; blocks.

    Each session is read in one snapshot, so workers may run. `progress` is called with the number of checked sessions
    and the number of all sessions. Raises `StoreError`, `SettingsError`.
    """

    async def work() -> list[str] | None:
        server = Server(url, clock=clock, timeout=timeout)
        try:
            async with server.connection() as connection:
                await check_server(connection, server.name)
                if not await has_tables(connection, server.name):
                    return None
            return await _check_sessions(server, progress)
        finally:
            await server.close()

    return describe_url(url), run_blocking("agx store check", work())


async def _check_sessions(server: Server, progress: Callable[[int, int], None]) -> list[str]:
    found = list[str]()
    for table in (*CONTENT_TABLES, "fences"):
        if table == "blobs":  # a content is stored before its session
            continue
        query = f"SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT FROM sessions WHERE number = {table}.session)"
        ((count,),) = await server.fetch(query)
        if count:
            found.append(f"the table {table!r} has {count} rows of no session")
    sessions = await server.fetch("SELECT number, id FROM sessions WHERE id IS NOT NULL ORDER BY number")
    for done, (number, stored_id) in enumerate(sessions):
        progress(done, len(sessions))
        session_id = from_text(stored_id)

        async def work(connection: PostgresConnection, session_id: str = session_id, number: int = number) -> list[str]:
            return await _check_session(connection, session_id, number)

        found += await server.use(work, is_snapshot=True)
    progress(len(sessions), len(sessions))
    return found


async def _check_session(connection: PostgresConnection, session_id: str, number: int) -> list[str]:
    """Return a sentence for each table that differs from the session's log; empty if it was deleted meanwhile."""
    if not await connection.fetch("SELECT FROM sessions WHERE number = $1 AND id IS NOT NULL", number):
        return []
    try:
        records = [check_record(rows.read_record_row(row)) for row in await read_record_rows(connection, number)]
        events = list[StoredEvent]()
        seq = 0
        while page := await rows.events_after(connection, session_id, number, seq, _PAGE_EVENTS):
            for event in page:
                check_envelope(event)
            events += page
            seq = page[-1].seq
        folded = fold(merge(events, records, key=entry_place))
    except DamagedData as exc:
        return [f"session {session_id!r}: its log cannot be folded: {exc}"]
    found = list[str]()
    for read in (_list_columns, _loaded, _turns, _facts, _texts, _usage, _log):
        try:
            with map_decode_errors("a table"):
                parts = await read(connection, number, folded)
        except DamagedData as exc:
            found.append(f"session {session_id!r}: {read.__name__.strip('_')} cannot be read: {exc}")
            continue
        found += [f"session {session_id!r} differs from its log in {what}" for what, is_right in parts if not is_right]
    return found


Parts = list[tuple[str, bool]]
"""The names of what was compared, each with True if it is as the log says."""


async def read_record_rows(connection: PostgresConnection, number: int) -> list[Row]:
    """Return the records of a session in the order of the log, for `read_record_row`."""
    return await connection.fetch(
        """SELECT rev, record_index, seq, kind, key, turn, data FROM records
           WHERE session = $1 ORDER BY rev, record_index""",
        number,
    )


async def _list_columns(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    ((pinned, archived, host, running, has_work, is_open),) = await connection.fetch(
        """SELECT pinned, archived, workspace_host, running, (SELECT has_work FROM fences WHERE session = $1),
               EXISTS (SELECT FROM records WHERE session = $1 AND is_open)
           FROM sessions WHERE number = $1""",
        number,
    )
    record, turn = folded.record, folded.main_turn
    expected = (record.pinned, record.archived, record.workspace_host and to_text(record.workspace_host))
    return [
        ("the columns of the list", (pinned, archived, host) == expected),
        ("the running turn", running == (None if turn is None else to_text(turn.id))),
        ("its mark of work", has_work == is_open),
    ]


async def _loaded(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    session_id = folded.record.id
    end, _, loaded = await rows.load_session(connection, session_id, number)
    return [
        ("its properties", loaded.record == folded.record),
        ("its messages", list(loaded.state.messages) == folded.messages),
        ("its compacted messages", list(await rows.read_compacted(connection, session_id)) == folded.compacted),
        ("its state", [*loaded.state.parts.items()] == [*folded.parts.items()]),
        ("its open child turns", list(loaded.child_turns) == list(folded.child_turns)),
        ("the end of its log", end.last_seq == folded.last_seq),
        ("the commits of its records", folded.rev <= end.rev),
    ]


async def _turns(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    found = await connection.fetch(
        """SELECT key, client_turn_id, is_open FROM records WHERE session = $1 AND kind = 'turn_accepted' AND in_force
           ORDER BY rev, record_index""",
        number,
    )
    client_ids = {from_text(id_): from_text(key) for key, id_, _ in found if id_ is not None}
    expected = {turn.client_turn_id: id_ for id_, turn in folded.turns.items() if turn.client_turn_id is not None}
    return [
        ("its turns", [from_text(key) for key, _, _ in found] == [*folded.turns]),
        ("the client_turn_ids of its turns", client_ids == expected),
        ("its open turns", {from_text(key) for key, _, is_open in found if is_open} == {*folded.open_turns}),
    ]


async def _facts(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    found = await connection.fetch(
        "SELECT kind, key FROM records WHERE session = $1 AND is_open AND kind <> 'turn_accepted'", number
    )
    facts = list(folded.all_facts.values())
    work = {(fact.kind, fact.key) for fact in facts if fact.is_work}
    return [
        ("its facts", list(await rows.find_facts(connection, number, (Fact,))) == facts),
        ("its open facts", {(kind, from_text(key)) for kind, key in found} == work),
    ]


async def _texts(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    found = await connection.fetch("SELECT message_id, role, text FROM texts WHERE session = $1", number)
    texts = {(text.message_id or "", text.role, text.text) for text in folded.texts.values()}
    if folded.record.name:
        texts.add(("", "name", folded.record.name))
    stored = {(to_text(id_), role, to_text(text[:MAX_SEARCHED_CHARS])) for id_, role, text in texts}
    return [
        ("the texts of the search", {tuple(row) for row in found} == stored),
        ("the words of the search", await _have_words(connection, number, found)),
    ]


async def _have_words(connection: PostgresConnection, number: int, found: Sequence[Row]) -> bool:
    for start in range(0, len(found), _TEXTS_AT_ONCE):
        some = found[start : start + _TEXTS_AT_ONCE]
        words = [lexemes(from_text(text)) for _, _, text in some]
        ((wrong,),) = await connection.fetch(
            """SELECT count(*) FROM unnest($2::text[], $3::text[], $4::boolean[]) AS given (message_id, words, pairs)
               JOIN texts ON texts.session = $1 AND texts.message_id = given.message_id
               WHERE texts.words IS DISTINCT FROM array_to_tsvector(string_to_array(given.words, E'\\n'))
               OR texts.has_pairs <> given.pairs""",
            number,
            [row[0] for row in some],
            [None if each is None else "\n".join(each) for each, _ in words],
            [has_pairs for _, has_pairs in words],
        )
        if wrong:
            return False
    return True


async def _usage(connection: PostgresConnection, number: int, folded: FoldedSession) -> Parts:
    found = {
        (row.day, row.model, row.agent_id): row.counts
        for row in await read_usage(connection, number=number, since=None, until=None)
    }
    expected = {(row.day, row.model, clean_text(row.agent_id)): row.counts for row in folded.daily_usage}
    return [("its usage", found == expected)]


async def _log(connection: PostgresConnection, number: int, _folded: FoldedSession) -> Parts:
    found = await connection.fetch(
        """SELECT last_seq, first_rev, last_rev, commit_id, first_position, last_position, true, body FROM segments
           WHERE session = $1
           UNION ALL SELECT last_seq, rev, rev, commit_id, position, position, false, body FROM commits
           WHERE session = $1 ORDER BY 3, 2, 1""",
        number,
    )
    log, positions, seq = list[LogRow](), dict[LogRow, Sequence[int]](), 0
    for last_seq, *values, is_segment, body in found:
        # A row without events may be the end of a copied commit, whose events are segments.
        row = LogRow(seq, last_seq, *values, is_segment=is_segment, may_continue=is_segment or not body)
        seq = last_seq
        log.append(row)
        positions[row] = [line_position(line) for line in segment_lines(body, compressed=is_segment)]
        if not is_segment:
            base = row.last_position - len(positions[row])
            positions[row] = [base + position for position in positions[row]]
    records = await connection.fetch(
        "SELECT rev, seq, kind FROM records WHERE session = $1 ORDER BY rev, record_index", number
    )
    return [
        ("the numbers of its commits", not list(missing_revs(log))),
        ("the ids of its commits", not list(wrong_ids(log))),
        ("the positions of its commits", not list(wrong_positions(log, lambda row: positions[row]))),
        ("the places of its records", not list(misplaced_records(records, log))),
    ]
