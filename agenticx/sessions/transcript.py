"""What was said in a session, folded from its events: each text once, in the order it was said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agenticx.sessions.base import StoredEvent

__all__ = ["transcript"]


def transcript(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """The messages of a session: `{message_id, role, content, attachments?, tool_calls?, tool_call_id?}`.

    Sub-agents speak in turns of their own and are left out. An assistant message that had no text but calls takes
    its id from the first call.
    """
    fold = _Fold()
    for event in events:
        envelope: dict[str, Any] = json.loads(event.frame_json)
        if envelope["agent_id"] == "meta":
            fold.take(envelope["type"], envelope["data"])
    return fold.messages


class _Fold:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._by_id: dict[str, dict[str, Any]] = {}
        self._speaking: dict[str, Any] | None = None  # the assistant message that calls of this round belong to

    def take(self, type_: str, data: dict[str, Any]) -> None:
        match type_:
            case "turn_started":
                message = self._add(data["message_id"], "user", data["input"])
                if attached := data.get("attachments"):
                    message["attachments"] = attached
            case "steered":
                self._add(data["message_id"], "user", data["text"])
            case "round_start":
                self._speaking = None
            case "token" if data["text"]:
                self._assistant(data["message_id"])["content"] += data["text"]
            case "tool_call":
                call = {"id": data["tool_call_id"], "name": data["name"], "arguments": data["arguments"]}
                self._calling(data["tool_call_id"]).setdefault("tool_calls", []).append(call)
            case "tool_result":
                message = self._add(f"result_{data['tool_call_id']}", "tool", data["result"])
                message["tool_call_id"] = data["tool_call_id"]
            case "final" if data["text"]:
                self._assistant(data["message_id"])["content"] = data["text"]
            case _:
                pass

    def _assistant(self, message_id: str) -> dict[str, Any]:
        known = self._by_id.get(message_id)
        self._speaking = self._add(message_id, "assistant", "") if known is None else known
        return self._speaking

    def _calling(self, tool_call_id: str) -> dict[str, Any]:
        return self._speaking or self._assistant(f"calls_{tool_call_id}")

    def _add(self, message_id: str, role: str, content: str) -> dict[str, Any]:
        message: dict[str, Any] = {"message_id": message_id, "role": role, "content": content}
        self.messages.append(message)
        self._by_id[message_id] = message
        self._speaking = None
        return message
