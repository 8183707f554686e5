"""The sessions that this process owns: in use or used last, and orphans that it takes over."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.sessions.hub.retries import RetriedWork
from agenticx.sessions.hub.session_actor import SessionActor
from agenticx.sessions.hub.writer import run_to_completion
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.store.base import SessionOwnedElsewhere, Store
from agenticx.threads import retrieve_exception

__all__ = ["ActorCache", "Takeover"]

_MAX_IDLE = 200
"""Idle sessions kept in memory; any other is given up, and claimed and read again when it is needed."""

_CLAIMS_AT_ONCE = 8

_log = get_logger(__name__)


class ActorCache:
    """The actors of this process by session id; `open_actor` claims a session and returns its actor.

    Once `is_closed`, a session is released after each use: no other process could reach an owner that has ended.
    """

    def __init__(self, open_actor: Callable[[str], Awaitable[SessionActor]]) -> None:
        self.is_closed = False
        self._open_actor = open_actor
        self._actors: OrderedDict[str, SessionActor] = OrderedDict()  # least recently used first
        self._tasks: dict[str, asyncio.Task[None]] = {}  # sessions that are being claimed or given up
        self._watching = set[asyncio.Task[None]]()

    def __iter__(self) -> Iterator[SessionActor]:
        return iter(list(self._actors.values()))

    def get(self, session_id: str) -> SessionActor | None:
        """Return the session's actor if it is in memory, else None."""
        return self._actors.get(session_id)

    async def get_after_change(self, session_id: str) -> SessionActor | None:
        """Return the session's actor or None, after a claim or release of the session that is under way."""
        while (task := self._tasks.get(session_id)) is not None:
            await asyncio.wait({task})
        return self.get(session_id)

    async def open(self, session_id: str) -> SessionActor:
        """Return the session's actor, which is dropped later unless it is used; raises as `open_actor`."""
        while True:
            if (task := self._tasks.get(session_id)) is not None:
                await asyncio.wait({task})
            elif (actor := self._actors.get(session_id)) is None:
                await asyncio.shield(self._run(session_id, self._claim(session_id)))
            elif actor.lease.lost.is_set():
                self.discard(actor)
                await asyncio.shield(self._run(session_id, actor.abandon()))
            else:
                self._actors.move_to_end(session_id)
                return actor

    async def _claim(self, session_id: str) -> None:
        actor = self._actors[session_id] = await self._open_actor(session_id)
        watching = asyncio.create_task(self._abandon_when_lost(actor), name=f"agx lease of {session_id}")
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        for idle in self._idle_actors()[:-_MAX_IDLE]:
            self.discard(idle)
            self._run(idle.id, idle.lease.release(work_left=idle.has_suspended))

    async def _abandon_when_lost(self, actor: SessionActor) -> None:
        """End the work of an actor once it does not own its session any more, also while nobody uses it."""
        await actor.lease.lost.wait()
        if self.get(actor.id) is not actor:
            await actor.abandon()
        else:
            self.discard(actor)
            await self._run(actor.id, actor.abandon())

    def _idle_actors(self) -> list[SessionActor]:
        return [actor for actor in self._actors.values() if actor.is_idle] if len(self._actors) > _MAX_IDLE else []

    def _run(self, session_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks[session_id] = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._end, session_id))
        return task

    def _end(self, session_id: str, task: asyncio.Task[None]) -> None:
        """Forget a claim or release that is done; its error is dropped if nobody waits for it."""
        self._tasks.pop(session_id, None)
        retrieve_exception(task)

    async def finish(self, actor: SessionActor, *, keep: bool = True) -> None:
        """Drop the actor of a deleted session after a use; unless `keep`, or once closed, release the session."""
        if actor.deleted:
            self.discard(actor)
        elif (self.is_closed or not keep) and actor.is_idle and self.get(actor.id) is actor:
            self.discard(actor)
            work_left = not keep or actor.has_suspended
            await asyncio.shield(self._run(actor.id, actor.lease.release(work_left=work_left)))

    async def leave(self, actor: SessionActor) -> None:
        """Release the session of an actor that can leave it; a waiting turn continues at another owner."""
        self.discard(actor)
        actor.turns.suspend()
        await asyncio.shield(self._run(actor.id, self._leave(actor)))

    async def _leave(self, actor: SessionActor) -> None:
        await actor.turns.stop()  # ends the task of a suspended turn
        await actor.close()

    async def abandon(self, actor: SessionActor) -> None:
        """Drop an actor that no longer owns its session, and end its tasks."""
        if self.get(actor.id) is actor:
            self.discard(actor)
            await asyncio.shield(self._run(actor.id, actor.abandon()))

    def discard(self, actor: SessionActor) -> None:
        """Remove an actor that no longer owns its session."""
        if self._actors.get(actor.id) is actor:
            del self._actors[actor.id]


class Takeover:
    """The tasks that claim orphans of `store` with `claim`, each until a worker owns the session.

    A session that cannot be read is tried once.
    """

    def __init__(self, store: Store, claim: Callable[[str], Coroutine[Any, Any, None]], clock: Clock) -> None:
        self._store = store
        self._claim = claim
        self._clock = clock
        self._following = RetriedWork(self._follow, clock, "agx orphans")
        self._has_begun = False
        self._claims: dict[str, RetriedWork] = {}
        self._unreadable = set[str]()
        self._claiming = asyncio.Semaphore(_CLAIMS_AT_ONCE)

    def start(self) -> None:
        """Follow the orphans of the store in a task, unless that has begun."""
        if not self._has_begun:
            self._has_begun = True
            self._following.start()

    async def close(self) -> None:
        """End all tasks, bounded; a claim under way is completed."""
        self._has_begun = True
        await self._following.cancel()
        await asyncio.gather(*(claim.cancel() for claim in self._claims.values()))

    async def _follow(self) -> bool:
        """Claim orphans until the store ends the list, and return True; False if the store fails."""
        try:
            async with aclosing(self._store.ownership.orphans(follow=True)) as orphans:
                async for session_id in orphans:
                    if session_id not in self._claims and session_id not in self._unreadable:
                        work = partial(self._try_claim, session_id)
                        claim = self._claims[session_id] = RetriedWork(work, self._clock, f"agx claim of {session_id}")
                        claim.start()
        except StoreError as exc:
            _log.error("sessions without an owner cannot be listed; retrying", error=str(exc))
            return False
        return True

    async def _try_claim(self, session_id: str) -> bool:
        """Claim the session and return True; False if that failed and must be tried again."""
        try:
            async with self._claiming:
                await run_to_completion(self._claim(session_id))
        except (SessionOwnedElsewhere, SessionNotFound) as exc:
            _log.debug("session without an owner is claimed or deleted already", session=session_id, why=str(exc))
        except DamagedData as exc:
            self._unreadable.add(session_id)
            _log.error("session recovery failed", session=session_id, error=str(exc))
        except StoreError as exc:
            _log.error("session recovery failed; retrying", session=session_id, error=str(exc))
            return False
        self._claims.pop(session_id, None)
        return True
