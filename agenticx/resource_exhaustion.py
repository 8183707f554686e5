"""Exhausted memory, threads, open files or disk: its errors, and the exit it forces.

1. `ResourcesExhausted` says that the machine lacked a resource for a request that may well have been valid: code that
   translates an `OSError` into another error calls `raise_if_exhausted` first.
2. A `MemoryError` ends the unit of work in which it was raised: a tool call, a turn, a request, a job of the database.
   Where there is no such unit (a callback of the event loop, a thread of ours between two jobs, a turn whose terminal
   event cannot be stored), other parts of the process may wait forever. Our server programs (`exit_on_memory_error`)
   then exit at once, with one line on stderr and the exit code `OUT_OF_MEMORY_EXIT_CODE`. All events that they
   sent are in the log, and recovery at the next start ends each turn.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agenticx.errors import ResourcesExhausted

if TYPE_CHECKING:
    import asyncio  # the command line does without it until a command runs

__all__ = [
    "OUT_OF_MEMORY_EXIT_CODE",
    "exhausted_error",
    "exit_on_memory_error",
    "exit_out_of_memory",
    "limit_malloc_arenas",
    "raise_if_exhausted",
]

OUT_OF_MEMORY_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""

_EXIT_MESSAGE: Final = b"agx: out of memory: the process ends; what was stored is kept, start it again\n"

_EXIT_MESSAGE_SECONDS: Final = 1

_REMEDIES: Final = {
    errno.EMFILE: "this process has too many open files; raise its limit (`ulimit -n`) or close connections",
    errno.ENFILE: "the machine has too many open files; end the programs that hold them",
    errno.ENOMEM: "there is no memory left; free some, or raise the limit (`ulimit -v`)",
    errno.EAGAIN: "there are too many threads or processes; end some, or raise the limit (`ulimit -u`)",
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EIO: "the disk failed to read or write; check its state",
}

_ARENA_MAX: Final = -8  # M_ARENA_MAX in glibc's malloc.h


def exhausted_error(exc: BaseException) -> ResourcesExhausted | None:
    """Return the error for the user if `exc` says that the machine lacks a resource, None for any other error."""
    code = errno.ENOMEM if isinstance(exc, MemoryError) else exc.errno if isinstance(exc, OSError) else None
    return ResourcesExhausted(_REMEDIES[code]) if code in _REMEDIES else None


def raise_if_exhausted(exc: BaseException) -> None:
    """Raise `ResourcesExhausted` if `exc` says that the machine lacks a resource; return for any other error."""
    if (exhausted := exhausted_error(exc)) is not None:
        raise exhausted from exc


# --- exiting ----------------------------------------------------------------------------------------------------------


def exit_out_of_memory(restore_terminal: Callable[[], None] | None = None) -> NoReturn:
    """Restore the terminal, write one line to stderr and exit with `OUT_OF_MEMORY_EXIT_CODE`.

    Only `restore_terminal` may need memory; if it fails for lack of it, the process exits all the same. If nothing
    reads stderr and its buffer is full, SIGALRM ends the process a second later.
    """
    try:
        signal.alarm(_EXIT_MESSAGE_SECONDS)
        try:
            if restore_terminal is not None:
                restore_terminal()
        finally:
            os.write(2, _EXIT_MESSAGE)
    finally:
        os._exit(OUT_OF_MEMORY_EXIT_CODE)


@contextmanager
def exit_on_memory_error(
    loop: asyncio.AbstractEventLoop, restore_terminal: Callable[[], None] | None = None
) -> Generator[None]:
    """Exit the process on a `MemoryError` that is not handled on `loop` or in any thread, while the body runs.

    Python continues after such an error: an interrupted callback has not woken the tasks that wait for it, and a thread
    that died takes no more work. `restore_terminal` is called first, in any thread: no `finally` runs at this exit.
    """
    previous_thread_hook, previous_unraisable_hook = threading.excepthook, sys.unraisablehook

    def thread_hook(arguments: threading.ExceptHookArgs) -> None:
        if issubclass(arguments.exc_type, MemoryError):
            exit_out_of_memory(restore_terminal)
        previous_thread_hook(arguments)

    def unraisable_hook(arguments: sys.UnraisableHookArgs) -> None:
        if issubclass(arguments.exc_type, MemoryError):
            exit_out_of_memory(restore_terminal)
        previous_unraisable_hook(arguments)

    def on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError):
            exit_out_of_memory(restore_terminal)
        loop.default_exception_handler(context)

    threading.excepthook, sys.unraisablehook = thread_hook, unraisable_hook
    loop.set_exception_handler(on_loop_exception)
    try:
        yield
    except MemoryError:
        exit_out_of_memory(restore_terminal)
    finally:
        threading.excepthook, sys.unraisablehook = previous_thread_hook, previous_unraisable_hook
        loop.set_exception_handler(None)


def limit_malloc_arenas() -> None:
    """Make threads that start from now on share one heap, with glibc; elsewhere do nothing.

    glibc reserves 64 MB of address space for the heap of each new thread, so that under a limit of 300 MB (`ulimit -v`)
    four threads leave almost nothing. As Python threads run one at a time, one heap costs them no time.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # small, and only servers need it

    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (OSError, AttributeError):  # another C library
        return
