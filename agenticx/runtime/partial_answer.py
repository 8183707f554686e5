"""The text of a partial answer made without the model, from the results of tools and passages of notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agenticx.messages import Message, ToolMessage, UserMessage
from agenticx.untrusted_text import without_frames

__all__ = ["answer_from_results"]

_MAX_ITEMS = 30
_MAX_SENTENCE_CHARS = 240
_LOOKED_AT_CHARS = 4_000
_HEAD = (
    "No model wrote this text: the turn was out of rounds or time, and the model call that was to say what was found "
    "gave no answer. What was found, with the first sentence of each:"
)
_PASSAGE = re.compile(r"^\[passage (\d{1,9}): ", re.MULTILINE)
_KNOWN = re.compile(r"^You have these already: (passage \d{1,9}(?:, passage \d{1,9})*)\.$", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…](?=\s|$)|[。！？]")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINE_SIGNS = re.compile(r"(?:\s*[>#*+•-]+\s)*\s*")
"""The signs of quotes, headings and list items at the beginning of a line."""


def answer_from_results(messages: Sequence[Message], passages: Sequence[Mapping[str, Any]]) -> str:
    """Return an answer made of the results in a turn's `messages`, "" if there are none.

    `passages` are the rows of `ToolState.passages`. Each passage that the messages show is listed with its place, first
    sentence and marker; every other result of a tool with the tool's name, its number of lines and first sentence.
    """
    shown = list(dict.fromkeys(number for message in messages for number in _passages_in(message)))
    rows = [(number, passages[number - 1]) for number in shown if 0 < number <= len(passages)]
    parts = [
        f"- {_place(row)}\n  - {sentence} [^{number}]"
        for number, row in rows[:_MAX_ITEMS]
        if (sentence := _first_sentence(row["text"] or row.get("beginning", "")))
    ]
    results = [message for message in messages if isinstance(message, ToolMessage) and message.outcome == "ok"]
    parts += [
        f"- {message.name}: {_line_count(message.content)}\n  - {sentence}"
        for message in results[:_MAX_ITEMS]
        if not _PASSAGE.search(message.content) and (sentence := _first_sentence(without_frames(message.content)))
    ]
    if left_out := max(0, len(rows) - _MAX_ITEMS) + max(0, len(results) - _MAX_ITEMS):
        parts.append(f"- and {left_out:,} more")
    return "\n".join([_HEAD, "", *parts]) if parts else ""


def _passages_in(message: Message) -> Iterable[int]:
    """Return the numbers of the passages that a message shows or names as known."""
    if not (isinstance(message, ToolMessage) or (isinstance(message, UserMessage) and message.injected)):
        return ()
    known = (number for found in _KNOWN.findall(message.content) for number in re.findall(r"\d+", found))
    return map(int, [*_PASSAGE.findall(message.content), *known])


def _place(row: Mapping[str, Any]) -> str:
    first, last = row["line_start"], row["line_end"]
    heading = f", {row['heading']}" if row.get("heading") else ""
    return f"{row.get('url') or row['path']}{heading}, {f'line {first}' if first == last else f'lines {first}-{last}'}"


def _line_count(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count:,} lines"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a text on one line, after its headings if there is more than these."""
    lines = [line for line in text[:_LOOKED_AT_CHARS].split("\n") if line.strip() and not _FENCE.match(line)]
    line = next((line for line in lines if not line.lstrip().startswith(("#", "---"))), lines[0] if lines else "")
    line = " ".join(_LINE_SIGNS.sub("", line, count=1).split()).replace(
        "[^", "["
    )  # a marker in a result is no citation of the answer
    end = _SENTENCE_END.search(line, 0, _MAX_SENTENCE_CHARS)
    if end is not None:
        return line[: end.end()]
    return line if len(line) <= _MAX_SENTENCE_CHARS else f"{line[:_MAX_SENTENCE_CHARS]}…"
