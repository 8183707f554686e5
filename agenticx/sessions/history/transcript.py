"""The messages of a session, folded from its events: each text once, in order.

A session that was rewound has more messages than its conversation. Its messages form a tree, in which the parent of
each is the message that was last when it was added; the conversation is the path to `head`, and a rewind moves `head`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from agenticx.errors import AgenticXError
from agenticx.runtime.events import (
    TRANSCRIPT_EVENTS,
    CitationEvent,
    Event,
    FinalEvent,
    RoundStartEvent,
    SessionChangedEvent,
    SpeakerSelectedEvent,
    SteeredEvent,
    TeamMessageEvent,
    TokenEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnStartedEvent,
)
from agenticx.runtime.events.payloads import FinalData, SessionChangedData, ToolResultData
from agenticx.sessions.history.log_end import find_end, fold_end
from agenticx.sessions.history.speech_calls import SpeechCalls, message_row, result_fields
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode
from agenticx.sessions.log.searchable_texts import SearchableText, answer_text, reply_text
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = [
    "Conversation",
    "MessageNotFound",
    "TranscriptEntry",
    "read_conversation",
    "read_last_messages",
    "read_messages",
    "searchable_path_texts",
    "transcript",
]

_EARLIER = ""
"""The parent of the first message of a conversation that is not whole; no message has it as its id."""

_CITATION_KEYS = frozenset({"message_id", "marker", "status", "line_start", "quote"})


class MessageNotFound(AgenticXError):
    """An error for a message id that the session does not have."""


def transcript(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """Return the messages of a session: `{message_id, role, content, created_at, …}`.

    `created_at` is the time of the event with which the message begins, as in its envelope. A message of the user has
    `attachments?`; a message of the assistant has `tool_calls?`, `sender?` and, if it is an answer, `citations?`; a
    result has `tool_call_id`, `outcome` and `is_error`.
    Sub-agents have turns of their own and are left out. An assistant message without text but with calls takes its id
    from the first call. A speech in a team has the name of the participant as `sender`; the last one is the answer of
    the turn. Before it are the replies in which the participant made calls, and their results.
    """
    return Conversation.from_events(events).messages()


async def read_conversation(log: SessionLog, session_id: str) -> Conversation:
    """Return the conversation of a session, folded from its log with no more than a page of it in memory."""
    conversation = Conversation()
    async for page in read_log_pages(log, session_id):
        conversation.feed(page)
    return conversation


async def read_messages(log: SessionLog, session_id: str) -> list[dict[str, Any]]:
    """Return the `transcript` of a session's log."""
    return (await read_conversation(log, session_id)).messages()


async def read_last_messages(
    log: SessionLog, session_id: str, limit: int, *, before: str | None = None
) -> list[dict[str, Any]]:
    """Return the last rows of the `transcript`, with more than `limit` of them before the one with the id `before`.

    Without `before` more than `limit` in all. All rows are returned if these are fewer, or none has that id.
    """

    def is_enough(conversation: Conversation) -> bool:
        rows = conversation.last_messages()
        end = len(rows) if before is None else next((i for i, row in enumerate(rows) if row["message_id"] == before), 0)
        return end > limit

    named = None if before is None else before.removeprefix("result_").removeprefix("calls_").encode()
    until = None if named is None else await find_end(log, session_id, lambda event: named in event.frame_json)
    end = await fold_end(log, session_id, lambda is_whole: Conversation(is_whole=is_whole), is_enough, until=until)
    return end.last_messages()


@dataclass(slots=True)
class TranscriptEntry:
    """A message; `parent_id` is the one before it, `last_seq` the number of the event that completed it.

    `result` is the data of the event, for the result of a tool. `calls` are the rows of a participant's calls before
    it, for a speech in a team.
    """

    message: dict[str, Any]
    turn_id: str | None
    parent_id: str | None
    last_seq: int
    result: ToolResultData | None = None
    calls: Sequence[dict[str, Any]] = ()

    @property
    def id(self) -> str:
        return self.message["message_id"]


def searchable_path_texts(path: Iterable[TranscriptEntry]) -> list[SearchableText]:
    """Return the texts of a path that a search can find, including those that were compacted."""
    texts: list[SearchableText] = []
    tools = dict[str, str]()  # by the ids of calls
    for message in (entry.message for entry in path):
        if (role := message["role"]) == "tool":
            tool = tools.get(message["tool_call_id"], "")
            role, text = "user", answer_text(tool, message["content"], message["outcome"])
        else:
            calls = message.get("tool_calls", ())
            tools |= {call["id"]: call["name"] for call in calls}
            text = reply_text(message["content"], ((call["name"], call["arguments"]) for call in calls))
        if role in ("user", "assistant") and text:
            texts.append(SearchableText(message["message_id"], role, text))
    return texts


