"""The index that finds texts in the database: SQLite's FTS5 over what `search.spread` makes of them.

The index keeps words, not texts (it is contentless): those stand in the table `said`. It breaks at blanks and nowhere
else (`tokenize='ascii'`: spread words hold no other ASCII than letters and digits), so that it finds what
`search.Terms` says. What is taken out of it stays in its file until parts of it are merged, which `purge` does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from agenticx.sessions.base import Archived, Found
from agenticx.sessions.search import MATCHES_SHOWN, SEARCH_VERSION, Said, Terms, spread
from agenticx.sessions.sqlite import _rows as rows

__all__ = [
    "add_name",
    "add_said",
    "forget_all_but",
    "forget_session",
    "make_index",
    "must_purge",
    "purge",
    "purge_left_over",
    "search",
]

_MERGED_PAGES = 64
_ALL_MERGED = -_MERGED_PAGES  # a negative number says: all parts of the index, whatever their sizes


def make_index(connection: sqlite3.Connection) -> None:
    """Make the index, anew if it was made with another idea of what a word is."""
    known = connection.execute("SELECT value FROM meta WHERE key = 'search'").fetchone()
    if known == (SEARCH_VERSION,):
        return
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DROP TABLE IF EXISTS found")
    connection.execute("CREATE VIRTUAL TABLE found USING fts5 (words, content='', tokenize='ascii')")
    for number, text in connection.execute("SELECT number, text FROM said"):
        connection.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (number, spread(text)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('search', ?)", (SEARCH_VERSION,))
    connection.execute("COMMIT")


# --- putting in and taking out ----------------------------------------------------------------------------------------


def add_name(connection: sqlite3.Connection, session: int, name: str | None) -> None:
    """Let the session be found by its name, and no longer by an earlier one."""
    known = connection.execute("SELECT text FROM said WHERE session = ? AND message_id = ''", (session,)).fetchone()
    if known == (name,):
        return
    _forget(connection, connection.execute(_SAID + "session = ? AND message_id = ''", (session,)).fetchall())
    if name:
        add_said(connection, session, [Said(None, "name", name)])


def add_said(connection: sqlite3.Connection, session: int, texts: Iterable[Said]) -> None:
    """Let the session be found by what was said; what is known by its id is left as it is."""
    for said in texts:
        added = connection.execute(
            "INSERT INTO said (session, message_id, role, text) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (session, said.message_id or "", said.role, said.text),
        )
        if added.rowcount:
            connection.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (added.lastrowid, spread(said.text)))


def forget_all_but(connection: sqlite3.Connection, session: int, findable: frozenset[str]) -> None:
    """Let nothing of the session be found but its name and these messages."""
    texts = connection.execute("SELECT number, text, message_id FROM said WHERE session = ?", (session,)).fetchall()
    _forget(connection, [(number, text) for number, text, id_ in texts if id_ and id_ not in findable])


def forget_session(connection: sqlite3.Connection, session: int) -> None:
    """Let nothing of the session be found."""
    _forget(connection, connection.execute(_SAID + "session = ?", (session,)).fetchall())


_SAID = "SELECT number, text FROM said WHERE "


def _forget(connection: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    for number, text in texts:
        connection.execute("INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)", (number, spread(text)))
        connection.execute("DELETE FROM said WHERE number = ?", (number,))


def must_purge(connection: sqlite3.Connection) -> None:
    """Note that there is something to purge; should the process end before it is done, the next one does it."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('purging', '1')")


def purge(connection: sqlite3.Connection, *, begin: bool) -> bool:
    """One step of ridding the index's file of what was taken out of it; True once that is done.

    https://sqlite.org/fts5.html#the_merge_command says how to tell.
    """
    before = connection.total_changes
    pages = _ALL_MERGED if begin else _MERGED_PAGES
    connection.execute("INSERT INTO found (found, rank) VALUES ('merge', ?)", (pages,))
    done = not begin and connection.total_changes - before < 2
    if done:
        connection.execute("DELETE FROM meta WHERE key = 'purging'")
    return done


def purge_left_over(connection: sqlite3.Connection) -> None:
    """Do what a process before this one did not come to."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'purging'").fetchone() is not None:
        purge(connection, begin=True)
        while not purge(connection, begin=False):
            pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# --- finding ----------------------------------------------------------------------------------------------------------


def search(
    connection: sqlite3.Connection, query: str, *, limit: int, before: str | None, archived: Archived
) -> list[Found]:
    """The sessions that have a text with all terms of `query`, in the order of `_rows.records`."""
    terms = Terms.of(query)
    if not terms.phrases:
        return []
    found: list[Found] = []
    for session, numbers in _matching(connection, terms, before, archived):
        texts = [_said(connection, number) for number in numbers]
        (text,) = connection.execute("SELECT record FROM sessions WHERE number = ?", (session,)).fetchone()
        found += (Found(record, [terms.excerpt(said) for said in texts]) for record in rows.readable_records([(text,)]))
        if len(found) == limit:
            break
    return found


def _matching(
    connection: sqlite3.Connection, terms: Terms, before: str | None, archived: Archived
) -> Iterator[tuple[int, Sequence[int]]]:
    """Sessions, each with the first of its texts that match."""
    matching = connection.execute(
        f"""SELECT said.session, said.number FROM found
            JOIN said ON said.number = found.rowid JOIN sessions ON sessions.number = said.session
            WHERE found MATCH ? AND {rows.LISTED}
            ORDER BY sessions.pinned DESC, sessions.number DESC, said.message_id <> '', said.number""",
        (_expression(terms), *rows.listed(before, archived)),
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


def _expression(terms: Terms) -> str:
    """The terms in FTS5's query language; words hold nothing that would have to be quoted."""
    return " AND ".join(f'"{" ".join(phrase)}" *' for phrase in terms.phrases)


def _said(connection: sqlite3.Connection, number: int) -> Said:
    message_id, role, text = connection.execute(
        "SELECT message_id, role, text FROM said WHERE number = ?", (number,)
    ).fetchone()
    return Said(message_id or None, role, text)
