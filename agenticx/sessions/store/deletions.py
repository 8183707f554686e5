"""Deletions of sessions, which go on if their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agenticx.threads import retrieve_exception

__all__ = ["Deletions"]


class Deletions:
    """The deletions that run in a store."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[None]]()  # the event loop has only weak references

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for `work`, which goes on if the caller is cancelled; raise its error."""
        task = asyncio.create_task(work, name="agx store deletion")
        self._tasks.add(task)
        task.add_done_callback(self._end)
        await asyncio.shield(task)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        retrieve_exception(task)  # a cancelled caller does not

    async def wait(self) -> None:
        """Wait until all have ended; their errors are dropped."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
