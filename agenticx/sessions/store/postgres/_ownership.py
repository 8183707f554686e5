"""Ownership of sessions by the workers of a database, and the commands that they send each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.store.base import CommandHandler, Lease, NoOwner, SessionOwnedElsewhere
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._lease import Leases, PostgresLease
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.postgres._worker import COMMANDS, REPLIES, WORK

__all__ = ["PostgresOwnership"]

_MOST_ORPHANS = 64
_POLL_SECONDS = 0.025
_LOOK_SECONDS = 1.0
_TAKE_LEASES = 2.0  # a busy owner may take this long to read a command; a dead one loses its lease earlier
_REPLY_SECONDS = 60.0

_log = get_logger(__name__)

_ORPHANS = """SELECT sessions.id FROM fences JOIN sessions ON sessions.number = fences.session
    LEFT JOIN workers ON workers.id = fences.owner
    WHERE fences.has_work AND sessions.id IS NOT NULL
    AND (sessions.workspace_host IS NULL OR sessions.workspace_host = $1)
    AND (workers.id IS NULL OR workers.until + $2 <= clock_timestamp())
    ORDER BY sessions.running IS NULL, sessions.running_since, sessions.number LIMIT $3"""


class PostgresOwnership:
    """The `Ownership` of the sessions of one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._leases = Leases(database)
        self._commands = set[asyncio.Task[None]]()
        self._called = asyncio.Event()
        self._work = asyncio.Event()
        self._replies = dict[str, asyncio.Event]()
        database.worker.handle(COMMANDS, self._command_came)
        database.worker.handle(REPLIES, self._reply_came)
        database.worker.handle(WORK, lambda _: self._work.set())
        database.worker.on_listening.append(self._look)

    async def claim(self, session_id: str) -> Lease:
        await self._database.start()
        worker = self._database.worker
        ((number, epoch, other),) = await self._database.server.fetch(
            "SELECT * FROM claim($1, $2, $3)", to_text(session_id), worker.id, worker.grace
        )
        if number is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        if other is not None:
            raise SessionOwnedElsewhere(f"session {session_id!r} has an owner", owner=other)
        lease = PostgresLease(self._database, self._leases, session_id, number, epoch)
        self._leases.add(lease)
        return lease

    def remove(self, session_id: str) -> None:
        """End the session's lease, if this worker has it."""
        self._leases.remove(session_id)

    def lease(self, session_id: str) -> PostgresLease | None:
        """Return the session's lease, None if this worker has none."""
        return self._leases.get(session_id)

    # --- work without an owner ----------------------------------------------------------------------------------------

    async def orphans(self, *, follow: bool = False) -> AsyncGenerator[str]:
        await self._database.start()
        worker = self._database.worker
        await worker.dead_workers()
        if worker.has_suspects:
            await worker.watch()
            await worker.dead_workers()
        while True:
            self._work.clear()
            rows = await self._database.server.fetch(_ORPHANS, to_text(this_host()), worker.grace, _MOST_ORPHANS)
            waiting = [session_id for (stored,) in rows if (session_id := from_text(stored)) not in self._leases]
            for session_id in waiting:
                yield session_id
            if not follow:
                return
            looked = asyncio.get_running_loop().time()
            while not self._work.is_set() and asyncio.get_running_loop().time() - looked < _LOOK_SECONDS:
                with suppress(TimeoutError):
                    async with asyncio.timeout(worker.watch_seconds):
                        await self._work.wait()
                if await worker.dead_workers():
                    break

    # --- commands -----------------------------------------------------------------------------------------------------

    async def call(self, session_id: str, command: bytes) -> bytes:
        await self._database.start()
        server = self._database.server
        number = new_id("cmd")
        rows = await server.fetch(  # twice with the same id is once
            """INSERT INTO commands (id, worker, session_id, body)
               SELECT $3, workers.id, $1, $2 FROM sessions JOIN fences ON fences.session = sessions.number
               JOIN workers ON workers.id = fences.owner
               WHERE sessions.id = $1 AND workers.until > clock_timestamp()
               ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING worker""",
            *(to_text(session_id), command, number),
        )
        if not rows:
            raise NoOwner(f"session {session_id!r} has no owner")
        ((owner,),) = rows
        replied = self._replies[number] = asyncio.Event()
        try:
            await self._database.worker.notify(COMMANDS, owner)
            return await self._reply(session_id, number, replied)
        finally:
            del self._replies[number]

    async def _reply(self, session_id: str, number: str, replied: asyncio.Event) -> bytes:
        server, loop = self._database.server, asyncio.get_running_loop()
        begun, lease = loop.time(), self._database.worker.lease.total_seconds()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS if server.is_pooled else _LOOK_SECONDS):
                    await replied.wait()
            replied.clear()
            rows = await server.fetch(
                """SELECT taken IS NOT NULL, failed, reply, EXISTS (
                       SELECT FROM workers WHERE id = commands.worker AND until > clock_timestamp()), EXISTS (
                       SELECT FROM fences JOIN sessions ON sessions.number = fences.session
                       WHERE sessions.id = commands.session_id AND fences.owner = commands.worker)
                   FROM commands WHERE id = $1""",
                number,
            )
            taken, failed, reply, lives, owns = rows[0] if rows else (True, False, None, False, False)
            if reply is not None or failed:
                await server.fetch("DELETE FROM commands WHERE id = $1", number)
                if reply is None:
                    raise NoOwner(f"session {session_id!r} is not owned there any more")
                return bytes(reply)
            waited = loop.time() - begun
            if not taken and (not (lives and owns) or waited > _TAKE_LEASES * lease):
                if await server.fetch("DELETE FROM commands WHERE id = $1 AND taken IS NULL RETURNING id", number):
                    raise NoOwner(f"the owner of session {session_id!r} does not answer")
            elif not lives or waited > _REPLY_SECONDS:
                await server.fetch("DELETE FROM commands WHERE id = $1", number)
                raise NoOwner(f"the owner of session {session_id!r} has not answered a command that it began")

    @asynccontextmanager
    async def serve(self, handler: CommandHandler) -> AsyncGenerator[None]:
        await self._database.start()
        serving = asyncio.create_task(self._serve(handler), name="agx store commands")
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, *self._commands, return_exceptions=True)

    async def _serve(self, handler: CommandHandler) -> None:
        server = self._database.server
        while True:
            self._called.clear()
            try:
                rows = await server.fetch(
                    """UPDATE commands SET taken = $2 WHERE worker = $1 AND coalesce(taken, $2) = $2
                       RETURNING id, session_id, body""",
                    *(self._database.worker.id, new_id("tak")),  # a query that is repeated reads the same ones
                )
            except StoreError as exc:
                _log.warning("commands of other workers cannot be read", error=str(exc))
                rows = ()
            for number, session_id, body in rows:
                task = asyncio.create_task(self._carry_out(handler, number, from_text(session_id), bytes(body)))
                self._commands.add(task)
                task.add_done_callback(self._commands.discard)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS if server.is_pooled else _LOOK_SECONDS):
                    await self._called.wait()

    async def _carry_out(self, handler: CommandHandler, number: str, session_id: str, command: bytes) -> None:
        reply: bytes | None = None
        with suppress(NoOwner):
            reply = await handler(session_id, command)
        query = "UPDATE commands SET reply = $2::bytea, failed = $2::bytea IS NULL WHERE id = $1"
        try:
            await self._database.server.fetch(query, number, reply)
            await self._database.worker.notify(REPLIES, number)
        except StoreError as exc:
            _log.error("the reply to a command of another worker is lost", session=session_id, error=str(exc))

    def _command_came(self, worker: str) -> None:
        if worker == self._database.worker.id:
            self._called.set()

    def _look(self) -> None:
        """Look for work, commands and replies: their notifications may be lost."""
        for event in (self._work, self._called, *self._replies.values()):
            event.set()

    def _reply_came(self, number: str) -> None:
        if (replied := self._replies.get(number)) is not None:
            replied.set()
