"""The turns of a conversation as a list: what each was asked, when it ran, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agenticx.runtime.events import (
    TRANSCRIPT_EVENTS,
    ErrorEvent,
    EventType,
    FinalEvent,
    ToolCallEvent,
    TurnStartedEvent,
)
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["ListedTurn", "read_turns"]

_FOLDED_EVENTS = TRANSCRIPT_EVENTS | {EventType.ERROR}


@dataclass(slots=True, kw_only=True)
class ListedTurn:
    """A turn that a message of the user began, without those below it.

    Its events follow `after_seq`. `outcome` is the reason of its `final` or the code of its fatal `error`, None while
    it has not ended, as `ended_at` is.
    """

    id: str
    message_id: str
    input: str
    after_seq: int
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    tool_calls: int = 0


async def read_turns(log: SessionLog, session_id: str) -> list[ListedTurn]:
    """Return the turns of the session's conversation, in order, without those that a rewind has left behind.

    No more than a page of its log is in memory. Raises `SessionNotFound` and `StoreError`.
    """
    folded = _FoldedTurns()
    async for page in read_log_pages(log, session_id):
        folded.feed(page)
    return folded.listed()


class _FoldedTurns:
    def __init__(self) -> None:
        self._conversation = Conversation()
        self._turns: dict[str, ListedTurn] = {}

    def feed(self, events: Iterable[StoredEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        entries = [decode(event) for event in events if event.type in _FOLDED_EVENTS]
        self._conversation.feed_decoded(entry for entry in entries if entry.event.type in TRANSCRIPT_EVENTS)
        for entry in entries:
            self._feed(entry)

    def listed(self) -> list[ListedTurn]:
        """Return the turns of the conversation as it is now."""
        current = {entry.turn_id for entry in self._conversation.path()}
        return [turn for turn in self._turns.values() if turn.id in current]

    def _feed(self, entry: SessionEvent) -> None:
        turn_id, event = entry.turn_id, entry.event
        if turn_id is None:
            return
        if isinstance(event, TurnStartedEvent):
            if "parent_turn_id" not in event.data:
                self._turns[turn_id] = ListedTurn(
                    id=turn_id,
                    message_id=event.data["message_id"],
                    input=event.data["input"],
                    after_seq=entry.seq - 1,
                    started_at=entry.ts,
                )
        elif (turn := self._turns.get(turn_id)) is not None:
            match event:
                case ToolCallEvent():
                    turn.tool_calls += 1
                case FinalEvent(data=data):
                    turn.ended_at, turn.outcome = entry.ts, data["reason"]
                case ErrorEvent(data=data) if data["fatal"]:
                    turn.ended_at, turn.outcome = entry.ts, data["code"]
                case _:
                    pass
