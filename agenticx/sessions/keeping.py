"""What a session keeps from one turn, and one process, to the next: its messages and what its tools left.

What was compacted is stored once, when its summary is, and is not held in memory afterwards; opening a session does not
read it. The state says how many of the first messages stand for how many that are stored as compacted (`front`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import is_
from pathlib import Path
from typing import Any

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime import RuntimeEvent, Session
from agenticx.sessions.base import DURABLE_EVENTS, SessionRecord, SessionState
from agenticx.tools.base import ToolState

__all__ = ["Keeping", "front_of", "revive"]

_log = get_logger(__name__)


def revive(record: SessionRecord, kept: SessionState) -> Session:
    """The session as its last turn left it."""
    session = Session(
        id=record.id,
        workspace=Path(record.workspace),
        permission_mode=record.permission_mode,
        messages=list(kept.messages),
        resumed=bool(kept.messages),
    )
    if kept.state_json is not None:
        state: dict[str, Any] = json.loads(kept.state_json)
        _mark_front(session, kept.state_json)
        session.allowed.update(state["allowed"])
        if size := state.get("incompressible"):
            session.incompressible = (size[0], size[1])
        session.state = ToolState(
            todos=state["todos"],
            scratchpad=state["scratchpad"],
            files={path: (seen[0], seen[1]) for path, seen in state["files"].items()},
            context_variables=state["context_variables"],
        )
    return session


def front_of(state: str | None) -> tuple[int, int]:
    """Return how many of the first messages stand for how many compacted ones, as a stored state has it."""
    if state is None:
        return 0, 0
    messages, compacted = json.loads(state).get("front", (0, 0))
    return messages, compacted


def _mark_front(session: Session, state: str | None) -> None:
    messages, session.stored_compacted = front_of(state)
    session.mark_front(messages)


class Keeping:
    """Follows a session and tells, beside each batch of its events, what of it has changed since the last one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages: list[Message] = list(session.messages)
        self._state = _state_text(session)

    def change(self, events: Sequence[RuntimeEvent]) -> SessionState | None:
        """What must be stored together with `events`; messages come and go only beside durable ones."""
        if not any(event.type in DURABLE_EVENTS for event in events):
            return None
        kept = _common(self._messages, self._session.messages)
        state = _state_text(self._session)
        if kept == len(self._messages) == len(self._session.messages) and state == self._state:
            return None
        return SessionState(
            self._session.messages[kept:],
            None if state == self._state else state,
            kept,
            compacted=tuple(self._session.compacted) if self._session.front else (),
            keep_compacted=_compacted_keep(self._session),
        )

    def stored(self, change: SessionState | None) -> None:
        """`change` is on disk."""
        if change is not None:
            self._messages[change.keep_messages :] = change.messages
            self._state = self._state if change.state_json is None else change.state_json
            _release(self._session, change)

    def back_to(self, stored: SessionState) -> None:
        """Forget what of the conversation was not stored; what tools left is stored with the next change."""
        self._session.messages, self._messages = list(stored.messages), list(stored.messages)
        self._state = stored.state_json or ""
        self._session.compacted.clear()
        _mark_front(self._session, stored.state_json)


def _compacted_keep(session: Session) -> int:
    """The number of stored compacted messages that stay: none once the conversation no longer begins with summaries."""
    return session.stored_compacted if session.front else 0


def _release(session: Session, stored: SessionState) -> None:
    """Hold what is stored as compacted no longer in memory."""
    if stored.keep_compacted is None or not all(map(is_, stored.compacted, session.compacted)):
        return  # compacted anew meanwhile: the next change says from where
    if session.front == 0:
        session.compacted.clear()
    del session.compacted[: len(stored.compacted)]
    session.stored_compacted = stored.keep_compacted + len(stored.compacted)


def _common(before: Sequence[Message], now: Sequence[Message]) -> int:
    """How many messages at the front are still the same objects."""
    for place, (one, other) in enumerate(zip(before, now, strict=False)):
        if one is not other:
            return place
    return min(len(before), len(now))


def _state_text(session: Session) -> str:
    state = session.state
    return json.dumps(
        {
            "allowed": sorted(session.allowed),
            "todos": state.todos,
            "scratchpad": state.scratchpad,
            "files": state.files,
            "context_variables": _storable(state.context_variables),
            "incompressible": session.incompressible,
            "front": (session.front, _compacted_keep(session) + len(session.compacted)) if session.front else (0, 0),
        },
        separators=(",", ":"),
    )


def _storable(variables: dict[str, Any]) -> dict[str, Any]:
    """The application's own variables, those of them that are JSON; the others live as long as the process."""
    kept: dict[str, Any] = {}
    for name, value in variables.items():
        try:
            kept[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            _log.debug("a context variable is not JSON and ends with the process", name=name)
    return kept
