"""Calls of user code: tools, hooks, gates, selectors and duck-typed models.

The caller always gets a value or one exception of our tree: an `AgenticXError` as it is, `UserCodeError` for anything
else that is raised, for a time-out, and for a cancellation that was not requested. Code that ignores cancellation is
abandoned and logged; it cannot block the turn. This module is below the runtime in the layers, because models and tools
call user code as well.

1. A `SystemExit` or `KeyboardInterrupt` in a task that user code started itself ends the program: asyncio raises it
   out of the event loop, not in the code that awaits the task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from agenticx.errors import AgenticXError, UserCodeError
from agenticx.forks import confine_forked_child
from agenticx.logs import excerpt, get_logger
from agenticx.messages import clean_text
from agenticx.threads import retrieve_exception, run_in_thread

__all__ = [
    "GRACE_SECONDS",
    "abandon",
    "await_end",
    "call",
    "call_in_place",
    "call_in_task",
    "call_sync",
    "describe_exception",
    "translated_errors",
]

GRACE_SECONDS = 0.1
"""Real seconds that cancelled user code has to end before it is abandoned."""

_log = get_logger(__name__)


async def call(function: Callable[..., Any], /, *args: Any, what: str, limit: float | None = None) -> Any:
    """Return `function(*args)`, awaited if it returns an awaitable, called for at most `limit` real seconds.

    A plain function runs in a thread of its own, so that it cannot block the loop. Raises as `call_in_task` does, and
    `UserCodeError` after `limit`.
    """
    task = asyncio.ensure_future(call_in_task(function, *args, what=what))
    try:
        await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        await abandon(task, what)
        raise
    if not task.done():
        await abandon(task, what)
        raise UserCodeError(f"{what} did not answer within {limit:g} s", what=what, kind="timed_out")
    if task.cancelled():  # by its own code: nothing else has a reference to the task
        raise UserCodeError(f"{what} was cancelled by its own code", what=what, kind="raised")
    if isinstance(exc := task.exception(), GeneratorExit):
        raise UserCodeError(f"{what} raised {describe_exception(exc)}", what=what, kind="raised") from exc
    return task.result()


def call_sync(function: Callable[..., Any], /, *args: Any, what: str) -> Any:
    """Return `function(*args)`, called in the caller's thread: for code that must return quickly."""
    try:
        with translated_errors(what):
            return function(*args)
    except GeneratorExit as exc:  # raised by the function itself: only generators are closed
        raise UserCodeError(f"{what} raised {describe_exception(exc)}", what=what, kind="raised") from exc


async def call_in_task(function: Callable[..., Any], /, *args: Any, what: str) -> Any:
    """Return what `call` returns, without a limit and in the caller's task, which must do nothing else."""
    with translated_errors(what):
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        result = await run_in_thread(function, *args, name=f"agx {what}")
        return await result if inspect.isawaitable(result) else result


async def call_in_place(function: Callable[..., Any], /, *args: Any, what: str) -> Any:
    """Return `function(*args)`, awaited if it returns an awaitable, called in the caller's thread and task.

    An `Exception` is raised as it is, for code whose own errors its caller expects. All else that is no exception of
    the caller's own becomes `UserCodeError`: a `SystemExit`, and a cancellation that was not requested.
    """
    try:
        result = function(*args)
        return await result if inspect.isawaitable(result) else result
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as exc:
        if _is_being_cancelled():
            raise
        raise UserCodeError(f"{what} was cancelled by its own code", what=what, kind="raised") from exc
    except BaseException as exc:
        raise UserCodeError(f"{what} raised {describe_exception(exc)}", what=what, kind="raised") from exc


@contextmanager
def translated_errors(what: str) -> Generator[None]:
    """Raise any exception of the body as an error of our tree.

    A cancellation that was requested passes, and so does a `KeyboardInterrupt`: on the thread that receives signals it
    cannot be distinguished from Ctrl-C. A process that the body forks ends where it leaves the body.
    """
    try:
        with confine_forked_child():
            yield
    except (AgenticXError, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as exc:
        if _is_being_cancelled():
            raise
        raise UserCodeError(f"{what} was cancelled by its own code", what=what, kind="raised") from exc
    except BaseException as exc:  # SystemExit too, and what native extensions raise when they panic
        raise UserCodeError(f"{what} raised {describe_exception(exc)}", what=what, kind="raised") from exc


def _is_being_cancelled() -> bool:
    """Return whether the current task's cancellation was requested; False in a thread that runs no event loop."""
    with suppress(RuntimeError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return False


def describe_exception(exc: BaseException) -> str:
    """Return `TypeError: message`, bounded and without secrets, even if the exception's own `__str__` fails.

    The text goes to the model, into events and logs.
    """
    try:
        text = str(exc)
    except Exception:  # the exception's `__str__` is user code too
        text = "(its message cannot be read)"
    name = type(exc).__name__
    return f"{name}: {clean_text(excerpt(text, 500))}" if text else name


async def abandon(task: asyncio.Future[Any], what: str) -> None:
    """Cancel `task` and wait `GRACE_SECONDS` for its end; its result or exception is dropped.

    The end of the event loop does not wait for a task that has not ended by then.
    """
    task.cancel()
    await await_end(task, what)


async def await_end(task: asyncio.Future[Any], what: str) -> None:
    """Wait `GRACE_SECONDS` for the end of a cancelled task, as `abandon` does."""
    await asyncio.wait({task}, timeout=GRACE_SECONDS)
    if not task.done():
        _log.warning("user code ignores cancellation and was abandoned", what=what)
        task.add_done_callback(retrieve_exception)
        if isinstance(task, asyncio.Task):
            _release(task)
    else:
        retrieve_exception(task)


def _release(task: Any) -> None:
    """Have `asyncio.run`, which waits for all tasks without a limit, end without this one."""
    asyncio._unregister_task(task)
    task._log_destroy_pending = False
