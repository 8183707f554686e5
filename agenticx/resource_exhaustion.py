"""Exhausted memory, threads, open files or disk: its errors, and the exit it forces.

1. `ResourcesExhausted` says that the machine lacked a resource for a request that may well have been valid: code that
   translates an `OSError` into another error calls `raise_if_exhausted` first.
2. A `MemoryError` of a tool is the tool's error result. Any other one is raised to the caller of the library;
   `agx serve` then exits (`exit_on_memory_error`) with one line on stderr and the code `OUT_OF_MEMORY_EXIT_CODE`. All
   events that it sent are in the log, and recovery at the next start ends each turn.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agenticx.errors import ResourcesExhausted

if TYPE_CHECKING:
    import asyncio  # the command line does without it until a command runs

__all__ = [
    "OUT_OF_MEMORY_EXIT_CODE",
    "exhausted_error",
    "exit_on_memory_error",
    "limit_malloc_arenas",
    "raise_if_exhausted",
]

OUT_OF_MEMORY_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""

_EXIT_MESSAGE: Final = b"agx: out of memory: the process ends; what was stored is kept, start it again\n"

_STDERR: Final = 2

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


@contextmanager
def exit_on_memory_error(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Exit the process on a `MemoryError` that is not handled on `loop` or in any thread, while the body runs.

    Python continues after such an error, but an interrupted callback has not woken the tasks that wait for it, and a
    thread that died takes no more work.
    """
    previous_thread_hook = threading.excepthook

    def thread_hook(arguments: threading.ExceptHookArgs) -> None:
        if issubclass(arguments.exc_type, MemoryError):
            _exit_out_of_memory()
        previous_thread_hook(arguments)

    def on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError):
            _exit_out_of_memory()
        loop.default_exception_handler(context)

    threading.excepthook = thread_hook
    loop.set_exception_handler(on_loop_exception)
    try:
        yield
    except MemoryError:
        _exit_out_of_memory()
    finally:
        threading.excepthook = previous_thread_hook
        loop.set_exception_handler(None)


def _exit_out_of_memory() -> NoReturn:
    """Write one line to stderr and exit at once: what runs at a normal exit may need memory."""
    try:
        os.write(_STDERR, _EXIT_MESSAGE)
    finally:
        os._exit(OUT_OF_MEMORY_EXIT_CODE)


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
