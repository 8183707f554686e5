"""Judge by the text of a tool's result: it found nothing, a check passed, or something is not finished yet.

Only short results are judged: at most `SHORT_CHARS` characters of text, `JSON_CHARS` of JSON. The time that it takes is
bounded by that, whatever the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

__all__ = ["confirms", "exit_code", "finds_nothing", "says_pending", "without_echo", "without_times"]

SHORT_CHARS = 300
JSON_CHARS = 4_096
_TIMED_CHARS = 4_096
_ECHOED_CHARS = 2_000

# --- nothing found ----------------------------------------------------------------------------------------------------

_THING = (
    r"(?:match(?:es)?|results?|hits?|records?|rows?|entry|entries|items?|files?|documents?|occurrences?|data|answers?)"
)
_NOTHING = re.compile(
    rf"\b(?:no|0|zero)\s(?:\w{{1,20}}\s){{0,2}}{_THING}\b(?!\schanged)"
    r"|\bnothing\s(?:was\s)?(?:found|matched)\b|\bfound\snothing\b|\bnone\s(?:was\s|were\s)?found\b"
    r"|\bnot\sfound\b|\bdid(?:\snot|n.t)\smatch\b|\bno\s(?:such|matching)\b|\bdoes(?:\snot|n.t)\sexist\b|\bthere\sis\sno\b"
    r"|\bkeine?\s(?:treffer|ergebnisse)\b|\baucun\srésultat|\bsin\sresultados|没有找到|未找到|没有结果|无结果",
    re.IGNORECASE,
)
_FOUND_KEYS = frozenset(
    [
        "count",
        "data",
        "documents",
        "entries",
        "found",
        "hits",
        "items",
        "matches",
        "num_results",
        "records",
        "result",
        "results",
        "rows",
        "total",
        "values",
    ]
)
_EXIT = re.compile(r"\n?\[exit code (\d{1,9})\]\Z")
_EXIT_CHARS = 25
_NO_OUTPUT = "(no output)"


def exit_code(text: str) -> int | None:
    """Return the exit code with which the report of a command ends, or None if it does not."""
    found = _EXIT.search(text[-_EXIT_CHARS:])
    return None if found is None else int(found[1])


def finds_nothing(text: str, echo: Sequence[str] = (), *, read_only: bool) -> bool:
    """Return whether `text` says that a call found nothing; `echo` are the strings the call itself was given.

    Empty output of a call that may have changed something says nothing about that: many commands succeed in silence.
    """
    text = text.strip()
    code = exit_code(text)
    output = text if code is None else text[: text.rindex("[exit code")].rstrip()
    if output in {"", _NO_OUTPUT}:
        return read_only or bool(code)
    if len(output) <= JSON_CHARS and output[0] in "[{n":
        try:
            empty = _is_empty(json.loads(output), depth=2)
        except (ValueError, RecursionError):
            empty = None
        if empty is not None:
            return empty
    if len(output) > SHORT_CHARS:
        return False
    opening = _NOTHING.match(output.lstrip("([ "))
    return opening is not None or _NOTHING.search(without_echo(output, echo)) is not None


def _is_empty(value: Any, *, depth: int) -> bool | None:
    """Return whether a JSON value holds no results; None for an object that does not say.

    An object holds none if all its fields that are named like results are empty or zero.
    """
    if not isinstance(value, dict):
        return value is None or value == []
    fields = cast("dict[str, Any]", value)
    findings = [found for key, found in fields.items() if key.lower() in _FOUND_KEYS]
    if not findings:
        return True if not fields else None
    return all(not found or (depth > 0 and _is_empty(found, depth=depth - 1) is True) for found in findings)


# --- a check that passed ----------------------------------------------------------------------------------------------

_PASSED = re.compile(
    r"(?P<negated>\b(?:no|not|isn.t|aren.t|wasn.t|never)\s)?"
    r"\b(?:(?:ok|okay|passed|passes|valid|clean|alive|reachable|success(?:ful)?|succeeded|verified|good)\b"
    r"|(?:no|0|zero)\s(?:\w{1,20}\s){0,2}(?:issues?|errors?|problems?|warnings?|findings?|vulnerabilit(?:y|ies)"
    r"|failures?|violations?|conflicts?|differences?|duplicates?)\b)",
    re.IGNORECASE,
)
_PASSED_KEYS = frozenset(["clean", "healthy", "ok", "passed", "success", "valid"])
_CHECK_CHARS = 120


def confirms(text: str) -> bool:
    """Return whether `text` is the short result of a check that passed.

    "OK", "3 valid", "No issues found" and `{"valid": true}` are, but neither "not valid" nor `{"ok": false}`.
    """
    text = text.strip()
    if len(text) > _CHECK_CHARS:
        return False
    if text.startswith("{"):
        try:
            fields: Any = json.loads(text)
        except (ValueError, RecursionError):
            return False
        flags = [value for key, value in fields.items() if key.lower() in _PASSED_KEYS]
        return bool(flags) and all(value is True for value in flags)
    said = [found["negated"] is None for found in _PASSED.finditer(text)]
    return bool(said) and all(said)


# --- not finished yet -------------------------------------------------------------------------------------------------

_UNFINISHED = (
    r"pending|running|queued|enqueued|in[ _-]progress|waiting|starting|processing|preparing|provisioning|scheduled"
    r"|initiali[sz]ing|not (?:yet )?(?:ready|started|finished|completed?|done|available)|try again later"
)
_PENDING_STATES = re.compile(
    rf"(?:{_UNFINISHED}|building|deploying|creating|updating|uploading|downloading|submitted|accepted|started|active)",
    re.IGNORECASE,
)
_PENDING_WORDS = re.compile(
    rf"\b(?P<negated>(?:no|not|nothing|none|never|0|isn.t|aren.t)\s(?:\w{{1,20}}\s){{0,2}})?(?:{_UNFINISHED})\b",
    re.IGNORECASE,
)
_STATE_KEYS = frozenset(["state", "status", "phase", "job_status", "job_state", "task_status", "progress", "condition"])
_STATE_LINE = re.compile(
    rf"^[ \t\"'*-]{{0,8}}(?:state|status|phase)[\"'* \t]{{0,8}}[:=][\"'* \t]{{0,8}}(?:{_PENDING_STATES.pattern})\b",
    re.IGNORECASE | re.MULTILINE,
)


def says_pending(text: str) -> bool:
    """Return whether a result says that something is pending, queued or running, so that asking again makes sense.

    In JSON the value of a status field decides (`state`, `status`, `phase`, …, up to two levels deep). In text of at
    most 300 characters a word does that is not negated ("running", but not "no jobs running"); in text of up to
    4,096 characters a line like `status: queued`.
    """
    text = text.strip()
    if len(text) > JSON_CHARS:
        return False
    if text[:1] in ("{", "["):
        try:
            states = list(_states(json.loads(text), depth=2))
        except (ValueError, RecursionError):
            states = []
        if states:
            return any(_PENDING_STATES.fullmatch(state.strip()) for state in states)
    if len(text) <= SHORT_CHARS and any(found["negated"] is None for found in _PENDING_WORDS.finditer(text)):
        return True
    return _STATE_LINE.search(text) is not None


def _states(value: Any, *, depth: int) -> Iterator[str]:
    """The strings of status fields in a JSON value."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _states(item, depth=depth)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key.lower() in _STATE_KEYS and isinstance(item, str):
                yield item
            elif depth:
                yield from _states(item, depth=depth - 1)


# --- what a difference does not count for -----------------------------------------------------------------------------

_TIMES = re.compile(
    r"(?<!\d)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # 2026-11-22T10:00:03Z
    r"|(?<!\d)\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\d)"  # 10:00:03
    r"|(?<![\d.])\d{1,6}\.\d{1,6} ?s(?:ec(?:onds?)?)?\b"  # 0.35s, as test runners end
)


def without_times(text: str) -> str:
    """Return `text` with times of day and durations in fractions of seconds made equal.

    Of a text of more than 8,192 characters only the first and the last 4,096 are changed.
    """
    if len(text) <= 2 * _TIMED_CHARS:
        return _TIMES.sub("⌚", text)
    head, middle, tail = text[:_TIMED_CHARS], text[_TIMED_CHARS:-_TIMED_CHARS], text[-_TIMED_CHARS:]
    return f"{_TIMES.sub('⌚', head)}{middle}{_TIMES.sub('⌚', tail)}"


def without_echo(text: str, echo: Sequence[str]) -> str:
    """Return a short `text` with the strings of `echo` made equal; long text as it is."""
    if len(text) > _ECHOED_CHARS:
        return text
    for said in echo:
        text = text.replace(said, "…")
    return text
