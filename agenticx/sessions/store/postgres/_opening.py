"""The checks of a database before it is used, and its creation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from agenticx.errors import StoreError
from agenticx.sessions.store.base import Durability
from agenticx.sessions.store.postgres._connection import PostgresConnection, Server
from agenticx.sessions.store.postgres.schema import PARTITIONS, SCHEMA_VERSION, create_statements

__all__ = ["Opened", "check_server", "durability_of", "has_tables", "open_database", "run_blocking"]

T = TypeVar("T")

_OLDEST_SERVER = 140000
_CREATION_LOCK = 0x61677863  # of an advisory lock: workers that start at once create the schema once


class Opened(NamedTuple):
    """An open database: the identity of its log, and what an acknowledged commit survives."""

    log_id: str
    durability: Durability
    server_version: str
    position_offset: int


async def open_database(server: Server, *, partitions: int = PARTITIONS) -> Opened:
    """Check the server and its database, create the schema if there is none, and close the connections of `server`.

    Raises `StoreError` with the problem: an old server, a standby, server settings that can lose an acknowledged
    commit, a database of another version or program.
    """

    async def work() -> Opened:
        async with server.connection() as connection:
            durability = await check_server(connection, server.name)
            await _create_or_check(connection, server.name, partitions)
            await _check_system(connection)
            rows = await connection.fetch("SELECT key, value FROM meta")
            meta: dict[str, str] = {key: value for key, value in rows}  # noqa: C416 - rows are no tuples
            ((version,),) = await connection.fetch("SHOW server_version")
            return Opened(meta["log_id"], durability, version, int(meta["position_offset"]))

    try:
        return await server.retry(work)
    finally:
        await server.close()


async def check_server(connection: PostgresConnection, name: str) -> Durability:
    """Return what a commit survives; raises `StoreError` for a server that no worker uses."""
    rows = await connection.fetch(
        """SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
                  current_setting('fsync'), current_setting('synchronous_commit'),
                  current_setting('default_transaction_read_only')"""
    )
    number, version, fsync, synchronous_commit, read_only = rows[0]
    if number < _OLDEST_SERVER:
        raise StoreError(f"{name} is PostgreSQL {version}; AgenticX needs version 14 or newer")
    if fsync == "off":
        raise StoreError(
            f"{name} has fsync off: a power cut would lose commits and damage the database; set fsync = on"
        )
    if synchronous_commit == "off":
        raise StoreError(
            f"{name} has synchronous_commit off: a crash would lose commits that were acknowledged; set it to on"
        )
    if read_only == "on":
        raise StoreError(f"{name} has default_transaction_read_only on: nothing can be written; set it to off")
    return await durability_of(connection)


async def durability_of(connection: PostgresConnection) -> Durability:
    """Return what a commit survives with the settings that the server has now."""
    ((synchronous_commit, standbys),) = await connection.fetch(
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')"
    )
    return "replicas" if standbys and synchronous_commit in ("on", "remote_apply") else "disk"


async def _create_or_check(connection: PostgresConnection, name: str, partitions: int) -> None:
    async with connection.transaction():
        await connection.fetch("SELECT pg_advisory_xact_lock($1)", _CREATION_LOCK)
        if not await has_tables(connection, name):
            await connection.execute(create_statements(partitions))


async def has_tables(connection: PostgresConnection, name: str) -> bool:
    """Return whether the database has the tables of this version, False if it has no tables.

    Raises `StoreError` for tables of another version or program.
    """
    ((meta, others),) = await connection.fetch(
        """SELECT to_regclass('meta') IS NOT NULL, EXISTS (SELECT FROM pg_class
               WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p'))"""
    )
    if not meta:
        if others:
            raise StoreError(f"{name} has tables of another program; name an empty database in the URL of the store")
        return False
    rows = await connection.fetch("SELECT value FROM meta WHERE key = 'version'")
    version = int(rows[0][0]) if rows else 0
    if version != SCHEMA_VERSION:
        advice = (
            "use a newer AgenticX" if version > SCHEMA_VERSION else "use the AgenticX that wrote it, or an empty one"
        )
        raise StoreError(
            f"{name} has version {version} of the session database, and this AgenticX has version {SCHEMA_VERSION};"
            f" {advice}"
        )
    return True


async def _check_system(connection: PostgresConnection) -> None:
    """Let positions rise also after the database was restored on a server that counts transactions anew."""
    await connection.execute("SELECT adopt_server()")


def run_blocking(name: str, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a new event loop in a thread and return its result."""
    results, errors = list[T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as exc:  # noqa: BLE001 - raised to the caller
            errors.append(exc)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
