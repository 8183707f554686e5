"""A request as lines for the user: a confirmation with the call and its effects, or a question.

Every field is on one line of its own and every line of a block begins with an indented margin, so no text of a call can
imitate a line of the request. Of a text with more than 30,000 characters the middle is left out, of more than 50
arguments the rest; the confirmation then gives the true number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from agenticx.tools.visible import visible, visible_line

__all__ = ["RequestLine", "RequestTone", "confirm_lines", "describe_size", "parse_choice", "question_lines"]

RequestTone = Literal["quiet", "call", "strong", "added", "removed"]

_NAME_CHARS = 100
_SHORT_VALUE_CHARS = 100
_BLOCK_CHARS = 30_000
_SHOWN_REASONS = 20
_SHOWN_ARGUMENTS = 50
_COMPARED_ARGUMENTS = 1_000
_COMPARED_CHARS = 100_000
_MAX_DIGITS = 10


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One line and its role; a user interface colours it by the role."""

    text: str
    tone: RequestTone = "quiet"


def confirm_lines(question: str, context: Mapping[str, Any], agent_path: Sequence[str] = ()) -> Iterator[RequestLine]:
    """Yield the lines for the question, context and agents of a `confirm_required` or a `ConfirmRequest`.

    The work is bounded for any arguments, except for the counting of characters.
    """
    repeated = _repeated_arguments(context)
    yield RequestLine(f"? {visible_line(question)}", "strong")
    yield from _asking_agent(agent_path)
    if "tool" in context:
        risk = visible_line(context.get("risk", "unknown risk"), _NAME_CHARS)
        yield _field("tool", f"{visible_line(context['tool'], _NAME_CHARS)} ({risk})")
    reasons = list(context.get("reasons", ()))
    for reason in reasons[:_SHOWN_REASONS]:
        yield _field("reason", visible_line(reason))
    if len(reasons) > _SHOWN_REASONS:
        yield _field("reason", f"and {len(reasons) - _SHOWN_REASONS} more")
    if "sandboxed" in context and not any("sandbox" in reason for reason in reasons):
        yield _field("sandbox", visible_line(context["sandboxed"] or "none", _NAME_CHARS))
    if "path" in context and not _ends_with_path(question, context["path"]):
        yield _field("path", visible_line(context["path"]))
    if "command" in context:
        command = _command_as_given(context, repeated)
        yield _field("command", describe_size(command))
        yield from _block(command, _BLOCK_CHARS)
    yield from _other_arguments(context, repeated)
    if "diff" in context:
        yield RequestLine("  change")
        yield from (_diff_line(line) for line in _truncate(context["diff"], _BLOCK_CHARS).split("\n"))


def question_lines(text: str, options: Sequence[str], agent_path: Sequence[str] = ()) -> Iterator[RequestLine]:
    """Yield the lines for the text of a `question_asked`, its agents and its numbered options."""
    first, *others = visible(_truncate(text, _BLOCK_CHARS)).split("\n")
    yield RequestLine(f"? {first}", "strong")
    yield from (RequestLine(f"    | {line}", "strong") for line in others)
    yield from _asking_agent(agent_path)
    for number, option in enumerate(options, 1):
        yield RequestLine(f"  {number:<3} {visible_line(option)}")


def parse_choice(line: str, options: Sequence[str]) -> str:
    """Return the answer in a line that the user typed: the option of that number, else the line itself.

    >>> parse_choice(" 2 ", ["red", "blue"]), parse_choice("neither", ["red", "blue"]), parse_choice("3", [])
    ('blue', 'neither', '3')
    """
    text = line.strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else 0
    return options[number - 1] if 0 < number <= len(options) else text


def _asking_agent(agent_path: Sequence[str]) -> Iterator[RequestLine]:
    """Yield a line with the asking agent and its ancestors up to the main agent; none for the main agent."""
    if agent_path:
        *ancestors, agent = (visible_line(agent_id, _NAME_CHARS) for agent_id in agent_path)
        yield _field("agent", "".join((agent, *(f", below {other}" for other in reversed(ancestors[1:])))))


def describe_size(text: str) -> str:
    """Return `1 character`, or `16 characters, 2 lines` for several lines."""
    lines = text.removesuffix("\n").count("\n") + 1
    size = f"{len(text)} character{'s' * (len(text) != 1)}"
    return f"{size}, {lines} lines" if lines > 1 else size


