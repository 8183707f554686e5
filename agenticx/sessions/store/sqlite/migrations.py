"""The schema of the database, as numbered migrations that are applied in order, each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from agenticx.errors import StoreError

__all__ = ["MIGRATIONS", "Migration", "applied_migrations", "create_statement", "migrate"]

APPLICATION_ID = 0x41475831
"""`AGX1`, in the file's header: https://sqlite.org/fileformat2.html#application_id"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration; its name is stored in the database once it is applied, so it never changes."""

    name: str
    sql: str


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "0001 sessions, turns, events, messages, journal",
        """
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
        INSERT INTO meta VALUES ('log_id', 'log_' || lower(hex(randomblob(10)))), ('position', '0');

        CREATE TABLE sessions (
            number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which they were made
            id TEXT NOT NULL UNIQUE,
            record TEXT NOT NULL,                      -- JSON of SessionRecord
            running TEXT,                              -- the turn that runs
            state TEXT                                 -- JSON, see SessionState
        );

        CREATE TABLE turns (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            id TEXT NOT NULL UNIQUE,
            client_turn_id TEXT,
            input TEXT NOT NULL,
            attached TEXT NOT NULL,
            after_seq INTEGER,
            UNIQUE (session, client_turn_id)
        );

        CREATE TABLE fresh (                           -- a row for each append, in log order, see `_segments`
            position INTEGER PRIMARY KEY,              -- of its last event
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            last_seq INTEGER NOT NULL,
            body BLOB NOT NULL
        );

        CREATE TABLE events (                          -- a row for each segment, see `_segments`
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            last_seq INTEGER NOT NULL,
            first_position INTEGER NOT NULL,
            last_position INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (session, last_seq)
        ) WITHOUT ROWID;
        CREATE INDEX events_by_position ON events (first_position, last_position);

        CREATE TABLE messages (                        -- the conversation as the model reads it
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            place INTEGER NOT NULL,
            message TEXT NOT NULL,                     -- JSON of Message
            UNIQUE (session, place)
        );

        CREATE TABLE journal (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            turn TEXT NOT NULL,
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            data TEXT NOT NULL,
            UNIQUE (kind, key)
        );
        CREATE INDEX journal_of_turn ON journal (session, turn);
        """,
    ),
    Migration(
        "0002 search, usage, pinned and archived",
        """
        ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
        UPDATE sessions SET pinned = json_extract(record, '$.pinned'), archived = json_extract(record, '$.archived');
        CREATE INDEX sessions_listed ON sessions (pinned, number);

        CREATE TABLE said (                            -- the texts that a search finds, see `_search`
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            message_id TEXT NOT NULL,                  -- '' for the session's name
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            UNIQUE (session, message_id)
        );
        INSERT INTO said (session, message_id, role, text)
            SELECT number, '', 'name', json_extract(record, '$.name') FROM sessions
            WHERE json_extract(record, '$.name') <> '';
        INSERT OR IGNORE INTO said (session, message_id, role, text)
            SELECT session, json_extract(message, '$.message_id'), json_extract(message, '$.role'),
                   json_extract(message, '$.content')
            FROM messages
            WHERE json_extract(message, '$.role') IN ('user', 'assistant') AND json_extract(message, '$.content') <> ''
                  AND NOT coalesce(json_extract(message, '$.injected'), 0)
            ORDER BY session, place;

        CREATE TABLE usage (                           -- the usage of calls, summed
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            calls INTEGER NOT NULL,
            uncounted INTEGER NOT NULL,
            unpriced INTEGER NOT NULL,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            reasoning_tokens INTEGER NOT NULL,
            cost_usd TEXT,                             -- a decimal; NULL if no call's cost is known
            PRIMARY KEY (session, day, model)
        ) WITHOUT ROWID;
        """,
    ),
    Migration(
        "0003 compacted messages",
        """
        CREATE TABLE compacted (                       -- the originals of summarised messages
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            place INTEGER NOT NULL,
            message TEXT NOT NULL,                     -- JSON of Message
            UNIQUE (session, place)
        );
        """,
    ),
    Migration(
        "0004 facts",
        """
        ALTER TABLE journal RENAME TO facts;
        DROP INDEX journal_of_turn;
        CREATE INDEX facts_of_turn ON facts (session, turn);
        UPDATE facts SET kind = CASE kind
            WHEN 'began' THEN 'call_began'
            WHEN 'process' THEN 'process_started'
            WHEN 'asked' THEN 'question_asked'
            WHEN 'answered' THEN 'question_answered'
            WHEN 'closed' THEN 'question_closed'
            WHEN 'posted' THEN 'message_posted'
            WHEN 'taken' THEN 'message_taken'
            WHEN 'named' THEN 'name_derived'
            WHEN 'told' THEN 'name_announced'
            ELSE kind END;
        CREATE INDEX open_facts ON facts (session) WHERE kind IN ('message_posted', 'name_derived');
        CREATE INDEX running_sessions ON sessions (running) WHERE running IS NOT NULL;

        UPDATE sessions SET running = NULL WHERE running IN (SELECT id FROM turns WHERE after_seq IS NULL);
        DELETE FROM turns WHERE after_seq IS NULL;     -- claimed by a process that died before the first event
        """,
    ),
    Migration(
        "0005 facts about files",
        """
        CREATE INDEX file_facts ON facts (session) WHERE kind IN ('file_edited', 'file_rewound');
        """,
    ),
    Migration(
        "0006 standard names",
        """
        ALTER TABLE said RENAME TO texts;
        ALTER TABLE fresh RENAME TO appends;
        ALTER TABLE messages RENAME COLUMN place TO message_index;
        ALTER TABLE compacted RENAME COLUMN place TO message_index;
        ALTER TABLE turns RENAME COLUMN attached TO attachments_digest;
        """,
    ),
    Migration(
        "0007 facts about rewinds",
        """
        DROP INDEX open_facts;
        CREATE INDEX open_facts ON facts (session) WHERE kind IN ('message_posted', 'name_derived', 'rewind_began');
        """,
    ),
    Migration(
        "0008 permission modes of turns",
        """
        ALTER TABLE turns ADD COLUMN permission_mode TEXT;  -- NULL: that of the session
        """,
    ),
    Migration("0009 attachments by digest", ""),  # messages may name contents, which earlier releases cannot read
    Migration(
        "0010 models and sampling of turns",
        """
        ALTER TABLE turns ADD COLUMN model TEXT;            -- NULL: that of the session
        ALTER TABLE turns ADD COLUMN sampling TEXT;         -- a JSON object; NULL: that of the model
        """,
    ),
    Migration(
        "0011 turns below turns, usage by agent",
        """
        ALTER TABLE turns ADD COLUMN parent_turn_id TEXT;   -- the turn above; NULL: a message of the user began it
        ALTER TABLE turns ADD COLUMN is_open_child INTEGER NOT NULL DEFAULT 0;  -- 1: below another one, not ended
        CREATE INDEX open_children ON turns (session) WHERE is_open_child;

        ALTER TABLE usage RENAME TO usage_by_model;
        CREATE TABLE usage (                           -- the usage of calls, summed
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            agent_id TEXT NOT NULL,
            calls INTEGER NOT NULL,
            uncounted INTEGER NOT NULL,
            unpriced INTEGER NOT NULL,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            reasoning_tokens INTEGER NOT NULL,
            cost_usd TEXT,                             -- a decimal; NULL if no call's cost is known
            PRIMARY KEY (session, day, model, agent_id)
        ) WITHOUT ROWID;
        INSERT INTO usage SELECT session, day, model, 'meta', calls, uncounted, unpriced, input_tokens, output_tokens,
            cached_tokens, reasoning_tokens, cost_usd FROM usage_by_model;
        DROP TABLE usage_by_model;
        """,
    ),
    Migration("0012 teams of sessions", ""),  # a record may name a team, which earlier releases would not run
    Migration("0013 active agents", ""),  # of sessions, which earlier releases would let the main agent answer
    Migration(
        "0014 facts about sub-agents",
        """
        CREATE INDEX subagent_facts ON facts (session)
            WHERE kind IN ('subagent_started', 'subagent_ended', 'subagent_delivered');
        """,
    ),
    Migration(
        "0015 unannounced endings of sub-agents",
        """
        DROP INDEX open_facts;
        CREATE INDEX open_facts ON facts (session)
            WHERE kind IN ('message_posted', 'name_derived', 'rewind_began', 'subagent_unannounced');
        """,
    ),
    Migration(
        "0016 messages to sub-agents",
        """
        DROP INDEX subagent_facts;
        CREATE INDEX subagent_facts ON facts (session)
            WHERE kind IN ('subagent_started', 'subagent_ended', 'subagent_delivered', 'subagent_messaged');
        """,
    ),
    Migration(
        "0017 modes and vaults of turns",
        """
        ALTER TABLE turns ADD COLUMN mode TEXT;             -- NULL: that of its words
        ALTER TABLE turns ADD COLUMN vaults TEXT;           -- a JSON list of ids; NULL: those of the session
        """,
    ),
)


