"""How many of what, as a sentence says it."""

from __future__ import annotations

__all__ = ["pluralize"]


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """`1 line`, `2 lines`, `1,000 lines`; the plural is `noun` with an s unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
