"""The shared values of the workers of a database, in one of its tables."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import StoreError
from agenticx.sessions.store.postgres._connection import Row, Server
from agenticx.sessions.store.postgres._opening import open_database, run_blocking
from agenticx.threads import start_thread

__all__ = ["PostgresValues"]

_CANCEL_SECONDS = 5.0
_MARGIN_SECONDS = 60.0
"""The time in addition to the timeout of `Server.retry` after which a thread that never began is given up."""

# Each is one statement, and may be repeated. If the answer to `_TAKE` is lost, its value is lost: safe for tickets. If
# the answer to `_REPLACE` is lost, the second attempt finds all new values there.
_GET = "SELECT value FROM shared WHERE name = $1 AND (expires IS NULL OR expires > clock_timestamp())"
_ITEMS = """SELECT name, value FROM shared
    WHERE starts_with(name, $1) AND (expires IS NULL OR expires > clock_timestamp())"""
_PUT = """WITH expired AS (DELETE FROM shared WHERE expires <= clock_timestamp() AND name <> $1)
    INSERT INTO shared (name, value, expires) VALUES ($1, $2, clock_timestamp() + $3)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires"""
_PUT_IF_ABSENT = """INSERT INTO shared AS stored (name, value) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET
        value = CASE WHEN stored.expires <= clock_timestamp() THEN excluded.value ELSE stored.value END,
        expires = CASE WHEN stored.expires <= clock_timestamp() THEN NULL ELSE stored.expires END
    RETURNING value"""
_REPLACE = """WITH given AS (SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS given (name, old, new)),
    found AS (SELECT name, value, old, new FROM shared JOIN given USING (name)
              WHERE expires IS NULL OR expires > clock_timestamp() FOR UPDATE OF shared),
    counts AS (SELECT count(*) FILTER (WHERE value = old) AS old, count(*) FILTER (WHERE value = new) AS new,
                      cardinality($1::text[]) AS given FROM found),
    replaced AS (UPDATE shared SET value = found.new FROM found, counts
                 WHERE shared.name = found.name AND counts.old = counts.given)
    SELECT given IN (old, new) FROM counts"""
_TAKE = """DELETE FROM shared WHERE name = $1
    RETURNING CASE WHEN expires <= clock_timestamp() THEN NULL ELSE value END"""


class PostgresValues:
    """A `SharedValues` in a table of the database of `url`; the tables are created if the database is empty.

    It has its own connections and its own thread, so it can be used before the event loop of a server begins, and by
    commands without an event loop. `timeout` is as for `Server`. Raises as `PostgresStore` does. Without `creates` the
    tables must exist.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        timeout: float = 30.0,
        is_pooled: bool = False,
        creates: bool = True,
    ) -> None:
        clock = clock or SystemClock()
        if creates:
            opening = Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled)
            run_blocking("agx store opening", open_database(opening))
        self._server = Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled)
        self._longest_wait = clock.real(timeout) + _MARGIN_SECONDS
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._lock = threading.Lock()  # held while a call is passed to the thread, or the last one has been
        self._is_closed = False
        start_thread(self._run, name="agx shared values")

    def get(self, name: str) -> bytes | None:
        return self._first(_GET, name)

    def items(self, prefix: str) -> Mapping[str, bytes]:
        return {row[0]: row[1] for row in self._fetch(_ITEMS, prefix)}

    def put(self, name: str, value: bytes, *, seconds: float | None = None) -> None:
        self._fetch(_PUT, name, value, None if seconds is None else timedelta(seconds=seconds))

    def put_if_absent(self, name: str, value: bytes) -> bytes:
        ((stored,),) = self._fetch(_PUT_IF_ABSENT, name, value)
        return stored

    def replace(self, changes: Mapping[str, tuple[bytes, bytes]]) -> bool:
        old, new = ([values[place] for values in changes.values()] for place in (0, 1))
        ((is_replaced,),) = self._fetch(_REPLACE, list(changes), old, new)
        return is_replaced

    def take(self, name: str) -> bytes | None:
        return self._first(_TAKE, name)

    def close(self) -> None:
        """End the thread; calls of others that still wait raise `StoreError`."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._closing.set)

    def _first(self, query: str, name: str) -> bytes | None:
        rows = self._fetch(query, name)
        return rows[0][0] if rows else None

    def _fetch(self, query: str, *args: Any) -> list[Row]:
        """Return the rows of a statement that the thread makes; raises `StoreError`."""
        with self._lock:
            if self._is_closed:
                raise StoreError("the shared values are closed")
            call = asyncio.run_coroutine_threadsafe(self._server.fetch(query, *args), self._loop)
        try:
            return call.result(self._longest_wait)
        except concurrent.futures.CancelledError as exc:
            raise StoreError("the shared values are closed") from exc
        except TimeoutError as exc:
            call.cancel()
            raise StoreError(f"{self._server.name} does not answer") from exc

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        """Accept calls until `close`, then cancel the remaining calls."""
        await self._closing.wait()
        if calls := asyncio.all_tasks() - {asyncio.current_task()}:
            for call in calls:
                call.cancel()
            await asyncio.wait(calls, timeout=_CANCEL_SECONDS)
        await self._server.close()
