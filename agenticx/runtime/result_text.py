"""Classification of a tool's result by its text: nothing found, a check passed, or still pending.

Whether nothing was found or a check passed is judged by short results only: at most `SHORT_CHARS` characters of text,
`JSON_CHARS` of JSON. A pending state is searched for in the first 4,000 characters and the last line. This limits the
time for any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from agenticx.lazy_patterns import lazy_compile

__all__ = [
    "exit_code",
    "mask_counts",
    "mask_echo",
    "mask_times",
    "reports_nothing_found",
    "reports_pending",
    "reports_success",
    "reports_verdict",
]

SHORT_CHARS = 300
JSON_CHARS = 4_096
_TIMED_CHARS = 4_096
_ECHOED_CHARS = 2_000

# --- nothing found ----------------------------------------------------------------------------------------------------

_THING = (
    r"(?:match(?:es)?|results?|hits?|records?|rows?|entry|entries|items?|files?|documents?|occurrences?|data|answers?)"
)
_NOTHING = lazy_compile(
    rf"\b(?:no|0|zero)\s(?:\w{{1,20}}\s){{0,2}}{_THING}\b(?!\schanged)"
    r"|\bnothing\s(?:was\s)?(?:found|matched)\b|\bfound\snothing\b|\bnone\s(?:was\s|were\s)?found\b"
    r"|\bnot\sfound\b|\bdid(?:\snot|n.t)\smatch\b|\bno\s(?:such|matching)\b|\bdoes(?:\snot|n.t)\sexist\b|\bthere\sis\sno\b"
    r"|\bkeine?\s(?:treffer|ergebnisse)\b|\baucun\srésultat|\bsin\sresultados|没有找到|未找到|没有结果|无结果",
    re.IGNORECASE,
)
_MISSED = lazy_compile(
    r"\bnope\b|\bunknown\b|\bnever\sheard\b|\b(?:nothing|none)\s(?:about|matches|turned\sup|came\sup|relevant|here|there)\b"
    r"|\b(?:could|can|did|do|does|was|were|is|are)(?:\s?not|n.t)\s(?:\w{1,20}\s)?"
    r"(?:find|found|locate|locate?d|occur|exist|appear|contain|know|present|known|among|defined|resolve|in\sthe\s\w{1,20})\b"
    r"|\b(?:unable|failed|fails)\sto\s(?:find|locate)\b|\b(?:remember|yields|gives)\snothing\b|\b(?:came\sback|is)\sempty\b"
    r"|\bno\s(?:trace|mention|sign|evidence|information|knowledge|idea|luck|usages?|references?|definitions?)\b"
    r"|\b(?:there\sare|there\swas|there\swere|returned|contains|has|have|found)\s(?:no|nothing|none)\b"
    r"|\bnichts\b|\bnicht\s(?:gefunden|vorhanden|bekannt)\b|\bunbekannt\b|\bkommt\snicht\svor\b|\bexistiert\snicht\b"
    r"|\bkeine?n?\s(?:einträge|eintrag|dateien|datei|fundstellen?)\b|\bintrouvable|\brien\strouvé|\binconnue?\b"
    r"|\bn.existe\spas\b|\bno\sse\sencontr|\bno\sexiste\b|\bning[uú]n\sresultado|\bdesconocid"
    r"|找不到|不存在|查无|没有任何|見つかりません|見つからない|該当なし|存在しません|ありません",
    re.IGNORECASE,
)
_MISSED_CHARS = 160
_PLACE = lazy_compile(r"[^\s:]{1,200}:[0-9]{1,7}:")  # src/a.py:12:, as a search shows what it found
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
_EXIT = lazy_compile(r"\n?\[exit code (\d{1,9})\]\Z")
_EXIT_CHARS = 25
_NO_OUTPUT = "(no output)"


def exit_code(text: str) -> int | None:
    """Return the exit code at the end of a command's report, or None if there is none."""
    match_ = _EXIT.search(text[-_EXIT_CHARS:])
    return None if match_ is None else int(match_[1])


