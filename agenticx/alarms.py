"""A timer on the event loop that is set anew again and again, where asyncio would make and drop one each time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Calls `ring` when a time has come, or before: whoever set a later one since finds that it is too early.

    Moving it back costs nothing, as the timer that is due earlier is kept; `ring` looks at the clock and sets it
    again. Belongs to the loop that runs when it is made.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        """Ring at `when` (the loop's time) at the latest."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._due)

    def cancel(self) -> None:
        """Ring no more, and let go of who is rung for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._ring()
