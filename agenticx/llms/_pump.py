"""Items of a blocking iterator, produced in a daemon thread of its own and handed to the event loop in batches."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from agenticx.logs import get_logger
from agenticx.threads import start_thread

__all__ = ["ThreadPump"]

_AHEAD = 256
"""Items the thread may be ahead of its reader."""

_log = get_logger(__name__)


class ThreadPump:
    """Calls `function` in a thread and gives out what it returns, item by item if that is a generator or iterator.

    A thread cannot be ended: `close` makes it stop at its next item, and one that never gets there is left behind.
    """

    def __init__(self, function: Callable[[], object], *, what: str) -> None:
        self._function = function
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._items: deque[object] = deque()
        self._ready = asyncio.Event()
        self._room = threading.Semaphore(_AHEAD)
        self._closed = False
        self._ended = False
        self._over = False  # in its thread, which the loop hears of a little later
        self._error: Exception | None = None
        context = contextvars.copy_context()
        start_thread(lambda: context.run(self._work), name=f"agx {what}")

    async def batch(self) -> list[object] | None:
        """All items there are by now, at least one; None at the end. Raises what the function or iterator raised."""
        while not self._items:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            self._ready.clear()
            await self._ready.wait()
        items = [self._items.popleft() for _ in range(len(self._items))]
        self._room.release(len(items))
        return items

    def close(self) -> None:
        """Ask the thread to stop; never waits."""
        self._closed = True
        self._room.release()
        if not self._ended and not self._over:
            _log.warning("a blocking model cannot be interrupted; its thread is left behind", what=self._what)

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            result = self._function()
            if _is_iterator(result):
                self._iterate(cast("Iterator[object]", result))
            else:
                self._put(result)
        except BaseException as exc:  # noqa: BLE001 - foreign code in a thread; its reader gets it
            error = exc
        self._over = True
        self._tell(lambda: self._end(error))

    def _iterate(self, iterator: Iterator[object]) -> None:
        for item in iterator:
            if not self._put(item):
                if inspect.isgenerator(iterator):
                    iterator.close()
                return

    def _put(self, item: object) -> bool:
        self._room.acquire()
        if self._closed:
            return False
        self._tell(lambda: self._receive(item))
        return True

    def _receive(self, item: object) -> None:
        self._items.append(item)
        self._ready.set()

    def _end(self, error: BaseException | None) -> None:
        if error is None or (isinstance(error, Exception) and not isinstance(error, StopIteration)):
            self._error = error
        else:  # what no coroutine may raise
            self._error = RuntimeError(f"{type(error).__name__}: {error}")
        self._ended = True
        self._ready.set()

    def _tell(self, what: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self._closed = True


def _is_iterator(result: object) -> bool:
    return not isinstance(result, str | dict) and hasattr(result, "__iter__") and hasattr(result, "__next__")
