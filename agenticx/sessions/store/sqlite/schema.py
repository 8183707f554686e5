"""The schema of the database, in one version: a file of another one is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from agenticx.errors import StoreError
from agenticx.sessions.log.records import FACT_CLASSES, Fact, FileFact, SubagentFact
from agenticx.sessions.store.search import SEARCH_VERSION

__all__ = [
    "APPLICATION_ID",
    "CREATE_SEARCH_INDEX",
    "CREATE_TEXTS",
    "IS_OPEN",
    "SCHEMA_VERSION",
    "VersionMismatch",
    "create_schema",
    "fact_classes",
    "kind_in",
]

SCHEMA_VERSION = 17
"""The version of the schema and of what its rows contain, in the file's header as `user_version`."""

APPLICATION_ID = 0x41475831
"""`AGX1`, in the file's header: https://sqlite.org/fileformat2.html#application_id"""

CREATE_TEXTS = """
-- The texts that a search finds: names of sessions, messages of users and answers. See `_search`.
CREATE TABLE texts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    message_id TEXT NOT NULL,                  -- '' for the session's name
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (session, message_id)
);
"""

CREATE_SEARCH_INDEX = """
-- The words of the texts, by their numbers. See `_search`.
CREATE VIRTUAL TABLE found USING fts5 (words, content='', tokenize='ascii');
"""


def fact_classes(*types: type[Fact]) -> list[type[Fact]]:
    """Return the classes of facts that are of these types."""
    return [each for each in FACT_CLASSES if issubclass(each, types)]


def kind_in(classes: Iterable[type[Fact]]) -> str:
    """Return the SQL condition that a fact is of one of these classes.

    SQLite uses a partial index for a query if both have the same condition, so the order of the classes counts.
    """
    return f"facts.kind IN ({', '.join(repr(each.kind) for each in classes)})"


IS_OPEN = kind_in(each for each in FACT_CLASSES if each.is_work)
"""The SQL condition that a fact is work for the next owner of its session."""

_SCHEMA = f"""
-- Values about the whole file: log_id, its identity; position, that before which all were given out when a session was
-- deleted; search, the version of the search index, without which it is rebuilt; purging, while deleted words are
-- being removed.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES
    ('log_id', 'log_' || lower(hex(randomblob(10)))), ('position', '0'), ('search', '{SEARCH_VERSION}');

-- A row for each session; all but its number is as in the log.
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which they were made
    id TEXT UNIQUE,                            -- NULL while its log is copied, or deleted: nobody sees it
    record TEXT NOT NULL,                      -- JSON of SessionRecord
    pinned INTEGER NOT NULL,                   -- as in the record
    archived INTEGER NOT NULL,                 -- as in the record
    running TEXT                               -- the id of the turn that runs
);
CREATE INDEX sessions_listed ON sessions (pinned, number);
CREATE INDEX running_sessions ON sessions (running) WHERE running IS NOT NULL;

-- The newest commits: a row for each, in the order of the log of all sessions. See `_newest_commits`. It has no foreign
-- key, which would be looked up for each token.
CREATE TABLE commits (
    position INTEGER PRIMARY KEY,              -- of its last event, or its own if it has none
    session INTEGER NOT NULL,
    rev INTEGER NOT NULL,                      -- counts the commits of the session from 1 without gaps
    commit_id TEXT NOT NULL,
    last_seq INTEGER NOT NULL,                 -- of its last event, or of the last one before it
    body BLOB NOT NULL                         -- a line for each event
);

-- The commits before these: a row for each segment. See `store.segments`.
CREATE TABLE segments (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    last_seq INTEGER NOT NULL,
    first_rev INTEGER NOT NULL,                -- the last one of the segment before it, of which it has the rest, or +1
    last_rev INTEGER NOT NULL,
    commit_id TEXT NOT NULL,                   -- of the commit `last_rev`
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    body BLOB NOT NULL,                        -- a line for each event, compressed
    PRIMARY KEY (session, last_seq, last_rev)
) WITHOUT ROWID;
CREATE INDEX segments_by_position ON segments (first_position, last_position);

-- The records of the log, see Record: written once, with their commits. That of a part of the state, or of a fact, is
-- deleted when another one takes its place.
CREATE TABLE records (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,             -- within its commit
    seq INTEGER NOT NULL,                      -- of the event that it follows
    turn TEXT NOT NULL,                        -- '' for those of no turn
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data TEXT NOT NULL,                        -- a JSON object
    PRIMARY KEY (session, rev, record_index)
) WITHOUT ROWID;
CREATE INDEX message_records ON records (session, key) WHERE kind = 'message_added';

-- All tables from here on are made of the log, in the transaction of each commit. See `_records`.

-- The turns, by their records. See TurnAccepted.
CREATE TABLE turns (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which they began
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id TEXT NOT NULL UNIQUE,
    client_turn_id TEXT,                       -- as in the record
    is_open_child INTEGER NOT NULL,            -- 1: below another one, not ended
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,
    UNIQUE (session, client_turn_id)
);
CREATE INDEX open_children ON turns (session) WHERE is_open_child;

-- The conversations as the models read them, by the records of their messages.
CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    message_index INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,
    PRIMARY KEY (session, message_index)
) WITHOUT ROWID;

-- The originals of messages that summaries have replaced, by their records.
CREATE TABLE compacted (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    message_index INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,
    PRIMARY KEY (session, message_index)
) WITHOUT ROWID;

-- The states of tools, permissions, files and options, by the records of their parts. See `tool_state.Parts`.
CREATE TABLE parts (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    name TEXT NOT NULL,
    place INTEGER NOT NULL,                    -- as in the record
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,
    PRIMARY KEY (session, name),
    UNIQUE (session, place)
) WITHOUT ROWID;

-- The facts in force, by their records, see Fact. Queries in `_rows` have the conditions of its indexes.
CREATE TABLE facts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which they were stored
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn TEXT NOT NULL,                        -- as in the record
    kind TEXT NOT NULL,                        -- as in the record
    key TEXT NOT NULL,                         -- as in the record
    rev INTEGER NOT NULL,
    record_index INTEGER NOT NULL,
    UNIQUE (kind, key, session)
);
CREATE INDEX facts_of_turn ON facts (session, turn);
CREATE INDEX open_facts ON facts (session) WHERE {IS_OPEN};
CREATE INDEX file_facts ON facts (session) WHERE {kind_in(fact_classes(FileFact))};
CREATE INDEX subagent_facts ON facts (session) WHERE {kind_in(fact_classes(SubagentFact))};

-- The usage of model calls, summed by session, day, model and agent.
CREATE TABLE usage (
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
{CREATE_TEXTS}{CREATE_SEARCH_INDEX}"""


class VersionMismatch(StoreError):
    """A database of another version, `found`, than this program has; it is left as it was."""

    def __init__(self, path: Path, found: int) -> None:
        super().__init__(
            f"{str(path)!r} has version {found} of the session database, and this AgenticX has version"
            f" {SCHEMA_VERSION}; it was left unchanged. Use the AgenticX that wrote it, or another AGX_HOME"
        )
        self.found = found


def create_schema(connection: sqlite3.Connection) -> None:
    """Create all tables of an empty database in one transaction.

    Call it before the database has a write-ahead log: so the header of the file itself says the version from the first
    moment on, see `_file.require_database_file`.
    """
    connection.executescript(
        f"""BEGIN;
        PRAGMA auto_vacuum = INCREMENTAL;
        PRAGMA application_id = {APPLICATION_ID};
        PRAGMA user_version = {SCHEMA_VERSION};
        {_SCHEMA}
        COMMIT;"""
    )
