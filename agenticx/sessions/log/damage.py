"""The error for damaged stored data: only the session it belongs to fails."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from contextlib import contextmanager

from agenticx.errors import StoreError
from agenticx.logs import get_logger

__all__ = ["DECODE_ERRORS", "DamagedData", "damaged_data", "map_decode_errors"]

DECODE_ERRORS = (zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What decoding raises for bytes that differ from those that were written."""

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
    except DECODE_ERRORS as exc:
        raise damaged_data(what, exc) from exc


def damaged_data(what: str, error: Exception) -> DamagedData:
    """Return the error for an error of `DECODE_ERRORS`, and log it, as `map_decode_errors` does."""
    _log.error("stored data damaged", what=what, error=type(error).__name__)
    return DamagedData(f"{what} is damaged in the storage ({type(error).__name__})")
