"""Classification of a tool's result by its text: it is empty, a check that passed, or a verdict.

Only short results are judged by their words, which are English: other languages only make loops harder to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agenticx.lazy_patterns import lazy_compile

__all__ = [
    "exit_code",
    "is_empty",
    "mask_counts",
    "mask_echo",
    "mask_times",
    "reports_success",
    "reports_verdict",
]

_SHORT_CHARS = 300
_TIMED_CHARS = 4_096
_ECHOED_CHARS = 2_000

# --- no result --------------------------------------------------------------------------------------------------------

_EXIT = lazy_compile(r"\n?\[exit code (\d{1,9})\]\Z")
_EXIT_CHARS = 25
_NO_OUTPUT = "(no output)"
_EMPTY = lazy_compile(r"null|\[\s{0,20}\]|\{\s{0,20}\}|\[no match in [0-9,]{1,11} files?\]")
"""JSON without a value, or what `file_search` returns."""


def exit_code(text: str) -> int | None:
    """Return the exit code at the end of a command's report, or None if there is none."""
    match_ = _EXIT.search(text[-_EXIT_CHARS:])
    return None if match_ is None else int(match_[1])


def is_empty(text: str, *, read_only: bool) -> bool:
    """Return whether `text` is the result of a call that found nothing: no output, JSON without a value, or no match.

    Empty output of a call that may have changed something does not mean that: many commands succeed without output.
    """
    text = text.strip()
    code = exit_code(text)
    output = text if code is None else text[: text.rindex("[exit code")].rstrip()
    if output in {"", _NO_OUTPUT}:
        return read_only or bool(code)
    return _EMPTY.fullmatch(output) is not None


# --- a check that passed ----------------------------------------------------------------------------------------------

_PASSED = lazy_compile(
    r"(?P<negated>\b(?:no|not|isn.t|aren.t|wasn.t|never)\s)?"
    r"\b(?:(?:ok|okay|passed|passes|valid|clean|alive|reachable|success(?:ful)?|succeeded|verified|good)\b"
    r"|(?:no|0|zero)\s(?:\w{1,20}\s){0,2}(?:issues?|errors?|problems?|warnings?|findings?|vulnerabilit(?:y|ies)"
    r"|failures?|violations?|conflicts?|differences?|duplicates?)\b)",
    re.IGNORECASE,
)
_PASSED_KEYS = frozenset(["clean", "healthy", "ok", "passed", "success", "valid"])
_CHECK_CHARS = 120


def reports_success(text: str) -> bool:
    """Return whether `text` is the short result of a check that passed.

    "OK", "3 valid", "No issues found" and `{"valid": true}` are, but neither "not valid" nor `{"ok": false}`.
    """
    text = text.strip()
    if len(text) > _CHECK_CHARS:
        return False
    if text.startswith("{"):
        flags = [value for key, value in _fields(text).items() if key.lower() in _PASSED_KEYS]
        return bool(flags) and all(value is True for value in flags)
    matches = [found["negated"] is None for found in _PASSED.finditer(text)]
    return bool(matches) and all(matches)


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of the JSON object that begins with `text`'s brace; none where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


# --- a verdict, good or bad -------------------------------------------------------------------------------------------

_VERDICT = lazy_compile(
    r"(?:true|false|yes|no|unreachable|(?:in|not )valid)[.!]?"
    r"|[^\n]{0,80}\b[0-9]{1,6} (?:\w{1,20} ){0,2}"
    r"(?:warnings?|errors?|problems?|issues?|findings?|violations?|vulnerabilit(?:y|ies))\b[^\n]{0,80}"
    r"|[^\n]{0,80}:[0-9]{1,7}(?::[0-9]{1,5})?:? ?(?:(?:warning|error|note)\b|[A-Z]{1,4}[0-9]{2,5}\b)[^\n]{0,80}"
    r"(?:\n[^\n]{1,80})?",
    re.IGNORECASE,
)


def reports_verdict(text: str) -> bool:
    """Return whether `text` is a short verdict: progress for each subject, even if many subjects get the same one.

    "false", "not valid", "1 warning: line too long", "a.py:3:1: F401 unused import" and `{"exists": false}` are, while
    "not ok" and `{"ok": false}` may come from a tool that always fails.
    """
    text = _EXIT.sub("", text.strip()).strip()
    if len(text) > _CHECK_CHARS:
        return False
    if text.startswith("{"):
        return any(
            isinstance(value, bool) and key.lower() not in {"found", "ok", "success"}
            for key, value in _fields(text).items()
        )
    return _VERDICT.fullmatch(text) is not None


# --- differences that do not count -----------------------------------------------------------------------------

_TIMES = lazy_compile(
    r"(?<!\d)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # 2026-11-22T10:00:03Z
    r"|(?<!\d)\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\d)"  # 10:00:03
    r"|(?<![\d.])\d{1,6}\.\d{1,6} ?s(?:ec(?:onds?)?)?\b"  # 0.35s, as test runners end
)


def mask_times(text: str) -> str:
    """Return `text` with times of day and durations in fractions of seconds replaced by one placeholder.

    Of a text of more than 8,192 characters only the first and the last 4,096 are changed.
    """
    if len(text) <= 2 * _TIMED_CHARS:
        return _TIMES.sub("⌚", text)
    head, middle, tail = text[:_TIMED_CHARS], text[_TIMED_CHARS:-_TIMED_CHARS], text[-_TIMED_CHARS:]
    return f"{_TIMES.sub('⌚', head)}{middle}{_TIMES.sub('⌚', tail)}"


_COUNTS = lazy_compile(
    r"[0-9](?:[0-9,.]{0,12}[0-9])?(?=\s?(?:ms|s|sec|seconds|files?|documents?|pages?|records?|entries|rows?|lines?|sources?"
    r"|items?|folders?|results?|[kM]i?B|bytes)\b)"
)
_NEGATED = lazy_compile(r"\b(?:no|not|nope|none|nothing|never|neither|nowhere|without)\b|n['’]t\b", re.IGNORECASE)


def mask_counts(text: str) -> str:
    """Return a short negative `text` with the numbers of files, documents or milliseconds replaced by 0.

    Prices, temperatures and other numbers stay as they are: they may be the requested information.
    """
    if len(text) > _SHORT_CHARS or _NEGATED.search(text) is None:
        return text
    return _COUNTS.sub("0", text)


def mask_echo(text: str, echo: Sequence[str]) -> str:
    """Return a short `text` with the strings of `echo` replaced by one placeholder; a long text as it is."""
    if len(text) > _ECHOED_CHARS:
        return text
    for string in echo:
        text = text.replace(string, "…")
    return text