class Conversation:
    """The tree of all messages of a session, and the path that is the conversation now.

    The messages are from root turns, whichever agents acted in them; with an `agent_id`, from that agent's child turns.
    A conversation that is not `is_whole` is fed with the end of a log only, from the first event of a root turn on.
    """

    def __init__(self, agent_id: str | None = None, *, is_whole: bool = True) -> None:
        self._agent_id = agent_id
        self.tree = TurnTree()
        """The turns that have begun, without their other events."""
        self.entries: dict[str, TranscriptEntry] = {}
        """All messages by their ids; `path` adds the end of the text of a message that is being written."""
        self.head: str | None = None if is_whole else _EARLIER
        self._resets: list[tuple[int, str | None]] = []  # the number of each `team_reset`, and the last message before
        self._seq = 0
        self._ts = ""
        self._turn_id: str | None = None
        self._is_talk = False  # whether the team of this turn has chosen a speaker: what it says then is no task
        self._speech: TranscriptEntry | None = None  # the last one of this turn, until the answer repeats it
        self._reply: TranscriptEntry | None = None  # the assistant message that calls of this round belong to
        self._streaming: TranscriptEntry | None = None  # the message whose text goes on with `_text`
        self._text = StringIO()
        self._citations: dict[str, list[dict[str, Any]]] = {}  # by the id of an answer that is not complete yet
        self._copies: dict[str, int] = {}  # by id, the number of messages that have it
        self._calls = SpeechCalls(self.tree)

    @classmethod
    def from_events(cls, events: Iterable[StoredEvent]) -> Conversation:
        """Fold the events of a session, from its first."""
        conversation = cls()
        conversation.feed(events)
        return conversation

    def feed(self, events: Iterable[StoredEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        self.feed_decoded(decode(event) for event in events if event.type in TRANSCRIPT_EVENTS)

    def feed_decoded(self, entries: Iterable[SessionEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        with map_decode_errors("the log of a session"):
            for entry in entries:
                event = entry.event
                if isinstance(event, TurnStartedEvent):
                    self.tree.apply(event)
                if self._agent_id is None:
                    self._calls.feed(event, entry.ts)
                if self._has(event.turn_id):
                    self._seq, self._ts, self._turn_id = entry.seq, entry.ts, entry.turn_id
                    self._feed_event(event)

    def _has(self, turn_id: str | None) -> bool:
        """Return whether the messages are those of this turn, or of the session itself."""
        turn = None if turn_id is None else self.tree.turns.get(turn_id)
        if turn is None or turn.parent_id is None:
            return self._agent_id is None
        return turn.agent_id == self._agent_id

    def path(self, message_id: str | None = None) -> list[TranscriptEntry]:
        """Return the messages up to and including that one, by default the last.

        Raises `MessageNotFound` for an id that no message of the session has.
        """
        if message_id is not None and message_id not in self.entries:
            if message_id in self._calls.ids:
                raise MessageNotFound(f"message {message_id!r} is part of a speech; take the speech that follows it")
            raise MessageNotFound(f"no message of this session has the id {message_id!r}")
        self._complete_text()
        path: dict[str, TranscriptEntry] = {}
        current_id = message_id or self.head
        while current_id is not None and current_id not in path:  # a damaged log may have a message before itself
            entry = path[current_id] = self.entries[current_id]
            current_id = entry.parent_id
        return list(path.values())[::-1]

    def last_path(self) -> list[TranscriptEntry]:
        """Return the messages up to the last one, without those that were not fed.

        Of these the first may lack the `calls` before it, and is left out if there are earlier ones.
        """
        self._complete_text()
        path: dict[str, TranscriptEntry] = {}
        current_id = self.head
        while current_id in self.entries and current_id not in path:
            entry = path[current_id] = self.entries[current_id]
            current_id = entry.parent_id
        entries = list(path.values())[::-1]
        return entries if current_id is None else entries[1:]

    def last_messages(self) -> list[dict[str, Any]]:
        """Return the `last_path` in the form of `transcript`."""
        return self._rows(self.last_path())

    def resets_on(self, path: Sequence[TranscriptEntry]) -> set[int]:
        """Return the numbers of the events that reset a team and are part of the path: they follow a message of it."""
        ids = {entry.id for entry in path}
        return {seq for seq, last_id in self._resets if last_id in ids}

    def messages(self) -> list[dict[str, Any]]:
        """Return the path in the form of `transcript`."""
        return self._rows(self.path())

    def _rows(self, path: Iterable[TranscriptEntry]) -> list[dict[str, Any]]:
        return [*(row for entry in path for row in (*entry.calls, entry.message)), *self._calls.rows()]

    def _feed_event(self, event: Event) -> None:
        match event:
            case TokenEvent(data=data):
                if data["text"]:
                    self._append_text(self._reply_entry(data["message_id"]), data["text"])
            case TurnStartedEvent() | SteeredEvent():
                self._is_talk, self._speech = False, None
                text = event.data["input"] if isinstance(event, TurnStartedEvent) else event.data["text"]
                entry = self._add_entry(event.data["message_id"], "user", text)
                # Two of them are in no event of the log: see `subagent_notices`.
                further, given = ("attachments", "injected", "sources"), {**event.data}
                entry.message |= {key: given[key] for key in further if given.get(key)}
            case RoundStartEvent():
                self._reply = None
            case ToolCallEvent(data=data):
                call = {"id": data["tool_call_id"], "name": data["name"], "arguments": data["arguments"]}
                self._calling_entry(data["tool_call_id"]).message.setdefault("tool_calls", []).append(call)
            case ToolResultEvent(data=data):
                entry = self._add_entry(f"result_{data['tool_call_id']}", "tool", data["result"])
                entry.message |= result_fields(data)
                entry.result = data
            case FinalEvent(data=data) if data["text"]:
                self._feed_answer(data)
            case CitationEvent(data=data) if data.keys() >= _CITATION_KEYS:  # a tool may emit others
                citation = {name: value for name, value in data.items() if name != "message_id"}
                self._citations.setdefault(data["message_id"], []).append(citation)
            case _:
                self._feed_change(event)

    def _feed_change(self, event: Event) -> None:
        match event:
            case SpeakerSelectedEvent():
                self._is_talk = True
            case TeamMessageEvent(data=data) if self._is_talk:
                self._feed_speech(data["message"])
            case SessionChangedEvent(data=data):
                self._change_session(data)
            case _:
                pass

    def _feed_answer(self, data: FinalData) -> None:
        """Complete an answer, with the citations of it."""
        self._complete_text()
        message = self._reply_entry(data["message_id"]).message
        message["content"] = data["text"]
        if citations := self._citations.pop(data["message_id"], None):
            message["citations"] = citations

    def _change_session(self, data: SessionChangedData) -> None:
        if "rewound_to" in data:
            self.head = data["rewound_to"]
            self._reply = self._speech = None
            self._calls.take()
        if "picked" in data and "message_id" in data and "text" in data:
            entry = self._add_entry(data["message_id"], "user", data["text"])
            entry.message |= {"injected": True, "picked": data["picked"]}
        if "team_reset" in data:
            self._resets.append((self._seq, self.head))

    def _append_text(self, entry: TranscriptEntry, text: str) -> None:
        """Append to the message's text, which has it once it is complete: appending to a long str copies it."""
        if self._streaming is not entry:
            self._complete_text()
            self._streaming, self._text = entry, StringIO()
        self._text.write(text)

    def _complete_text(self) -> None:
        if self._streaming is not None:
            self._streaming.message["content"] += self._text.getvalue()
            self._streaming = None

    def _reply_entry(self, message_id: str) -> TranscriptEntry:
        if self._speech is not None:
            self._make_answer(self._speech, message_id)
        known = self.entries.get(message_id)
        self._reply = self._add_entry(message_id, "assistant", "") if known is None else known
        self._reply.last_seq = self._seq
        return self._reply

    def _feed_speech(self, message: dict[str, Any]) -> None:
        """Add the speech in a message of a team, if it is one: no event of the work on a speech."""
        if "content" not in message or message["type"].endswith("Event"):
            return
        text = message["content"]
        if message["type"] == "MultiModalMessage":
            text = "\n".join(part if isinstance(part, str) else f"[{part['name']}]" for part in text)
        text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        if message["type"] == "HandoffMessage" and (reason := message.get("metadata", {}).get("reason")):
            text += f"\nReason: {reason}"  # as the text of the message has it
        self._speech = self._add_entry(message["id"], "assistant", text)
        self._speech.message["sender"] = message["source"]
        self._reply = None

    def _make_answer(self, speech: TranscriptEntry, message_id: str) -> None:
        """Make the last speech the beginning of the message with that id, whose text repeats it."""
        del self.entries[speech.id]
        speech.message |= {"message_id": message_id, "content": ""}
        self.entries[message_id], self.head, self._speech = speech, message_id, None

    def _calling_entry(self, tool_call_id: str) -> TranscriptEntry:
        reply = self._reply or self._reply_entry(f"calls_{tool_call_id}")
        reply.last_seq = self._seq
        return reply

    def _add_entry(self, wanted: str, role: str, content: str) -> TranscriptEntry:
        message_id = wanted
        while message_id in self.entries:  # never written by us; a log that repeats an id is read all the same
            self._copies[wanted] = self._copies.get(wanted, 1) + 1
            message_id = f"{wanted}.{self._copies[wanted]}"
        message = message_row(message_id, role, content, self._ts)
        entry = self.entries[message_id] = TranscriptEntry(
            message, self._turn_id, self.head, self._seq, calls=self._calls.take()
        )
        self.head = message_id
        self._reply = entry if role == "assistant" else None
        return entry
