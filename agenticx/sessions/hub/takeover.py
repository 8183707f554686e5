"""Takeover of the sessions that another worker leaves with work when it dies or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.sessions.hub.retries import RetriedWork
from agenticx.sessions.hub.writer import run_to_completion
from agenticx.sessions.store.base import SessionOwnedElsewhere, Store
from agenticx.sessions.store.damage import DamagedData

__all__ = ["Takeover"]

_CLAIMS_AT_ONCE = 8

_log = get_logger(__name__)


class Takeover:
    """The tasks that claim orphans of `store` with `claim`, each until some worker owns the session.

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
        self._places = asyncio.Semaphore(_CLAIMS_AT_ONCE)

    def start(self) -> None:
        """Follow the orphans of the store in a task, unless that has begun."""
        if not self._has_begun:
            self._has_begun = True
            self._following.start()

    async def close(self) -> None:
        """End all tasks, bounded; a claim that is being made is completed."""
        self._has_begun = True
        await self._following.cancel()
        await asyncio.gather(*(claim.cancel() for claim in self._claims.values()))

    async def _follow(self) -> bool:
        """Claim orphans until the store ends the list, and return True; False if the store fails."""
        try:
            async with aclosing(self._store.ownership.follow_orphans()) as orphans:
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
            async with self._places:
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
