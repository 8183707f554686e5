"""Daemon threads for blocking calls; neither the event loop nor the exit waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from agenticx.errors import ResourcesExhausted
from agenticx.forks import confine_forked_child

__all__ = ["LARGE", "has_running_loop", "run_in_thread", "run_sized", "start_thread"]

T = TypeVar("T")

LARGE = 64 * 1024
"""Characters or bytes from which on input is processed off the event loop; less takes a few milliseconds."""

_START_SECONDS = 10.0
"""Real seconds within which a started thread must begin."""


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def start_thread(work: Callable[[], None], *, name: str) -> None:
    """Run `work` in a daemon thread; raises `ResourcesExhausted` if none can be started.

    Returns before the thread has begun, and it may never begin: a thread that has no memory for its first step ends
    silently. A caller that depends on it must have `work` report that it began.
    """
    try:
        _DaemonThread(target=work, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as exc:
        raise ResourcesExhausted(
            f"no thread can be started ({exc or 'out of memory'}); free memory or threads, or raise their limits"
        ) from exc


class _DaemonThread(threading.Thread):
    """A thread whose `start` does not wait until it has begun, which without memory would take forever."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started = _NonBlockingEvent()  # `Thread.start` waits for it, in every Python from 3.11 to 3.14


class _NonBlockingEvent(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


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
    waits for it. Raises `ResourcesExhausted` where no thread can be started, or a started one does not begin;
    `function` is not called then.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    begun = threading.Lock()  # acquired by the thread when it begins, or by the loop when it gives up waiting

    def work() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            if check is not None:
                check()
            with confine_forked_child():
                result = context.run(function, *args, **kwargs)
        except (StopIteration, KeyboardInterrupt) as exc:
            # A future cannot carry the former; the latter is the function's own: Ctrl-C reaches the main thread only.
            _deliver(loop, future, None, _as_runtime_error(function, exc))
        except BaseException as exc:  # noqa: BLE001 - raised in the awaiting task, as asyncio.to_thread does
            _deliver(loop, future, None, exc)
        else:
            _deliver(loop, future, result, None)

    def give_up() -> None:
        if begun.acquire(blocking=False):
            future.set_exception(ResourcesExhausted("a thread that was started did not begin; memory has run out"))

    start_thread(work, name=name)
    giving_up = loop.call_later(_START_SECONDS, give_up)
    try:
        await asyncio.wait({future})  # unlike `await future`, leaves it to the thread when the task is cancelled
    except asyncio.CancelledError:
        future.add_done_callback(_drop_outcome)
        raise
    finally:
        giving_up.cancel()
    return future.result()


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


def _deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, exc: BaseException | None
) -> None:
    def set_outcome() -> None:
        if exc is None:
            future.set_result(result)
        else:
            future.set_exception(exc)

    try:
        loop.call_soon_threadsafe(set_outcome)
    except RuntimeError:  # the loop is closed: no task waits for the result
        _drop_result(result)


def _drop_outcome(future: asyncio.Future[Any]) -> None:
    """Retrieve the outcome of a call that was abandoned."""
    if future.exception() is None:
        _drop_result(future.result())


def _drop_result(result: Any) -> None:
    """Close what an abandoned call returned if it is a coroutine, which nothing will await."""
    if inspect.iscoroutine(result):
        result.close()
