"""Decoding of rows of a database, some of which may be damaged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import Fact

__all__ = ["decode_facts", "decode_rows"]

Row = TypeVar("Row")
T = TypeVar("T")

_log = get_logger(__name__)


def decode_rows(rows: Iterable[Row], read: Callable[[Row], T]) -> Iterator[T]:
    """Yield the result of `read` for each row; a damaged row is logged and skipped."""
    for row in rows:
        try:
            yield read(row)
        except DamagedData as exc:
            _log.error("corrupt row skipped", error=str(exc))


def decode_facts(
    rows: Iterable[Any], decode: Callable[[str, str, str, str], Fact], skippable: Collection[str]
) -> Iterator[Fact]:
    """Yield the fact of each row (kind, key, turn, data).

    A damaged row is logged and skipped if its kind is one of `skippable`; for any other kind `DamagedData` is raised.
    """
    for row in rows:
        try:
            yield decode(*row)
        except DamagedData as exc:
            if row[0] not in skippable:
                raise
            _log.error("corrupt row skipped", error=str(exc))
