"""The one door through which code that is not ours (tools, hooks, gates, selectors, duck-typed models) is called.

Whatever foreign code does, the caller gets a value or one exception of our tree: its own `AgenticXError` as it is,
`ForeignError` for anything else it raises, for a time-out, and for a cancellation that nobody asked for. Code that
ignores cancellation is left behind and logged; it cannot hold the turn. It stands below the runtime, because models
and tools call foreign code as well.

1. A `SystemExit` or `KeyboardInterrupt` in a task that foreign code started itself ends the program: asyncio raises it
   out of the event loop, beside whoever awaits that task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from agenticx.errors import AgenticXError, ForeignError
from agenticx.logs import get_logger
from agenticx.messages import clean_text
from agenticx.threads import run_in_thread

__all__ = ["GRACE_SECONDS", "abandon", "call", "call_now", "contained", "containing", "describe"]

GRACE_SECONDS = 0.1
"""Real seconds that cancelled foreign code has to end in before it is left behind."""

_log = get_logger(__name__)


async def call(function: Callable[..., Any], /, *args: Any, what: str, limit: float | None = None) -> Any:
    """`function(*args)`, awaited if it returns an awaitable, for at most `limit` real seconds.

    A plain function runs in a thread of its own, so that it cannot block the loop.
    """
    task = asyncio.ensure_future(contained(function, *args, what=what))
    try:
        await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        await abandon(task, what)
        raise
    if not task.done():
        await abandon(task, what)
        raise ForeignError(f"{what} did not answer within {limit:g} s", what=what, kind="timed_out")
    if task.cancelled():  # by its own code: nobody else can reach it
        raise ForeignError(f"{what} was cancelled by its own code", what=what, kind="raised")
    if isinstance(exc := task.exception(), GeneratorExit):
        raise ForeignError(f"{what} raised {describe(exc)}", what=what, kind="raised") from exc
    return task.result()


def call_now(function: Callable[..., Any], /, *args: Any, what: str) -> Any:
    """Return `function(*args)`, called in the caller's thread: for code whose contract is to be quick."""
    try:
        with containing(what):
            return function(*args)
    except GeneratorExit as exc:  # its own: nothing can close a plain function
        raise ForeignError(f"{what} raised {describe(exc)}", what=what, kind="raised") from exc


async def contained(function: Callable[..., Any], /, *args: Any, what: str) -> Any:
    """As `call`, without a limit and in the caller's own task: for a task that is nothing but this."""
    with containing(what):
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        result = await run_in_thread(function, *args, name=f"agx {what}")
        return await result if inspect.isawaitable(result) else result


@contextmanager
def containing(what: str) -> Generator[None]:
    """Raise whatever the body raises as an error of our tree.

    A cancellation that somebody asked for passes, and so does a `KeyboardInterrupt`: on the thread that gets signals
    nobody can tell whether it was Ctrl-C.
    """
    try:
        yield
    except (AgenticXError, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as exc:
        if _is_being_cancelled():
            raise
        raise ForeignError(f"{what} was cancelled by its own code", what=what, kind="raised") from exc
    except BaseException as exc:  # SystemExit too, and what native extensions raise when they panic
        raise ForeignError(f"{what} raised {describe(exc)}", what=what, kind="raised") from exc


def _is_being_cancelled() -> bool:
    """Whether somebody asked the current task to end; False in a thread that runs no event loop."""
    with suppress(RuntimeError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return False


def describe(exc: BaseException) -> str:
    """`TypeError: message`, bounded, whatever the exception's own `__str__` does."""
    try:
        text = str(exc)
    except Exception:  # the exception is foreign code too
        text = "(its message cannot be read)"
    name = type(exc).__name__
    return f"{name}: {clean_text(text[:500])}" if text else name


async def abandon(task: asyncio.Future[Any], what: str) -> None:
    """Cancel `task` and give it a moment to end; whatever comes of it is nobody's concern any more."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_SECONDS)
    if not task.done():
        _log.warning("foreign code ignores cancellation and is left behind", what=what)
        task.add_done_callback(_swallow)
    else:
        _swallow(task)


def _swallow(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
