"""The full-text index of the database: SQLite's FTS5 over the output of `search.normalize_words`.

The index keeps words, not texts (it is contentless): the texts are in the table `texts`. It splits at blanks only
(`tokenize='ascii'`: normalized words contain no other ASCII than letters and digits), so that it finds exactly what
`search.SearchQuery` defines. Removed words stay in its file until its segments are merged, which `purge_step` does.

All of it can be rebuilt from other tables, so its damage stops nothing: an operation that fails on it continues without
it, and the next start rebuilds the index from the texts, and the texts, if they are lost, from names and messages.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import decode_session
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.state import FoldedSession
from agenticx.sessions.store.base import ArchivedFilter, ListedSession, ListPlace
from agenticx.sessions.store.decoding import decode_rows
from agenticx.sessions.store.search import MATCHES_SHOWN, SEARCH_VERSION, SearchQuery, normalize_words
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite.schema import CREATE_SEARCH_INDEX, CREATE_TEXTS

__all__ = [
    "add_texts",
    "finish_pending_purge",
    "mark_damaged",
    "mark_purge_pending",
    "prepare_index",
    "purge_step",
    "remove_session",
    "remove_texts",
    "search",
    "set_name",
]

_MERGE_PAGES = 64
_MERGE_ALL = -_MERGE_PAGES  # a negative number merges all segments, of any size


_log = get_logger(__name__)


def prepare_index(connection: sqlite3.Connection) -> None:
    """Rebuild the index if it is damaged or was made with another version of the word rules."""
    indexed_version = connection.execute("SELECT value FROM meta WHERE key = 'search'").fetchone()
    texts = _try_execute(connection, "SELECT number, session, message_id, role, text FROM texts LIMIT 1")
    index = texts and indexed_version is not None and _finds_newest_texts(connection)
    if texts and index and indexed_version == (SEARCH_VERSION,):
        return
    if indexed_version is not None and not (texts and index):
        _log.error("search index damaged; rebuilding", texts=not texts)
    connection.execute("BEGIN IMMEDIATE")
    if not texts:
        _rebuild_texts(connection)
    _drop_index(connection)
    connection.execute(CREATE_SEARCH_INDEX)
    for number, text in connection.execute(_SELECT_TEXTS + "true"):
        connection.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (number, normalize_words(text)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('search', ?)", (SEARCH_VERSION,))
    connection.execute("COMMIT")


def mark_damaged(connection: sqlite3.Connection) -> None:
    """Mark the index as damaged, so that the next start rebuilds it."""
    if connection.execute("DELETE FROM meta WHERE key = 'search'").rowcount:
        _log.error("search index damaged; the next start rebuilds it")


def _finds_newest_texts(connection: sqlite3.Connection) -> bool:
    """Return True if the index is usable and finds the texts that were added last."""
    query = "SELECT rowid FROM found WHERE found MATCH ? AND rowid = ?"
    for number, text in connection.execute(_SELECT_TEXTS + "true ORDER BY number DESC LIMIT 3").fetchall():
        words = normalize_words(text).split()
        if words and not _try_execute(connection, query, f'"{words[0]}"', number, least=1):
            return False
    return _try_execute(connection, query, "a", 0)


def _try_execute(connection: sqlite3.Connection, query: str, *values: object, least: int = 0) -> bool:
    """Execute the statement; return True if it gives at least that many rows, False if it fails because of damage."""
    try:
        return len(connection.execute(query, values).fetchall()) >= least
    except (sqlite3.DatabaseError, MemoryError) as exc:
        if not _is_damage(exc):
            raise
        return False


def _is_damage(exc: sqlite3.DatabaseError | MemoryError) -> bool:
    """Return True if the error is due to damaged data.

    Any database error counts, except these: a full, failing or unwritable disk, a file that cannot be opened or is not
    a database, a lock of another connection, and an interrupted statement. A `MemoryError` counts too: FTS5 may take
    damaged bytes for a size and fail to allocate it.
    """
    return isinstance(exc, MemoryError) or exc.sqlite_errorcode & 0xFF not in _OTHER_ERROR_CODES


_OTHER_ERROR_CODES = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOTADB),
}


def _rebuild_texts(connection: sqlite3.Connection) -> None:
    """Rebuild the texts from names and the records of the log."""
    connection.execute("DROP TABLE IF EXISTS texts")
    connection.execute(CREATE_TEXTS)
    insert = "INSERT OR IGNORE INTO texts (session, message_id, role, text) VALUES (?, ?, ?, ?)"
    for number, name in rows.session_names(connection):
        connection.execute(insert, (number, "", "name", name))
    for (number,) in connection.execute(_VISIBLE_SESSIONS).fetchall():
        for text in _texts_in_log(connection, number):
            connection.execute(insert, (number, text.message_id or "", text.role, text.text))


_VISIBLE_SESSIONS = "SELECT number FROM sessions WHERE id IS NOT NULL ORDER BY number"  # others lack some records


def _texts_in_log(connection: sqlite3.Connection, number: int) -> Iterable[SearchableText]:
    """Return the texts of a session's messages that a search finds, as far as its records can be read."""
    session = FoldedSession(SessionRecord(workspace="", created_at=""))  # its properties do not matter here

    def apply(row: tuple[Any, ...]) -> None:
        session.apply_record(rows.read_record_row(row))

    deque(decode_rows(rows.record_rows(connection, number), apply), maxlen=0)
    return session.texts.values()


