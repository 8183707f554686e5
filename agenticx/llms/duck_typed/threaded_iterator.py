"""Async iteration over a blocking iterator that runs in its own daemon thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

from agenticx.batch_queue import BatchQueue
from agenticx.logs import get_logger
from agenticx.threads import start_thread

__all__ = ["ThreadedIterator"]

_MAX_QUEUED = 256
"""Items that may be queued before the thread waits for its reader."""

_log = get_logger(__name__)


class ThreadedIterator:
    """A call of `function` in a thread, whose result is read in batches; an iterator's items are read one by one.

    A thread cannot be ended: `close` makes it stop at its next item; without one it is left running.
    """

    def __init__(self, function: Callable[[], object], *, name: str) -> None:
        self._function = function
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._items: BatchQueue[object] = BatchQueue()
        self._free_slots = threading.Semaphore(_MAX_QUEUED)
        self._closed = False
        self._thread_done = False
        self._error: Exception | None = None
        context = contextvars.copy_context()
        start_thread(lambda: context.run(self._run), name=f"agx {name}")

    async def next_batch(self) -> list[object] | None:
        """Return all queued items, at least one; None at the end. Raise the error of the function or iterator."""
        items = await self._items.take()
        if items:
            self._free_slots.release(len(items))
            return items
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Ask the thread to stop at its next item, without waiting for it."""
        self._closed = True
        self._free_slots.release()
        if not self._thread_done:
            _log.warning("a blocking model cannot be interrupted; its thread is abandoned", what=self._name)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            result = self._function()
            if _is_iterator(result):
                self._iterate(cast("Iterator[object]", result))
            else:
                self._thread_done = True  # before the reader has the result: the reader may close this at once
                self._put(result)
        except BaseException as exc:  # noqa: BLE001 - user code in a thread; raised to the reader
            error = exc
        self._thread_done = True
        self._call_in_loop(self._end, error)

    def _iterate(self, iterator: Iterator[object]) -> None:
        for item in iterator:
            if not self._put(item):
                if inspect.isgenerator(iterator):
                    iterator.close()
                return

    def _put(self, item: object) -> bool:
        self._free_slots.acquire()
        if self._closed:
            return False
        self._call_in_loop(self._items.put, item)
        return True

    def _end(self, error: BaseException | None) -> None:
        if error is None or (isinstance(error, Exception) and not isinstance(error, StopIteration)):
            self._error = error
        else:  # a coroutine must not raise StopIteration, nor the thread's SystemExit or KeyboardInterrupt
            self._error = RuntimeError(f"{type(error).__name__}: {error}")
        self._items.close()

    def _call_in_loop(self, callback: Callable[..., None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop is closed, so there is no reader any more
            self._closed = True


def _is_iterator(result: object) -> bool:
    return not isinstance(result, str | dict) and hasattr(result, "__iter__") and hasattr(result, "__next__")
