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
    """Set `variable` to `value` in the block, then to its earlier value.

    The block may be in a generator that is closed in another context than it was started in; `ContextVar.reset` would
    raise an error there.
    """
    before = variable.get()
    variable.set(value)
    try:
        yield
    finally:
        variable.set(before)
