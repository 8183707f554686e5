"""What was said in a session, folded from its events: each text once, in the order it was said.

A session that was rewound has said more than is still part of it. Its messages form a tree, each following the one that
was last when it was said; the conversation is the path to `head`, and a rewind moves `head`, to and fro.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agenticx.errors import AgenticXError
from agenticx.sessions.base import Store, StoredEvent
from agenticx.sessions.damage import readable
from agenticx.sessions.reading import log_in_pieces
from agenticx.sessions.search import Said

__all__ = [
    "Conversation",
    "Entry",
    "MessageNotFound",
    "calls_on",
    "read_conversation",
    "read_messages",
    "said_on",
    "transcript",
]

_TELLING = frozenset(
    ("turn_started", "steered", "round_start", "token", "tool_call", "tool_result", "final", "session_changed")
)


class MessageNotFound(AgenticXError):
    """The session has no message of that id."""


def transcript(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """The messages of a session: `{message_id, role, content, attachments?, tool_calls?, tool_call_id?}`.

    Sub-agents speak in turns of their own and are left out. An assistant message that had no text but calls takes
    its id from the first call.
    """
    return Conversation.of(events).messages()


async def read_conversation(store: Store, session_id: str) -> tuple[list[StoredEvent], Conversation]:
    """All events of a session and what they tell."""
    events, conversation = list[StoredEvent](), Conversation()
    async for piece in log_in_pieces(store, session_id):
        events += piece
        conversation.take(piece)
    return events, conversation


async def read_messages(store: Store, session_id: str) -> list[dict[str, Any]]:
    """What `transcript` tells of a session's log, of which no more than a piece is held."""
    conversation = Conversation()
    async for piece in log_in_pieces(store, session_id):
        conversation.take(piece)
    return conversation.messages()


@dataclass(slots=True)
class Entry:
    """One message; `follows` is the one before it, `last_seq` the event with which it was all said.

    `result` is the data of the event, for what a tool returned.
    """

    message: dict[str, Any]
    turn_id: str | None
    follows: str | None
    last_seq: int
    result: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        return self.message["message_id"]


def calls_on(path: Iterable[Entry]) -> set[str]:
    """The calls whose results are part of a path."""
    return {entry.message["tool_call_id"] for entry in path if entry.message["role"] == "tool"}


def said_on(path: Iterable[Entry]) -> list[Said]:
    """The texts of a path that a search can find, those that the model no longer reads among them."""
    told = (entry.message for entry in path)
    return [
        Said(message["message_id"], message["role"], message["content"])
        for message in told
        if message["role"] in ("user", "assistant") and message["content"]
    ]


class Conversation:
    """All messages of a session, and which of them are the conversation now."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.head: str | None = None
        self._seq = 0
        self._turn_id: str | None = None
        self._speaking: Entry | None = None  # the assistant message that calls of this round belong to
        self._growing: Entry | None = None  # the message that `_pieces` belong to, until they are joined
        self._pieces: list[str] = []
        self._copies: dict[str, int] = {}  # of an id that several messages have

    @classmethod
    def of(cls, events: Iterable[StoredEvent]) -> Conversation:
        """Fold the events of a session, from its first."""
        conversation = cls()
        conversation.take(events)
        return conversation

    def take(self, events: Iterable[StoredEvent]) -> None:
        """Fold the next events of the session; raises `Damaged`."""
        with readable("the log of a session"):
            for event in events:
                if event.type not in _TELLING:
                    continue
                envelope: dict[str, Any] = json.loads(event.frame_json)
                if envelope["agent_id"] == "meta":
                    self._seq, self._turn_id = event.seq, event.turn_id
                    self._take(envelope["type"], envelope["data"])
            self._join()

    def path(self, message_id: str | None = None) -> list[Entry]:
        """The messages up to and with that one, by default the last.

        Raises `MessageNotFound` for an id that no message of the session has.
        """
        if message_id is not None and message_id not in self.entries:
            raise MessageNotFound(f"no message of this session has the id {message_id!r}; GET …/messages lists them")
        path: list[Entry] = []
        place = message_id or self.head
        while place is not None:
            path.append(self.entries[place])
            place = path[-1].follows
        return path[::-1]

    def messages(self) -> list[dict[str, Any]]:
        """The path as `transcript` tells it."""
        return [entry.message for entry in self.path()]

    def _take(self, type_: str, data: dict[str, Any]) -> None:
        match type_:
            case "turn_started" | "steered":
                entry = self._add(data["message_id"], "user", data["input" if type_ == "turn_started" else "text"])
                if attached := data.get("attachments"):
                    entry.message["attachments"] = attached
            case "round_start":
                self._speaking = None
            case "token" if data["text"]:
                self._grow(self._assistant(data["message_id"]), data["text"])
            case "tool_call":
                call = {"id": data["tool_call_id"], "name": data["name"], "arguments": data["arguments"]}
                self._calling(data["tool_call_id"]).message.setdefault("tool_calls", []).append(call)
            case "tool_result":
                entry = self._add(f"result_{data['tool_call_id']}", "tool", data["result"])
                entry.message["tool_call_id"] = data["tool_call_id"]
                entry.result = data
            case "final" if data["text"]:
                self._join()
                self._assistant(data["message_id"]).message["content"] = data["text"]
            case "session_changed" if "rewound_to" in data:
                self.head = data["rewound_to"]
                self._speaking = None
            case _:
                pass

    def _grow(self, entry: Entry, text: str) -> None:
        """Add a piece of the message's text, which is joined once: adding to a long text copies it."""
        if self._growing is not entry:
            self._join()
            self._growing = entry
        self._pieces.append(text)

    def _join(self) -> None:
        if self._growing is not None:
            self._growing.message["content"] += "".join(self._pieces)
            self._growing = None
            self._pieces.clear()

    def _assistant(self, message_id: str) -> Entry:
        known = self.entries.get(message_id)
        self._speaking = self._add(message_id, "assistant", "") if known is None else known
        self._speaking.last_seq = self._seq
        return self._speaking

    def _calling(self, tool_call_id: str) -> Entry:
        speaking = self._speaking or self._assistant(f"calls_{tool_call_id}")
        speaking.last_seq = self._seq
        return speaking

    def _add(self, wanted: str, role: str, content: str) -> Entry:
        message_id = wanted
        while message_id in self.entries:  # nothing says it twice; a log that does is read all the same
            self._copies[wanted] = self._copies.get(wanted, 1) + 1
            message_id = f"{wanted}.{self._copies[wanted]}"
        message: dict[str, Any] = {"message_id": message_id, "role": role, "content": content}
        entry = self.entries[message_id] = Entry(message, self._turn_id, self.head, self._seq)
        self.head = message_id
        self._speaking = entry if role == "assistant" else None
        return entry
