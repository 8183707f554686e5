"""What an event means to a person who watches: one short line, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.runtime.question import question_lines, size_of
from agenticx.tools.visible import visible, visible_line

__all__ = ["Note", "Tone", "describe", "describe_question"]

Tone = Literal["quiet", "call", "good", "bad", "warning", "question", "added", "removed"]

_NAME_CHARS = 100
_CALL_CHARS = 400
_SENTENCE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Note:
    """One line (or a few, for a multi-line text) and how it is meant; a terminal colours by `tone`."""

    text: str
    tone: Tone = "quiet"


def describe(event: RuntimeEvent) -> Note | None:
    """The line for an event; None for what is shown otherwise (text, questions) or not at all."""
    line = _LINES.get(event.type)
    return None if line is None else line(event.data)


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
    outcome = data.get("outcome", "error" if data["is_error"] else "ok")
    took = f", {data['duration_ms']:.0f} ms" if "duration_ms" in data else ""
    name, text = visible_line(data["name"], _NAME_CHARS), data["result"]
    lines = text.count("\n") + 1
    size = f"{lines} lines" if lines > 1 else size_of(text)
    head = f"← {name} {outcome}{took}, {size}: {one_line(text, 80)}"
    return Note(head, "bad" if data["is_error"] else "good")


def _progress(data: Mapping[str, Any]) -> Note | None:
    if data.get("output"):  # shown as it comes
        return None
    name = visible_line(data["name"], _NAME_CHARS)
    return Note(f"  … {name} is still running ({data['elapsed_seconds']:.0f} s)")


def _decision(data: Mapping[str, Any]) -> Note:
    word = "allowed" if data["approved"] else "denied"
    by = {"user": "you", "policy": "policy", "timeout": "time-out", "stop": "stop", "restart": "restart"}[data["by"]]
    reason = f": {visible_line(data['reason'])}" if data.get("reason") else ""
    return Note(f"  {word} by {by}{reason}", "good" if data["approved"] else "warning")


def _stall(data: Mapping[str, Any]) -> Note:
    text = f"… {data['phase']}: {data['elapsed_seconds']:.0f} of {data['limit_seconds']:g} s, {data['action']}"
    return Note(text, "warning" if data["action"] == "failed" else "quiet")


def _error(data: Mapping[str, Any]) -> Note:
    word, tone = ("error", "bad") if data["fatal"] else ("warning", "warning")
    return Note(f"{word} ({data['code']}): {visible_line(data['text'], _SENTENCE_CHARS)}", tone)


def _asked(data: Mapping[str, Any]) -> Note:
    return Note(f"? {visible_line(data['text'], _SENTENCE_CHARS)}", "question")


def _final(data: Mapping[str, Any]) -> Note | None:
    return None if data["reason"] == "answer" else Note(f"the turn ended with reason {data['reason']!r}", "warning")


_LINES: Mapping[EventType, Callable[[Mapping[str, Any]], Note | None]] = {
    EventType.TOKEN: _waiting,
    EventType.TOOL_CALL: _call,
    EventType.TOOL_PROGRESS: _progress,
    EventType.TOOL_RESULT: _result,
    EventType.CONFIRM_RESPONSE: _decision,
    EventType.QUESTION_ASKED: _asked,
    EventType.COMPACTION: lambda data: Note(f"… {data['compacted_count']} earlier messages are now a summary"),
    EventType.STALL: _stall,
    EventType.ERROR: _error,
    EventType.FINAL: _final,
}


def describe_question(data: Mapping[str, Any]) -> Iterator[Note]:
    """A `confirm_required` payload as every terminal of ours shows it."""
    return (Note(line.text, line.tone) for line in question_lines(data["question"], data["context"]))
