"""Blocking calls off the event loop, in daemon threads that nothing ever has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(function: Callable[..., T], /, *args: Any, name: str = "agx-call", **kwargs: Any) -> T:
    """`function(*args, **kwargs)` in a thread of its own; raises what it raises.

    `StopIteration` and `KeyboardInterrupt`, which mean something else to the event loop, come out as `RuntimeError`.
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
        except KeyboardInterrupt as exc:  # its own: Ctrl-C reaches the main thread only
            _post(loop, future, None, RuntimeError(f"{function!r} raised KeyboardInterrupt: {exc}"))
        except BaseException as exc:  # noqa: BLE001 - handed to the awaiting task, as asyncio.to_thread does
            _post(loop, future, None, exc)
        else:
            _post(loop, future, result, None)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


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
