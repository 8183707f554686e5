"""The schema of a PostgreSQL database, in one version, and the functions in it that write.

Tables with content are partitioned by session, so that the bytes of a deleted session are removed by rewriting a small
part of each. A function is one statement of the server, which begins and ends its transaction: so a worker that is
paused holds no lock of a item. Each query within it sees what was committed before that query.
"""

from __future__ import annotations

from agenticx.sessions.store.search import SEARCH_VERSION

__all__ = [
    "ADD_COMMITS",
    "ADD_COMMITS_AGAIN",
    "CONTENT_TABLES",
    "PARTITIONED_TABLES",
    "PARTITIONS",
    "POSITION_BITS",
    "SCHEMA_VERSION",
    "create_statements",
]

SCHEMA_VERSION = 8
"""The version of the schema and of what its rows contain, in the table `meta`."""

PARTITIONS = 64
"""The partitions of each table in `PARTITIONED_TABLES`."""

POSITION_BITS = 16
"""A position is the number of its transaction, shifted by this, and a place within that."""

PARTITIONED_TABLES = ("segments", "records", "texts", "usage", "blobs")
CONTENT_TABLES = ("commits", *PARTITIONED_TABLES)

_CONTENT_COLUMNS = {
    "commits": ("body",),
    "segments": ("body",),
    "records": ("key", "client_turn_id", "data"),
    "texts": ("message_id", "text", "words"),
    "blobs": ("body",),
    "commands": ("body", "reply"),
}
"""The columns of which the server keeps no statistics, as these would contain some of their values."""

