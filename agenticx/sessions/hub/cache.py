"""A cache of the sessions that this process owns: those in use, and those used last."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from agenticx.sessions.hub.session_actor import SessionActor

__all__ = ["ActorCache"]

_MAX_IDLE = 200
"""Idle sessions kept in memory; any other is given up, and claimed and read again when it is needed."""


class ActorCache:
    """The actors of this process by session id; `open_actor` claims a session and returns its actor.

    Once `is_closed`, a session is given up after each use: no other process could reach an owner that has ended.
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
        """End all that the actor does once it does not own its session any more, also while nobody uses it."""
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
        """Forget a claim or release that is done; its error is dropped if nobody waits for it any more."""
        self._tasks.pop(session_id, None)
        if not task.cancelled():
            task.exception()

    async def finish(self, actor: SessionActor, *, keep: bool = True) -> None:
        """Drop the actor after a use if its session is deleted; unless `keep`, or once closed, give up the session."""
        if actor.deleted:
            self.discard(actor)
        elif (self.is_closed or not keep) and actor.is_idle and self.get(actor.id) is actor:
            self.discard(actor)
            work_left = not keep or actor.has_suspended
            await asyncio.shield(self._run(actor.id, actor.lease.release(work_left=work_left)))

    async def abandon(self, actor: SessionActor) -> None:
        """Drop an actor that no longer owns its session, and end its tasks."""
        if self.get(actor.id) is actor:
            self.discard(actor)
            await asyncio.shield(self._run(actor.id, actor.abandon()))

    def discard(self, actor: SessionActor) -> None:
        """Remove an actor that no longer owns its session."""
        if self._actors.get(actor.id) is actor:
            del self._actors[actor.id]