def _drop_index(connection: sqlite3.Connection) -> None:
    """Drop the index; if SQLite cannot open the FTS5 table, which it then does not drop, drop its parts one by one."""
    if not _try_execute(connection, "DROP TABLE IF EXISTS found"):
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'found'")
        connection.execute("PRAGMA writable_schema = RESET")
    for part in ("data", "idx", "content", "docsize", "config"):  # https://sqlite.org/fts5.html#fts5_data_structures
        connection.execute(f"DROP TABLE IF EXISTS found_{part}")


# --- adding and removing ----------------------------------------------------------------------------------------


def set_name(connection: sqlite3.Connection, session: int, name: str | None) -> None:
    """Index the session's name in place of an earlier one."""
    indexed_name = connection.execute(
        "SELECT text FROM texts WHERE session = ? AND message_id = ''", (session,)
    ).fetchone()
    if indexed_name == (name,):
        return
    _remove_texts(
        connection, connection.execute(_SELECT_TEXTS + "session = ? AND message_id = ''", (session,)).fetchall()
    )
    if name:
        add_texts(connection, session, [SearchableText(None, "name", name)])


def add_texts(connection: sqlite3.Connection, session: int, texts: Iterable[SearchableText]) -> None:
    """Index these texts of the session; texts whose id is indexed already are left unchanged."""
    for text in texts:
        added = connection.execute(
            "INSERT INTO texts (session, message_id, role, text) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (session, text.message_id or "", text.role, text.text),
        )
        if added.rowcount:
            number = added.lastrowid
            with _index_savepoint(connection):
                connection.execute(
                    "INSERT INTO found (rowid, words) VALUES (?, ?)", (number, normalize_words(text.text))
                )


def remove_texts(connection: sqlite3.Connection, session: int, message_ids: Collection[str]) -> None:
    """Remove the texts of these messages of the session."""
    query = """SELECT number, CAST(text AS TEXT) FROM texts
               WHERE session = ? AND message_id IN (SELECT value FROM json_each(?))"""
    _remove_texts(connection, connection.execute(query, (session, json.dumps(list(message_ids)))).fetchall())


def remove_session(connection: sqlite3.Connection, session: int, limit: int = -1) -> int:
    """Remove all texts of the session, or up to `limit` of them; return how many."""
    texts = connection.execute(_SELECT_TEXTS + "session = ? LIMIT ?", (session, limit)).fetchall()
    _remove_texts(connection, texts)
    return len(texts)


_SELECT_TEXTS = "SELECT number, CAST(text AS TEXT) FROM texts WHERE "


