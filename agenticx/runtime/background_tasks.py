"""Work that may outlast the call or the turn that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agenticx import user_code
from agenticx.logs import get_logger

__all__ = ["BACKGROUND_SECONDS", "BackgroundTasks"]

BACKGROUND_SECONDS = 3.0
"""Real seconds that background work (ending processes) may take after the terminal event."""

_log = get_logger(__name__)


class BackgroundTasks(set[asyncio.Task[None]]):
    """The tasks of one turn that run in the background."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task."""
        task = asyncio.get_running_loop().create_task(_run_user_code(work), name="agx background task")
        self.add(task)
        task.add_done_callback(self._on_done)
        task.add_done_callback(lambda _task: work.close())  # for a task that is cancelled before it starts

    async def finish(self) -> None:
        """Wait at most 3 s for the tasks, at least one, then cancel them."""
        _, late = await asyncio.wait(self, timeout=BACKGROUND_SECONDS)
        for task in late:
            task.cancel()
        if late:
            _log.warning("background tasks of a turn took too long and were cancelled", tasks=len(late))
            await asyncio.wait(late, timeout=0.1)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("a background task of a turn failed", exc_info=failure)


async def _run_user_code(work: Coroutine[Any, Any, None]) -> None:
    """Await user code so that a `SystemExit` in it does not end the program, as it would in a task."""
    with user_code.translated_errors("a background task of the turn"):
        await work
