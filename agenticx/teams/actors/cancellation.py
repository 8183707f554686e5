"""Cancellation tokens: a caller passes one token on to all code that works for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from agenticx import user_code
from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.runtime import StopSignal

__all__ = ["CancellationToken"]

FutureT = TypeVar("FutureT", bound=asyncio.Future[Any])


_log = get_logger(__name__)


class CancellationToken(StopSignal):
    """A `StopSignal` for teams: a request to cancel, made at most once; thread-safe. `set` is `cancel`."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: dict[object, Callable[[], Any]] = {}

    def is_cancelled(self) -> bool:
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `asyncio.CancelledError` if the token is cancelled."""
        if self._cancelled:
            raise asyncio.CancelledError

    def is_set(self) -> bool:
        return self._cancelled

    def set(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Call the callbacks in the order in which they were added and cancel the linked futures.

        A second call does nothing. All callbacks are called; then the first error is raised, as an `AgenticXError`.
        """
        with self._lock:
            is_first, callbacks = not self._cancelled, list(self._callbacks.values())
            self._cancelled = True
            self._callbacks.clear()
        if is_first:
            super().set()
        errors = [error for callback in callbacks if (error := _call(callback)) is not None]
        for error in errors[1:]:
            _log.error("a further cancellation callback failed", error=str(error))
        if errors:
            raise errors[0]

    def add_callback(self, callback: Callable[[], Any]) -> Callable[[], None]:
        """Call `callback` when the token is cancelled, at once if it is already; return a function that undoes this."""
        return partial(self._remove, self._add(callback))

    def link_future(self, future: FutureT) -> FutureT:
        """Cancel `future`, or a task, with the token, at once if it is cancelled already; returns the future."""
        key = self._add(partial(_cancel, future))
        future.add_done_callback(lambda _: self._remove(key))
        return future

    def _add(self, callback: Callable[[], Any]) -> object:
        key = object()
        with self._lock:
            cancelled = self._cancelled
            if not cancelled:
                self._callbacks[key] = callback
        if cancelled and (error := _call(callback)) is not None:
            raise error
        return key

    def _remove(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _call(callback: Callable[[], Any]) -> AgenticXError | None:
    """Return the error of a callback."""
    try:
        user_code.call_sync(callback, what="cancellation callback")
    except AgenticXError as exc:
        return exc
    return None


def _cancel(future: asyncio.Future[Any]) -> None:
    """Cancel a future in the thread of its event loop."""
    loop = future.get_loop()
    if loop.is_closed():
        return
    try:
        in_its_thread = asyncio.get_running_loop() is loop
    except RuntimeError:
        in_its_thread = not loop.is_running()
    if in_its_thread:
        future.cancel()
    else:
        loop.call_soon_threadsafe(future.cancel)
