"""Interruption of a running turn: the stop signal, and the scope that raises it as one exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

from agenticx import user_code
from agenticx.argument_types import wrong_type
from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.threads import retrieve_exception

__all__ = ["InterruptReason", "Interrupts", "StopSignal", "TurnInterrupted", "cancel_and_wait", "watch_stop"]

STOP_POLL_SECONDS = 0.05

_log = get_logger(__name__)

InterruptReason = Literal["stopped", "timeout.turn", "budget_exceeded"]

_TEXTS: Mapping[InterruptReason, str] = {
    "stopped": "the turn was stopped",
    "timeout.turn": "the turn exceeded its time limit",
    "budget_exceeded": "the time of the turn's budget is used up",
}


class TurnInterrupted(AgenticXError):
    """Raised when a turn is stopped or out of time; `reason` is the error code of its terminal event."""

    def __init__(self, reason: InterruptReason) -> None:
        super().__init__(_TEXTS[reason])
        self.reason: InterruptReason = reason


class StopSignal:
    """A request to stop a turn: the turn ends within 200 ms with the error `stopped`.

        signal = StopSignal()
        task = asyncio.create_task(agent.run("Count the files", should_stop=signal))
        signal.set()  # from any thread, once or several times; it cannot be undone

    `await task` then raises `TurnError` with the code `stopped`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._watchers: dict[int, Callable[[], None]] = {}
        self._next = 0

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for call in list(self._watchers.values()):
            call()

    async def wait(self) -> None:
        """Wait until the signal is set."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        unwatch = self.watch(lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            unwatch()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` on this loop when the signal is set; return a function that undoes this.

        It runs at once if the signal is set in the thread of the loop, so that nothing begins in between, or if it is
        set already; soon if it is set in another thread.
        """
        loop = asyncio.get_running_loop()
        key, self._next = self._next, self._next + 1
        self._watchers[key] = lambda: _call(loop, callback)
        if self._is_set:
            callback()
        return lambda: self._watchers.pop(key, None) and None


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if _is_running(loop):
        callback()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(callback)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether `loop` runs in this thread."""
    with suppress(RuntimeError):  # raised in a thread without a running loop
        return asyncio.get_running_loop() is loop
    return False


class Interrupts:
    """A scope: `fire` cancels its body and the scope raises `TurnInterrupted`; other cancellations pass through.

    After `limit` real seconds the body ends with `timeout.turn`; 0 is no limit. It works as
    `asyncio.timeout` does: the cancellation that it requested is undone (`Task.uncancel`) at the scope's end.
    """

    def __init__(self, limit: float = 0.0) -> None:
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._reason: InterruptReason | None = None
        self._cancel_requested = False
        self._signal: StopSignal | None = None

    def attach(self, signal: StopSignal) -> None:
        """Treat a set `signal` as a request to stop, also before its callback has run on the event loop."""
        self._signal = signal

    @property
    def is_requested(self) -> bool:
        """True if the body is to end, also if another thread has just requested that."""
        return self.fired or (self._signal is not None and self._signal.is_set())

    @property
    def fired(self) -> bool:
        """True if the body is to end, or ended, with a reason."""
        return self._reason is not None

    @property
    def reason(self) -> InterruptReason | None:
        """The reason for the end of the body, None if it has not been interrupted."""
        return self._reason

    def fire(self, reason: InterruptReason) -> None:
        """End the body with `reason`; only the first call counts. Before the scope is entered, it ends at its entry."""
        if self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._cancel_requested = True
                self._task.cancel()

    async def __aenter__(self) -> None:
        if self._reason is not None:
            raise TurnInterrupted(self._reason)
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        if self._limit:
            self._timer = asyncio.get_running_loop().call_later(self._limit, self.fire, "timeout.turn")

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self._cancel_requested or task is None or self._reason is None:
            return
        if exc_type is None:  # the body ended before its requested cancellation arrived: receive that here
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            raise TurnInterrupted(self._reason) from exc


def check_stop_signal(should_stop: object) -> None:
    """Raise `TypeError` if `should_stop` is no `StopSignal`, no function and not None."""
    if not (should_stop is None or isinstance(should_stop, StopSignal) or callable(should_stop)):
        raise wrong_type("should_stop", should_stop, "a StopSignal or a function")


def watch_stop(should_stop: StopSignal | Callable[[], bool] | None, stop: Callable[[], None]) -> Callable[[], object]:
    """Call `stop` once when `should_stop` is set or returns True; return a function that undoes this."""
    if should_stop is None:
        return lambda: None
    if isinstance(should_stop, StopSignal):
        return should_stop.watch(stop)
    return _StopPoll(should_stop, stop).end


class _StopPoll:
    """A poll of a plain callable every 50 ms, because it cannot be awaited. One that raises stops the turn."""

    def __init__(self, should_stop: Callable[[], bool], stop: Callable[[], None]) -> None:
        self._should_stop = should_stop
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None
        self._poll()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _poll(self) -> None:
        if self._is_stop_requested():
            self._stop()
        else:
            self._timer = asyncio.get_running_loop().call_later(STOP_POLL_SECONDS, self._poll)

    def _is_stop_requested(self) -> bool:
        try:
            return user_code.call_sync(lambda: bool(self._should_stop()), what="should_stop")
        except AgenticXError as exc:
            _log.error("should_stop failed; the turn is stopped", exc_info=exc)
            return True


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel `task` if it still runs and wait until it has cleaned up; ignore what it raised."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    retrieve_exception(task)
