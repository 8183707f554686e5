"""What the demo model understands: a request in plain words becomes the calls it will make, in order.

Only the first 4,000 characters of a request are searched for sentences. What stands behind them belongs to a text to be
written, noted or said, or to a command, that goes on to the end; anything else there is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Plan", "Wish", "plan"]


@dataclass(frozen=True, slots=True)
class Wish:
    """One call: the tool, exactly its arguments, and how the demo says what it is about to do."""

    tool: str
    arguments: Mapping[str, Any]
    intent: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything understood in a request; `words` is what is left to do with words alone."""

    wishes: tuple[Wish, ...] = ()
    thought: str | None = None
    kind: Literal["calls", "help", "count", "say", "thought", "other"] = "other"
    words: str = ""


@dataclass(frozen=True, slots=True)
class _Thought:
    topic: str


_Clause = Callable[[re.Match[str]], Wish | _Thought]
_ToTheEnd = Callable[[re.Match[str], str], Wish]


def plan(text: str) -> Plan:
    """What `text` asks for. Clauses are joined by "then", "and", ";" or a new line before the next verb.

    >>> [wish.tool for wish in plan("list the files and then write a.txt with the text hi").wishes]
    ['list_files', 'file_write']
    """
    wishes: dict[str, Wish] = {}  # by what they do: the same thing is never done twice
    thought: str | None = None
    rest, behind = text[:_SEARCHED_CHARS], text[_SEARCHED_CHARS:]
    while rest:
        understood, rest = _first_clause(rest, behind)
        if isinstance(understood, Wish):
            wishes.setdefault(f"{understood.tool} {understood.arguments!r}", understood)
        elif understood is not None:
            thought = understood.topic
    if wishes:
        return Plan(tuple(wishes.values()), thought, "calls")
    return Plan(thought=thought, kind="thought") if thought is not None else _words(text)


def _first_clause(text: str, behind: str) -> tuple[Wish | _Thought | None, str]:
    """What the first clause of `text` asks for, if it is understood, and the rest of it; `behind` is not searched."""
    text = _POLITE.sub("", text, count=1)
    for pattern, build in _TO_THE_END:
        if found := pattern.fullmatch(text):
            return build(found, behind), ""
    joint = (_AND_THEN if _RUN.match(text) else _JOINT).search(text)
    clause, rest = (text[: joint.start()], text[joint.end() :]) if joint else (text, "")
    if found := _RUN.fullmatch(clause.strip() if joint else (clause + behind).strip()):
        return _run(found), rest  # a command keeps its full stop and its semicolons
    for pattern, build in _CLAUSES:
        if found := pattern.fullmatch(_FULL_STOP.sub("", clause.strip())):
            return build(found), rest
    return None, rest


def _words(text: str) -> Plan:
    said = text.strip()
    if found := _COUNT.match(said):
        return Plan(kind="count", words=found["limit"])
    if found := _SAY.match(said):
        return Plan(kind="say", words=found["words"].strip())
    return Plan(kind="help") if _HELP.match(said) else Plan(kind="other", words=said)


# --- clauses -------------------------------------------------------------------------------------------------------


def _write(found: re.Match[str], behind: str) -> Wish:
    path = _unquoted(_FILE_CALLED.sub("", found["path"]))
    return Wish("file_write", {"path": path, "content": found["content"] + behind}, f"write {path}")


def _remember(found: re.Match[str], behind: str) -> Wish:
    key, text = found["key"].strip(), (found["text"] + behind).strip()
    return Wish("scratchpad_write", {"key": key, "content": text}, f"note that under {key!r}")


def _todo(found: re.Match[str], _behind: str) -> Wish:
    texts = [item.strip(" .") for item in re.split(r",\s*(?:and\s+)?|;\s*|\n+(?:[-*]\s*)?", found["items"])]
    rows = [{"text": item, "status": "pending"} for item in texts if item]
    return Wish("todo_write", {"todos": rows}, f"put {len(rows)} items on the to-do list")


def _list(found: re.Match[str]) -> Wish:
    path = found["path"]
    if path is None:
        return Wish("list_files", {}, "list the files")
    return Wish("list_files", {"path": _unquoted(path)}, f"list the files in {_unquoted(path)}")


def _search(found: re.Match[str]) -> Wish:
    pattern = _unquoted(found["pattern"])
    where = {} if found["path"] is None else {"path": _unquoted(found["path"])}
    return Wish("file_search", {"pattern": pattern, **where, "literal": True}, f"search for {pattern!r}")


def _edit(found: re.Match[str]) -> Wish:
    path = _unquoted(found["path"])
    old, new = _unquoted(found["old"]), _unquoted(found["new"])
    return Wish("file_edit", {"path": path, "old_text": old, "new_text": new}, f"edit {path}")


def _read(found: re.Match[str]) -> Wish:
    path = _unquoted(found["named"] or _FILE_CALLED.sub("", found["path"]))
    return Wish("file_read", {"path": path}, f"read {path}")


def _run(found: re.Match[str]) -> Wish:
    command = found["command"].strip()
    if len(command) > 1 and command[0] == command[-1] == "`":
        command = command[1:-1]
    return Wish("bash_exec", {"command": command}, f"run `{command}`")


def _recall(found: re.Match[str]) -> Wish:
    key = found["key"]
    if key is None:
        return Wish("scratchpad_read", {}, "look at my notes")
    return Wish("scratchpad_read", {"key": _unquoted(key)}, f"look up {_unquoted(key)!r}")


