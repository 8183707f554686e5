"""The tool calls in the speeches of a team, folded from the turns of its participants."""

from __future__ import annotations

from typing import Any

from agenticx.runtime.events import (
    Event,
    RoundStartEvent,
    SpeakerSelectedEvent,
    TokenEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnStartedEvent,
)
from agenticx.runtime.events.payloads import ToolResultData
from agenticx.sessions.log.turn_tree import TurnTree

__all__ = ["SpeechCalls", "message_row", "result_fields"]


class SpeechCalls:
    """The replies with calls and their results, as rows of `transcript`, of speeches that are not finished yet.

    A finished speech is a message of the team's turn, so only the rows before it are taken from a participant's turn.
    `tree` has the session's turns as they begin.
    """

    def __init__(self, tree: TurnTree) -> None:
        self._tree = tree
        self.ids = set[str]()
        """The ids of all rows so far."""
        self._rows: list[dict[str, Any]] = []
        self._speakers: dict[str | None, str] = {}  # by the ids of the turns of teams
        self._speaking = set[str | None]()  # the ids of the turns of their participants
        self._text: list[str] = []  # of the reply that is being made, with its id
        self._text_id: str | None = None
        self._calls: list[dict[str, Any]] | None = None  # of that reply, None before the first

    def take(self) -> list[dict[str, Any]]:
        """Return the rows, and have none."""
        rows, self._rows = self._rows, []
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return list(self._rows)

    def feed(self, event: Event, ts: str) -> None:
        """Fold an event of the session and its time; the tree has the turn that it begins."""
        turn_id = event.turn_id
        if isinstance(event, TurnStartedEvent):
            parent_id = self._tree[turn_id or ""].parent_id
            if parent_id is not None and self._speakers.get(parent_id) == event.agent_id:
                self._speaking.add(turn_id)
        elif isinstance(event, SpeakerSelectedEvent) and (self._tree.is_root(turn_id) or turn_id in self._speaking):
            self._speakers[turn_id] = event.data["speakers"][0]
        elif turn_id in self._speaking:
            self._feed_speech(event, ts)

    def _feed_speech(self, event: Event, ts: str) -> None:
        match event:
            case RoundStartEvent():
                self._text, self._text_id, self._calls = [], None, None
            case TokenEvent(data=data) if data["text"]:
                self._text.append(data["text"])
                self._text_id = data["message_id"]
            case ToolCallEvent(data=data):
                call = {"id": data["tool_call_id"], "name": data["name"], "arguments": data["arguments"]}
                if self._calls is None:
                    self._calls = []
                    message_id = self._text_id or f"calls_{data['tool_call_id']}"
                    row = message_row(message_id, "assistant", "".join(self._text), ts)
                    self._add(row | {"sender": event.agent_id, "tool_calls": self._calls})
                self._calls.append(call)
            case ToolResultEvent(data=data):
                row = message_row(f"result_{data['tool_call_id']}", "tool", data["result"], ts)
                self._add(row | result_fields(data))
            case _:
                pass

    def _add(self, row: dict[str, Any]) -> None:
        self.ids.add(row["message_id"])
        self._rows.append(row)


def message_row(message_id: str, role: str, content: str, ts: str) -> dict[str, Any]:
    """Return the fields that each row of `transcript` has."""
    return {"message_id": message_id, "role": role, "content": content, "created_at": ts}


def result_fields(data: ToolResultData) -> dict[str, Any]:
    """Return the fields that the row of a tool's result has besides."""
    fields = ("tool_call_id", "outcome", "is_error", "attachments")
    return {name: value for name, value in data.items() if name in fields}
