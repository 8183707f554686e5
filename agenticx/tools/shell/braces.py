"""Bounded brace expansion as in bash: nested `{a,b}` with prefix and suffix, and ranges as globs."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["expand_braces", "has_braces"]

_MAX_EXPANDED_WORDS = 64
_MAX_STEPS = 512
_INNERMOST = re.compile(r"(\$?)\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.-?\d+)?|[A-Za-z]\.\.[A-Za-z](?:\.\.-?\d+)?")
_MAX_RANGE_DIGITS = 9
# Placeholders for literal braces until the word is expanded.
_ESCAPE = str.maketrans("{}", "\ue001\ue002")
_UNESCAPE = str.maketrans("\ue001\ue002", "{}")


def has_braces(text: str) -> bool:
    """Return whether bash may expand braces in `text`."""
    return "{" in text and "}" in text and ("," in text or ".." in text)


def expand_braces(word: str, try_spend: Callable[[int], bool]) -> list[str] | None:
    """Return bash's brace expansion of `word`, or None if it is too costly or has more than `_MAX_EXPANDED_WORDS`.

    A range of letters becomes `?`; a range of numbers becomes one glob for each possible number of digits. `try_spend`
    is called with the number of characters to process, and returns False if the expansion must stop.
    """
    expanded: dict[str, None] = {}
    pending = [word]
    for _ in range(_MAX_STEPS):
        if not pending:
            return list(expanded)
        text = pending.pop()
        if not try_spend(len(text)):
            return None
        group = _INNERMOST.search(text)
        if group is None:
            expanded[text.translate(_UNESCAPE)] = None
        else:
            choices = _choices(group)
            pending += [f"{text[: group.start()]}{choice}{text[group.end() :]}" for choice in choices]
        if len(expanded) + len(pending) > _MAX_EXPANDED_WORDS:
            return None
    return None


def _choices(group: re.Match[str]) -> list[str]:
    parameter, body = group[1], group[2]
    if parameter:
        return [group[0].translate(_ESCAPE)]
    if "," in body:
        return list(dict.fromkeys(body.split(",")))
    ends = _RANGE.fullmatch(body)
    if ends is None:
        return [group[0].translate(_ESCAPE)]
    if ends[1] is None:
        return ["?"]
    return ["[-0-9]" * digits for digits in range(1, min(max(len(ends[1]), len(ends[2])), _MAX_RANGE_DIGITS) + 1)]