def applied_migrations(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the migrations that were applied; write nothing.

    Raises `StoreError` for a database that a newer release wrote or that is another program's.
    """
    applied = _read_applied(connection)
    known = [migration.name for migration in MIGRATIONS]
    if newer := [name for name in applied if name not in known]:
        raise StoreError(f"the database was written by a newer AgenticX (it has {newer[0]!r}); update this one")
    return applied


def migrate(connection: sqlite3.Connection, now: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the missing migrations in one transaction; raise `StoreError` as `applied_migrations` does."""
    applied = applied_migrations(connection)
    missing = [migration for migration in migrations if migration.name not in applied]
    if not missing:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)")
        for migration in missing:
            for statement in _statements(migration.sql):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (migration.name, now))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def create_statement(table: str) -> str:
    """Return the statement that creates a table of the newest schema."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, "")
        return connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]


def _read_applied(connection: sqlite3.Connection) -> list[str]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if not tables:
        return []
    if application != APPLICATION_ID or "migrations" not in tables:
        raise StoreError("the file is a database of another program; name another one in AGX_STORE_URL")
    return [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY name")]


def _statements(sql: str) -> list[str]:
    """Return the statements of a script, to be run one by one.

    `executescript` would commit the transaction around them.
    """
    statements: list[str] = []
    pending = ""
    for line in sql.splitlines():
        pending += line.partition("--")[0].rstrip() + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
