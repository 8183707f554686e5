"""The watch over the user's rules and trusted files, by which confirmations that wait are decided again."""

from __future__ import annotations

import asyncio
from typing import Any

from agenticx.clocks import Clock
from agenticx.permissions.rule_stores import RuleStore, RulesUnusable
from agenticx.permissions.trusted_files import TrustStore, TrustUnusable
from agenticx.runtime.session import Session
from agenticx.threads import run_in_thread

__all__ = ["PermissionWatch"]

_SECONDS = 1.0
_CLOSING_SECONDS = 1.0


class PermissionWatch:
    """A task that compares the rules and the trusted files each second while a confirmation waits.

    Other processes change them too, for example `agx permissions add` and `agx trust`. After a change the confirmations
    of the sessions that it follows are decided again. While they cannot be read, nothing changes.
    """

    def __init__(self, rules: RuleStore | None, trust: TrustStore | None, clock: Clock) -> None:
        self._rules = rules
        self._trust = trust
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._seen: list[Any] = [None, None]  # never equal to the first reading: an earlier change is found too
        self._task: asyncio.Task[None] | None = None

    def follow(self, session: Session) -> None:
        """Follow a session until no confirmation waits in it."""
        if self._rules is None and self._trust is None:
            return
        self._sessions[session.id] = session
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="agx permissions")

    async def close(self) -> None:
        """End the task, bounded."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._clock.real(_CLOSING_SECONDS))

    async def _run(self) -> None:
        try:
            while self._sessions:
                if await run_in_thread(self._has_changed, name="agx permissions"):
                    for session in list(self._sessions.values()):
                        session.change_permissions()
                await self._clock.sleep(_SECONDS)
                self._sessions = {name: one for name, one in self._sessions.items() if one.has_waiting}
        finally:
            self._task = None

    def _has_changed(self) -> bool:
        """Return whether the rules or the trusted files differ from those of the last call; blocks."""
        try:
            now = [None if store is None else store.list() for store in (self._rules, self._trust)]
        except (RulesUnusable, TrustUnusable):
            return False
        before, self._seen = self._seen, now
        return any(one is not other and one != other for one, other in zip(before, now, strict=True))
