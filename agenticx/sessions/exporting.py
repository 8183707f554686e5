"""A session as a file: its log line by line, or its conversation as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agenticx.sessions.base import SessionRecord, StoredEvent
from agenticx.tools.visible import escape_controls

__all__ = ["as_jsonl", "as_markdown"]


def as_jsonl(events: Iterable[StoredEvent]) -> bytes:
    """The envelopes, a line each, byte for byte as they were sent."""
    return b"".join(event.frame_json + b"\n" for event in events)


def as_markdown(record: SessionRecord, messages: Sequence[dict[str, Any]]) -> str:
    """The conversation, `messages` being its transcript: a heading for each speaker, calls with their results folded.

    What was said stands as it was said; what tools were given and returned stands in fences that it cannot leave.
    """
    parts = [f"# {_one_line(record.name or 'Conversation')}", f"*{record.created_at}, `{record.id}`*"]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    speaker = ""
    for message in messages:
        if message["role"] == "tool":
            continue
        if message["role"] != speaker:
            speaker = message["role"]
            parts.append("## You" if speaker == "user" else "## Assistant")
        if message["content"]:
            parts.append(message["content"].strip("\n"))
        parts += (f"*Attached: {_one_line(file['name'])}*" for file in message.get("attachments", ()))
        parts += (_call(call, results.get(call["id"])) for call in message.get("tool_calls", ()))
    return "\n\n".join(parts) + "\n"


def _call(call: dict[str, Any], result: str | None) -> str:
    given = call["arguments"]
    shown = given if isinstance(given, str) else json.dumps(given, indent=2, ensure_ascii=False)
    answer = "*(no result)*" if result is None else _fenced(result)
    return f"**{_one_line(call['name'])}**\n\n{_fenced(shown, 'json')}\n\n{answer}"


def _fenced(text: str, language: str = "") -> str:
    """In a fence longer than any in the text."""
    longest = max((run.end() - run.start() for run in re.finditer(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _one_line(text: str) -> str:
    """As a part of a line: neither Markdown nor control characters in it mean anything."""
    return re.sub(r"([\\`*_<>\[\]#])", r"\\\1", escape_controls(" ".join(text.split())))