def reports_nothing_found(text: str, echo: Sequence[str] = (), *, read_only: bool) -> bool:
    """Return whether `text` reports that a call found nothing; `echo` are the strings the call itself was given.

    Empty output of a call that may have changed something does not mean that: many commands succeed without output.
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
    if _NOTHING.match(output.lstrip("([ ")):
        return True
    own_words = mask_echo(output, echo)
    if _NOTHING.search(own_words):
        return True
    return len(output) <= _MISSED_CHARS and _PLACE.match(output) is None and _MISSED.search(own_words) is not None


def _is_empty(value: Any, *, depth: int) -> bool | None:
    """Return whether a JSON value holds no results; None for an object that does not show it.

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
    r"(?:true|false|yes|no|ja|nein|oui|non|sí|是|否|はい|いいえ|unreachable|(?:in|not )valid)[.!]?"
    r"|[^\n]{0,80}\b[0-9]{1,6} (?:\w{1,20} ){0,2}"
    r"(?:warnings?|errors?|problems?|issues?|findings?|violations?|vulnerabilit(?:y|ies))\b[^\n]{0,80}"
    r"|[^\n]{0,80}:[0-9]{1,7}(?::[0-9]{1,5})?:? ?(?:(?:warning|error|note)\b|[A-Z]{1,4}[0-9]{2,5}\b)[^\n]{0,80}"
    r"(?:\n[^\n]{1,80})?",
    re.IGNORECASE,
)


def reports_verdict(text: str) -> bool:
    """Return whether `text` is a short verdict, which is new for each subject even if many subjects get the same one.

    "false", "not valid", "1 warning: line too long", "a.py:3:1: F401 unused import" and `{"exists": false}` are, while
    "not ok" and `{"ok": false}` may come from a tool that always fails.
    """
    text = _EXIT.sub("", text.strip()).strip()
    if len(text) > _CHECK_CHARS:
        return False
    if text.startswith("{"):
        return any(
            isinstance(value, bool) and key.lower() not in _FOUND_KEYS | {"ok", "success"}
            for key, value in _fields(text).items()
        )
    return _VERDICT.fullmatch(text) is not None


# --- not finished yet -------------------------------------------------------------------------------------------------

