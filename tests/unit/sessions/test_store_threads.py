"""The threads of the SQLite store: a job that fails midway holds no lock and no snapshot."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agenticx.errors import StoreError
from agenticx.sessions.store.sqlite._threads import Reader, Writer
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

ERRORS = [MemoryError(), sqlite3.OperationalError("disk I/O error"), StoreError("mine"), ValueError("a bug")]


class Failure:
    """A job that fails while it reads rows, after it has written one if it `writes`."""

    def __init__(self, error: Exception, *, writes: bool) -> None:
        self._error = error
        self._writes = writes

    def __call__(self, connection: sqlite3.Connection) -> None:
        if self._writes:
            insert(0)(connection)
        rows = connection.execute("SELECT * FROM numbers")
        next(rows)
        raise self._error


def insert(number: int) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute("INSERT INTO numbers VALUES (?)", (number,)).rowcount


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT * FROM numbers ORDER BY 1")]


def checkpoint(connection: sqlite3.Connection) -> tuple[int, ...]:
    return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "numbers.db", timeout=0, isolation_level=None, check_same_thread=False)

    connection = connect()
    connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE numbers (number)")
    connection.executemany("INSERT INTO numbers VALUES (?)", [(1,), (2,)])
    connection.close()
    return connect


@pytest.fixture
async def writer(connect: Callable[[], sqlite3.Connection]) -> AsyncIterator[Writer]:
    opened = Writer(connect, "agx writer", lambda _: None, lambda _: None)
    yield opened
    opened.close()


@pytest.fixture
async def reader(connect: Callable[[], sqlite3.Connection]) -> AsyncIterator[Reader]:
    opened = Reader(connect, "agx reader")
    yield opened
    opened.close()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.cases(quick=4)
async def test_jobs_beside_one_that_fails_midway_are_stored(writer: Writer, error: Exception) -> None:
    go_on = threading.Event()
    blocking = writer.submit(lambda _: go_on.wait(PATIENCE))
    failing = Failure(error, writes=True)
    together = [writer.submit(work) for work in (failing, insert(3), failing, insert(4))]
    go_on.set()
    await blocking
    one, stored, other, also_stored = await asyncio.gather(*together, return_exceptions=True)
    assert (stored, also_stored) == (1, 1)
    assert isinstance(one, StoreError | ValueError)
    assert isinstance(other, StoreError | ValueError)
    assert await writer.submit(numbers) == [1, 2, 3, 4]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.cases(quick=4)
async def test_a_failed_read_keeps_no_snapshot(writer: Writer, reader: Reader, error: Exception) -> None:
    (raised,) = await asyncio.gather(reader.submit(Failure(error, writes=False)), return_exceptions=True)
    await writer.submit(insert(3))
    busy, *_ = await writer.submit(checkpoint, outside_transaction=True)
    assert busy == 0
    assert await reader.submit(numbers) == [1, 2, 3]
    assert isinstance(raised, StoreError | ValueError)
