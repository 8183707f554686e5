"""The watch over the process that started the server: its end, and the end of the stdin it gave us.

1. A pidfd reports the end of the parent process on Linux, and a kqueue on macOS and the BSDs. `PR_SET_PDEATHSIG` would
   also report the end of the thread that started us, while the parent goes on.
2. Where neither exists, and where the parent's id is unknown (it is 0 for a parent outside our PID namespace), our
   parent's id is compared every second: an orphan gets another parent.
3. What is written to stdin is read and dropped, since a pipe with unread data does not show its end everywhere.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from agenticx.threads import start_thread

__all__ = ["watch_parent"]

_CHECK_SECONDS = 1.0
_READ_BYTES = 64 * 1024
_STDIN = 0


def watch_parent(on_end: Callable[[str], None]) -> None:
    """Call `on_end` in a thread, with the reason as a word, once the parent process or its pipe to stdin has ended.

    It may be called twice. A stdin that is a file, a terminal or /dev/null is not watched.
    """
    parent = os.getppid()
    _start(lambda: _wait_for_end(parent), lambda: on_end("parent"), name="agx parent")
    if _is_pipe_or_socket(_STDIN):
        _start(lambda: _read_to_end(_STDIN), lambda: on_end("stdin"), name="agx stdin")


def _start(wait: Callable[[], None], report: Callable[[], None], *, name: str) -> None:
    def work() -> None:
        wait()
        report()

    start_thread(work, name=name)


# --- the parent -------------------------------------------------------------------------------------------------------


def _wait_for_end(parent: int) -> None:
    """Return once the process `parent` is not our parent any more."""
    wait = _wait_with_pidfd if hasattr(os, "pidfd_open") else _wait_with_kqueue
    with suppress(OSError, AttributeError):  # no such process, an old kernel, a sandbox that forbids it
        wait(parent)
    while os.getppid() == parent:
        time.sleep(_CHECK_SECONDS)


def _wait_with_pidfd(parent: int) -> None:
    if sys.platform != "linux":
        return
    descriptor = os.pidfd_open(parent)
    try:
        if os.getppid() == parent:  # else it ended before, and the id may be another process's by now
            polling = select.poll()
            polling.register(descriptor, select.POLLIN)
            polling.poll()
    finally:
        os.close(descriptor)


def _wait_with_kqueue(parent: int) -> None:
    if sys.platform == "linux" or sys.platform == "win32":
        return
    with select.kqueue() as queue:
        end = select.kevent(parent, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
        queue.control([end], 0)
        if os.getppid() == parent:
            queue.control(None, 1)


# --- stdin ------------------------------------------------------------------------------------------------------------


def _is_pipe_or_socket(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_to_end(descriptor: int) -> None:
    """Read what is written to a pipe or socket until its other side is closed."""
    with suppress(OSError):  # a reset connection has ended as well
        while True:
            select.select([descriptor], [], [])  # the parent may have made it non-blocking
            with suppress(BlockingIOError):
                if not os.read(descriptor, _READ_BYTES):
                    return
