"""The stored state of a session between turns and processes: its messages and tool state.

It is stored beside the log, which does not hold all of it (not the state that providers require back with a message,
nor the state of tools), and in one transaction with the events that changed it.

Compacted messages are stored once, when their summary is, and are not held in memory afterwards; opening a session does
not read them. The state (key `front`) has the number of summaries at the start of the messages and the number of stored
compacted messages that they replace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import is_
from pathlib import Path
from typing import Any

from agenticx.logs import get_logger
from agenticx.messages import Message, message_adapter
from agenticx.runtime import Session
from agenticx.sessions.files.options import load_options, options_data
from agenticx.sessions.history.rebuild import read_replacement_counts
from agenticx.sessions.store.records import SessionRecord, SessionState, StateChange
from agenticx.tools.base import ToolState
from agenticx.tools.session_files import Artifacts, Contents

__all__ = ["ENCODING_ERRORS", "StateTracker", "conversation_data", "load_session", "read_conversation"]

ENCODING_ERRORS = (TypeError, ValueError, RecursionError)
"""Raised for values that JSON does not have, such as an object, NaN, a lone surrogate or a cycle."""

_log = get_logger(__name__)


def load_session(record: SessionRecord, stored: SessionState, contents: Contents | None = None) -> Session:
    """Return the session as its last turn left it; `contents` are those of its files, by default none."""
    session = Session(
        id=record.id,
        workspace=Path(record.workspace),
        permission_mode=record.permission_mode,
        messages=list(stored.messages),
        resumed=bool(stored.messages),
        artifacts=Artifacts() if contents is None else Artifacts(contents),
    )
    session.active_agent = record.agent
    if stored.state_json is not None:
        state: dict[str, Any] = json.loads(stored.state_json)
        _mark_replacements(session, stored.state_json)
        session.allowed.update(state["allowed"])
        if size := state["incompressible"]:
            session.size_at_failed_compaction = (size[0], size[1])
        session.state = _tool_state(state)
        session.artifacts = Artifacts.from_json(state["artifacts"], session.artifacts.contents)
        load_options(session, state["options"])
    return session


def conversation_data(session: Session) -> dict[str, Any]:
    """Return the messages and the tool state of a child turn as JSON; see `read_conversation`.

    Its files are those of the session, whose state has them. Raises one of `ENCODING_ERRORS`.
    """
    messages = [message.model_dump(mode="json") for message in session.messages]
    return {"messages": messages, "state": json.loads(_state_text(session, 0)) | {"artifacts": {}, "options": {}}}


def read_conversation(data: Mapping[str, Any]) -> tuple[Sequence[Message], ToolState]:
    """Return what `conversation_data` returned as messages and tool state."""
    messages = [message_adapter().validate_python(message) for message in data["messages"]]
    return messages, _tool_state(data["state"])


def _tool_state(state: dict[str, Any]) -> ToolState:
    return ToolState(
        todos=state["todos"],
        scratchpad=state["scratchpad"],
        files={path: (seen[0], seen[1]) for path, seen in state["files"].items()},
        context_variables=state["context_variables"],
        passages=state["passages"],
        sources_below=state["sources_below"],
    )


def _mark_replacements(session: Session, state: str | None) -> None:
    messages, session.stored_compacted = read_replacement_counts(state)
    session.mark_replacements(messages)


class StateTracker:
    """A tracker of one session's state that computes the change to store beside each batch of events."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages: list[Message] = list(session.messages)
        self._state = _state_text(session, _replacement_count(session))

    def pending_change(self, searchable_ids: frozenset[str] | None = None) -> StateChange | None:
        """Return the change to store with the next synced events, None if there is none.

        `searchable_ids` holds the ids of all messages that a search finds from then on, where some are removed.
        """
        session, before = self._session, self._messages
        common = _common_prefix(before, session.messages)
        replacement_count = _replacement_count(session)
        state = _state_text(session, replacement_count)
        is_same = common == len(before) == len(session.messages) and state == self._state
        if is_same and searchable_ids is None:
            return None
        return StateChange(
            session.messages[common:],
            None if state == self._state else state,
            common,
            searchable_ids,
            compacted=tuple(session.compacted) if replacement_count else (),
            keep_compacted=session.stored_compacted if replacement_count else 0,
        )

    def pending_files(self) -> StateChange | None:
        """Return the change of the files and options alone, None if there is none.

        For events of a child turn, whose commits leave the conversation above as it is stored.
        """
        session, stored = self._session, json.loads(self._state or _state_text(self._session, 0))
        files = {"artifacts": session.artifacts.to_json(), "options": options_data(session)}
        state = json.dumps(stored | files, separators=(",", ":"))
        return None if state == self._state else StateChange((), state, len(self._messages))

    def mark_stored(self, change: StateChange) -> None:
        """Take `change`, which is stored, as the base of the next one."""
        self._messages[change.keep_messages :] = change.messages
        self._state = self._state if change.state_json is None else change.state_json
        _drop_stored_compacted(self._session, change)

    def reset_to(self, stored: SessionState) -> None:
        """Drop the part of the conversation that was not stored.

        Tool state is stored with the next change; one that cannot be encoded is dropped too.
        """
        self._session.messages, self._messages = list(stored.messages), list(stored.messages)
        self._state = stored.state_json or ""
        self._session.compacted.clear()
        _mark_replacements(self._session, stored.state_json)
        try:
            _state_text(self._session, 0)
        except ENCODING_ERRORS as exc:
            _log.error("tool state cannot be encoded; it is reset to what is stored", error=str(exc))
            state = stored.state_json
            self._session.state = ToolState() if state is None else _tool_state(json.loads(state))


