"""Checks of the types of arguments, for errors that name the argument instead of code further inside."""

from __future__ import annotations

__all__ = ["check_type", "check_type_or_none"]


def check_type(name: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Raise `TypeError` if the argument `name` is none of `types`; `expected` is the noun phrase for them.

    >>> check_type("after", "x", int, "a whole number")
    Traceback (most recent call last):
    TypeError: after must be a whole number, not str
    """
    is_bool_as_int = isinstance(value, bool) and types is int
    if is_bool_as_int or not isinstance(value, types):
        raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def check_type_or_none(name: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Raise `TypeError` as `check_type` does, unless the value is None."""
    if value is not None:
        check_type(name, value, types, expected)