def _repeated_arguments(context: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the arguments that the assessment shows already, each with "command" or "path".

    The assessment spells hidden characters out. Where that takes long to compare, both texts are shown.
    """
    assessed = {key: context[key] for key in ("command", "path") if key in context}
    plain = {visible(text): key for key, text in assessed.items() if len(text) <= _COMPARED_CHARS}
    repeated: dict[str, str] = {}
    remaining = _COMPARED_CHARS
    for name, value in islice(context.get("arguments", {}).items(), _COMPARED_ARGUMENTS):
        if not isinstance(value, str):
            continue
        repeated_key = next((key for key, text in assessed.items() if text == value), None)
        # Without trailing blanks: a blank that is cut in two may compare as a different one.
        beginning = visible(value[:_SHORT_VALUE_CHARS].rstrip())
        if repeated_key is None and len(value) <= remaining and any(text.startswith(beginning) for text in plain):
            remaining -= len(value)
            repeated_key = plain.get(visible(value))
        if repeated_key is not None:
            repeated[name] = repeated_key
    return repeated


def _command_as_given(context: Mapping[str, Any], repeated: Mapping[str, str]) -> str:
    """Return the command as the call gives it, if that is what the assessment shows."""
    commands = (context["arguments"][name] for name, key in repeated.items() if key == "command")
    return next(commands, context["command"])


def _other_arguments(context: Mapping[str, Any], repeated: Mapping[str, str]) -> Iterator[RequestLine]:
    """Yield the lines of the arguments that are not shown yet; long texts share the available space."""
    arguments = context.get("arguments", {})
    number = len(arguments) - len(repeated)
    names = (name for name in arguments if name not in repeated)
    diff = context.get("diff", "")
    for name in islice(names, _SHOWN_ARGUMENTS):
        value = arguments[name]
        text, size = (value, describe_size(value)) if isinstance(value, str) else _as_json(value)
        label = visible_line(name, _NAME_CHARS)
        if "\n" not in text and len(text) <= _SHORT_VALUE_CHARS:
            if not (isinstance(value, str) and _is_changed(value, diff)):
                yield _field(label, visible(text))
        elif isinstance(value, str) and _is_in(value, diff):
            yield _field(label, f"{size}, shown as a change below")
        else:
            yield _field(label, size)
            yield from _block(text, _BLOCK_CHARS // number)
    if number > _SHOWN_ARGUMENTS:
        yield _field("and", f"{number - _SHOWN_ARGUMENTS} more arguments that are not shown")


def _as_json(value: Any) -> tuple[str, str]:
    """Return `value` as indented JSON, and its size.

    Of a value that is too long to be shown only the beginning is written.
    """
    fragments: list[str] = []
    remaining = _BLOCK_CHARS
    for fragment in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        fragments.append(fragment)
        remaining -= len(fragment)
        if remaining < 0:
            return "".join(fragments), f"more than {_BLOCK_CHARS} characters, of which not all are shown"
    text = "".join(fragments)
    return text, describe_size(text)


def _ends_with_path(question: str, path: str) -> bool:
    """Return whether the question ends with the path, as a word of its own: it need not be shown twice."""
    return f" {visible_line(question)}".endswith(f" {visible_line(path)}?")


def _is_changed(value: str, diff: str) -> bool:
    """Return whether the `diff` is short enough to be shown in full and adds or removes the line `value`."""
    return bool(value) and len(diff) <= _BLOCK_CHARS and not {f"+{value}", f"-{value}"}.isdisjoint(diff.split("\n"))


def _is_in(value: str, diff: str) -> bool:
    """Return whether every line of `value` is a line of `diff`; its first and last line may be parts of one."""
    if len(value) > len(diff) or len(diff) > _COMPARED_CHARS:
        return False
    first, *others = value.split("\n")
    last = others.pop() if others else ""
    lines = {line[1:] for line in diff.split("\n")}
    return visible(first) in diff and visible(last) in diff and all(visible(line) in lines for line in others)


def _field(label: str, text: str) -> RequestLine:
    return RequestLine(f"  {label:<8} {text}")


def _block(text: str, limit: int) -> Iterator[RequestLine]:
    return (RequestLine(f"    | {line}", "call") for line in visible(_truncate(text, limit)).split("\n"))


def _truncate(text: str, limit: int) -> str:
    """Return head and tail of a text that is longer than `limit`, with the gap on a line of its own."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 4, limit // 4
    gap = f"⟨… {len(text) - head - tail} of {len(text)} characters are not shown …⟩"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


def _diff_line(line: str) -> RequestLine:
    tone: RequestTone = "added" if line.startswith("+") else "removed" if line.startswith("-") else "quiet"
    return RequestLine(f"    {visible(line)}", tone)
