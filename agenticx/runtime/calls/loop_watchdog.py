"""A watchdog that names the tool that blocks the event loop.

While a tool does, no turn goes on and nothing can be stopped. A thread, because nothing on a blocked loop runs, checks
twice a second whether the loop answers while tools run.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, ref

from agenticx.errors import ResourcesExhausted
from agenticx.logs import get_logger
from agenticx.threads import start_thread

__all__ = ["LIMIT_SECONDS", "watched"]

LIMIT_SECONDS = 1.0
"""The tool is named when the loop has not answered for so many real seconds."""

_IDLE_SECONDS = 30.0  # the thread ends when no tool has run for so long

_log = get_logger(__name__)


@contextmanager
def watched(tool_name: str) -> Generator[None]:
    """Log the tool's name if the current task blocks its event loop while the body runs the tool."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    watchdog = _WATCHDOGS.get(loop)
    if watchdog is None:
        watchdog = _WATCHDOGS[loop] = _Watchdog(loop)
    assert task is not None
    watchdog.add(task, tool_name)
    try:
        yield
    finally:
        watchdog.running.pop(task, None)


class _Watchdog:
    """The tools that run on one event loop, by their tasks, and the thread that watches the loop meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.running: dict[asyncio.Task[object], str] = {}
        self._loop = ref(loop)  # the watchdog must not keep it
        self._loop_thread = threading.get_ident()
        self._last_use = 0.0
        self._is_watching = False

    def add(self, task: asyncio.Task[object], tool_name: str) -> None:
        self.running[task] = tool_name
        self._last_use = time.monotonic()
        if not self._is_watching:
            self._is_watching = True
            try:
                start_thread(self._watch, name="agx loop watchdog")
            except ResourcesExhausted as exc:
                self._is_watching = False
                _log.warning("tools are not watched for blocking the event loop", error=str(exc))

    def _watch(self) -> None:
        while self.running or time.monotonic() - self._last_use < _IDLE_SECONDS:
            if not self._check():
                break
            time.sleep(LIMIT_SECONDS / 2)
        self._is_watching = False

    def _check(self) -> bool:
        """Report a tool if the loop does not answer; return False if there is no loop any more."""
        loop, answered = self._loop(), threading.Event()
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # the loop is closed
            return False
        if not answered.wait(LIMIT_SECONDS) and self.running:
            self._report(loop)
            answered.wait(_IDLE_SECONDS)
        return True

    def _report(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log the tool that the loop is running now, and its current line."""
        task = asyncio.current_task(loop)
        tool_name = None if task is None else self.running.get(task)
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        if tool_name is None or frame is None:
            return
        _log.warning(
            "a tool blocks the event loop; write it as a plain function, which runs in a thread, or await what is slow",
            tool_name=tool_name,
            line=f"{frame.f_code.co_filename}:{frame.f_lineno}",
            seconds=LIMIT_SECONDS,
        )


_WATCHDOGS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watchdog] = WeakKeyDictionary()
