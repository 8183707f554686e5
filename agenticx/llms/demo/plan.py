"""The grammar of the demo model: a request in plain words becomes a list of planned calls.

Only the first 4,000 characters of a request are searched for sentences. The rest is used only as part of a text to
write, note or say, or of a command, that extends to the end of the request; otherwise it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agenticx.llms.demo.clauses import PlannedCall, compile_clause, unquoted
from agenticx.llms.demo.page_requests import PAGE_CLAUSES, TEXT_CLAUSE

__all__ = ["HANDOFF", "Plan", "PlannedCall", "make_plan"]

HANDOFF = "handoff_to_"
"""Before the name of an agent in the tool of a planned handoff, whose only argument is the `reason`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parsed form of a request; `text` is the operand of a reply without calls (`count`, `say`, `other`).

    `heard` is the plan for a speech that asks for nothing, with the task in `text`.
    """

    calls: tuple[PlannedCall, ...] = ()
    thinking_topic: str | None = None
    kind: Literal["calls", "help", "count", "say", "thought", "heard", "other"] = "other"
    text: str = ""


@dataclass(frozen=True, slots=True)
class _ThinkingClause:
    topic: str


_BuildClause = Callable[[re.Match[str]], PlannedCall | _ThinkingClause | None]
_BuildToEnd = Callable[[re.Match[str], str], PlannedCall]


def make_plan(text: str) -> Plan:
    """Parse a request. Clauses are separated by "then", "and", ";" or a new line before the next verb.

    >>> [planned.tool for planned in make_plan("list the files and then write a.txt with the text hi").calls]
    ['list_files', 'file_write']
    """
    calls: dict[str, PlannedCall] = {}  # by tool and arguments, so that no call is planned twice
    thinking_topic: str | None = None
    rest, tail = text[:_SEARCHED_CHARS], text[_SEARCHED_CHARS:]
    while rest:
        parsed, rest = _first_clause(rest, tail)
        if isinstance(parsed, PlannedCall):
            calls.setdefault(f"{parsed.tool} {parsed.arguments!r} {parsed.page!r}", parsed)
        elif parsed is not None:
            thinking_topic = parsed.topic
    if calls:
        if any(planned.tool == "spawn_subagent" for planned in calls.values()):
            calls["wait"] = PlannedCall("wait_subagents", {}, "wait for the sub-agents")
        return Plan(tuple(calls.values()), thinking_topic, "calls")
    if thinking_topic is not None:
        return Plan(thinking_topic=thinking_topic, kind="thought")
    return _plan_without_calls(text)


def _first_clause(text: str, tail: str) -> tuple[PlannedCall | _ThinkingClause | None, str]:
    """Return the parsed first clause of `text`, None if unknown, and the rest; `tail` follows and is not searched."""
    text = _POLITE.sub("", text, count=1)
    for pattern, build in _CLAUSES_TO_END:
        if found := pattern.fullmatch(text):
            return build(found, tail), ""
    separator = (_COMMAND_SEPARATOR if _RUN.match(text) else _SEPARATOR).search(text)
    clause, rest = (text[: separator.start()], text[separator.end() :]) if separator else (text, "")
    if found := _RUN.fullmatch(clause.strip() if separator else (clause + tail).strip()):
        return _run(found), rest  # a command keeps its full stop and its semicolons
    for pattern, build in _CLAUSES:
        if (found := pattern.fullmatch(_FULL_STOP.sub("", clause.strip()))) and (built := build(found)):
            return built, rest
    return None, rest


def _plan_without_calls(text: str) -> Plan:
    request = text.strip()
    if found := _COUNT.match(request):
        return Plan(kind="count", text=found["limit"])
    if found := _SAY.match(request):
        return Plan(kind="say", text=found["words"].strip())
    return Plan(kind="help") if _HELP.match(request) else Plan(kind="other", text=request)


# --- clauses -------------------------------------------------------------------------------------------------------


def _write(found: re.Match[str], tail: str) -> PlannedCall:
    path = unquoted(_FILE_CALLED.sub("", found["path"]))
    return PlannedCall("file_write", {"path": path, "content": found["content"] + tail}, f"write {path}")


def _remember(found: re.Match[str], tail: str) -> PlannedCall:
    key, text = found["key"].strip(), (found["text"] + tail).strip()
    return PlannedCall("scratchpad_write", {"key": key, "content": text}, f"note that under {key!r}")


def _todo(found: re.Match[str], _tail: str) -> PlannedCall:
    texts = [item.strip(" .") for item in re.split(r",\s*(?:and\s+)?|;\s*|\n+(?:[-*]\s*)?", found["items"])]
    items = [{"text": item, "status": "pending"} for item in texts if item]
    return PlannedCall("todo_write", {"todos": items}, f"put {len(items)} items on the to-do list")


def _ask(found: re.Match[str], tail: str) -> PlannedCall:
    """Plan a question; what stands in brackets at its end are the options."""
    text, arguments = (found["question"] + tail).strip(), dict[str, Any]()
    if text.endswith(")") and (bracket := text.rfind("(")) > 0:
        options = (option.strip() for option in re.split(r",|\bor\b", text[bracket + 1 : -1]))
        text, arguments["options"] = text[:bracket].rstrip(), [option for option in options if option]
    return PlannedCall("ask_user", {"text": text, **arguments}, "ask you")


def _hand_over(found: re.Match[str], tail: str) -> PlannedCall:
    reason = _BEFORE_REASON.sub("", found["rest"] + tail, count=1).strip()
    return PlannedCall(f"{HANDOFF}{found['name']}", {"reason": reason}, f"hand over to {found['name']}")


def _spawn(found: re.Match[str]) -> PlannedCall:
    verb, rest = found["verb"], found["rest"]
    if found["person"].casefold() != "to":  # "that searches" becomes "search"
        verb = verb.removesuffix("es" if verb.endswith("ches") else "s")
    return PlannedCall("spawn_subagent", {"task": (verb + rest).strip()}, "start a sub-agent")


def _list(found: re.Match[str]) -> PlannedCall:
    path = found["path"]
    if path is None:
        return PlannedCall("list_files", {}, "list the files")
    return PlannedCall("list_files", {"path": unquoted(path)}, f"list the files in {unquoted(path)}")


def _search(found: re.Match[str]) -> PlannedCall:
    pattern = unquoted(found["pattern"])
    in_path = {} if found["path"] is None else {"path": unquoted(found["path"])}
    return PlannedCall("file_search", {"pattern": pattern, **in_path, "literal": True}, f"search for {pattern!r}")


def _edit(found: re.Match[str]) -> PlannedCall:
    path = unquoted(found["path"])
    old, new = unquoted(found["old"]), unquoted(found["new"])
    return PlannedCall("file_edit", {"path": path, "old_text": old, "new_text": new}, f"edit {path}")


def _read(found: re.Match[str]) -> PlannedCall:
    path = unquoted(found["named"] or _FILE_CALLED.sub("", found["path"]))
    return PlannedCall("file_read", {"path": path}, f"read {path}")


def _read_named(found: re.Match[str]) -> PlannedCall:
    path = unquoted(found["named"] or found["other"])
    return PlannedCall("file_read", {"path": path}, f"read {path}")


def _run(found: re.Match[str]) -> PlannedCall:
    command = found["command"].strip()
    if len(command) > 1 and command[0] == command[-1] == "`":
        command = command[1:-1]
    return PlannedCall("bash_exec", {"command": command}, f"run `{command}`")


def _recall(found: re.Match[str]) -> PlannedCall:
    key = found["key"]
    if key is None:
        return PlannedCall("scratchpad_read", {}, "look at my notes")
    return PlannedCall("scratchpad_read", {"key": unquoted(key)}, f"look up {unquoted(key)!r}")


def _think(found: re.Match[str]) -> _ThinkingClause:
    return _ThinkingClause((found["topic"] or "").strip())


_SEARCHED_CHARS = 4_000


# White space is matched possessively (`++`) and only from its first character (`(?<!\s)`), so that a long run of it
# takes linear time.
_VERB = (
    r"(?=(?:(?:please|also|finally)\s++)*(?:list|show|read|open|cat|search|find|grep|write|create|edit|replace|change|"
    r"run|execute|todo|plan|remember|note|recall|think|start|hand|transfer|save|add\s++a\s|(?:make|turn|paint)\s++the\s|"
    r"(?:make|build|design)\s++(?:me\s++)?an?\s|summari[sz]e\s++(?!(?:it|them|this|that)\b)|"
    r"what(?:'s|\s++is)\s++in\s)\b)"
)
_POLITE = compile_clause(
    r"\s*+(?:(?:please|now|first|next|then|also|finally|and|hi|hello|hey|(?:can|could|would|will) you|"
    r"option\s\d{1,6}(?=\s*+:))[\s,:!]++)*"
)
_FILE_CALLED = compile_clause(r"^(?:the |a |an )?(?:new )?(?:text )?file (?:called |named )?(?=\S)")
_BEFORE_REASON = compile_clause(r"[\s,;:.]*+(?:and\b\s*+)?(?:then\b\s*+)?(?:because\b\s*+)?")
_FULL_STOP = compile_clause(r"(?<=[\w\"'`])[.!?]+$")
_COMMAND_SEPARATOR = compile_clause(r"(?<!\s)(?:\s*+,)?\s++(?:(?<=,\s)|and\s++)then\s++" + _VERB)
_SEPARATOR = compile_clause(
    r"(?:(?<!\s)(?:(?:\s*+[,;.])?\s++(?:and\s++)?then\s++|\s*+;\s*+|(?=[^\S\n]*+\n)\s++)|"
    r"(?:[,.]|(?<!\s))\s++and\s++|[.?!]\s++)" + _VERB
)
_NAMED_FILE = (
    r"(?:(?:the|my)\s++)?(?:(?:text\s++)?file\s++(?:(?:called|named)\s++)?)?"
    r"(?P<named>\"[^\"]+\"|'[^']+'|`[^`]+`|\S+\.\w+)"
)
_RUN = compile_clause(r"(?:run|execute)\s+(?:the\s+command\s+)?(?P<command>.+)")
_CLAUSES_TO_END: tuple[tuple[re.Pattern[str], _BuildToEnd], ...] = (
    (
        compile_clause(
            r"(?:write|create|save)\s++(?P<path>[^\n]+?)(?<!\s)\s++with\s++(?:the\s++)?(?:text|content)(?::\s|\s)"
            r"(?P<content>.*)"
        ),
        _write,
    ),
    (compile_clause(r"(?:remember|note)\s++(?P<key>[^:\n]{1,80}):\s*(?P<text>.+)"), _remember),
    (
        compile_clause(
            r"(?:(?:make\s+)?(?:a\s+)?(?:to-?\s?do(?:\s+list)?|plan)(?:\s+with)?|plan\s+to)\s*:?\s+(?P<items>.+)"
        ),
        _todo,
    ),
    (compile_clause(r"ask\s++me(?::|\s)\s*+(?P<question>\S.*)"), _ask),
    (
        compile_clause(
            r"(?:hand(?:\s++(?:it|this|me))?\s++over|transfer(?:\s++(?:it|this|me))?)\s++to\s++(?:the\s++|(?!the\s))"
            r"(?P<name>\w{1,64}+)(?P<rest>.*)"
        ),
        _hand_over,
    ),
)
_CLAUSES: tuple[tuple[re.Pattern[str], _BuildClause], ...] = (
    *PAGE_CLAUSES,
    (
        compile_clause(
            r"(?:(?:list|show)(?:\s+me)?\s+(?:all\s+)?(?:of\s+)?(?:the\s+|my\s+)?(?:files|folder|directory|workspace)|ls|"
            r"(?:what|which)\s+files\s+(?:are(?:\s+there)?|do\s+(?:you|i|we)\s+(?:have|see)))(?:\s+here)?"
            r"(?:\s+(?:in|of|under)\s+(?:the\s+|this\s+)?(?:workspace|(?:current\s+)?(?:folder|directory)(?!\s+\S)|"
            r"(?:(?:folder|directory)\s+)?(?P<path>\S+)))?"
        ),
        _list,
    ),
    (
        compile_clause(
            r"(?:(?:(?:tell|show)\s++me\s++)?what(?:'s|\s++is|\s++do\s++you\s++see)\s++(?:here|in)|"
            r"look\s++(?:at|in|into|through)|explain|describe|summari[sz]e)"
            r"(?:(?<=here)|\s++(?:the|this|my)\s++(?:current\s++)?(?:folder|directory|workspace|project)(?:\s.*)?)"
        ),
        lambda _found: PlannedCall("list_files", {}, "list the files"),
    ),
    (
        compile_clause(
            r"(?:(?:summari[sz]e|explain|describe|look\s++at)\s++" + _NAMED_FILE + r"(?:,?\s.*)?|"
            r"what\s++(?:is|does)\s++" + _NAMED_FILE.replace("named", "other") + r"\s++(?:about|say|contain|have)\b.*)"
        ),
        _read_named,
    ),
    (
        compile_clause(
            r"(?:edit|in)\s++(?P<path>\S+?)(?:\s*+[:,])?\s++(?:and\s++)?(?:replace|change)\s++"
            r"(?P<old>.+?)(?<!\s)\s++(?:with|to|by)\s++(?P<new>.*)"
        ),
        _edit,
    ),
    (
        compile_clause(
            r"(?:edit|replace|change)\s++(?P<old>.+?)(?<!\s)\s++(?:with|to|by)\s++(?P<new>.*)(?<!\s)\s++"
            r"in\s++(?:the\s++file\s++)?(?P<path>\S+)"
        ),
        _edit,
    ),
    (
        compile_clause(
            r"(?:search|find|grep|look)(?:\s+(?:through\s+)?(?:the\s+|all\s+)?files)?(?:\s+for)?\s+(?P<pattern>.+?)"
            r"(?:(?<!\s)\s++in\s++(?:(?:(?:the|all)\s++)*(?:files|workspace|folder)|(?P<path>\S+)))?"
        ),
        _search,
    ),
    (
        compile_clause(
            r"(?:read|open|cat|show(?:\s+me)?|what\s+is\s+in|what's\s+in)\s+"
            r"(?:" + _NAMED_FILE + r"(?:\s.*)?|(?P<path>.+))"
        ),
        _read,
    ),
    (
        compile_clause(r"(?:recall|what\s+do\s+you\s+remember|read\s+(?:the\s+)?notes?)(?:\s+(?:about\s+)?(?P<key>.+))?"),
        _recall,
    ),
    (
        compile_clause(
            r"(?:start|spawn)\s+(?:an?|another)\s+sub-?agent\s+(?P<person>that|which|who|to)\s+(?P<verb>\w+)(?P<rest>.*)"
        ),
        _spawn,
    ),
    TEXT_CLAUSE,
    (compile_clause(r"think(?:\s+(?:hard\s+|deeply\s+)?(?:about\s+|of\s+)?(?P<topic>.+))?"), _think),
)  # fmt: skip
_HELP = compile_clause(
    r"(?:$|h(?:i|ello|ey)\b|good\s+(?:morning|day|evening)|help\b|\?|who\s+are\s+you|what\s+(?:can|do)\s+you)"
)
_COUNT = compile_clause(r"(?:please\s+)?count\s+(?:up\s+)?to\s+(?P<limit>\d{1,5})\b")
_SAY = compile_clause(r"(?:please\s+)?(?:say|echo|repeat)[:\s]\s*(?P<words>.+)")
