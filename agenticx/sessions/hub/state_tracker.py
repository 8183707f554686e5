"""The stored state of a session between turns and processes: its messages and tool state.

It is stored as records of the log, in the commit of the events that changed it: new messages, and changed parts of the
tool state.

Compacted messages are not held in memory once their summary is stored; opening a session does not read them. A part of
the state has the number of summaries at the start of the messages and the number of stored compacted messages that they
replace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import is_
from pathlib import Path
from typing import Any, Self, SupportsIndex

from typing_extensions import override

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime import Session
from agenticx.sessions.log.commits import SessionState, StateChange
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.tool_state import (
    ENCODING_ERRORS,
    Parts,
    PartsChange,
    StateParts,
    decode_replacement_counts,
    decode_tool_state,
    encode_tool_state,
    load_state,
)
from agenticx.tools.artifacts.files import Artifacts, Contents

__all__ = ["StateTracker", "load_session"]

_log = get_logger(__name__)


def load_session(record: SessionRecord, stored: SessionState, contents: Contents | None = None) -> Session:
    """Return the session as its last turn left it; `contents` has the contents of its files, by default none."""
    session = Session(
        id=record.id,
        workspace=Path(record.workspace),
        permission_mode=record.permission_mode,
        messages=list(stored.messages),
        resumed=bool(stored.messages),
        artifacts=Artifacts() if contents is None else Artifacts(contents),
    )
    session.messages = TrackedMessages(session.messages)
    session.active_agent = record.agent
    _mark_replacements(session, stored.parts)
    load_state(session, stored.parts)
    return session


def _mark_replacements(session: Session, parts: Parts) -> None:
    messages, session.stored_compacted = decode_replacement_counts(parts)
    session.mark_replacements(messages)


class StateTracker:
    """A tracker of one session's state that computes the change to store beside each batch of events."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages: list[Message] = list(session.messages)
        self._unchanged = len(self._messages)  # of the stored ones, at the last look
        self._pending: StateChange | None = None
        self._parts = StateParts.of(session, _replacement_counts(session))

    def pending_change(self, removed_texts: Collection[str] = ()) -> StateChange | None:
        """Return the change to store with the next synced events, None if there is none.

        A search finds the messages with the ids `removed_texts` no more.
        """
        session, before = self._session, self._messages
        common = self._unchanged = self._look_at_messages()
        replacement_count = _replacement_count(session)
        parts = self._parts.changes(session, _replacement_counts(session))
        is_same = common == len(before) == len(session.messages) and not parts
        if is_same and not removed_texts:
            return None
        self._pending = StateChange(
            session.messages[common:],
            parts.changed,
            common,
            removed_texts,
            compacted=tuple(session.compacted) if replacement_count else (),
            keep_compacted=session.stored_compacted if replacement_count else 0,
            removed_parts=parts.removed,
        )
        return self._pending

    def _look_at_messages(self) -> int:
        """Return the number of stored messages at the start of the conversation; the cost is linear in the changes."""
        messages, start = self._session.messages, 0
        if isinstance(messages, TrackedMessages):
            start = min(self._unchanged, messages.take_unchanged())
        return start + _common_prefix(self._messages[start:], messages[start:])

    def pending_files(self) -> StateChange | None:
        """Return the change of the files and options alone, None if there is none.

        The commits of child turns store it; they leave the conversation of the session as it is stored.
        """
        return self._parts_change(self._parts.file_changes(self._session))

    def pending_rules(self) -> StateChange | None:
        """Return the change of the session's rules alone, None if there is none."""
        return self._parts_change(self._parts.rule_changes(self._session))

    def _parts_change(self, parts: PartsChange) -> StateChange | None:
        if not parts:
            return None
        return StateChange((), parts.changed, len(self._messages), removed_parts=parts.removed)

    def mark_stored(self, change: StateChange) -> None:
        """Make `change`, which is stored, the base of the next one."""
        self._messages[change.keep_messages :] = change.messages
        if change is self._pending:
            self._unchanged = len(self._messages)
        self._parts.mark_stored(change.parts, change.removed_parts)
        _drop_stored_compacted(self._session, change)

    def reset_to(self, stored: SessionState) -> None:
        """Drop the part of the conversation that was not stored.

        Tool state is stored with the next change; a state that cannot be encoded is dropped too.
        """
        self._session.messages, self._messages = TrackedMessages(stored.messages), list(stored.messages)
        self._unchanged = len(self._messages)
        self._parts.reset_to(stored.parts)
        self._session.compacted.clear()
        _mark_replacements(self._session, stored.parts)
        try:
            encode_tool_state(self._session.state)
        except ENCODING_ERRORS as exc:
            _log.error("tool state cannot be encoded; it is reset to what is stored", error=str(exc))
            self._session.state = decode_tool_state(stored.parts)


class TrackedMessages(list[Message]):
    """Messages of a conversation that remember where they were changed, so that only new ones are compared."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        super().__init__(messages)
        self._unchanged = len(self)

    def take_unchanged(self) -> int:
        """Return how many messages at the start have not changed since this was called last."""
        unchanged, self._unchanged = min(self._unchanged, len(self)), len(self)
        return unchanged

    @override
    def __setitem__(self, index: Any, value: Any) -> None:
        self._change_from(index)
        super().__setitem__(index, value)

    @override
    def __delitem__(self, index: Any) -> None:
        self._change_from(index)
        super().__delitem__(index)

    @override
    def insert(self, index: SupportsIndex, message: Message, /) -> None:
        self._change_from(slice(index, None))
        super().insert(index, message)

    @override
    def pop(self, index: SupportsIndex = -1, /) -> Message:
        self._change_from(index)
        return super().pop(index)

    @override
    def remove(self, message: Message, /) -> None:
        self._unchanged = 0
        super().remove(message)

    @override
    def clear(self) -> None:
        self._unchanged = 0
        super().clear()

    @override
    def reverse(self) -> None:
        self._unchanged = 0
        super().reverse()

    @override
    def sort(self, **options: Any) -> None:
        self._unchanged = 0
        super().sort(**options)

    @override
    def __imul__(self, times: SupportsIndex) -> Self:
        self._unchanged = 0
        return super().__imul__(times)

    def _change_from(self, index: SupportsIndex | slice) -> None:
        """Note that the messages at this index, and perhaps all behind it, change."""
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            first = index.indices(len(self))[0] if index.step in (None, 1) else min(places, default=len(self))
        else:
            first = index.__index__()
            first += len(self) if first < 0 else 0
        self._unchanged = min(self._unchanged, max(first, 0))


def _replacement_count(session: Session) -> int:
    """Return how many messages at the start replace compacted ones: 0 once the conversation begins otherwise."""
    return session.replacement_count if session.compacted or session.stored_compacted else 0


def _replacement_counts(session: Session) -> tuple[int, int]:
    """Return how many messages at the start replace how many compacted ones."""
    count = _replacement_count(session)
    return (count, session.stored_compacted + len(session.compacted)) if count else (0, 0)


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
