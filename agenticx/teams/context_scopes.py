"""Values of context variables for the time of a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["scoped"]

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Generator[None]:
    """Let `variable` have `value` in the block, then its value of before.

    The block may be one of a generator, which can be closed in another context than it was started in: there
    `ContextVar.reset` would raise.
    """
    before = variable.get()
    variable.set(value)
    try:
        yield
    finally:
        variable.set(before)
