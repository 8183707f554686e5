"""Export of a session as a file: its log as JSON lines, or its conversation as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import pairwise
from typing import Any

from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import SessionLog, read_log_pages
from agenticx.threads import run_in_thread
from agenticx.tools.visible import escape_controls

__all__ = ["as_markdown", "export_jsonl", "export_markdown"]

_HEADINGS = {"user": "You", "assistant": "Assistant"}


async def export_jsonl(log: SessionLog, session_id: str, after: int = 0) -> AsyncGenerator[bytes]:
    """Yield the envelopes with a higher `seq` than `after`, one per line, byte for byte as they were sent.

    Events that a running session adds meanwhile are left out, so that it ends.
    """
    last = await log.head(session_id)
    async for events in read_log_pages(log, session_id, after, until=last):
        yield b"".join([event.frame_json + b"\n" for event in events])


async def export_markdown(log: SessionLog, record: SessionRecord) -> str:
    """Return the conversation as `as_markdown` does."""
    return await run_in_thread(as_markdown, record, await read_messages(log, record.id), name="agx export")


def as_markdown(record: SessionRecord, messages: Sequence[dict[str, Any]]) -> str:
    """Return the conversation as Markdown: a heading per speaker, each call followed by its result.

    `messages` is its transcript. The text of messages is copied unchanged; arguments and results of tools are put in
    fences that their content cannot close. An answer is followed by its citations as footnotes. A participant's message
    that only repeats the result of its handoff is left out.
    """
    parts = [f"# {_escape_line(record.name or 'Conversation')}", f"*{record.created_at}, `{record.id}`*"]
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    speaker = ""
    for before, message in pairwise([{}, *messages]):
        if message["role"] == "tool" or _repeats_handoff(message, before):
            continue
        if (name := message.get("sender", _HEADINGS[message["role"]])) != speaker:
            speaker = name
            parts.append(f"## {_escape_line(name)}")
        if message["content"]:
            parts.append(message["content"].strip("\n"))
        if "citations" in message:
            parts.append("\n".join(_footnotes(message["citations"])))
        parts += _attached(message)
        parts += (_render_call(call, results.get(call["id"])) for call in message.get("tool_calls", ()))
    return "\n\n".join(parts) + "\n"


def _repeats_handoff(message: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether a participant's message says what the call of its handoff shows: its result, or the reason too."""
    said = message["content"].split("\nReason: ", 1)[0]
    return "sender" in message and before.get("role") == "tool" and before["content"] == said


def _footnotes(citations: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a footnote for each marker of an answer; several sentences may cite one passage, each with its status."""
    places: dict[int, dict[str, None]] = {}
    for citation in citations:
        line = citation.get("quote_line", citation["line_start"])
        where = f"{_escape_line(str(citation.get('path') or citation.get('url')))}:{line}"
        places.setdefault(citation["marker"], {})[f"{where} — {citation['status']}"] = None
    return (f"[^{marker}]: {'; '.join(found)}" for marker, found in places.items())


def _render_call(call: dict[str, Any], result: dict[str, Any] | None) -> str:
    arguments = call["arguments"]
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, indent=2, ensure_ascii=False)
    shown_result = "*(no result)*" if result is None else _fenced(result["content"])
    parts = [f"**{_escape_line(call['name'])}**", _fenced(shown, "json"), shown_result]
    return "\n\n".join([*parts, *_attached(result or {})])


def _attached(message: dict[str, Any]) -> Iterator[str]:
    return (f"*Attached: {_escape_line(file['name'])}*" for file in message.get("attachments", ()))


def _fenced(text: str, language: str = "") -> str:
    """Return the text in a fence that is longer than any run of backticks in it."""
    longest = max((run.end() - run.start() for run in re.finditer(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _escape_line(text: str) -> str:
    """Return the text as part of one line, with Markdown escaped and control characters removed."""
    return re.sub(r"([\\`*_<>\[\]#])", r"\\\1", escape_controls(" ".join(text.split())))
