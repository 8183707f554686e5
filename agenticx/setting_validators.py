"""Validators of settings, for the types of a TOML file and the text of an environment variable."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BeforeValidator

from agenticx.similar_names import similar_name

__all__ = [
    "absolute_path",
    "checked_store_url",
    "clamped",
    "folder_path",
    "integer",
    "list_of",
    "number",
    "one_of",
    "read_toml",
    "split_postgres_urls",
    "switch",
]

# `agenticx.logs` imports the settings, so this module uses the standard library's logging.
_log = logging.getLogger(__name__)

_Number = TypeVar("_Number", int, float)

_MOST_DOTS = 2_000
"""The largest number of dots in a line of TOML: tomllib takes time quadratic in the parts of a key (`a.a.a = 1`).

With that many it is 0.03 s, measured with 3.11; a line of text has that many with some 200,000 characters.
"""


def read_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text in time that is linear in its size; raises ValueError."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"line {number} has more than {_MOST_DOTS:,} dots; divide it into several lines")
    try:
        return tomllib.loads(text)
    except RecursionError as exc:
        raise ValueError("its values are nested too deeply") from exc


def number(low: float, high: float, *, allow_zero: bool = False) -> BeforeValidator:
    """Accept decimal numbers from `low` to `high`; with `allow_zero` also 0, which means off."""
    allowed = f"must be a decimal number from {low:.15g} to {high:.15g}" + (", or 0 for off" if allow_zero else "")

    def check(value: object) -> float:
        parsed = _parse(float, value, allowed)
        if low <= parsed <= high or (allow_zero and parsed == 0):
            return parsed
        raise ValueError(allowed)

    return BeforeValidator(check)


def integer(low: int, high: int) -> BeforeValidator:
    """Accept whole numbers from `low` to `high`."""
    allowed = f"must be a whole number from {low} to {high}"

    def check(value: object) -> int:
        parsed = _parse(int, value, allowed)
        if low <= parsed <= high:
            return parsed
        raise ValueError(allowed)

    return BeforeValidator(check)


def clamped(low: int, high: int, name: str) -> BeforeValidator:
    """Accept whole numbers; one outside the range becomes the nearest inside it, with one log line for it."""
    allowed = f"must be a whole number from {low} to {high}"

    def check(value: object) -> int:
        parsed = _parse(int, value, allowed)
        nearest = min(max(parsed, low), high)
        if nearest != parsed:
            _warn_once("%s is %d; using %d, the nearest from %d to %d", name, parsed, nearest, low, high)
        return nearest

    return BeforeValidator(check)


@lru_cache(maxsize=64)
def _warn_once(*message: Any) -> None:
    """Log a warning unless this process did: the settings of a workspace are read for each turn."""
    _log.warning(*message)


def _parse(kind: Callable[[Any], _Number], value: object, allowed: str) -> _Number:
    numeric = isinstance(value, str | int) or (kind is float and isinstance(value, float))
    if not numeric or isinstance(value, bool):
        raise ValueError(allowed)
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise ValueError(allowed) from None


def switch() -> BeforeValidator:
    """Accept true and false, also as text, and 1 and 0."""

    def check(value: object) -> bool:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in (True, False, "true", "false", "1", "0"):
            raise ValueError("must be true or false")
        return word in (True, "true", "1")

    return BeforeValidator(check)


def one_of(*words: str) -> BeforeValidator:
    """Accept one of these words, in any case."""

    def check(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            similar = similar_name(str(word), words)
            raise ValueError(f"must be one of {', '.join(words)}{f'; did you mean {similar}?' if similar else ''}")
        return str(word)

    return BeforeValidator(check)


def list_of(pattern: str, allowed: str) -> BeforeValidator:
    """Accept a list, or text with commas or blanks between its items; each item matches `pattern`."""

    def check(value: object) -> tuple[str, ...]:
        items: Any = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(
            _matches(pattern, item) for item in cast(list[object], items)
        ):
            raise ValueError(f"must be {allowed}, separated by commas")
        return tuple(cast(list[str], items))

    return BeforeValidator(check)


def _matches(pattern: str, item: object) -> bool:
    return isinstance(item, str) and re.fullmatch(pattern, item) is not None


_POSTGRES_SCHEME = re.compile(r"postgres(?:ql)?://")
_POSTGRES_URL = re.compile(
    r"postgres(?:ql)?://(?:[^\s/?#@]*@)?[^\s/?#@]*(?:/[^\s/?#@,]*)?(?:\?[^\s#]*)?"  # of the URL's parts: only one '@'
)
_SQLITE_URL = re.compile(r"sqlite:///[^?\n]+")


def checked_store_url(value: str) -> str:
    """Return the URL of a store if it is one of SQLite, or one or more of PostgreSQL; raises `ValueError` if not.

    The message does not show the value, which may hold a password.
    """
    if not split_postgres_urls(value) and not _SQLITE_URL.fullmatch(value):
        raise ValueError(
            "must be sqlite:///PATH, without options after a '?', or postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return value


def split_postgres_urls(value: str) -> tuple[str, ...]:
    """Return the PostgreSQL URLs of a store, which blanks separate; none if no word begins like one.

    Raises `ValueError` for URLs that cannot be used, with a message that does not show them.
    """
    urls = tuple(value.split())
    if not any(map(_POSTGRES_SCHEME.match, urls)):
        return ()
    if not all(map(_POSTGRES_URL.fullmatch, urls)):
        raise ValueError(
            "must be postgresql://USER:PASSWORD@HOST/DATABASE, or several of them separated by spaces; special"
            " characters are percent-encoded ('@' in a password is %40, a space in a name %20)"
        )
    if len(set(urls)) < len(urls):
        raise ValueError("must name each PostgreSQL database once")
    return urls


def absolute_path(path: Path) -> Path:
    """Return the path as an absolute one, `~` expanded; raises `ValueError` for the `~` of an unknown user."""
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # `~name` where no user has that name
        raise ValueError("must be a path whose ~ names an existing user") from None


def folder_path(path: Path) -> Path:
    """Return the path if it is a folder or can become one; raises `ValueError` if not."""
    existing = next((candidate for candidate in (path, *path.parents) if os.path.lexists(candidate)), None)
    if existing is not None and not os.path.isdir(existing):
        raise ValueError(
            "must be a folder" if existing == path else f"must be a folder, and {str(existing)!r} is not one"
        )
    return path
