"""Blocking calls off the event loop, in daemon threads that nothing ever has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["LARGE", "run_in_thread", "run_sized"]

T = TypeVar("T")

LARGE = 64 * 1024
"""Characters or bytes from which on work goes off the event loop; what is smaller takes a few milliseconds."""


async def run_in_thread(function: Callable[..., T], /, *args: Any, name: str = "agx-call", **kwargs: Any) -> T:
    """`function(*args, **kwargs)` in a thread of its own; raises what it raises.

    Unlike `asyncio.to_thread` the thread is a daemon and belongs to no pool: when the awaiting task is cancelled the
    thread is left behind, its result dropped, and neither the loop nor the interpreter's exit waits for it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result = context.run(function, *args, **kwargs)
        except StopIteration as exc:  # a future cannot carry it
            _post(loop, future, None, RuntimeError(f"{function!r} raised StopIteration: {exc}"))
        except BaseException as exc:  # noqa: BLE001 - handed to the awaiting task, as asyncio.to_thread does
            _post(loop, future, None, exc)
        else:
            _post(loop, future, result, None)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


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
