"""The signals that ask a command at a terminal to end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, Self, TypeVar

from agenticx.cli.exit_codes import STOPPED

__all__ = ["TerminationSignals", "termination_signals"]

T = TypeVar("T")


def termination_signals() -> Iterator[signal.Signals]:
    """Yield the signals that ask this process to end, SIGINT first."""
    yield signal.SIGINT
    yield signal.SIGTERM
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        yield signal.SIGHUP


class TerminationSignals:
    """SIGTERM and SIGHUP handlers that end a chat at its next prompt, or at once if it waits for a message."""

    def __init__(self) -> None:
        self._received = False
        self._prompt: asyncio.Task[Any] | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        numbers = [number for number in termination_signals() if number != signal.SIGINT]
        self._previous = {number: signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._received = True
        if self._prompt is not None:
            self._prompt.get_loop().call_soon_threadsafe(self._prompt.cancel)

    def wait_for(self, runner: asyncio.Runner, prompt: Coroutine[Any, Any, T]) -> T:
        """Return the result of `prompt`; raise SystemExit once a signal was received."""

        async def cancellable() -> T:
            self._prompt = asyncio.current_task()
            if self._received:
                prompt.close()
                raise asyncio.CancelledError
            return await prompt

        try:
            return runner.run(cancellable())
        except asyncio.CancelledError:
            raise SystemExit(STOPPED) from None
        finally:
            self._prompt = None
