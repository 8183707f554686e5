"""Running out of memory, threads, open files or disk: told apart from mistakes, and never survived by half a process.

1. `ResourcesExhausted` says that the machine could not do what was asked, which may well have been right: callers that
   turn an `OSError` into an error of theirs call `raise_if_exhausted` first.
2. A `MemoryError` ends what it concerns: a tool call, a turn, a request, a job of the database. Where nothing can be
   ended in its stead (a callback of the event loop, a thread of ours between two jobs, a turn that cannot be given its
   end), what the rest of the process waits for may never come. Programs of ours that serve others
   (`end_process_without_memory`) then end at once, with one line and `OUT_OF_MEMORY`. What they told is in the log, and
   recovery at the next start gives each turn its end.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agenticx.errors import ResourcesExhausted

if TYPE_CHECKING:
    import asyncio  # the command line does without it until a command runs

__all__ = [
    "OUT_OF_MEMORY",
    "end_process",
    "end_process_without_memory",
    "exhaustion",
    "keep_memory_together",
    "raise_if_exhausted",
]

OUT_OF_MEMORY: Final = 70
"""The exit code: EX_SOFTWARE of sysexits.h."""

_LAST_WORDS: Final = b"agx: out of memory: the process ends; what was stored is kept, start it again\n"

_LAST_WORDS_SECONDS: Final = 1

_REMEDIES: Final = {
    errno.EMFILE: "this process has too many open files; raise its limit (`ulimit -n`) or close connections",
    errno.ENFILE: "the machine has too many open files; end what holds them",
    errno.ENOMEM: "there is no memory left; free some, or raise the limit (`ulimit -v`)",
    errno.EAGAIN: "there are too many threads or processes; end some, or raise the limit (`ulimit -u`)",
    errno.ENOSPC: "the disk is full; make room on it",
    errno.EDQUOT: "the disk quota is used up; make room within it",
    errno.EIO: "the disk failed to read or write; look after it",
}

_ARENA_MAX: Final = -8  # M_ARENA_MAX in glibc's malloc.h


def exhaustion(exc: BaseException) -> ResourcesExhausted | None:
    """Return the error for a person if `exc` says that the machine lacks something, None for any other error."""
    code = errno.ENOMEM if isinstance(exc, MemoryError) else exc.errno if isinstance(exc, OSError) else None
    return ResourcesExhausted(_REMEDIES[code]) if code in _REMEDIES else None


def raise_if_exhausted(exc: BaseException) -> None:
    """Raise `ResourcesExhausted` if `exc` says that the machine lacks something; return for any other error."""
    if (exhausted := exhaustion(exc)) is not None:
        raise exhausted from exc


# --- the end of a process ---------------------------------------------------------------------------------------------


def end_process() -> NoReturn:
    """Write one line to stderr and end with `OUT_OF_MEMORY`; nothing here allocates memory.

    If nobody reads stderr and its buffer is full, the process ends a second later by SIGALRM.
    """
    try:
        signal.alarm(_LAST_WORDS_SECONDS)
        os.write(2, _LAST_WORDS)
    finally:
        os._exit(OUT_OF_MEMORY)


@contextmanager
def end_process_without_memory(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """While the body runs, end the process for a `MemoryError` that nobody handles, on `loop` or in any thread.

    Python goes on behind such an error: a callback that was cut short has not woken who waits for it, and a thread that
    died takes no more work.
    """
    threads, unraisable = threading.excepthook, sys.unraisablehook

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if issubclass(arguments.exc_type, MemoryError):
            end_process()
        threads(arguments)

    def nowhere(arguments: sys.UnraisableHookArgs) -> None:
        if issubclass(arguments.exc_type, MemoryError):
            end_process()
        unraisable(arguments)

    threading.excepthook, sys.unraisablehook = in_thread, nowhere
    loop.set_exception_handler(_on_loop)
    try:
        yield
    except MemoryError:
        end_process()
    finally:
        threading.excepthook, sys.unraisablehook = threads, unraisable
        loop.set_exception_handler(None)


def _on_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), MemoryError):
        end_process()
    loop.default_exception_handler(context)


def keep_memory_together() -> None:
    """Have the threads that begin from now on share one heap, with glibc; elsewhere do nothing.

    glibc reserves 64 MB of address space for the heap of each new thread, so that under a limit of 300 MB
    (`ulimit -v`) four threads leave next to nothing. Python's threads take turns: one heap costs them no time.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # small, and only servers need it

    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (OSError, AttributeError):  # another C library
        return