def _remove_texts(connection: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    for number, text in texts:
        connection.execute("DELETE FROM texts WHERE number = ?", (number,))
        with _index_savepoint(connection):
            words = normalize_words(text)
            connection.execute("INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)", (number, words))


@contextmanager
def _index_savepoint(connection: sqlite3.Connection) -> Generator[None]:
    """Roll back a change of the index if that is damaged, without failing the transaction around it.

    The second savepoint makes FTS5 write at once; otherwise it would write, and fail, when the transaction is
    committed.
    """
    connection.execute("SAVEPOINT spared")
    try:
        yield
        connection.execute("SAVEPOINT written")
    except (sqlite3.DatabaseError, MemoryError) as exc:
        if not (_is_damage(exc) and connection.in_transaction):
            raise
        connection.execute("ROLLBACK TO spared")
        mark_damaged(connection)
    connection.execute("RELEASE spared")


def mark_purge_pending(connection: sqlite3.Connection) -> None:
    """Record that a purge is needed; if the process ends before it is done, the next one does it."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('purging', '1')")


def purge_step(connection: sqlite3.Connection, *, begin: bool) -> bool:
    """Run one step of removing deleted words from the index's file; return True once that is done.

    https://sqlite.org/fts5.html#the_merge_command describes the check for the last step.
    """
    before = connection.total_changes
    pages = _MERGE_ALL if begin else _MERGE_PAGES
    done = True  # stays so if the index is damaged: the rebuilt one has no deleted words
    with _index_savepoint(connection):
        connection.execute("INSERT INTO found (found, rank) VALUES ('merge', ?)", (pages,))
        done = not begin and connection.total_changes - before < 2
    if done:
        connection.execute("DELETE FROM meta WHERE key = 'purging'")
    return done


def finish_pending_purge(connection: sqlite3.Connection) -> None:
    """Finish a purge that an earlier process left unfinished."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'purging'").fetchone() is not None:
        purge_step(connection, begin=True)
        while not purge_step(connection, begin=False):
            pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# --- finding ----------------------------------------------------------------------------------------------------------


def search(
    connection: sqlite3.Connection, query: str, *, limit: int, before: str | ListPlace | None, archived: ArchivedFilter
) -> list[ListedSession]:
    """Return the sessions that have a text with all terms of `query`, in the order of `_rows.list_sessions`.

    Raises `DamagedData` if the index is damaged.
    """
    terms = SearchQuery.parse(query)
    try:
        return _search_results(connection, terms, limit, before, archived) if terms.phrases else []
    except (sqlite3.DatabaseError, MemoryError) as exc:
        if not _is_damage(exc):
            raise
        raise DamagedData("the search index is damaged; the next start rebuilds it") from exc


def _search_results(
    connection: sqlite3.Connection,
    terms: SearchQuery,
    limit: int,
    before: str | ListPlace | None,
    archived: ArchivedFilter,
) -> list[ListedSession]:
    results: list[ListedSession] = []
    for session, numbers in _matching(connection, terms, before, archived):
        # the index may have words of a text that is damaged since
        texts = [text for number in numbers if terms.matches((text := _read_text(connection, number)).text)]
        if not texts:
            continue
        found = connection.execute("SELECT record, running FROM sessions WHERE number = ?", (session,))
        results += (
            ListedSession(record, running, [terms.excerpt(text) for text in texts])
            for record, running in decode_rows(found, lambda row: (decode_session(row[0]), row[1]))
        )
        if len(results) == limit:
            break
    return results


def _matching(
    connection: sqlite3.Connection, terms: SearchQuery, before: str | ListPlace | None, archived: ArchivedFilter
) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield sessions, each with the first of its texts that match."""
    matching = connection.execute(
        f"""SELECT texts.session, texts.number FROM found
            JOIN texts ON texts.number = found.rowid JOIN sessions ON sessions.number = texts.session
            WHERE found MATCH ? AND {rows.LIST_FILTER}
            ORDER BY sessions.pinned DESC, sessions.number DESC, texts.message_id <> '', texts.number""",
        (_expression(terms), *rows.list_filter_values(connection, before, archived)),
    )
    session, numbers = 0, list[int]()
    for owner, number in matching:
        if owner != session:
            if numbers:
                yield session, numbers
            session, numbers = owner, []
        if len(numbers) < MATCHES_SHOWN:
            numbers.append(number)
    if numbers:
        yield session, numbers


def _expression(terms: SearchQuery) -> str:
    """Return the terms in FTS5's query language; words contain no character that must be quoted."""
    return " AND ".join(f'"{" ".join(phrase)}" *' for phrase in terms.phrases)


def _read_text(connection: sqlite3.Connection, number: int) -> SearchableText:
    message_id, role, text = connection.execute(
        "SELECT message_id, role, CAST(text AS TEXT) FROM texts WHERE number = ?", (number,)
    ).fetchone()
    return SearchableText(message_id or None, role, text)
