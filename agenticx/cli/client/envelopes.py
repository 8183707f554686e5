"""Stored events as the CLI reads them: the exact line and its parsed fields, of any release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agenticx.errors import StoreError
from agenticx.messages import MAIN_AGENT
from agenticx.runtime.events import EventType, is_terminal

__all__ = ["Envelope"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event; `line` is its stored envelope, byte for byte, and `type` may be unknown to this release."""

    line: bytes
    type: str
    data: Mapping[str, Any]
    agent_id: str
    turn_id: str | None
    session_id: str | None
    timestamp: str
    """The time of the event, as RFC 3339; "" in a line without one."""
    seq: int
    """The number of the event in its session, from 1; 0 in a line without one."""

    @classmethod
    def parse(cls, line: bytes) -> Envelope:
        """Return the envelope in a line of the log; raise `StoreError` for a line that is not an event."""
        try:
            content: Any = json.loads(line)
            type_: Any = content["type"]
        except (ValueError, TypeError, KeyError) as exc:
            raise StoreError(f"not a session event: {line[:80]!r}") from exc
        fields = cast("dict[str, Any]", content)
        data, seq = fields.get("data"), fields.get("seq")
        return cls(
            line.rstrip(b"\r\n"),
            str(type_),
            cast("dict[str, Any]", data) if isinstance(data, dict) else {},
            str(fields.get("agent_id", MAIN_AGENT)),
            fields.get("turn_id"),
            fields.get("session_id"),
            str(fields.get("ts", "")),
            seq if isinstance(seq, int) else 0,
        )

    @property
    def terminal(self) -> bool:
        """True for the last event of a turn: `final`, `subagent_paused` or a fatal `error`."""
        return is_terminal(self.type, self.data)

    @property
    def begins_root_turn(self) -> bool:
        """True for the first event of a root turn, for example of a turn that answers a message of the user."""
        return self.type == EventType.TURN_STARTED and self.data.get("parent_turn_id") is None
