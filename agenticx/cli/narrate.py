"""What an event means to a person who watches: one short line, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agenticx.runtime.events import EventType
from agenticx.runtime.question import describe_size, question_lines
from agenticx.tools.visible import visible, visible_line

__all__ = [
    "ALLOWED_BY_YES",
    "NOBODY_TO_ASK",
    "OF_ANOTHER_SHAPE",
    "Note",
    "Told",
    "Tone",
    "describe",
    "describe_question",
    "one_line",
    "said",
    "unreadable",
]

OF_ANOTHER_SHAPE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What telling of a payload raises that is of another release, or of nobody's."""

ALLOWED_BY_YES = "allowed by --yes"
NOBODY_TO_ASK = "there is no terminal to ask at; --yes would allow it"
"""Reasons of answers that a terminal gave without a person; in a server's log they are the user's all the same."""

Tone = Literal["quiet", "call", "good", "bad", "warning", "question", "added", "removed"]

_NAME_CHARS = 100
_CALL_CHARS = 400
_SENTENCE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Note:
    """One line (or a few, for a multi-line text) and how it is meant; a terminal colours by `tone`."""

    text: str
    tone: Tone = "quiet"


class Told(Protocol):
    """What of an event is told."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def terminal(self) -> bool: ...


def describe(event: Told) -> Note | None:
    """The line for an event; None for what is shown otherwise (text, questions) or not at all.

    Raises one of `OF_ANOTHER_SHAPE` for a payload that is so.
    """
    line = _LINES.get(event.type)
    if line is not None:
        return line(event.data)
    return None if event.type in _TYPES else unreadable(event)


def unreadable(event: Told) -> Note:
    """The line for an event that this release does not know, or whose payload it cannot read."""
    return Note(f"· {visible_line(event.type, _NAME_CHARS)} {one_line(json.dumps(event.data), _CALL_CHARS)}")


def said(text: str) -> Note:
    """What the person said, as it stands in a conversation that is read again."""
    return Note(f"› {visible(text)}", "question")


def _waiting(data: Mapping[str, Any]) -> Note | None:
    if not data.get("waiting"):
        return None
    return Note(f"… waiting for the model ({data.get('elapsed_seconds', 0):.0f} s)")


def _call(data: Mapping[str, Any]) -> Note:
    name, arguments = visible_line(data["name"], _NAME_CHARS), data["arguments"]
    if isinstance(arguments, str):
        return Note(f"→ {name} {one_line(arguments)}", "call")
    pairs = (f"{one_line(key, 30)}={_short(value)}" for key, value in arguments.items())
    return Note(f"→ {one_line(' '.join((name, *pairs)), _CALL_CHARS)}", "call")


def one_line(text: str, width: int = 100) -> str:
    """The beginning of `text` on one visible line of at most `width` characters."""
    line = visible(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width and len(text) <= 4 * width else line[: width - 1] + "…"


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value), 60)


def _result(data: Mapping[str, Any]) -> Note:
    outcome = visible_line(data.get("outcome", "error" if data["is_error"] else "ok"), _NAME_CHARS)
    took = f", {data['duration_ms']:.0f} ms" if "duration_ms" in data else ""
    name, text = visible_line(data["name"], _NAME_CHARS), data["result"]
    lines = text.count("\n") + 1
    size = f"{lines} lines" if lines > 1 else describe_size(text)
    head = f"← {name} {outcome}{took}, {size}: {one_line(text, 80)}"
    return Note(head, "bad" if data["is_error"] else "good")


def _progress(data: Mapping[str, Any]) -> Note | None:
    if data.get("output"):  # shown as it comes
        return None
    name = visible_line(data["name"], _NAME_CHARS)
    return Note(f"  … {name} is still running ({data['elapsed_seconds']:.0f} s)")


def _decision(data: Mapping[str, Any]) -> Note:
    word = "allowed" if data["approved"] else "denied"
    reason = f": {visible_line(data['reason'])}" if data.get("reason") else ""
    return Note(f"  {word}{_by(data)}{reason}", "good" if data["approved"] else "warning")


def _by(data: Mapping[str, Any]) -> str:
    unasked = _UNASKED.get(data.get("reason", "")) if data["by"] == "user" else None
    return unasked or f" by {_DECIDERS[data['by']]}"


_UNASKED = {ALLOWED_BY_YES: " without asking", NOBODY_TO_ASK: ", as nobody could be asked"}
_DECIDERS = {"user": "you", "policy": "policy", "timeout": "time-out", "stop": "stop", "restart": "restart"}


def _stall(data: Mapping[str, Any]) -> Note:
    missing = _MISSING[data["phase"]]
    match data["action"]:
        case "waiting" if data["phase"] == "tool":
            rest = max(data["limit_seconds"] - data["elapsed_seconds"], 0)
            return Note(f"… not finished yet, asking again in {rest:.0f} s")
        case "retrying" if "reason" in data:
            reason, model = visible_line(data["reason"]), visible_line(data["model"], _NAME_CHARS)
            return Note(f"… {reason}; asking {model}", "warning")
        case "retrying":
            return Note(f"… {missing} after {data['elapsed_seconds']:.0f} s, asking again")
        case "failed":
            return Note(f"… {missing} within {data['limit_seconds']:g} s", "warning")
        case _:
            return Note(f"… {missing} for {data['elapsed_seconds']:.0f} s")


_MISSING = {
    "first_chunk": "no word of the model",
    "heartbeat": "nothing more of the model",
    "hard": "no end of the answer",
    "tool": "no result of the tool",
    "confirm": "no answer to the question",
}


def _error(data: Mapping[str, Any]) -> Note:
    word, tone = ("error", "bad") if data["fatal"] else ("warning", "warning")
    code, text = visible_line(data["code"], _NAME_CHARS), visible_line(data["text"], _SENTENCE_CHARS)
    return Note(f"{word} ({code}): {text}", tone)


def _changed(data: Mapping[str, Any]) -> Note:
    return Note(f"… {one_line(', '.join(f'{name}: {_short(value)}' for name, value in data.items()), _CALL_CHARS)}")


def _asked(data: Mapping[str, Any]) -> Note:
    return Note(f"? {visible_line(data['text'], _SENTENCE_CHARS)}", "question")


def _final(data: Mapping[str, Any]) -> Note | None:
    if data["reason"] == "answer":
        return None
    return Note(f"the turn ended with reason {visible_line(data['reason'], _NAME_CHARS)!r}", "warning")


_TYPES = frozenset(EventType)
_LINES: Mapping[str, Callable[[Mapping[str, Any]], Note | None]] = {
    EventType.TOKEN: _waiting,
    EventType.TOOL_CALL: _call,
    EventType.TOOL_PROGRESS: _progress,
    EventType.TOOL_RESULT: _result,
    EventType.CONFIRM_RESPONSE: _decision,
    EventType.QUESTION_ASKED: _asked,
    EventType.STEERED: lambda data: said(data["text"]),
    EventType.HANDED_BACK: lambda data: Note(f"given back: {visible(data['input'])}", "warning"),
    EventType.SESSION_CHANGED: _changed,
    EventType.COMPACTION: lambda data: Note(f"… {data['compacted_count']:d} earlier messages are now a summary"),
    EventType.STALL: _stall,
    EventType.ERROR: _error,
    EventType.FINAL: _final,
}


def describe_question(data: Mapping[str, Any]) -> Iterator[Note]:
    """A `confirm_required` payload as every terminal of ours shows it."""
    return (Note(line.text, line.tone) for line in question_lines(data["question"], data["context"]))
