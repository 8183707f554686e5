"""A question as a person reads it before saying yes: all that will run or be written, and nothing that pretends.

Every field stands on one line of its own and every block behind a margin, so no text of a call can pass for a line of
the question. A text that is too long to be read is cut in the middle, which its line says with its true size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agenticx.tools.visible import visible, visible_line

__all__ = ["QuestionLine", "QuestionTone", "question_lines", "size_of"]

QuestionTone = Literal["quiet", "call", "question", "added", "removed"]

_NAME_CHARS = 100
_SHORT_VALUE_CHARS = 100
_BLOCK_CHARS = 30_000
_SHOWN_REASONS = 20
_SHOWN_ARGUMENTS = 50


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """One line and how it is meant; whoever has colours goes by `tone`."""

    text: str
    tone: QuestionTone = "quiet"


def question_lines(question: str, context: Mapping[str, Any]) -> Iterator[QuestionLine]:
    """The lines of a `confirm_required`: its question and its context (`ConfirmRequest` has both by these names)."""
    yield QuestionLine(f"? {visible_line(question)}", "question")
    if "tool" in context:
        risk = visible_line(context.get("risk", "unknown risk"), _NAME_CHARS)
        yield _field("tool", f"{visible_line(context['tool'], _NAME_CHARS)} ({risk})")
    reasons = list(context.get("reasons", ()))
    for reason in reasons[:_SHOWN_REASONS]:
        yield _field("reason", visible_line(reason))
    if len(reasons) > _SHOWN_REASONS:
        yield _field("reason", f"and {len(reasons) - _SHOWN_REASONS} more")
    if "path" in context:
        yield _field("path", visible_line(context["path"]))
    if "command" in context:
        command = _as_given(context)
        yield _field("command", size_of(command))
        yield from _block(command, _BLOCK_CHARS)
    yield from _other_arguments(context)
    if "diff" in context:
        yield QuestionLine("  change")
        yield from (_diff_line(line) for line in _cut(context["diff"], _BLOCK_CHARS).split("\n"))


def size_of(text: str) -> str:
    """`1 character`, or `16 characters, 2 lines` where there are several."""
    lines = text.removesuffix("\n").count("\n") + 1
    size = f"{len(text)} character{'s' * (len(text) != 1)}"
    return f"{size}, {lines} lines" if lines > 1 else size


def _as_given(context: Mapping[str, Any]) -> str:
    """The command as the call gives it, if that is what the assessment shows with its hidden characters spelled out."""
    command: str = context["command"]
    values = context.get("arguments", {}).values()
    return next((value for value in values if isinstance(value, str) and visible(value) == visible(command)), command)


def _other_arguments(context: Mapping[str, Any]) -> Iterator[QuestionLine]:
    """What the lines above have not shown yet; long texts share the room that there is."""
    shown = {visible(context[key]) for key in ("command", "path") if key in context}
    arguments = context.get("arguments", {})
    others = [
        (name, value) for name, value in arguments.items() if not (isinstance(value, str) and visible(value) in shown)
    ]
    for name, value in others[:_SHOWN_ARGUMENTS]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        label = visible_line(name, _NAME_CHARS)
        if "\n" not in text and len(text) <= _SHORT_VALUE_CHARS:
            yield _field(label, visible(text))
        elif isinstance(value, str) and _is_in(value, context.get("diff", "")):
            yield _field(label, f"{size_of(text)}, shown as a change below")
        else:
            yield _field(label, size_of(text))
            yield from _block(text, _BLOCK_CHARS // len(others))
    if len(others) > _SHOWN_ARGUMENTS:
        yield _field("and", f"{len(others) - _SHOWN_ARGUMENTS} more arguments that are not shown")


def _is_in(value: str, diff: str) -> bool:
    return len(value) <= len(diff) and all(visible(line) in diff for line in value.split("\n"))


def _field(label: str, text: str) -> QuestionLine:
    return QuestionLine(f"  {label:<8} {text}")


def _block(text: str, limit: int) -> Iterator[QuestionLine]:
    return (QuestionLine(f"    | {line}", "call") for line in visible(_cut(text, limit)).split("\n"))


def _cut(text: str, limit: int) -> str:
    """Head and tail of a text that is longer than `limit`; the gap is a line of its own."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 4, limit // 4
    gap = f"⟨… {len(text) - head - tail} of {len(text)} characters are not shown …⟩"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


def _diff_line(line: str) -> QuestionLine:
    tone: QuestionTone = "added" if line.startswith("+") else "removed" if line.startswith("-") else "quiet"
    return QuestionLine(f"    {visible(line)}", tone)
