"""Validators of settings: each accepts the types of a TOML file and the text of an environment variable."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator

__all__ = ["absolute", "clamped", "folder", "listed", "matching", "number", "one_of", "whole"]

# `agenticx.logs` is built on the settings, so this module logs without it.
_log = logging.getLogger(__name__)

_Number = TypeVar("_Number", int, float)


def number(low: float, high: float, *, off: bool = False) -> BeforeValidator:
    """Decimals from low to high; with `off` also 0."""
    allowed = f"must be a decimal number from {low:.15g} to {high:.15g}" + (", or 0 for off" if off else "")

    def check(value: object) -> float:
        parsed = _parsed(float, value, allowed)
        if low <= parsed <= high or (off and parsed == 0):
            return parsed
        raise ValueError(allowed)

    return BeforeValidator(check)


def whole(low: int, high: int) -> BeforeValidator:
    """Whole numbers from low to high."""
    allowed = f"must be a whole number from {low} to {high}"

    def check(value: object) -> int:
        parsed = _parsed(int, value, allowed)
        if low <= parsed <= high:
            return parsed
        raise ValueError(allowed)

    return BeforeValidator(check)


def clamped(low: int, high: int, name: str) -> BeforeValidator:
    """Whole numbers; one outside the range becomes the nearest inside it, with a log line."""
    allowed = f"must be a whole number from {low} to {high}"

    def check(value: object) -> int:
        parsed = _parsed(int, value, allowed)
        nearest = min(max(parsed, low), high)
        if nearest != parsed:
            _log.warning("%s is %d; using %d, the nearest from %d to %d", name, parsed, nearest, low, high)
        return nearest

    return BeforeValidator(check)


def _parsed(kind: Callable[[Any], _Number], value: object, allowed: str) -> _Number:
    numeric = isinstance(value, str | int) or (kind is float and isinstance(value, float))
    if not numeric or isinstance(value, bool):
        raise ValueError(allowed)
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise ValueError(allowed) from None


def one_of(*words: str) -> BeforeValidator:
    """One of these words, in any case."""

    def check(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(word)

    return BeforeValidator(check)


def listed(pattern: str, allowed: str) -> BeforeValidator:
    """A list, or text with commas or blanks between its items; each item fits `pattern`."""

    def check(value: object) -> tuple[str, ...]:
        items: Any = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(_fits(pattern, item) for item in cast(list[object], items)):
            raise ValueError(f"must be {allowed}, separated by commas")
        return tuple(cast(list[str], items))

    return BeforeValidator(check)


def _fits(pattern: str, item: object) -> bool:
    return isinstance(item, str) and re.fullmatch(pattern, item) is not None


def matching(pattern: str, allowed: str) -> AfterValidator:
    """Text of which `pattern` matches the whole; `allowed` describes it."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


def absolute(path: Path) -> Path:
    """Return the path from the root, `~` expanded; raises `ValueError` where nobody has that name."""
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # of somebody who has no account here
        raise ValueError("must be a path whose ~ is somebody's home folder") from None


def folder(path: Path) -> Path:
    """Return the path if it is a folder or can become one; raises `ValueError` if not."""
    found = next((place for place in (path, *path.parents) if os.path.lexists(place)), None)
    if found is not None and not os.path.isdir(found):
        raise ValueError("must be a folder" if found == path else f"must be a folder, and {str(found)!r} is none")
    return path
