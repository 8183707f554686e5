"""Forked children, such as workers of `multiprocessing`: what they do not keep, and how they end.

A forked child has the descriptors of its parent, and copies of its objects, but of its threads only the one that
forked. A lock or a listening socket that it keeps is held until the child ends, also where the parent has died.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakSet

__all__ = ["DroppedInChild", "confine_forked_child", "drop_in_child"]


class DroppedInChild(Protocol):
    """An object that belongs to the process that made it."""

    def drop(self) -> None:
        """Close the descriptors in a child that was just forked, and go without them; nothing else must happen."""
        ...


_dropped = WeakSet[DroppedInChild]()


def drop_in_child(owner: DroppedInChild) -> None:
    """Have `owner.drop` called in each child that this process forks from now on."""
    _dropped.add(owner)


def _drop_all() -> None:
    for owner in list(_dropped):
        owner.drop()
    _dropped.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_drop_all)


@contextmanager
def confine_forked_child() -> Generator[None]:
    """End a process that is forked in the body once it leaves the body: only its parent goes on with the program.

    No exit handler runs, as at the end of a worker of `multiprocessing`: they would clean up what the parent uses.
    """
    pid = os.getpid()
    try:
        yield
    except BaseException as exc:
        if os.getpid() != pid:
            _exit(exc)
        raise
    else:
        if os.getpid() != pid:
            _exit(None)


def _exit(exc: BaseException | None) -> None:
    """End this process with the code that Python would end with."""
    code = 0 if exc is None else 1
    if isinstance(exc, SystemExit):
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    elif exc is not None:
        with suppress(Exception):
            sys.excepthook(type(exc), exc, exc.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
