"""Blocking calls off the event loop, in daemon threads that nothing ever has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from agenticx.errors import ResourcesExhausted

__all__ = ["LARGE", "run_in_thread", "run_sized", "start_thread"]

T = TypeVar("T")

LARGE = 64 * 1024
"""Characters or bytes from which on work goes off the event loop; what is smaller takes a few milliseconds."""

_BEGIN_SECONDS = 10.0
"""Real seconds for a thread that was started to take its first step."""


def start_thread(work: Callable[[], None], *, name: str) -> None:
    """Run `work` in a daemon thread; raises `ResourcesExhausted` if there can be none.

    Returns before the thread has begun, and it may never: a thread that has no memory for its first step dies silently.
    Whoever depends on it has `work` say that it began.
    """
    try:
        _Thread(target=work, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as exc:
        raise ResourcesExhausted(
            f"no thread can be started ({exc or 'out of memory'}); end what uses memory or threads, or raise the limit"
        ) from exc


class _Thread(threading.Thread):
    """A thread whose `start` does not wait until it has begun, which without memory would be for good."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started = _Unawaited()  # what `Thread.start` waits for, in every Python from 3.11 to 3.14


class _Unawaited(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


async def run_in_thread(function: Callable[..., T], /, *args: Any, name: str = "agx-call", **kwargs: Any) -> T:
    """Return `function(*args, **kwargs)`, called in a thread of its own; raises what it raises.

    `StopIteration` and `KeyboardInterrupt`, which mean something else to the event loop, come out as `RuntimeError`.
    Unlike `asyncio.to_thread` the thread is a daemon and belongs to no pool: when the awaiting task is cancelled the
    thread is left behind, its result dropped, and neither the loop nor the interpreter's exit waits for it. Raises
    `ResourcesExhausted` where no thread can be started, or one that was does not begin; `function` is not called then.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    begun = threading.Lock()  # taken by whoever is first: the thread, or the loop that gives it up

    def work() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            result = context.run(function, *args, **kwargs)
        except StopIteration as exc:  # a future cannot carry it
            _post(loop, future, None, RuntimeError(f"{function!r} raised StopIteration: {exc}"))
        except KeyboardInterrupt as exc:  # its own: Ctrl-C reaches the main thread only
            _post(loop, future, None, RuntimeError(f"{function!r} raised KeyboardInterrupt: {exc}"))
        except BaseException as exc:  # noqa: BLE001 - handed to the awaiting task, as asyncio.to_thread does
            _post(loop, future, None, exc)
        else:
            _post(loop, future, result, None)

    def give_up() -> None:
        if begun.acquire(blocking=False) and not future.done():
            future.set_exception(ResourcesExhausted("a thread that was started did not begin; memory has run out"))

    start_thread(work, name=name)
    giving_up = loop.call_later(_BEGIN_SECONDS, give_up)
    try:
        return await future
    finally:
        giving_up.cancel()


async def run_sized(function: Callable[..., T], /, *args: Any, size: int, name: str = "agx-call") -> T:
    """Return `function(*args)`, run in a thread if it works on `size` characters or bytes that are `LARGE`, else here.

    For pure functions over what others wrote: a thread leaves the loop its turns while no single call into C is long.
    """
    return function(*args) if size < LARGE else await run_in_thread(function, *args, name=name)


def _post(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, exc: BaseException | None) -> None:
    def settle() -> None:
        if future.done():
            return
        if exc is None:
            future.set_result(result)
        else:
            future.set_exception(exc)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return