_UNFINISHED = (
    r"pending|running|queued|enqueued|in[ _-]progress|waiting|starting|processing|preparing|provisioning|scheduled"
    r"|initiali[sz]ing|not (?:yet )?(?:ready|started|finished|completed?|done|available)|try again later"
    r"|in[ _-](?:the |a )?queue|please wait|check back|yet to (?:start|finish|begin|complete)|under way|underway"
    r"|ContainerCreating|PodInitializing|activating|health: starting"
    r"|still (?!missing|nothing|failing|lacking|crashing|hanging|erroring|something|existing)\w{2,20}ing"
    r"|(?:not|nothing|no \w{1,20}|\w{1,8}n['’]t)(?: \w{1,20}){0,3} yet"
    r"|being (?:\w{1,12} )?(?:built|set up|rolled out|\w{2,16}ed)"
    r"|(?:is|are|currently|now) (?:building|deploying|compiling|installing|downloading|uploading|syncing|loading"
    r"|restarting|creating|updating|indexing|rendering|training|migrating|copying|exporting|importing|scanning|booting"
    r"|rolling out)"
    r"|läuft(?! nicht| ab)|ausstehend|in arbeit|in bearbeitung|in (?:der )?warteschlange|wartet|steht noch aus"
    r"|noch nicht|wird (?:noch |gerade |derzeit )?(?:gebaut|erstellt|verarbeitet|geladen|installiert|gestartet"
    r"|ausgeführt|vorbereitet|bereitgestellt|hochgeladen|heruntergeladen|exportiert|importiert|geprüft)|bitte warten"
    r"|en cours|en attente|pas encore|veuillez patienter|pendiente|en curso|en cola|en proceso|en espera"
)
_UNFINISHED_CJK = (
    r"进行中|处理中|等待中|排队|运行中|构建中|部署中|加载中|正在|尚未|还没|未完成|请稍[候后等]"
    r"|実行中|処理中|待機中|保留中|進行中|準備中|[ァ-ヶー]中(?:です|$)|未完了|まだ|完了していません|お待ちください"
)
_PENDING_STATES = lazy_compile(
    rf"(?:{_UNFINISHED}|building|deploying|creating|updating|uploading|downloading|submitted|accepted|started|active)"
    rf"|[^\n]{{0,8}}(?:{_UNFINISHED_CJK})",
    re.IGNORECASE,
)
_PENDING_WORDS = lazy_compile(
    r"\b(?P<negated>(?:no|not|nothing|none|never|0|isn.t|aren.t|kein|keine|aucun|aucune)\s(?:\w{1,20}\s){0,2})?"
    rf"(?:{_UNFINISHED})\b|{_UNFINISHED_CJK}",
    re.IGNORECASE,
)
_PROGRESS = lazy_compile(
    r"(?<![\d.,])\d{1,2}(?:\.\d{1,3})?\s?%\s?(?:complete|completed|done|finished|ready|uploaded|downloaded"
    r"|fertig|abgeschlossen|terminé|完了|完成)"
    r"|\b\w{2,20}ing:? ?\d{1,2}(?:\.\d{1,3})?\s?%"
    r"|\b(?:progress|fortschritt|progression|avancement|进度|進捗)[\"'* \t]{0,4}[:=]?[\"'* \t]{0,4}"
    r"\d{1,2}(?:\.\d{1,3})?\s?%",
    re.IGNORECASE,
)
_PARTS = lazy_compile(
    r"(?<![\d/.])(\d{1,6})\s?(?:/|of|von|sur)\s?(\d{1,6})(?![\d/.])"
    r"(?=(?:\s\w{1,20}){0,3}\s(?:ready|complete|completed|done|finished|available|fertig)\b)",
    re.IGNORECASE,
)
_PARTICIPLE = lazy_compile(r"\w{2,20}ing\b[^\n]{0,200}(?:…|\.\.\.)\Z", re.IGNORECASE)  # Building web …
_STATE_KEYS = frozenset(["state", "status", "phase", "job_status", "job_state", "task_status", "progress", "condition"])
_DONE_KEYS = frozenset(["complete", "completed", "done", "finished", "ready"])
_PERCENT_KEYS = frozenset(["percent", "percent_complete", "percentage", "progress"])
_STATE_LINE = lazy_compile(
    r"^[ \t\"'*{,-]{0,8}(?:state|status|phase|progress|zustand|état|estado|状态|状態|ステータス)[\"'* \t]{0,8}[:=：]"
    rf"[\"'* \t]{{0,8}}(?:{_PENDING_STATES.pattern})(?!\w)",
    re.IGNORECASE | re.MULTILINE,
)
_STATE_FIELD = lazy_compile(rf"\"(?:state|status|phase)\"\s?:\s?\"(?:{_PENDING_STATES.pattern})\"", re.IGNORECASE)
_CELLS = lazy_compile(r"[ \t]{2,32}|[ \t]?[|│\t][ \t]?")
_STATE_CELL = lazy_compile(
    rf"(?:{_PENDING_STATES.pattern}|terminating|init:\d{{1,3}}/\d{{1,3}}|up [^()\n]{{1,30}} \(health: starting\))",
    re.IGNORECASE,
)
_LAST_WORD = lazy_compile(
    rf"(?:[:–—→] ?|-> ?| - |\b(?:is|are|ist|est) |[\[(])[\"'*]?(?:{_PENDING_STATES.pattern})[\"'*)\].!…]{{0,4}}\Z",
    re.IGNORECASE,
)
_NONE_OF = lazy_compile(r"\b(?:no|none|nothing|never|not|keine?|aucune?)\b", re.IGNORECASE)
_READY = lazy_compile(r"(?<![\d/])(\d{1,4})/\1(?![\d/])")  # 3/3
_EXAMINED_CHARS = 4_000
_LINE_CHARS = 200
_LAST_WORD_CHARS = 64
_STATUS_JSON_CHARS = 16_384


