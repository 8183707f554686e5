"""The error for damaged stored data: only the session it belongs to fails."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from contextlib import contextmanager

from agenticx.errors import StoreError
from agenticx.logs import get_logger

__all__ = ["DamagedData", "map_decode_errors"]

_log = get_logger(__name__)


class DamagedData(StoreError):
    """An error because stored bytes differ from the bytes that were written."""


@contextmanager
def map_decode_errors(what: str) -> Generator[None]:
    """Raise `DamagedData` if decoding stored bytes in this block shows that they are not the bytes that were written.

    The message and the log do not quote the bytes: they are the user's content.
    """
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as exc:
        _log.error("stored data damaged", what=what, error=type(exc).__name__)
        raise DamagedData(f"{what} is damaged in the storage ({type(exc).__name__})") from exc
