"""Threads that own a database connection each: the writer commits in groups, readers read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from traceback import clear_frames
from typing import Any, Generic, TypeVar

from agenticx.errors import AgenticXError, StoreError
from agenticx.forks import drop_in_child
from agenticx.resource_exhaustion import exhausted_error
from agenticx.sessions.log.damage import damaged_data
from agenticx.sessions.store.base import OutcomeUnknown
from agenticx.threads import start_thread

__all__ = ["Connect", "Job", "Reader", "Writer"]

T = TypeVar("T")

Connect = Callable[[], sqlite3.Connection]
"""A factory of connections in autocommit mode (`isolation_level=None`), each used by one thread."""

_MAX_BATCH = 512
_VACUUM_PAGES = 1000


@dataclass(kw_only=True, slots=True, eq=False)
class Job(Generic[T]):
    """A piece of work for the thread.

    `on_commit` is called on the loop with the result before the future is resolved. Its `outcome_unknown` is true if
    the COMMIT of its transaction failed, so that it may be stored or not.
    """

    synced: bool = False
    on_commit: Callable[[T], None] | None = None
    outside_transaction: bool = False
    future: asyncio.Future[T] = field(init=False)
    result: Any = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)
    outcome_unknown: bool = field(default=False, init=False)

    def run(self, connection: sqlite3.Connection) -> T:
        """Do the work and return its result."""
        raise NotImplementedError

    def find(self, connection: sqlite3.Connection) -> T | None:
        """Return the result if the database shows that the job is stored, else None; write nothing."""
        return None


@dataclass(kw_only=True, slots=True, eq=False)
class _Call(Job[T]):
    """A call of a function with the connection."""

    work: Callable[[sqlite3.Connection], T]

    def run(self, connection: sqlite3.Connection) -> T:
        return self.work(connection)


class _DatabaseThread:
    """A thread that runs queued jobs and sends the results to the loops of their callers."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._finished = threading.Event()
        drop_in_child(self)
        start_thread(self._run, name=name)

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        synced: bool = False,
        on_commit: Callable[[T], None] | None = None,
        outside_transaction: bool = False,
    ) -> asyncio.Future[T]:
        """Queue `work` and return a future of its result; `sqlite3.Error` and `MemoryError` become `StoreError`.

        Cancelling the future does not cancel the work. A writer runs work that is `outside_transaction` in no
        transaction.
        """
        return self.put(_Call(work=work, synced=synced, on_commit=on_commit, outside_transaction=outside_transaction))

    def put(self, job: Job[T]) -> asyncio.Future[T]:
        """Queue a job and return the future of its result, as `submit` does; raises `StoreError` after `close`."""
        if self._closed:
            raise StoreError("the store is closed")
        future = job.future = asyncio.get_running_loop().create_future()
        self._jobs.put(job)
        return future

    def close(self) -> None:
        """Finish the queued jobs, then end the thread and its connection."""
        self._closed = True
        self._jobs.put(None)
        self._finished.wait()

    def drop(self) -> None:
        """Take no more jobs in a forked child: the thread and the connection are its parent's."""
        self._closed = True
        self._finished = threading.Event()  # a new one, as the thread may hold the lock of the other
        self._finished.set()

    def _run(self) -> None:
        try:
            while self._run_batch():
                pass
            self._drop_connection()
        finally:
            self._finished.set()

    def _run_batch(self) -> bool:
        """Run the queued jobs; return False at the end."""
        jobs = self._next_batch()
        todo = [job for job in jobs if job is not None]
        if todo:
            _deliver_results(self._handle(todo))
        return None not in jobs

    def _next_batch(self) -> list[Job[Any] | None]:
        """Return all queued jobs, at least one; None is the request to end."""
        jobs = [self._jobs.get()]
        while jobs[-1] is not None and len(jobs) < _MAX_BATCH and not self._jobs.empty():
            jobs.append(self._jobs.get())
        return jobs

    def _handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run the jobs and return the jobs with a result, in the order in which their callers get it."""
        raise NotImplementedError

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        """Close a connection that failed, since its state is unknown; the next job opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.rollback()  # else it has its lock until its last statement is closed
            with suppress(sqlite3.Error):
                connection.close()


class Reader(_DatabaseThread):
    """A thread that reads committed data; each job sees one state of the database."""

    def _handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        for job in jobs:
            try:
                connection = self._open()
                connection.execute("BEGIN")
                try:
                    job.result = job.run(connection)
                except AgenticXError as exc:
                    _close_statements(exc)
                    job.error = exc
                connection.execute("COMMIT")
            except Exception as exc:  # noqa: BLE001 - raised to the caller that awaits the job
                _close_statements(exc)
                job.error = _map_error(exc)
                self._drop_connection()
        return jobs


