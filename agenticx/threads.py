"""Daemon threads for blocking calls; neither the event loop nor the exit waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from agenticx.errors import ResourcesExhausted
from agenticx.forks import confine_forked_child

__all__ = ["LARGE", "has_running_loop", "retrieve_exception", "run_in_thread", "run_sized", "start_thread"]

T = TypeVar("T")

LARGE = 64 * 1024
"""Characters or bytes from which on input is processed off the event loop; less takes a few milliseconds."""


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Mark a task's exception as retrieved, so that asyncio does not report it; a callback for the end of a task."""
    if not task.cancelled():
        task.exception()


def start_thread(work: Callable[[], None], *, name: str) -> None:
    """Run `work` in a daemon thread; raises `ResourcesExhausted` if none can be started."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as exc:
        raise ResourcesExhausted(
            f"no thread can be started ({exc}); free memory or threads, or raise their limits"
        ) from exc


async def run_in_thread(
    function: Callable[..., T],
    /,
    *args: Any,
    name: str = "agx-call",
    check: Callable[[], None] | None = None,
    **kwargs: Any,
) -> T:
    """Return `function(*args, **kwargs)`, called in a thread of its own; raises what it raises.

    `check` is called there first; if it raises, that is raised, and `function` is not called.

    `StopIteration` and `KeyboardInterrupt`, which have another meaning for the event loop, are raised as
    `RuntimeError`. Unlike with `asyncio.to_thread` the thread is a daemon and belongs to no pool: when the awaiting
    task is cancelled, the thread is abandoned, its result dropped, and neither the loop nor the interpreter's exit
    waits for it. Raises `ResourcesExhausted` where no thread can be started.
    """
    loop = asyncio.get_running_loop()
    outcome = _Outcome[T](loop)
    context = contextvars.copy_context()

    def work() -> None:
        try:
            if check is not None:
                check()
            with confine_forked_child():
                result = context.run(function, *args, **kwargs)
        except (StopIteration, KeyboardInterrupt) as exc:
            # A coroutine cannot raise the former; the latter is the function's own: Ctrl-C reaches the main thread.
            outcome.store(None, _as_runtime_error(function, exc))
        except BaseException as exc:  # noqa: BLE001 - raised in the awaiting task, as asyncio.to_thread does
            outcome.store(None, exc)
        else:
            outcome.store(result, None)

    start_thread(work, name=name)
    return await outcome.take()


async def run_sized(function: Callable[..., T], /, *args: Any, size: int, name: str = "agx-call") -> T:
    """Return `function(*args)`, called in a thread if `size` is at least `LARGE`, else in the caller's thread.

    `size` is the length of the input in characters or bytes. For pure functions over text from outside: a thread lets
    the event loop run, provided that no single call into C is long.
    """
    return function(*args) if size < LARGE else await run_in_thread(function, *args, name=name)


def _as_runtime_error(function: Callable[..., Any], exc: BaseException) -> RuntimeError:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    text = f": {exc}" if exc.args else ""
    return RuntimeError(f"{name.rpartition('<locals>.')[2]} raised {type(exc).__name__}{text}")


class _Outcome(Generic[T]):
    """The outcome of a call in a thread for the one task that takes it; it is dropped if that has ended before.

    The thread stores the outcome before it looks whether it is still wanted, and the task says that it is not before it
    looks for the outcome. So one of them drops it, whenever the task is cancelled or its loop ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stored: asyncio.Future[None] = loop.create_future()
        self._outcomes: list[tuple[Any, BaseException | None]] = []  # at most one
        self._wanted = True

    def store(self, result: Any, exc: BaseException | None) -> None:
        """Store the outcome and wake the task; called in any thread."""
        self._outcomes.append((result, exc))
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: no task waits for the outcome
            self._wanted = False
        if not self._wanted:
            self._drop()

    async def take(self) -> T:
        """Return the result, or raise the exception, once it is stored."""
        try:
            await self._stored
            result, exc = self._outcomes.pop()
        except BaseException:  # cancelled, or closed after the end of the loop
            self._wanted = False
            self._drop()
            raise
        if exc is None:
            return result
        try:
            raise exc
        finally:
            del exc  # else it would be part of a reference cycle, by the frame in its traceback

    def _wake(self) -> None:
        if not self._stored.done():
            self._stored.set_result(None)

    def _drop(self) -> None:
        """Remove the outcome; close what was returned if it is a coroutine, which nothing will await."""
        try:
            result, _ = self._outcomes.pop()
        except IndexError:  # not stored yet, or dropped by the other thread
            return
        if inspect.iscoroutine(result):
            result.close()