def _think(found: re.Match[str]) -> _Thought:
    return _Thought((found["topic"] or "").strip())


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")}:
        return text[1:-1]
    return text


_SEARCHED_CHARS = 4_000


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


# Blanks are taken all at once (`++`) and only from their beginning on (`(?<!\s)`): a long run of them is no work.
_VERB = (
    r"(?=(?:(?:please|also|finally)\s++)*+(?:list|show|read|open|cat|search|find|grep|write|create|edit|replace|change|"
    r"run|execute|todo|plan|remember|note|recall|think)\b)"
)
_POLITE = _re(
    r"\s*+(?:(?:please|now|first|next|then|also|finally|and|hi|hello|hey|(?:can|could|would|will) you)[\s,:!]++)*+"
)
_FILE_CALLED = _re(r"^(?:the |a |an )?(?:new )?(?:text )?file (?:called |named )?(?=\S)")
_FULL_STOP = _re(r"(?<=[\w\"'`])[.!?]+$")
_AND_THEN = _re(r"(?<!\s)(?:\s*+,)?+\s++(?:(?<=,\s)|and\s++)then\s++" + _VERB)
_JOINT = _re(
    r"(?:(?<!\s)(?:(?:\s*+[,;.])?+\s++(?:and\s++)?then\s++|\s*+;\s*+|(?=[^\S\n]*+\n)\s++)|"
    r"(?:[,.]|(?<!\s))\s++and\s++|\.\s++)" + _VERB
)
_RUN = _re(r"(?:run|execute)\s+(?:the\s+command\s+)?(?P<command>.+)")
_TO_THE_END: tuple[tuple[re.Pattern[str], _ToTheEnd], ...] = (
    (
        _re(
            r"(?:write|create|save)\s++(?P<path>[^\n]+?)(?<!\s)\s++with\s++(?:the\s++)?(?:text|content)(?::\s|\s)"
            r"(?P<content>.*)"
        ),
        _write,
    ),
    (_re(r"(?:remember|note)\s++(?P<key>[^:\n]{1,80}):\s*(?P<text>.+)"), _remember),
    (_re(r"(?:(?:make\s+)?(?:a\s+)?(?:to-?\s?do(?:\s+list)?|plan)(?:\s+with)?|plan\s+to)\s*:?\s+(?P<items>.+)"), _todo),
)
_CLAUSES: tuple[tuple[re.Pattern[str], _Clause], ...] = (
    (
        _re(
            r"(?:(?:list|show)(?:\s+me)?\s+(?:all\s+)?(?:of\s+)?(?:the\s+|my\s+)?(?:files|folder|directory|workspace)|ls|"
            r"(?:what|which)\s+files\s+(?:are\s+there|do\s+(?:you|i|we)\s+have))(?:\s+here)?"
            r"(?:\s+(?:in|of|under)\s+(?:the\s+|this\s+)?(?:workspace|(?:current\s+)?(?:folder|directory)(?!\s+\S)|"
            r"(?:(?:folder|directory)\s+)?(?P<path>\S+)))?"
        ),
        _list,
    ),
    (
        _re(
            r"(?:edit|in)\s++(?P<path>\S+?)(?:\s*+[:,])?+\s++(?:and\s++)?(?:replace|change)\s++"
            r"(?P<old>.+?)(?<!\s)\s++(?:with|to|by)\s++(?P<new>.*)"
        ),
        _edit,
    ),
    (
        _re(
            r"(?:edit|replace|change)\s++(?P<old>.+?)(?<!\s)\s++(?:with|to|by)\s++(?P<new>.*)(?<!\s)\s++"
            r"in\s++(?:the\s++file\s++)?(?P<path>\S+)"
        ),
        _edit,
    ),
    (
        _re(
            r"(?:search|find|grep|look)(?:\s+(?:through\s+)?(?:the\s+|all\s+)?files)?(?:\s+for)?\s+(?P<pattern>.+?)"
            r"(?:(?<!\s)\s++in\s++(?:(?:(?:the|all)\s++)*+(?:files|workspace|folder)|(?P<path>\S+)))?"
        ),
        _search,
    ),
    (
        _re(
            r"(?:read|open|cat|show(?:\s+me)?|what\s+is\s+in|what's\s+in)\s+"
            r"(?:(?P<named>\"[^\"]+\"|'[^']+'|`[^`]+`|\S+\.\w+)(?:\s.*)?|(?P<path>.+))"
        ),
        _read,
    ),
    (_re(r"(?:recall|what\s+do\s+you\s+remember|read\s+(?:the\s+)?notes?)(?:\s+(?:about\s+)?(?P<key>.+))?"), _recall),
    (_re(r"think(?:\s+(?:hard\s+|deeply\s+)?(?:about\s+|of\s+)?(?P<topic>.+))?"), _think),
)  # fmt: skip
_HELP = _re(r"(?:$|h(?:i|ello|ey)\b|good\s+(?:morning|day|evening)|help\b|\?|who\s+are\s+you|what\s+(?:can|do)\s+you)")
_COUNT = _re(r"(?:please\s+)?count\s+(?:up\s+)?to\s+(?P<limit>\d{1,5})\b")
_SAY = _re(r"(?:please\s+)?(?:say|echo|repeat)[:\s]\s*(?P<words>.+)")
