"""Texts that a regular expression matches, for values of a schema with a `pattern`: short, and the same each time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

__all__ = ["text_of_pattern"]

_parser: Any = import_module("re._parser")  # of the standard library, which has no types for it
_MAX_CHARS = 1_000
_MAX_PATTERN_CHARS = 1_000
_PREFERRED = ["a", "A", "0", *map(chr, range(0x20, 0x7F)), "\n", "é"]


def text_of_pattern(pattern: str, *, min_length: int = 0) -> str:
    """Return a text that `pattern` matches as a whole, of at least `min_length` characters where it can be that long.

    Raises `ValueError` for a pattern that cannot be read, that looks ahead or behind, or whose text would be too long.

    >>> text_of_pattern(r"^[A-Z]{2}-\\d+(?:x|y)$", min_length=6)
    'AA-00x'
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern of more than {_MAX_PATTERN_CHARS} characters is not read")
    try:
        parsed = _parser.parse(pattern)
        shortest = _Text(0).complete(parsed)
        return shortest if len(shortest) >= min_length else _Text(min_length - len(shortest)).complete(parsed)
    except (re.error, RecursionError, OverflowError) as exc:
        raise ValueError(f"the pattern {pattern!r} cannot be read: {exc}") from exc
    except ValueError as exc:
        raise ValueError(f"no text is made for the pattern {pattern!r}: {exc}") from exc


class _Text:
    """A text as it grows along a parsed pattern; repeats add `extra` characters to the smallest number of theirs."""

    def __init__(self, extra: int) -> None:
        self._extra = extra
        self._text = ""
        self._has_ended = False
        self._boundaries = list[int]()
        self._groups = dict[int, str]()

    def complete(self, parsed: Iterable[tuple[Any, Any]]) -> str:
        self._sequence(parsed)
        for position in self._boundaries:
            before, after = self._text[:position][-1:], self._text[position:][:1]
            if _is_word(before) == _is_word(after):
                raise ValueError(r"it has a \b within a word or beside none")
        return self._text

    def _sequence(self, parsed: Iterable[tuple[Any, Any]]) -> None:
        for kind, what in parsed:
            name = str(kind).lower()
            method = getattr(self, f"_add_{name}", None)
            if method is None:
                look = "it looks ahead or behind"
                raise ValueError(look if name in ("assert", "assert_not") else f"it has a part of the kind {name}")
            method(what)

    def _append(self, text: str) -> None:
        if text and self._has_ended:
            raise ValueError("something follows its end")
        if len(self._text) + len(text) > _MAX_CHARS:
            raise ValueError(f"it would have more than {_MAX_CHARS} characters")
        self._text += text

    def _add_literal(self, code: int) -> None:
        self._append(chr(code))

    def _add_not_literal(self, code: int) -> None:
        self._append("a" if code != ord("a") else "b")

    def _add_any(self, _: None) -> None:
        self._append("a")

    def _add_in(self, items: list[tuple[Any, Any]]) -> None:
        is_negated = str(items[0][0]) == "NEGATE"
        own = [chr(what[0] if str(kind) == "RANGE" else what) for kind, what in items if str(kind) in _CHARACTERS]
        for char in [*_PREFERRED, *own]:
            if any(_has(item, char) for item in items) != is_negated:
                return self._append(char)
        raise ValueError("no character was found for one of its classes")

    def _add_at(self, what: Any) -> None:
        match str(what):
            case "AT_BEGINNING" | "AT_BEGINNING_STRING" if not self._text:
                pass
            case "AT_END" | "AT_END_STRING":
                self._has_ended = True
            case "AT_BOUNDARY":
                self._boundaries.append(len(self._text))
            case kind:
                raise ValueError(f"it has {kind.lower()} within it")

    def _add_subpattern(self, what: tuple[int | None, int, int, Iterable[tuple[Any, Any]]]) -> None:
        group, _, _, parsed = what
        start = len(self._text)
        self._sequence(parsed)
        if group is not None:
            self._groups[group] = self._text[start:]

    def _add_groupref(self, group: int) -> None:
        self._append(self._groups.get(group, ""))

    def _add_branch(self, what: tuple[None, list[Iterable[tuple[Any, Any]]]]) -> None:
        self._sequence(what[1][0])

    def _add_max_repeat(self, what: tuple[int, int, Iterable[tuple[Any, Any]]]) -> None:
        least, most, parsed = what
        count = 0
        while count < least or (count < most and self._extra > 0):
            before, is_extra = len(self._text), count >= least
            self._sequence(parsed)
            if (added := len(self._text) - before) == 0:
                break  # as all further ones
            self._extra -= added if is_extra else 0
            count += 1

    _add_min_repeat = _add_max_repeat


_CHARACTERS = ("LITERAL", "RANGE")


def _has(item: tuple[Any, Any], char: str) -> bool:
    """Return whether a part of a class of characters has `char`."""
    kind, what = str(item[0]), item[1]
    if kind == "RANGE":
        return what[0] <= ord(char) <= what[1]
    if kind == "CATEGORY":
        name = str(what).removeprefix("CATEGORY_")
        return _CATEGORIES[name.removeprefix("NOT_")](char) != name.startswith("NOT_")
    return kind == "LITERAL" and what == ord(char)


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


_CATEGORIES: dict[str, Callable[[str], bool]] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}
