"""An event as the log has it: its stored line, and what of it can be read, whichever release stored it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agenticx.errors import StoreError
from agenticx.runtime.events import EventType

__all__ = ["Envelope"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event; `line` is its envelope to the byte, and `type` may be one that this release does not know."""

    line: bytes
    type: str
    data: Mapping[str, Any]
    agent_id: str
    turn_id: str | None

    @classmethod
    def parse(cls, line: bytes) -> Envelope:
        """The envelope in a line of the log; raises `StoreError` for a line that holds none."""
        try:
            content: Any = json.loads(line)
            type_: Any = content["type"]
        except (ValueError, TypeError, KeyError) as exc:
            raise StoreError(f"this is no event of a session: {line[:80]!r}") from exc
        fields = cast("dict[str, Any]", content)
        data = fields.get("data")
        return cls(
            line.rstrip(b"\r\n"),
            str(type_),
            cast("dict[str, Any]", data) if isinstance(data, dict) else {},
            str(fields.get("agent_id", "meta")),
            fields.get("turn_id"),
        )

    @property
    def terminal(self) -> bool:
        """Whether this is the last event of its turn."""
        return self.type in _TERMINAL_TYPES or (self.type == EventType.ERROR and self.data.get("fatal") is True)


_TERMINAL_TYPES = frozenset({EventType.FINAL, EventType.SUBAGENT_PAUSED})