class Writer(_DatabaseThread):
    """A thread that commits all queued jobs as one transaction.

    It first calls `before_transaction`, which may refuse the transaction, and at last `end_transaction`. A job that
    fails with an `AgenticXError` raises that. If such a job has written something, or if the database fails, the
    transaction is rolled back, and each of its jobs is tried again in a transaction of its own.

    After a `COMMIT` that failed its jobs may be stored or not. The next transaction finds this out before it stores
    anything, so readers get events in the order of the log.
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        before_transaction: Callable[[sqlite3.Connection], None],
        end_transaction: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._before_transaction = before_transaction
        self._end_transaction = end_transaction
        self._synced: bool | None = None
        self._unknown: list[Job[Any]] = []
        self._found: list[Job[Any]] = []  # jobs of `_unknown` that turned out to be stored
        self._failed = False
        self._committing = False
        super().__init__(connect, name)

    async def check(self) -> None:
        """Raise `StoreError` if the last commit failed and another one, of about a turn's size, does too."""
        if self._failed:
            await self.submit(_write_probe, synced=True)
            await self.submit(_delete_probe)

    async def vacuum(self) -> None:
        """Truncate free pages off the file, step by step, as many as there are now."""
        free = await self.submit(_free_pages, outside_transaction=True)
        for _ in range(0, free, _VACUUM_PAGES):
            await self.submit(_vacuum, outside_transaction=True)

    async def checkpoint(self) -> None:
        """Copy the committed pages from the write-ahead log into the database file, and truncate the log."""
        await self.submit(_checkpoint, outside_transaction=True)

    def _handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        if together := [job for job in jobs if not job.outside_transaction]:
            self._commit_all(together)
        for job in jobs:
            if job.outside_transaction:
                self._run_outside_transaction(job)
        if not self._found:
            return jobs
        found, self._found = self._found, []
        return found + [job for job in jobs if job not in found]

    def _run_outside_transaction(self, job: Job[Any]) -> None:
        try:
            job.result = job.run(self._open())
        except Exception as exc:  # noqa: BLE001 - raised to the caller that awaits the job
            job.error = _map_error(exc)

    def _commit_all(self, jobs: list[Job[Any]]) -> None:
        try:
            self._commit(jobs)
            self._failed = False
            return
        except Exception as exc:  # noqa: BLE001 - raised to the caller that awaits the job
            _close_statements(exc)
            self._drop_connection()
            self._synced = None
            jobs = [job for job in jobs if job not in self._found]
            if self._committing:
                for job in jobs:
                    job.outcome_unknown = True
                self._unknown += (job for job in jobs if job.result)  # others have nothing to publish
            if len(jobs) == 1:
                self._failed = isinstance(exc, sqlite3.Error | StoreError) or exhausted_error(exc) is not None
                jobs[0].error = _map_error(exc, outcome_unknown=jobs[0].outcome_unknown)
                return
        for job in jobs:
            job.error = job.result = None
        for job in jobs:  # one of them may have caused the failure: commit each by itself
            self._commit_all([job])

    def _commit(self, jobs: list[Job[Any]]) -> None:
        self._committing = False
        connection = self._open()
        synced = any(job.synced for job in jobs)
        if synced != self._synced:
            connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._synced = synced
        connection.execute("BEGIN IMMEDIATE")
        self._before_transaction(connection)
        if self._unknown:
            self._find_stored(connection)
        for job in jobs:
            if job in self._found:
                continue
            before = connection.total_changes
            try:
                job.result = job.run(connection)
            except AgenticXError as exc:
                if connection.total_changes != before:
                    raise
                _close_statements(exc)
                job.error = exc
        self._end_transaction(connection)
        self._committing = True  # from now on a failure leaves it open what is stored
        connection.execute("COMMIT")

    def _find_stored(self, connection: sqlite3.Connection) -> None:
        """Find the jobs of unknown outcome that are stored; the callers repeat the others."""
        while self._unknown:
            job = self._unknown[0]
            try:
                result = job.find(connection)
            except AgenticXError:  # its session is deleted or damaged
                result = None
            del self._unknown[0]  # it stays if the database fails, and is found by the next transaction
            if result is not None:
                job.result, job.error = result, None
                self._found.append(job)


def _write_probe(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('room', printf('%.65536c', 'x'))")


def _delete_probe(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM meta WHERE key = 'room'")


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _free_pages(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA freelist_count").fetchone()[0]


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")  # `execute` would free a single page


def _close_statements(failure: BaseException | None) -> None:
    """Close the statements that the frames of a failure have not read to their ends.

    Each would keep the snapshot of its connection, and a closed connection open, for as long as the failure lives.
    """
    while failure is not None:
        clear_frames(failure.__traceback__)
        failure = failure.__context__


def _map_error(exc: Exception, *, outcome_unknown: bool = False) -> Exception:
    """Return the error that the caller gets; `outcome_unknown`: the work may be stored although it failed.

    SQLite runs out of memory when it takes damaged bytes for a size, so its `MemoryError` is an error of the database.
    """
    if isinstance(exc, MemoryError):
        return (OutcomeUnknown if outcome_unknown else StoreError)("the database ran out of memory")
    if isinstance(exc, OverflowError):  # a number that damage made too large to count on from
        return damaged_data("a number in the database", exc)
    if isinstance(exc, sqlite3.Error) or exhausted_error(exc) is not None:
        return (OutcomeUnknown if outcome_unknown else StoreError)(f"the database failed: {exc}")
    return OutcomeUnknown(str(exc)) if outcome_unknown and isinstance(exc, StoreError) else exc


def _deliver_results(jobs: list[Job[Any]]) -> None:
    """Schedule the results on the loops, one call per loop, in the order of the jobs.

    They are passed as they are now: a job of unknown outcome that turns out to be stored has another result
    soon, maybe before the loop has come to this one.
    """
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Job[Any], Any, Exception | None]]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append((job, job.result, job.error))
    for loop, results in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve_futures, results)
        except RuntimeError:  # the loop is closed, so nothing awaits the results
            continue


def _resolve_futures(results: list[tuple[Job[Any], Any, Exception | None]]) -> None:
    for job, result, error in results:
        if error is None and job.on_commit is not None:
            job.on_commit(result)
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)