def reports_pending(text: str) -> bool:
    """Return whether a result reports that something is pending, queued or running, so that polling makes sense.

    In JSON the value of a status field decides (`state`, `status`, `phase`, …, up to two levels deep), a percentage
    below 100 and `"done": false`. In text of at most 300 characters it is a word or phrase that is not negated
    ("running", but not "no jobs running"). In the first 4,000 characters of a longer text only the usual places of a
    status count, so that a document may mention pending things: a line like `status: queued`, a cell of a table, the
    end of a line ("web-1: pending"), a percentage or a part of what is done ("3 of 5 done"), and a last line that ends
    like "Waiting for web ...".
    """
    code = exit_code(text)
    text = (text if code is None else text[: text.rindex("[exit code")]).strip()
    if text[:1] in ("{", "[") and len(text) <= _STATUS_JSON_CHARS:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        states = list(_states(value, depth=2))
        if states or _unfinished(value):
            return _unfinished(value) or any(_PENDING_STATES.fullmatch(state.strip()) for state in states)
    last_line = text[-_LINE_CHARS:].rpartition("\n")[2]
    text = text[:_EXAMINED_CHARS]
    if _PROGRESS.search(text) or _PARTICIPLE.search(last_line):
        return True
    if any(int(found[1]) < int(found[2]) for found in _PARTS.finditer(text)):
        return True
    if len(text) <= SHORT_CHARS:
        states = {found[0].lower() for found in _PENDING_WORDS.finditer(text) if found["negated"] is None}
        if states - _states_when_ready(text):
            return True
    return _pending_places(text)


def _states_when_ready(text: str) -> set[str]:
    """Return the states that do not mean waiting in `text`: a pod that is 3/3 "Running" is ready."""
    return set() if _READY.search(text) is None else {"running"}


def _pending_places(text: str) -> bool:
    """Return whether `text` has a pending state in a place that is usual for one."""
    if _STATE_LINE.search(text) or _STATE_FIELD.search(text):
        return True
    return any(_is_pending_row(line) for line in text.split("\n") if len(line) <= _LINE_CHARS)


def _is_pending_row(line: str) -> bool:
    """Return whether one of three or more cells of `line` is a pending state, or its end, as in "web: pending"."""
    cells = _CELLS.split(line.strip(" \t|│"))
    if len(cells) > 2:
        states = {cell.lower() for cell in cells if _STATE_CELL.fullmatch(cell)}
        return bool(states - _states_when_ready(line))
    line = line.rstrip()
    last_word = _LAST_WORD.search(line) if len(line) <= _LAST_WORD_CHARS else None
    return last_word is not None and _NONE_OF.search(line[: last_word.start()]) is None


def _unfinished(value: Any) -> bool:
    """Return whether a JSON object has `"done": false`, or a percentage below 100, as a field of its own."""
    if not isinstance(value, dict):
        return False
    return any(
        (item is False and key.lower() in _DONE_KEYS)
        or (
            isinstance(item, int | float)
            and not isinstance(item, bool)
            and key.lower() in _PERCENT_KEYS
            and 0 <= item < 100
            and item != 1  # as a fraction it is the whole
        )
        for key, item in cast("dict[str, Any]", value).items()
    )


def _states(value: Any, *, depth: int) -> Iterator[str]:
    """Yield the strings of status fields in a JSON value."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _states(item, depth=depth)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key.lower() in _STATE_KEYS and isinstance(item, str):
                yield item
            elif depth:
                yield from _states(item, depth=depth - 1)


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
    if len(text) > SHORT_CHARS or _NEGATED.search(text) is None:
        return text
    return _COUNTS.sub("0", text)


def mask_echo(text: str, echo: Sequence[str]) -> str:
    """Return a short `text` with the strings of `echo` replaced by one placeholder; a long text as it is."""
    if len(text) > _ECHOED_CHARS:
        return text
    for string in echo:
        text = text.replace(string, "…")
    return text
