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
from agenticx.sessions.history.log_end import find_end, fold_end
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode
from agenticx.sessions.store.base import SessionLog

__all__ = ["ListedTurn", "read_last_turns"]

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


async def read_last_turns(
    log: SessionLog, session_id: str, limit: int, *, before: str | None = None
) -> list[ListedTurn]:
    """Return the last turns of the session's conversation, in order, without those that a rewind has left behind.

    These are more than `limit` before the one with the id `before`, without it in all; or all turns if these are fewer,
    or none has that id. Raises `SessionNotFound` and `StoreError`.
    """

    def is_enough(folded: _FoldedTurns) -> bool:
        ids = [turn.id for turn in folded.listed()]
        end = len(ids) if before is None else ids.index(before) if before in ids else 0
        return end > limit

    until = None if before is None else await find_end(log, session_id, lambda event: event.turn_id == before)
    return (await fold_end(log, session_id, _FoldedTurns, is_enough, until=until)).listed()


class _FoldedTurns:
    def __init__(self, is_whole: bool) -> None:
        self._conversation = Conversation(is_whole=is_whole)
        self._turns: dict[str, ListedTurn] = {}

    def feed(self, events: Iterable[StoredEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        entries = [decode(event) for event in events if event.type in _FOLDED_EVENTS]
        self._conversation.feed_decoded(entry for entry in entries if entry.event.type in TRANSCRIPT_EVENTS)
        for entry in entries:
            self._feed(entry)

    def listed(self) -> list[ListedTurn]:
        """Return the turns of the conversation as it is now."""
        current = {entry.turn_id for entry in self._conversation.last_path()}
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
