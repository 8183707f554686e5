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

from pydantic import AfterValidator, BeforeValidator

__all__ = [
    "absolute_path",
    "clamped",
    "folder_path",
    "integer",
    "list_of",
    "matching",
    "number",
    "one_of",
    "read_toml",
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
    """Accept true and false, also as text."""

    def check(value: object) -> bool:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in (True, False, "true", "false"):
            raise ValueError("must be true or false")
        return word in (True, "true")

    return BeforeValidator(check)


def one_of(*words: str) -> BeforeValidator:
    """Accept one of these words, in any case."""

    def check(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
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


def matching(pattern: str, allowed: str) -> AfterValidator:
    """Accept text that `pattern` matches as a whole; `allowed` describes it."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


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
