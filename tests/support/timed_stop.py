"""A stop button that measures how long a turn takes to end."""

from __future__ import annotations

import asyncio

from agenticx.runtime import RuntimeEvent, StopSignal
from tests.support.jumping_clock import LoopClock

__all__ = ["LIMIT", "STOPPED", "TimedStop"]

LIMIT = 0.2
"""The seconds from the press of the stop button within which a turn ends."""

STOPPED = {"text": "the turn was stopped", "code": "stopped", "fatal": True}
"""The data of the terminal event of a stopped turn."""


class TimedStop:
    """A stop button that measures the time from its press to the terminal event, without the time of CPU work.

    It is pressed soon after the first event of the type `press_at`, or after a call of `press_soon`. The latter is for
    a tool or hook in which the turn is to be stopped: a call is announced some threads before it begins.
    """

    def __init__(self, press_at: str = "") -> None:
        self.signal = StopSignal()
        self.pressed = 0.0
        self.ended = 0.0
        self._press_at = press_at

    def press(self) -> None:
        """Set the signal, once."""
        if not self.pressed:
            self.pressed = LoopClock().monotonic()
            self.signal.set()

    def press_soon(self) -> None:
        """Press the button in a moment; called on the event loop."""
        asyncio.get_running_loop().call_later(0.005, self.press)

    def __call__(self, event: RuntimeEvent) -> None:
        if event.type == self._press_at:
            self.press_soon()
        if event.terminal:
            self.ended = LoopClock().monotonic()

    @property
    def seconds(self) -> float:
        assert self.pressed, "the button was pressed"
        return self.ended - self.pressed
