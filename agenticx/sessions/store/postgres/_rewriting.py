"""The rewrite of a table without the bytes of deleted rows, also while workers write to the table.

A small table is rewritten by VACUUM FULL, which locks it. A large table is copied in steps:

1. A trigger makes each change of the table in the copy too.
2. The rows are copied in the order of the primary key. Each step locks out writers for a small part of a second.
3. A transaction that began before the last step may not see the rows of the copy. Once there is none, the copy takes
   the place of the table; this takes as long as a change of the catalog.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agenticx.errors import StoreError
from agenticx.sessions.store.postgres._connection import LockNotAvailable, PostgresConnection, map_errors
from agenticx.sessions.store.postgres.schema import CONTENT_TABLES

__all__ = ["IN_USE", "OLD_SNAPSHOT", "copy_in_steps", "drop_copies", "vacuum"]

IN_USE = "it is in use; it is tried again"
OLD_SNAPSHOT = "an open transaction may still read deleted rows; it is tried again"

_STEP_SECONDS = 0.03
_MAX_STEP_ROWS = 5_000
_LOCK_MILLISECONDS = 200
"""The longest wait for a lock; later statements on the table wait behind it."""
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 20, 0.25
_FIRST_SNAPSHOT_SECONDS = 5.0
"""The longest wait before the copy: commits and automatic vacuums end within it; a report of hours does not."""
_SNAPSHOT_SECONDS, _SNAPSHOT_PAUSE_SECONDS = 60.0, 0.5
_QUIET_MILLISECONDS = 10_000
"""The longest wait for a lock that blocks nobody else: the server ends an automatic vacuum after a second."""
_SUFFIX = "_rewrite"
_TRIGGER = "rewrite_row"
_NAMES = f"^({'|'.join(CONTENT_TABLES)})(_[0-9]+)?"


class _OldSnapshot(Exception):
    """A transaction is open that does not see what is committed now."""


@dataclass(frozen=True)
class _Table:
    """A table to be copied: its primary key; for a partition the table that it is one of, and the bounds."""

    name: str
    key: Sequence[str]
    parent: str | None
    bounds: str  # FOR VALUES WITH (…)
    condition: str  # true for all rows within these bounds
    settings: Sequence[str]  # the statements that give the copy the owner, privileges and statistics of the table

    @property
    def copy(self) -> str:
        return self.name + _SUFFIX


async def vacuum(connection: PostgresConnection, table: str) -> str | None:
    """Rewrite a table by VACUUM FULL; return why deleted rows are still there, or None."""
    details = list[str]()

    def on_message(_: object, message: Any) -> None:
        details.append(message.detail or "")

    connection.add_log_listener(on_message)
    try:
        async with map_errors("the database"):
            await connection.execute(f"VACUUM (FULL, VERBOSE) {table}")
        await asyncio.sleep(0)  # the last message arrives in this iteration of the event loop
    except LockNotAvailable:
        return IN_USE
    finally:
        connection.remove_log_listener(on_message)
    kept = [int(found[0]) for detail in details if (found := re.search("[0-9]+", detail)) is not None]
    # "3 dead row versions cannot be removed yet.", in the language of the server
    return OLD_SNAPSHOT if not kept or any(kept) else None


async def copy_in_steps(connection: PostgresConnection, name: str) -> str | None:
    """Replace a table by a copy without deleted rows; return why deleted rows are still there, or None.

    Statements on the table wait for a small part of a second at a time. If this is cancelled or the connection is lost,
    `drop_copies` removes the unfinished copy. Raises `StoreError`.
    """
    try:
        async with map_errors("the database"):
            await _wait_for_snapshots(connection, name, seconds=_FIRST_SNAPSHOT_SECONDS)
            table = await _find(connection, name)
        try:
            async with map_errors("the database"):
                await _begin(connection, table)
                await _copy_rows(connection, table)
                await _wait_for_snapshots(connection, name, seconds=_SNAPSHOT_SECONDS)
                await _replace(connection, table)
        except (StoreError, _OldSnapshot):
            await drop_copies(connection)
            raise
    except LockNotAvailable:
        return IN_USE
    except _OldSnapshot:
        return OLD_SNAPSHOT
    return None


async def drop_copies(connection: PostgresConnection) -> None:
    """Remove what an interrupted rewrite has left: its copy, and the trigger that makes each change there too."""
    rows = await connection.fetch(
        "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = $1 AND NOT tgisinternal", _TRIGGER
    )
    for (name,) in rows:
        async with _lock(connection, f"DROP TRIGGER IF EXISTS {_TRIGGER} ON {name}"):
            pass
    tables = await connection.fetch(
        """SELECT relname::text, relname ~ $2 FROM pg_class
           WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
           AND (relname ~ $2 OR relname ~ $1 AND 'autovacuum_enabled=false' = ANY (reloptions))""",
        *(f"{_NAMES}$", f"{_NAMES}{_SUFFIX}$"),
    )
    for name, is_copy in tables:
        if is_copy:  # no trigger writes it any more
            await connection.execute(f"DROP TABLE {name}; DROP FUNCTION IF EXISTS {name}_row()")
        else:
            await _set_autovacuum(connection, f"ALTER TABLE {name} RESET (autovacuum_enabled)")


async def _find(connection: PostgresConnection, name: str) -> _Table:
    key = await connection.fetch(
        """SELECT quote_ident(attname) FROM pg_index CROSS JOIN unnest(indkey) WITH ORDINALITY AS parts (number, place)
           JOIN pg_attribute ON attrelid = indrelid AND attnum = parts.number
           WHERE indrelid = $1::text::regclass AND indisprimary ORDER BY place""",
        name,
    )
    ((parent, bounds, condition),) = await connection.fetch(
        """SELECT inhparent::regclass::text, pg_get_expr(relpartbound, pg_class.oid),
                  pg_get_partition_constraintdef(pg_class.oid)
           FROM pg_class LEFT JOIN pg_inherits ON inhrelid = pg_class.oid WHERE pg_class.oid = $1::text::regclass""",
        name,
    )
    settings = await connection.fetch(
        """SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', $2::text, attname, attstattarget)
           FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND attstattarget >= 0
           UNION ALL SELECT format('GRANT %s ON %s TO %s', privilege_type, $2::text,
                                   CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
           FROM pg_class CROSS JOIN aclexplode(relacl)
           WHERE pg_class.oid = $1::text::regclass AND grantee <> relowner
           UNION ALL SELECT format('ALTER TABLE %s OWNER TO %s', $2::text, relowner::regrole)
           FROM pg_class WHERE oid = $1::text::regclass""",
        *(name, name + _SUFFIX),
    )
    columns = [column for (column,) in key]
    return _Table(name, columns, parent, bounds or "", condition or "", [statement for (statement,) in settings])


async def _begin(connection: PostgresConnection, table: _Table) -> None:
    """Create the empty copy, and the trigger that makes each change in it from now on."""
    name, copy = table.name, table.copy
    await connection.execute(f"CREATE TABLE {copy} (LIKE {name} INCLUDING ALL EXCLUDING IDENTITY)")
    if table.condition:  # so that it becomes a partition without a look at its rows
        await connection.execute(f"ALTER TABLE {copy} ADD CONSTRAINT {copy}_bounds CHECK ({table.condition})")
    for statement in table.settings:
        await connection.execute(statement)
    old = ", ".join(f"OLD.{column}" for column in table.key)
    await connection.execute(
        f"""CREATE FUNCTION {copy}_row() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF TG_OP <> 'INSERT' THEN
                    DELETE FROM {copy} WHERE ({", ".join(table.key)}) = ({old});
                END IF;
                IF TG_OP <> 'DELETE' THEN
                    INSERT INTO {copy} SELECT NEW.*;
                END IF;
                RETURN NULL;
            END $$"""
    )
    # An automatic vacuum would hold up each of the next locks, and writers behind them.
    await _set_autovacuum(connection, f"ALTER TABLE {name} SET (autovacuum_enabled = false)")
    trigger = f"CREATE TRIGGER {_TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON {name} FOR EACH ROW"
    async with _lock(connection, f"{trigger} EXECUTE FUNCTION {copy}_row()"):
        pass


async def _copy_rows(connection: PostgresConnection, table: _Table) -> None:
    """Copy the rows that there are, in steps that take about `_STEP_SECONDS` each."""
    key, loop = ", ".join(table.key), asyncio.get_running_loop()
    rows, last = 16, list[Any]()
    while True:
        after = f"({key}) > ({', '.join(f'${number}' for number in range(1, len(last) + 1))})" if last else "true"
        ends = await connection.fetch(
            f"SELECT {key} FROM {table.name} WHERE {after} ORDER BY {key} OFFSET {rows - 1} LIMIT 1", *last
        )
        end, upto = [*ends[0]] if ends else [], "true"
        if end:
            first = len(last) + 1
            upto = f"({key}) <= ({', '.join(f'${number}' for number in range(first, first + len(end)))})"
        query = f"INSERT INTO {table.copy} SELECT * FROM {table.name} WHERE {after} AND {upto} ON CONFLICT DO NOTHING"
        async with _lock(connection, f"LOCK TABLE {table.name} IN SHARE MODE"):
            begun = loop.time()
            await connection.fetch(query, *last, *end)
        passed = loop.time() - begun
        if not end:
            break
        last = end
        rows = max(1, min(_MAX_STEP_ROWS, int(rows * min(2.0, _STEP_SECONDS / max(passed, 0.001)))))
        await asyncio.sleep(passed)  # let others write
    await connection.execute(f"ANALYZE {table.copy}")


async def _replace(connection: PostgresConnection, table: _Table) -> None:
    """Put the copy in the place of the table."""
    name, copy = table.name, table.copy
    first = f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"
    if table.parent is not None:
        first = f"ALTER TABLE {table.parent} DETACH PARTITION {name}"
    async with _lock(connection, first):
        await connection.execute(f"DROP TABLE {name}; ALTER TABLE {copy} RENAME TO {name}")
        if table.parent is not None:
            await connection.execute(f"ALTER TABLE {table.parent} ATTACH PARTITION {name} {table.bounds}")
            await connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT {copy}_bounds")
        await connection.execute(f"DROP FUNCTION {copy}_row()")


async def _wait_for_snapshots(connection: PostgresConnection, name: str, *, seconds: float) -> None:
    """Wait until each open transaction sees all that is committed now; raise `_OldSnapshot` if one does not."""
    deadline = asyncio.get_running_loop().time() + seconds
    await connection.fetch("UPDATE purges SET since = since WHERE partition = $1", name)
    while (why := await vacuum(connection, "purges")) is not None:
        if asyncio.get_running_loop().time() >= deadline:
            raise _OldSnapshot if why == OLD_SNAPSHOT else LockNotAvailable(why)
        await asyncio.sleep(_SNAPSHOT_PAUSE_SECONDS)


async def _set_autovacuum(connection: PostgresConnection, statement: str) -> None:
    """Run a statement that locks out neither readers nor writers."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_QUIET_MILLISECONDS}ms'; {statement}")


@asynccontextmanager
async def _lock(connection: PostgresConnection, statement: str) -> AsyncGenerator[None]:
    """Run the body in a transaction that begins with a statement that takes a lock; raise `LockNotAvailable`."""
    transaction = await _begin_with_lock(connection, statement)
    try:
        yield
    except BaseException:
        await transaction.rollback()
        raise
    await transaction.commit()


async def _begin_with_lock(connection: PostgresConnection, statement: str) -> Any:
    """Begin a transaction with the statement in one of several short attempts, and return it."""
    for _ in range(_LOCK_ATTEMPTS):
        transaction = connection.transaction()
        await transaction.start()
        try:
            async with map_errors("the database"):
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_MILLISECONDS}ms'")
                await connection.execute(statement)
        except LockNotAvailable:
            await transaction.rollback()
        except BaseException:
            await transaction.rollback()
            raise
        else:
            return transaction
        await asyncio.sleep(_LOCK_PAUSE_SECONDS)
    raise LockNotAvailable(IN_USE)