_TABLES = f"""
-- Values about the whole database: version; log_id, its identity; system, the server that wrote it; position_offset,
-- which is added to the numbers of transactions, which another server counts anew; partitions; search, the version of
-- the word rules; databases, the list of which this is one.
CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);

-- The workers: a row for each process, while it lives and until another one has noticed that it does not.
CREATE TABLE workers (
    id text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY, -- the key of its advisory lock
    address text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    configuration text NOT NULL,                -- a JSON object: the digest of each of its parts
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL,                  -- its last heartbeat
    until timestamptz NOT NULL,                 -- it owns its sessions up to then
    server timestamptz,                         -- the start of the server at which it holds the lock; NULL for none
    generation bigint NOT NULL DEFAULT 1        -- rises when a session is claimed that it has written
);

-- A row for each session. Its number is the key in all other tables.
CREATE TABLE sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text UNIQUE,                             -- NULL while its log is copied, or deleted: nobody sees it
    hidden_id text,                             -- its id then
    hidden_by text,                             -- the worker that copies or deletes it
    created_at text COLLATE "C" NOT NULL,       -- as in the record
    pinned boolean NOT NULL,                    -- as in the record
    archived boolean NOT NULL,                  -- as in the record
    workspace_host text,                        -- as in the record
    running text,                               -- the id of the turn that runs
    running_since timestamptz                   -- when it began
);
CREATE INDEX sessions_listed ON sessions (pinned, created_at, number);
CREATE INDEX sessions_hidden ON sessions (number) WHERE id IS NULL;  -- its record is in `records`

-- The owner of each session: changed when one claims or releases it, or work begins or ends, never by a commit.
CREATE TABLE fences (
    session bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    epoch bigint NOT NULL DEFAULT 0,            -- rises with each claim: a lease is of one epoch
    owner text,                                 -- the id of a worker
    writer bigint,                              -- the number of the worker that has this epoch, or had it
    has_work boolean NOT NULL DEFAULT false     -- an open turn or fact
);
CREATE INDEX fences_with_work ON fences (owner) WHERE has_work;
CREATE INDEX fences_owned ON fences (owner) WHERE owner IS NOT NULL;

-- The newest commits of each session, at least the last one: a row for each. They are few, so there are no partitions,
-- each of which would have to be opened for a commit.
CREATE TABLE commits (
    session bigint NOT NULL,
    rev bigint NOT NULL,                        -- counts the commits of the session from 1 without gaps
    commit_id text NOT NULL,
    last_seq bigint NOT NULL,                   -- of its last event, or of the last one before it
    position bigint NOT NULL,                   -- of its last event, or its own if it has none; see POSITION_BITS
    body bytea NOT NULL,                        -- a line for each event, whose positions count from 1
    PRIMARY KEY (session, rev)
);
CREATE INDEX commits_by_position ON commits (position);
-- It is analyzed often, as its rows come and go: of 3,000 rows, not of 30,000.
ALTER TABLE commits ALTER COLUMN session SET STATISTICS 10, ALTER COLUMN rev SET STATISTICS 10,
    ALTER COLUMN commit_id SET STATISTICS 10, ALTER COLUMN last_seq SET STATISTICS 10,
    ALTER COLUMN position SET STATISTICS 10;

-- The commits before these: a row for each segment. See `segments`.
CREATE TABLE segments (
    session bigint NOT NULL,
    last_seq bigint NOT NULL,
    first_rev bigint NOT NULL,
    last_rev bigint NOT NULL,
    commit_id text NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (session, last_seq, last_rev)
) PARTITION BY HASH (session);
CREATE INDEX segments_by_position ON segments (last_position);
ALTER TABLE segments ALTER COLUMN body SET STORAGE EXTERNAL;  -- it is compressed already

-- The records of the log, see Record. One of a part of the state, or of a fact, is deleted when another one takes its
-- place.
CREATE TABLE records (
    session bigint NOT NULL,
    rev bigint NOT NULL,
    record_index integer NOT NULL,              -- within its commit
    seq bigint NOT NULL,                        -- of the event that it follows
    turn text NOT NULL,                         -- '' for those of no turn
    kind text NOT NULL,
    key text NOT NULL,
    client_turn_id text,                        -- of a turn
    in_force boolean NOT NULL,                  -- the one of its kind and key that counts
    is_open boolean NOT NULL,                   -- a turn that has not ended, or work that no fact has closed
    data text NOT NULL,                         -- a JSON object
    PRIMARY KEY (session, rev, record_index)
) PARTITION BY HASH (session);
CREATE UNIQUE INDEX records_by_key ON records (session, kind, key) WHERE in_force;
CREATE UNIQUE INDEX records_by_client_turn ON records (session, client_turn_id) WHERE client_turn_id IS NOT NULL;
CREATE INDEX records_open ON records (session) WHERE is_open;
CREATE INDEX requests ON records (key) WHERE kind = 'request_asked';

-- The texts that a search finds, see `_search`.
CREATE TABLE texts (
    session bigint NOT NULL,
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    message_id text NOT NULL,                   -- '' for the session's name
    role text NOT NULL,
    text text NOT NULL,
    words tsvector,                             -- NULL for a text with more words than one can hold
    has_pairs boolean NOT NULL,                 -- also of neighbouring words
    PRIMARY KEY (session, message_id)
) PARTITION BY HASH (session);
CREATE INDEX texts_by_words ON texts USING gin (words);
CREATE INDEX texts_without_words ON texts (session) WHERE words IS NULL;

-- The usage of model calls, summed by session, day, model and agent.
CREATE TABLE usage (
    session bigint NOT NULL,
    day text NOT NULL,
    model text NOT NULL,
    agent_id text NOT NULL,
    calls bigint NOT NULL,
    uncounted bigint NOT NULL,
    unpriced bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_usd numeric,                           -- NULL if no call's cost is known
    PRIMARY KEY (session, day, model, agent_id)
) PARTITION BY HASH (session);

-- Contents that are kept or removable, in chunks, see `_blobs`.
CREATE TABLE blobs (
    session_id text NOT NULL,                   -- a content is stored before its session
    digest text NOT NULL,
    is_removable boolean NOT NULL,
    chunk integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (session_id, digest, is_removable, chunk)
) PARTITION BY HASH (session_id);

-- Commands for the owner of a session, which is told of the row by a notification; none outlives a crash.
CREATE UNLOGGED TABLE commands (
    id text PRIMARY KEY,
    worker text NOT NULL,
    session_id text NOT NULL,
    body bytea NOT NULL,
    taken text,                                 -- the id of the query with which the worker has read it
    reply bytea,                                -- NULL until there is one
    failed boolean NOT NULL DEFAULT false,      -- the worker does not own the session
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX commands_of_worker ON commands (worker);

-- What all workers share besides sessions: the token, tickets, keys.
CREATE TABLE shared (name text PRIMARY KEY, value bytea NOT NULL, expires timestamptz);

-- The partitions with rows of deleted sessions, whose bytes are there until a purge has rewritten them, and in the
-- server's log of writes until it has removed that up to then.
CREATE TABLE purges (
    partition text PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    rewritten boolean NOT NULL DEFAULT false
);

INSERT INTO meta VALUES
    ('version', '{SCHEMA_VERSION}'), ('search', '{SEARCH_VERSION}'), ('position_offset', '0'),
    ('log_id', 'log_' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 20));
"""


