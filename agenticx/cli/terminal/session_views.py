"""Views of sessions: list rows, details as text and JSON, transcripts, and replays of the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.subagent_list import subagent_lines, subagents_to_json
from agenticx.cli.terminal.usage_report import usage_lines, usage_sums_to_json
from agenticx.runtime.events import TRANSCRIPT_EVENTS, EventType
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.store.events import decode_line
from agenticx.sessions.store.usage import DailyUsage
from agenticx.sessions.turn_tree import LoggedTurn, TurnTree
from agenticx.tools.visible import visible, visible_line

__all__ = [
    "TurnEnd",
    "replay",
    "returned_messages",
    "rewound_files",
    "session_rows",
    "session_to_json",
    "session_to_text",
    "show_last_turn",
    "transcript_of",
    "turn_ends",
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


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn; `ended` is the type of its terminal event, None while it runs or waits."""

    turn_id: str
    ended: str | None = None
    code: str | None = None
    text: str | None = None

    def describe(self) -> str:
        """Return a short description for the user."""
        match self.ended:
            case None:
                return "runs, or waits for an answer"
            case "error":
                return f"ended with error {self.code}: {self.text}"
            case _:
                return "ended with an answer" if self.code == "answer" else f"ended: {self.code}"


def turn_ends(events: Sequence[Envelope]) -> list[TurnEnd]:
    """Return the turns that messages of the user began, in order."""
    return [_turn_end(turn) for turn in _turn_tree(events).turns.values() if turn.parent_id is None]


def _turn_end(turn: LoggedTurn) -> TurnEnd:
    if turn.end is None:
        return TurnEnd(turn.id)
    data: Mapping[str, Any] = {**turn.end.data}
    return TurnEnd(turn.id, turn.end.type, data.get("code", data.get("reason")), data.get("text"))


def session_to_json(session: SessionInfo, events: Sequence[Envelope], usage: Sequence[DailyUsage]) -> dict[str, Any]:
    """Return a session as JSON: the server's fields, messages, unsent messages, turns, sub-agents, and usage."""
    turns = [asdict(turn) for turn in turn_ends(events)]
    messages = transcript_of(events)
    fields = {**session.to_json(), "system_prompt": session.record.system_prompt}
    return {
        **fields,
        "messages": messages,
        "not_said": returned_messages(events),
        "turns": turns,
        "subagents": subagents_to_json(events),
        "usage": usage_sums_to_json(usage),
    }


def session_to_text(
    session: SessionInfo, events: Sequence[Envelope], usage: Sequence[DailyUsage], *, with_ids: bool = False
) -> str:
    """Return a session as text: its fields, usage, sub-agents, and transcript, on request with the ids of messages."""
    record, turns = session.record, turn_ends(events)
    rows = [
        ("name", record.name or "(without a name)"),
        ("folder", record.workspace),
        ("model", record.model or "default"),
        *([] if record.team is None else [("team", record.team)]),
        *([] if record.agent_name is None else [("agent", record.agent_name)]),
        ("mode", record.permission_mode),
        ("created", local_time(record.created_at)),
        *(("" if index else "usage", line) for index, line in enumerate(usage_lines(usage))),
        *(("" if index else "agents", line) for index, line in enumerate(subagent_lines(events, usage))),
        ("turns", f"{len(turns)}; the last one {turns[-1].describe()}" if turns else "none yet"),
    ]
    head = [record.id, *(f"{name:<8}{visible_line(value, _ROW_CHARS)}" for name, value in rows)]
    returned = [f"\nnot sent: {visible(message['input'])}" for message in returned_messages(events)]
    return "\n".join([*head, *_transcript_lines(transcript_of(events), with_ids=with_ids), *returned])


def returned_messages(events: Sequence[Envelope]) -> list[dict[str, str]]:
    """Return the queued messages that were returned unsent and not sent since, as `{message_id, input}`."""
    returned: list[dict[str, str]] = []
    for event in events:
        if event.type == EventType.HANDED_BACK:
            returned.append({name: event.data[name] for name in ("message_id", "input")})
        elif event.type in (EventType.TURN_STARTED, EventType.STEERED):
            text = event.data.get("input", event.data.get("text"))
            returned = [message for message in returned if message["input"] != text]
    return returned


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


def transcript_of(events: Sequence[Envelope]) -> list[dict[str, Any]]:
    """Return the messages of a session, as `GET /api/sessions/{id}/messages` does."""
    return _conversation_of(events).messages()


def _conversation_of(events: Sequence[Envelope]) -> Conversation:
    conversation = Conversation()
    conversation.feed_decoded(decode_line(event.line) for event in events if event.type in TRANSCRIPT_EVENTS)
    return conversation


async def show_last_turn(client: Client, session: SessionInfo, output: Output) -> None:
    """Show the last turn of the conversation that a message of the user began, with those below it."""
    async with client.read_log(session.id) as log:
        events = [event async for event in log]
    events = events[: _length_of_conversation(events)]
    tree = _turn_tree(events)
    last = [turn.id for turn in tree.turns.values() if turn.parent_id is None][-1:]
    shown = tree.within(last)
    for event in events:
        if event.turn_id in shown:
            show_past_event(event, output)


def _turn_tree(events: Sequence[Envelope]) -> TurnTree:
    """Return the turns of a session with their parents and terminal events, and nothing else of them."""
    return TurnTree.of(
        decode_line(event.line).event for event in events if event.type == EventType.TURN_STARTED or event.terminal
    )


def _length_of_conversation(events: Sequence[Envelope]) -> int:
    """Return the number of events up to the last message of the conversation if a rewind was the last change of it."""
    for event in reversed(events):
        if event.begins_root_turn:
            break
        if event.type == EventType.SESSION_CHANGED and "rewound_to" in event.data:
            path = _conversation_of(events).path()
            return path[-1].last_seq if path else 0
    return len(events)


async def replay(events: AsyncIterator[Envelope], output: Output, *, as_json: bool) -> None:
    """Show a whole log, with the user's messages; as JSON, print the stored lines unchanged."""
    async for event in events:
        if as_json:
            output.show(event)
        else:
            show_past_event(event, output)


def show_past_event(event: Envelope, output: Output) -> None:
    """Show a stored event, including user messages and requests, which a live turn shows elsewhere."""
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
