"""What an event means to a person who watches: one short line, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.tools.visible import visible

__all__ = ["Note", "Tone", "describe", "describe_question"]

Tone = Literal["quiet", "call", "good", "bad", "warning", "question", "added", "removed"]


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
    name, arguments = visible(data["name"]), data["arguments"]
    if isinstance(arguments, str):
        return Note(f"→ {name} {one_line(arguments)}", "call")
    return Note(" ".join(("→", name, *(f"{visible(key)}={_short(value)}" for key, value in arguments.items()))), "call")


def one_line(text: str, width: int = 100) -> str:
    """The beginning of `text` on one visible line of at most `width` characters."""
    line = visible(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width and len(text) <= 4 * width else line[: width - 1] + "…"


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value), 60)


def _result(data: Mapping[str, Any]) -> Note:
    outcome = data.get("outcome", "error" if data["is_error"] else "ok")
    lines = data["result"].count("\n") + 1
    size = f"{lines} lines" if lines > 1 else f"{len(data['result'])} characters"
    took = f", {data['duration_ms']:.0f} ms" if "duration_ms" in data else ""
    head = f"← {visible(data['name'])} {outcome}{took}, {size}: {one_line(data['result'], 80)}"
    return Note(head, "bad" if data["is_error"] else "good")


def _progress(data: Mapping[str, Any]) -> Note | None:
    if data.get("output"):  # shown as it comes
        return None
    return Note(f"  … {visible(data['name'])} is still running ({data['elapsed_seconds']:.0f} s)")


def _decision(data: Mapping[str, Any]) -> Note:
    word = "allowed" if data["approved"] else "denied"
    by = {"user": "you", "policy": "policy", "timeout": "time-out", "stop": "stop", "restart": "restart"}[data["by"]]
    reason = f": {visible(data['reason'])}" if data.get("reason") else ""
    return Note(f"  {word} by {by}{reason}", "good" if data["approved"] else "warning")


def _stall(data: Mapping[str, Any]) -> Note:
    text = f"… {data['phase']}: {data['elapsed_seconds']:.0f} of {data['limit_seconds']:g} s, {data['action']}"
    return Note(text, "warning" if data["action"] == "failed" else "quiet")


def _error(data: Mapping[str, Any]) -> Note:
    word, tone = ("error", "bad") if data["fatal"] else ("warning", "warning")
    return Note(f"{word} ({data['code']}): {visible(data['text'])}", tone)


def _final(data: Mapping[str, Any]) -> Note | None:
    return None if data["reason"] == "answer" else Note(f"the turn ended with reason {data['reason']!r}", "warning")


_LINES: Mapping[EventType, Callable[[Mapping[str, Any]], Note | None]] = {
    EventType.TOKEN: _waiting,
    EventType.TOOL_CALL: _call,
    EventType.TOOL_PROGRESS: _progress,
    EventType.TOOL_RESULT: _result,
    EventType.CONFIRM_RESPONSE: _decision,
    EventType.QUESTION_ASKED: lambda data: Note(f"? {visible(data['text'])}", "question"),
    EventType.COMPACTION: lambda data: Note(f"… {data['compacted_count']} earlier messages are now a summary"),
    EventType.STALL: _stall,
    EventType.ERROR: _error,
    EventType.FINAL: _final,
}


def describe_question(data: Mapping[str, Any]) -> Iterator[Note]:
    """A `confirm_required` payload in full: every character that will run or be written is on the screen."""
    context = data["context"]
    yield Note(f"? {visible(data['question'])}", "question")
    yield Note(f"  tool     {visible(context['tool'])} ({context['risk']})")
    for reason in context["reasons"]:
        yield Note(f"  reason   {visible(reason)}")
    if "path" in context:
        yield Note(f"  path     {visible(context['path'])}")
    if "command" in context:
        command = context["command"]
        yield Note(f"  command  {len(command)} characters, {command.count(chr(10)) + 1} lines")
        yield from _block(command)
    yield from _other_arguments(context)
    if "diff" in context:
        yield Note("  change")
        yield from (_diff_line(line) for line in context["diff"].split("\n"))


def _other_arguments(context: Mapping[str, Any]) -> Iterator[Note]:
    shown = {context.get("command"), context.get("path")}
    for name, value in context["arguments"].items():
        if isinstance(value, str) and value in shown:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        if "\n" not in text and len(text) <= 100:
            yield Note(f"  {visible(name):<8} {visible(text)}")
        elif "diff" in context and isinstance(value, str):
            yield Note(f"  {visible(name):<8} {len(value)} characters, shown as a change below")
        else:
            yield Note(f"  {visible(name):<8} {len(text)} characters")
            yield from _block(text)


def _block(text: str) -> Iterator[Note]:
    return (Note(f"    | {visible(line)}", "call") for line in text.split("\n"))


def _diff_line(line: str) -> Note:
    tone: Tone = "added" if line.startswith("+") else "removed" if line.startswith("-") else "quiet"
    return Note(f"    {visible(line)}", tone)