def _adding(columns: str, offset: str, *, into: str = "") -> str:
    """Return the statement that stores commits, given arrays of their columns."""
    return f"""WITH fenced AS (
        SELECT given.* FROM unnest({columns}) AS given (session, epoch, rev, commit_id, last_seq, place, body)
        JOIN fences USING (session) WHERE fences.epoch = given.epoch FOR SHARE OF fences
    ), inserted AS (
        INSERT INTO commits (session, rev, commit_id, last_seq, position, body)
        SELECT session, rev, commit_id, last_seq,
            ((pg_current_xact_id()::text::bigint + {offset}) << {POSITION_BITS}) + place, body
        FROM fenced ON CONFLICT DO NOTHING RETURNING session
    )
    SELECT coalesce(array_agg(session), '{{}}'), (pg_current_xact_id()::text::bigint + {offset}) << {POSITION_BITS}
    {into} FROM inserted"""


_PARAMETERS = "$1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::integer[], $7::bytea[]"

ADD_COMMITS = f"""INSERT INTO commits (session, rev, commit_id, last_seq, position, body)
    SELECT given.session, rev, commit_id, last_seq,
        (SELECT (pg_current_xact_id()::text::bigint + $8::bigint) << {POSITION_BITS}) + place, body
    FROM unnest({_PARAMETERS}) AS given (session, epoch, rev, commit_id, last_seq, place, body)
    JOIN fences ON fences.session = given.session AND fences.epoch = given.epoch AND fences.writer = $9::bigint
    WHERE EXISTS (SELECT FROM workers WHERE id = $10 AND number = $9 AND generation = $11::bigint FOR KEY SHARE)
    RETURNING session, position"""
"""Stores commits, each under the epoch of its session's owner, who numbers them.

The parameters are arrays of the columns: session, epoch, rev, commit id, last event, place of that within the
transaction, events; then `position_offset`, and the number, id and generation of this worker. The result is the
sessions in which they are stored, and the positions.

One lock serves all sessions: that of the worker's row makes a claim of a session that it has written wait for the
commits, see `stop_writer`, and commits that waited for a claim find another generation. None is stored then, and
`ADD_COMMITS_AGAIN`, with a lock for each session, stores those of the others: a lock costs a fifth of a commit. If one
is stored already, none is stored and there is a unique violation: to allow for that costs a fifth more.
"""

ADD_COMMITS_AGAIN = _adding(_PARAMETERS, "$8::bigint")
"""Stores those commits that are not stored yet.

The result is the sessions in which they are stored now, and the position before all places.
"""

