"""The list of databases, as the database stores it."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.clocks import Clock
from agenticx.sessions.store.postgres._connection import PostgresConnection, Server
from agenticx.sessions.store.postgres._opening import open_database, run_blocking
from agenticx.sessions.store.shard_list import ShardListState, check_shard_list

__all__ = ["PostgresShardList", "check_databases"]


def check_databases(urls: Sequence[str], *, clock: Clock, timeout: float, is_pooled: bool) -> None:
    """Create the tables of databases that are empty, and store the list of all in each; blocks.

    Raises `StoreError` as `open_database`, and `SettingsError` as `check_shard_list`.
    """

    async def work() -> None:
        for url in urls:
            await open_database(Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled))
        servers = [Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled) for url in urls]
        try:
            await check_shard_list([(server.name, PostgresShardList(server)) for server in servers])
        finally:
            for server in servers:
                await server.close()

    run_blocking("agx store list", work())


class PostgresShardList:
    """The `ShardListPlace` of the database of `server`, whose tables exist."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self) -> ShardListState:
        rows = await self._server.fetch(
            """SELECT (SELECT value FROM meta WHERE key = 'log_id'), EXISTS (SELECT FROM sessions),
                      (SELECT value FROM meta WHERE key = 'databases')"""
        )
        return ShardListState(*rows[0])

    async def write(self, text: str) -> str:
        async def work(connection: PostgresConnection) -> str:
            await connection.fetch("INSERT INTO meta VALUES ('databases', $1) ON CONFLICT DO NOTHING", text)
            return (await connection.fetch("SELECT value FROM meta WHERE key = 'databases'"))[0][0]

        return await self._server.use(work)
