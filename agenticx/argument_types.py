"""Checks of the types of arguments, for errors that name the argument instead of code further inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from os import PathLike
from typing import Any, cast

__all__ = [
    "check_callable",
    "check_int",
    "check_iterable",
    "check_mapping",
    "check_number",
    "check_path",
    "check_sequence",
    "check_str",
    "check_type",
    "checked_text",
    "is_encodable",
    "wrong_type",
]


def check_type(name: str, value: object, types: type[Any] | tuple[type[Any], ...], expected: str) -> None:
    """Raise `TypeError` if the argument `name` is none of `types`; `expected` is a noun phrase for them.

    >>> check_type("answer", True, dict, "a dict")
    Traceback (most recent call last):
    TypeError: answer must be a dict, not bool
    """
    if not isinstance(value, types):
        raise wrong_type(name, value, expected)


def wrong_type(name: str, value: object, expected: str) -> TypeError:
    """Return the error for the argument `name`, which is not what is `expected`, a noun phrase."""
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def check_str(name: str, value: object) -> None:
    """Raise `TypeError` if the argument `name` is no str."""
    check_type(name, value, str, "a str")


def is_encodable(text: str) -> bool:
    """Return True if the text can be stored as UTF-8, False for one with half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_int(name: str, value: object) -> None:
    """Raise `TypeError` if the argument `name` is no int, or a bool."""
    if isinstance(value, bool):
        raise wrong_type(name, value, "an int")
    check_type(name, value, int, "an int")


def check_number(name: str, value: object, expected: str = "a number") -> None:
    """Raise `TypeError` if the argument `name` is no int, float or Decimal, or a bool; `expected` is a noun phrase."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise wrong_type(name, value, expected)


def checked_text(name: str, value: str | None, default: str) -> str:
    """Return a text, or the default for None and an empty one; raise `TypeError` if the argument `name` is no str."""
    if value is not None:
        check_str(name, value)
    return value or default


def check_path(name: str, value: object) -> None:
    """Raise `TypeError` if the argument `name` is no path: a str or an object such as a `Path`."""
    check_type(name, value, (str, PathLike), "a str or a Path")


def check_callable(name: str, value: object, expected: str) -> None:
    """Raise `TypeError` if the argument `name` cannot be called; `expected` is a noun phrase for it."""
    if not callable(value):
        raise wrong_type(name, value, expected)


def check_sequence(name: str, value: object, items: str) -> None:
    """Raise `TypeError` if the argument `name` is no list or tuple, or similar; `items` is a noun phrase for its items.

    >>> check_sequence("messages", {"role": "user"}, "messages")
    Traceback (most recent call last):
    TypeError: messages must be a list of messages, not dict
    """
    if _is_text_or_mapping(value) or not isinstance(value, Sequence):
        raise wrong_type(name, value, f"a list of {items}")


def check_iterable(name: str, value: object, items: str) -> None:
    """Raise `TypeError` as `check_sequence` does, but accept sets and iterators too."""
    if _is_text_or_mapping(value) or not isinstance(value, Iterable):
        raise wrong_type(name, value, f"a list of {items}")


def check_mapping(name: str, value: object) -> None:
    """Raise `TypeError` if the argument `name` is no dict or other mapping, or one of its keys is no str.

    >>> check_mapping("variables", {5: 1})
    Traceback (most recent call last):
    TypeError: the keys of variables must be str, not int
    """
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dict")
    for key in cast("Mapping[object, object]", value):
        if not isinstance(key, str):
            raise TypeError(f"the keys of {name} must be str, not {type(key).__name__}")


def _is_text_or_mapping(value: object) -> bool:
    return isinstance(value, str | bytes | bytearray | Mapping)
