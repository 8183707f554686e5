"""Stored bytes that nobody can read any more: the session that they are of says so, and all others go on."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from contextlib import contextmanager

from agenticx.errors import StoreError
from agenticx.logs import get_logger

__all__ = ["Damaged", "readable"]

_log = get_logger(__name__)


class Damaged(StoreError):
    """What was stored is not what was written."""


@contextmanager
def readable(what: str) -> Generator[None]:
    """Raise `Damaged` where reading stored bytes shows that they are not what was written.

    Of those bytes it says nothing: they are what somebody said.
    """
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as exc:
        _log.error("stored bytes are not what was written", what=what, error=type(exc).__name__)
        raise Damaged(f"{what} is damaged in the storage ({type(exc).__name__})") from exc
