"""Counts with their nouns, for messages."""

from __future__ import annotations

__all__ = ["pluralize"]


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return `number` with its noun, for example `1 line`, `2 lines` or `1,000 lines`.

    The plural is `noun` with an s unless `plural` is given.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
