"""The purge of a database by a program that is no worker."""

from __future__ import annotations

from agenticx.clocks import Clock
from agenticx.sessions.store.postgres._connection import Server, describe_url
from agenticx.sessions.store.postgres._maintenance import purge
from agenticx.sessions.store.postgres._opening import check_server, has_tables, run_blocking

__all__ = ["purge_database"]


def purge_database(url: str, clock: Clock, *, timeout: float, is_pooled: bool) -> tuple[str, list[str]]:
    """Rewrite all that has bytes of deleted sessions; return the name of the database and what is left, with reasons.

    Blocks. Raises `StoreError`, `SettingsError`.
    """

    async def work() -> list[str]:
        server = Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled)
        try:
            async with server.connection() as connection:
                await check_server(connection, server.name)
                if not await has_tables(connection, server.name):
                    return []
            report = await purge(server)
            return [*report.left, *([] if report.log_left is None else [f"the log of writes: {report.log_left}"])]
        finally:
            await server.close()

    return describe_url(url), run_blocking("agx store purge", work())
