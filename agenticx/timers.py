"""A timer on the event loop that is moved often without a new timer handle each time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["ResettableTimer"]


class ResettableTimer:
    """A timer that calls `callback` at the set time or earlier.

    Setting a later time costs nothing, as the handle that is due earlier is kept: it calls `callback` too early, which
    then compares the clock with its own deadline and sets the timer again. The timer belongs to the event loop that
    runs when it is created.
    """

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        """Call the callback at `when` (the loop's time) at the latest."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def cancel(self) -> None:
        """Cancel the timer and drop the reference to its callback."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._callback()