_FUNCTIONS = f"""
-- The number of this transaction, of which its positions are made.
CREATE FUNCTION position_base() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (pg_current_xact_id()::text::bigint + (SELECT value::bigint FROM meta WHERE key = 'position_offset'))
        << {POSITION_BITS}
$$;

-- The position up to which no event can appear any more: all transactions up to there have ended.
CREATE FUNCTION settled_position() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint
             + (SELECT value::bigint FROM meta WHERE key = 'position_offset')) << {POSITION_BITS}) - 1
$$;

-- Let positions rise also after the database was restored on another server, which counts its transactions anew.
CREATE FUNCTION adopt_server() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    server text := (SELECT system_identifier::text FROM pg_control_system());
    last bigint;
BEGIN
    IF (SELECT value FROM meta WHERE key = 'system') IS DISTINCT FROM server THEN
        last := greatest((SELECT max(position) FROM commits), (SELECT max(last_position) FROM segments), 0);
        UPDATE meta SET value = greatest(0, (last >> {POSITION_BITS}) + 1 - pg_current_xact_id()::text::bigint)::text
            WHERE key = 'position_offset';
        INSERT INTO meta VALUES ('system', server) ON CONFLICT (key) DO UPDATE SET value = server;
    END IF;
END $$;

-- Store commits as `ADD_COMMITS_AGAIN` does, and what their records and usage change in other tables. `changes` has
-- lists of objects with the session's number, in the order of the commits; those of others are left out.
-- The `rule` of a record says what it does to those of its kind and key: a, it is just added; f, it counts unless there
-- is one; r, it replaces the one there is. It ends those of the kind `closes`, and d deletes these.
CREATE FUNCTION add_commits_with_changes(
    sessions bigint[], epochs bigint[], revs bigint[], ids text[], seqs bigint[], places integer[], bodies bytea[],
    position_offset bigint, changes json, OUT added bigint[], OUT base bigint
) LANGUAGE plpgsql AS $$
BEGIN
    {_adding("sessions, epochs, revs, ids, seqs, places, bodies", "position_offset", into="INTO added, base")};
    PERFORM apply_changes(added, changes);
    UPDATE fences SET has_work = found.has_work
        FROM (SELECT session, EXISTS (SELECT FROM records WHERE records.session = given.session AND is_open) AS has_work
              FROM unnest(added) AS given (session)) AS found
        WHERE fences.session = found.session AND fences.has_work <> found.has_work;
END $$;

CREATE FUNCTION apply_changes(added bigint[], changes json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    item record;
    counts boolean;
BEGIN
    FOR item IN SELECT * FROM json_to_recordset(changes -> 'records') AS given (
            session bigint, rev bigint, index integer, seq bigint, turn text, kind text, key text,
            client_turn_id text, runs boolean, rule text, opens boolean, closes text, data text)
        WHERE session = ANY (added) LOOP
        IF item.rule = 'd' THEN
            DELETE FROM records WHERE session = item.session AND kind = item.closes AND key = item.key AND in_force;
        ELSIF item.closes IS NOT NULL THEN
            UPDATE records SET in_force = false, is_open = false
                WHERE session = item.session AND kind = item.closes AND key = item.key AND in_force;
        END IF;
        counts := item.rule IN ('f', 'r');
        IF item.rule = 'r' THEN
            DELETE FROM records WHERE session = item.session AND kind = item.kind AND key = item.key AND in_force;
        ELSIF item.rule = 'f' THEN
            counts := NOT EXISTS (
                SELECT FROM records WHERE session = item.session AND kind = item.kind AND key = item.key AND in_force);
        END IF;
        INSERT INTO records (
            session, rev, record_index, seq, turn, kind, key, client_turn_id, in_force, is_open, data
        ) VALUES (
            item.session, item.rev, item.index, item.seq, item.turn, item.kind, item.key, item.client_turn_id, counts,
            counts AND item.opens, item.data);
        IF item.runs THEN
            UPDATE sessions SET running = item.key, running_since = clock_timestamp() WHERE number = item.session;
        END IF;
    END LOOP;
    FOR item IN SELECT * FROM json_to_recordset(changes -> 'ended') AS given (session bigint, turn text)
        WHERE session = ANY (added) LOOP
        UPDATE records SET is_open = false
            WHERE session = item.session AND kind = 'turn_accepted' AND key = item.turn AND in_force;
        UPDATE sessions SET running = NULL WHERE number = item.session AND running = item.turn;
    END LOOP;
    FOR item IN SELECT * FROM json_to_recordset(changes -> 'sessions') AS given (
            session bigint, pinned boolean, archived boolean, workspace_host text)
        WHERE session = ANY (added) LOOP
        UPDATE sessions SET pinned = item.pinned, archived = item.archived, workspace_host = item.workspace_host
            WHERE number = item.session;
    END LOOP;
    FOR item IN SELECT * FROM json_to_recordset(changes -> 'texts') AS given (
            session bigint, message_id text, role text, text text, words text, has_pairs boolean)
        WHERE session = ANY (added) LOOP
        IF item.role IS NULL THEN
            DELETE FROM texts WHERE session = item.session AND message_id = item.message_id;
        ELSE
            INSERT INTO texts (session, message_id, role, text, words, has_pairs) VALUES (
                item.session, item.message_id, item.role, item.text,
                array_to_tsvector(string_to_array(item.words, E'\\n')), item.has_pairs)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    FOR item IN SELECT * FROM json_to_recordset(changes -> 'usage') AS given (
            session bigint, day text, model text, agent_id text, calls bigint, uncounted bigint, unpriced bigint,
            input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_usd text)
        WHERE session = ANY (added) LOOP
        INSERT INTO usage AS known VALUES (
            item.session, item.day, item.model, item.agent_id, item.calls, item.uncounted, item.unpriced,
            item.input_tokens, item.output_tokens, item.cached_tokens, item.reasoning_tokens, item.cost_usd::numeric)
        ON CONFLICT (session, day, model, agent_id) DO UPDATE SET
            calls = known.calls + excluded.calls, uncounted = known.uncounted + excluded.uncounted,
            unpriced = known.unpriced + excluded.unpriced, input_tokens = known.input_tokens + excluded.input_tokens,
            output_tokens = known.output_tokens + excluded.output_tokens,
            cached_tokens = known.cached_tokens + excluded.cached_tokens,
            reasoning_tokens = known.reasoning_tokens + excluded.reasoning_tokens,
            cost_usd = CASE WHEN known.cost_usd IS NULL THEN excluded.cost_usd
                ELSE known.cost_usd + coalesce(excluded.cost_usd, 0) END;
    END LOOP;
END $$;

-- Replace commits of a session by segments with their events, under the epoch of its owner; nothing if that was done.
CREATE FUNCTION pack_commits(
    packed bigint, owner_epoch bigint, first bigint, last bigint, last_seqs bigint[], first_revs bigint[],
    last_revs bigint[], ids text[], first_positions bigint[], last_positions bigint[], bodies bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    count bigint;
BEGIN
    PERFORM FROM fences WHERE session = packed AND epoch = owner_epoch FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM commits WHERE session = packed AND rev BETWEEN first AND last;
    GET DIAGNOSTICS count = ROW_COUNT;
    IF count = 0 THEN
        RETURN;
    ELSIF count <> last - first + 1 THEN
        RAISE EXCEPTION 'commits % to % of session % are not all there', first, last, packed;
    END IF;
    INSERT INTO segments (session, last_seq, first_rev, last_rev, commit_id, first_position, last_position, body)
    SELECT packed, given.*
    FROM unnest(last_seqs, first_revs, last_revs, ids, first_positions, last_positions, bodies) AS given;
END $$;

-- Note that the partitions of a session have bytes to be purged.
CREATE FUNCTION note_purge(number bigint, session_id text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO purges (partition)
    SELECT unnest(ARRAY['commits', 'commands']) UNION ALL SELECT tables.name || '_' || part
    FROM meta, generate_series(0, meta.value::integer - 1) AS parts (part),
        unnest(ARRAY['segments', 'records', 'texts', 'usage', 'blobs']) AS tables (name)
    WHERE meta.key = 'partitions' AND CASE WHEN tables.name = 'blobs'
        THEN satisfies_hash_partition('blobs'::regclass, meta.value::integer, part, session_id)
        ELSE satisfies_hash_partition('segments'::regclass, meta.value::integer, part, number) END
    ON CONFLICT (partition) DO UPDATE SET since = clock_timestamp(), rewritten = false
$$;

-- Have the commits of a worker fail that are under way without a lock for their session; wait for those that hold its
-- own. Call it before the epoch of a session changes that it has written.
CREATE FUNCTION stop_writer(writer bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM workers WHERE number = writer FOR UPDATE; -- an UPDATE alone would not wait for FOR KEY SHARE
    UPDATE workers SET generation = generation + 1 WHERE number = writer;
END $$;

-- Let nobody see the session of a lease any more, and return whether that is so; its rows are deleted after that.
CREATE FUNCTION hide_session(lease_session bigint, lease_epoch bigint, worker text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stop_writer(writer) FROM fences WHERE session = lease_session;
    UPDATE fences SET epoch = epoch + 1, owner = NULL, has_work = false
        WHERE session = lease_session AND epoch = lease_epoch;
    IF FOUND THEN
        UPDATE sessions SET hidden_id = id, id = NULL, hidden_by = worker, running = NULL
            WHERE number = lease_session;
        PERFORM note_purge(number, hidden_id) FROM sessions WHERE number = lease_session;
    END IF;
    RETURN EXISTS (SELECT FROM sessions WHERE number = lease_session AND id IS NULL AND hidden_by = worker);
END $$;

-- Make a worker the owner of a session unless a living one is, and return the epoch of its lease, or that owner.
-- A worker is dead once its lease has expired, and `grace` has passed since.
CREATE FUNCTION claim(
    session_id text, worker text, grace interval, OUT session bigint, OUT epoch bigint, OUT other text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fence fences%ROWTYPE;
BEGIN
    SELECT fences.* INTO fence FROM fences JOIN sessions ON sessions.number = fences.session
        WHERE sessions.id = session_id FOR UPDATE OF fences;
    IF NOT FOUND OR NOT EXISTS (SELECT FROM sessions WHERE sessions.id = session_id) THEN
        RETURN;
    END IF;
    session := fence.session;
    IF fence.owner <> worker AND EXISTS (
            SELECT FROM workers WHERE id = fence.owner AND until + grace > clock_timestamp()) THEN
        other := fence.owner;
        RETURN;
    END IF;
    epoch := fence.epoch + 1;
    PERFORM stop_writer(fence.writer);
    UPDATE fences SET epoch = fence.epoch + 1, owner = worker, writer = (SELECT number FROM workers WHERE id = worker)
        WHERE fences.session = fence.session;
END $$;
"""


def create_statements(partitions: int = PARTITIONS) -> str:
    """Return the statements that create all tables and functions in an empty schema."""
    parts = "".join(
        f"CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part});\n"
        for table in PARTITIONED_TABLES
        for part in range(partitions)
    )
    without = "".join(
        f"ALTER TABLE {table}{part} ALTER COLUMN {column} SET STATISTICS 0;\n"
        for table, columns in _CONTENT_COLUMNS.items()
        for part in ("", *(f"_{number}" for number in range(partitions if table in PARTITIONED_TABLES else 0)))
        for column in columns
    )
    return f"{_TABLES}{parts}{without}{_FUNCTIONS}INSERT INTO meta VALUES ('partitions', '{partitions}');"
