"""Work that is repeated until it succeeds, after pauses that grow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat

from agenticx.clocks import Clock

__all__ = ["RetriedWork"]

_PAUSE_SECONDS = (0.5, 2.0, 10.0)
_LAST_PAUSE_SECONDS = 30.0
_CLOSING_SECONDS = 1.0


class RetriedWork:
    """Tasks that call `work` until it returns True.

    A task pauses after each failure. While one is in its pause, no second one waits: it ends instead.
    """

    def __init__(self, work: Callable[[], Awaitable[bool]], clock: Clock, name: str) -> None:
        self._work = work
        self._clock = clock
        self._name = name
        self._tasks = set[asyncio.Task[None]]()
        self._waiting = False

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, *, failed: bool = False) -> None:
        """Start a task, which begins with a pause if the work has just `failed`."""
        task = asyncio.create_task(self._run(failed=failed), name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def cancel(self) -> None:
        """Cancel all tasks, also in a pause, and wait for them, bounded."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._clock.real(_CLOSING_SECONDS))

    async def _run(self, *, failed: bool) -> None:
        for seconds in chain(_PAUSE_SECONDS, repeat(_LAST_PAUSE_SECONDS)):
            if not failed and await self._attempt():
                return
            if self._waiting:
                return
            self._waiting = True
            try:
                await self._clock.sleep(seconds)
            finally:
                self._waiting = False
            failed = False

    async def _attempt(self) -> bool:
        try:
            return await self._work()
        except MemoryError as exc:
            self._report(exc)  # `agx serve` exits; elsewhere the work is tried again
            return False

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._report(failure)

    def _report(self, failure: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": f"{self._name} failed", "exception": failure})