def _replacement_count(session: Session) -> int:
    """Return how many messages at the start replace compacted ones: 0 once the conversation begins otherwise."""
    return session.replacement_count if session.compacted or session.stored_compacted else 0


def _drop_stored_compacted(session: Session, stored: StateChange) -> None:
    """Drop the compacted messages that are stored from memory."""
    if stored.keep_compacted is None or not all(map(is_, stored.compacted, session.compacted)):
        return  # compacted again meanwhile: the next change has the number of stored messages that stay
    if _replacement_count(session) == 0:
        session.compacted.clear()
    del session.compacted[: len(stored.compacted)]
    session.stored_compacted = stored.keep_compacted + len(stored.compacted)


def _common_prefix(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Return how many messages at the start are the same objects in both."""
    for index, (stored_message, message) in enumerate(zip(before, now, strict=False)):
        if stored_message is not message:
            return index
    return min(len(before), len(now))


def _state_text(session: Session, replacement_count: int) -> str:
    state = session.state
    rest = json.dumps(
        {
            "allowed": sorted(session.allowed),
            "todos": state.todos,
            "scratchpad": state.scratchpad,
            "files": state.files,
            "context_variables": _json_only(state.context_variables),
            "passages": state.passages,
            "sources_below": state.sources_below,
            "options": options_data(session),
            "incompressible": session.size_at_failed_compaction,
            "front": (replacement_count, session.stored_compacted + len(session.compacted))
            if replacement_count
            else (0, 0),
        },
        separators=(",", ":"),
    )
    return f'{rest[:-1]},"artifacts":{session.artifacts.to_json_text()}}}'


def _json_only(variables: dict[str, Any]) -> dict[str, Any]:
    """Return those of the application's own variables that are JSON; the others are lost when the process ends."""
    json_variables: dict[str, Any] = {}
    for name, value in variables.items():
        try:
            json_variables[name] = json.loads(json.dumps(value, allow_nan=False))
        except ENCODING_ERRORS:
            _log.debug("context variable is not JSON; it is lost when the process ends", name=name)
    return json_variables
