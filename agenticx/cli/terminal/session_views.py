"""Views of sessions: list rows, details as text and JSON, transcripts, and replays of the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from agenticx.cli.client.base import Client, SessionInfo
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import (
    PAYLOAD_ERRORS,
    citation_line,
    one_line,
    request_payload,
    unreadable_event_note,
    user_message_note,
)
from agenticx.cli.terminal.log_summary import LogSummary, read_log_summary
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.usage_report import usage_lines, usage_sums_to_json
from agenticx.runtime.events import EventType
from agenticx.sessions.log.usage import DailyUsage
from agenticx.tools.visible import visible, visible_line

__all__ = [
    "replay",
    "rewound_files",
    "session_rows",
    "session_to_json",
    "session_to_text",
    "show_last_turn",
    "show_past_event",
]

_NAME_CHARS = 70
_MATCH_CHARS = 160
_ROW_CHARS = 2_000


def session_rows(sessions: Sequence[SessionInfo]) -> Iterator[str]:
    """Yield a line for each session, followed by its search matches."""
    for session in sessions:
        record = session.record
        labels = "".join(
            f" [{label}]"
            for label, applies in (
                ("running", session.running_turn_id is not None),
                ("pinned", record.pinned),
                ("archived", record.archived),
            )
            if applies
        )
        name = visible_line(record.name or "(without a name)", _NAME_CHARS)
        if record.team is not None:
            labels = f" [team {visible_line(record.team, _NAME_CHARS)}]{labels}"
        folder = visible_line(_abbreviate_home(record.workspace))
        yield f"{record.id}  {local_time(record.created_at)}  {name}{labels}  {folder}"
        for match in session.matches:
            yield f"    {match['role']}: {visible_line(_match_text(match), _MATCH_CHARS)}"


def rewound_files(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each file of a rewind: its outcome, its path, and the reason if it is not as it was then."""
    for file in files:
        reason = f": {file['reason']}" if file.get("reason") else ""
        yield visible_line(f"{file['outcome']} {file['path']}{reason}", _ROW_CHARS)


def local_time(timestamp: str) -> str:
    """Return a timestamp of the log in local time, to the minute."""
    return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M")


def session_to_json(session: SessionInfo, summary: LogSummary, usage: Sequence[DailyUsage]) -> dict[str, Any]:
    """Return a session as JSON: the server's fields, messages, unsent messages, turns, sub-agents, and usage."""
    fields = {**session.to_json(), "system_prompt": session.record.system_prompt}
    return {
        **fields,
        "messages": summary.conversation.messages(),
        "not_said": summary.returned,
        "turns": [asdict(turn) for turn in summary.turn_ends()],
        "subagents": summary.subagents.to_json(),
        "usage": usage_sums_to_json(usage),
    }


def session_to_text(
    session: SessionInfo, summary: LogSummary, usage: Sequence[DailyUsage], *, with_ids: bool = False
) -> str:
    """Return a session as text: its fields, usage, sub-agents, and transcript, on request with the ids of messages."""
    record, turns = session.record, summary.turn_ends()
    rows = [
        ("name", record.name or "(without a name)"),
        ("folder", record.workspace),
        ("model", record.model or "default"),
        *([] if record.team is None else [("team", record.team)]),
        *([] if record.agent_name is None else [("agent", record.agent_name)]),
        ("mode", record.permission_mode),
        ("created", local_time(record.created_at)),
        *(("" if index else "usage", line) for index, line in enumerate(usage_lines(usage))),
        *(("" if index else "agents", line) for index, line in enumerate(summary.subagents.lines(usage))),
        ("turns", f"{len(turns)}; the last one {turns[-1].describe()}" if turns else "none yet"),
    ]
    head = [record.id, *(f"{name:<8}{visible_line(value, _ROW_CHARS)}" for name, value in rows)]
    returned = [f"\nnot sent: {visible(message['input'])}" for message in summary.returned]
    return "\n".join([*head, *_transcript_lines(summary.conversation.messages(), with_ids=with_ids), *returned])


def _transcript_lines(messages: Sequence[dict[str, Any]], *, with_ids: bool) -> Iterator[str]:
    gap = "" if with_ids else "\n"
    for message in messages:
        if with_ids and message["role"] != "tool":
            yield f"\n[{message['message_id']}]"
        match message["role"]:
            case "tool":
                yield f"  ← {one_line(message['content'])}"
            case "user" if "picked" in message:
                yield f"{gap}… option {message['picked']:d} goes on"
            case "user":
                text = _with_attachment_names(message["content"], message.get("attachments", ()))
                yield f"{gap}{user_message_note(text).text}"
            case _:
                parts = [f"{message['sender']}:"] if "sender" in message else []
                if text := " ".join([*parts, *filter(None, [message["content"]])]):
                    yield f"{gap}{visible(text)}"
                yield from (f"  {citation_line(citation)}" for citation in message.get("citations", ()))
        for call in message.get("tool_calls", ()):
            yield f"  → {one_line(call['name'] + ' ' + json.dumps(call['arguments'], ensure_ascii=False))}"


async def show_last_turn(client: Client, session: SessionInfo, output: Output) -> int:
    """Show the last root turn of the conversation with its child turns; return the `seq` of the log's last event.

    The log is read twice, because only its end shows what the last turn is.
    """
    summary = await read_log_summary(client, session.id)
    count, shown = summary.event_count(), summary.last_turn_ids()
    async with client.read_log(session.id) as log:
        number = 0
        async for event in log:
            number += 1
            if number <= count and event.turn_id in shown:
                show_past_event(event, output)
    return summary.last_seq


async def replay(events: AsyncIterator[Envelope], output: Output, *, as_json: bool) -> None:
    """Show a whole log, with the user's messages; as JSON, print the stored lines unchanged."""
    async for event in events:
        if as_json:
            output.show(event)
        else:
            show_past_event(event, output)


def show_past_event(event: Envelope, output: Output) -> None:
    """Show a stored event. User messages and requests are included: a live turn shows them elsewhere."""
    try:
        match event.type:
            case EventType.TURN_STARTED if event.begins_root_turn:
                output.show_note(
                    user_message_note(_with_attachment_names(event.data["input"], event.data.get("attachments", ())))
                )
            case EventType.CONFIRM_REQUIRED | EventType.QUESTION_ASKED:
                output.show_request(request_payload(event), "")
            case _:
                pass
    except PAYLOAD_ERRORS:
        output.show_note(unreadable_event_note(event))
    output.show(event)


def _with_attachment_names(text: str, attachments: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(str(attachment["name"]) for attachment in attachments)
    return f"{text} [with {names}]" if names else text


def _match_text(match: Mapping[str, Any]) -> str:
    return f"{match['before']}{match['found']}{match['after']}"


def _abbreviate_home(folder: str) -> str:
    home = str(Path.home())
    return f"~{folder[len(home) :]}" if folder == home or folder.startswith(f"{home}/") else folder
