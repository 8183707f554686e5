"""The turns of a conversation as a list, each with its input, times and outcome."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agenticx.errors import SessionNotFound
from agenticx.runtime.events import (
    TRANSCRIPT_EVENTS,
    ErrorEvent,
    Event,
    EventType,
    FinalEvent,
    ToolCallEvent,
    TurnStartedEvent,
)
from agenticx.sessions.history.log_end import find_end, find_event, fold_end
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["ListedTurn", "read_last_outcomes", "read_last_turns", "read_turn_of_message"]

_LAST_EVENTS = (8, 248)  # read in two steps: mostly the end of a turn is among the last few
_FOLDED_EVENTS = TRANSCRIPT_EVENTS | {EventType.ERROR}


@dataclass(slots=True, kw_only=True)
class ListedTurn:
    """A turn that a message of the user began, without its child turns.

    It has `events` events, between `after_seq` and `last_seq`. `outcome` is the reason of its `final`, or the code of
    its fatal `error`, None while it has not ended, as `ended_at` is.
    """

    id: str
    message_id: str
    input: str
    after_seq: int
    last_seq: int
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    events: int = 1
    tool_calls: int = 0


async def read_last_turns(
    log: SessionLog, session_id: str, limit: int, *, before: str | None = None
) -> list[ListedTurn]:
    """Return the last turns of the session's conversation, in order, without rewound ones.

    They include more than `limit` turns before the turn with the id `before`, by default before the end; or all turns,
    if there are fewer or no turn has that id. Raises `SessionNotFound` and `StoreError`.
    """

    def is_enough(folded: _FoldedTurns) -> bool:
        ids = [turn.id for turn in folded.listed()]
        end = len(ids) if before is None else ids.index(before) if before in ids else 0
        return end > limit

    until = None if before is None else await find_end(log, session_id, lambda event: event.turn_id == before)
    return (await fold_end(log, session_id, _FoldedTurns, is_enough, until=until)).listed()


async def read_turn_of_message(log: SessionLog, session_id: str, message_id: str) -> ListedTurn | None:
    """Return the turn that has a message, also a rewound one; None if there is no such message.

    For a message of a child turn that is its root turn. Raises `SessionNotFound` and `StoreError`.
    """
    named = f'"{message_id.removeprefix("result_").removeprefix("calls_")}"'.encode("utf-8", "replace")
    event = await find_event(log, session_id, lambda event: event.turn_id is not None and named in event.frame_json)
    turn_id = None if event is None else event.turn_id
    turn = None if turn_id is None else await log.turn(session_id, turn_id)
    while turn is not None and turn.parent_turn_id is not None:
        turn = await log.turn(session_id, turn.parent_turn_id)
    if turn is None:
        return None
    folded = _FoldedTurns(is_whole=False)
    async for page in read_log_pages(log, session_id, turn.after_seq or 0):
        folded.feed(page)
        if any(one.terminal and one.turn_id == turn.id for one in page):
            break
    return folded.turns.get(turn.id)


async def read_last_outcomes(log: SessionLog, last_events: Collection[StoredEvent]) -> dict[str, str]:
    """Return how the last turn that has ended did so, by the ids of the sessions that end with these events.

    It is the outcome of a `ListedTurn`, also of a rewound one. Left out are sessions without such a turn among their
    last events, deleted ones and damaged ones.
    """
    outcomes = dict[str, str]()
    for event in last_events:
        with suppress(SessionNotFound, DamagedData):
            outcome = await _last_outcome(log, event)
            if outcome is not None:
                outcomes[event.session_id] = outcome
    return outcomes


async def _last_outcome(log: SessionLog, last: StoredEvent) -> str | None:
    if last.terminal:  # behind the end of a child turn the log goes on
        return _outcome(decode(last).event)
    session_id, end = last.session_id, last.seq
    for count in _LAST_EVENTS:
        start = max(0, end - count)
        pages = [page async for page in read_log_pages(log, session_id, start, until=end)]
        for event in (event for page in reversed(pages) for event in reversed(page)):
            if event.terminal and (turn := await log.turn(session_id, event.turn_id)) and not turn.parent_turn_id:
                return _outcome(decode(event).event)
        end = start
    return None


def _outcome(event: Event) -> str | None:
    match event:
        case FinalEvent(data=data):
            return data["reason"]
        case ErrorEvent(data=data) if data["fatal"]:
            return data["code"]
        case _:
            return None


class _FoldedTurns:
    def __init__(self, is_whole: bool) -> None:
        self._conversation = Conversation(is_whole=is_whole)
        self.turns: dict[str, ListedTurn] = {}

    def feed(self, events: Sequence[StoredEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        entries = [decode(event) for event in events if event.type in _FOLDED_EVENTS]
        self._conversation.feed_decoded(entry for entry in entries if entry.event.type in TRANSCRIPT_EVENTS)
        for entry in entries:
            self._feed(entry)
        for event in events:
            turn = None if event.turn_id is None else self.turns.get(event.turn_id)
            if turn is not None and event.seq > turn.last_seq:
                turn.last_seq, turn.events = event.seq, turn.events + 1

    def listed(self) -> list[ListedTurn]:
        """Return the turns of the conversation as it is now."""
        current = {entry.turn_id for entry in self._conversation.last_path()}
        return [turn for turn in self.turns.values() if turn.id in current]

    def _feed(self, entry: SessionEvent) -> None:
        turn_id, event = entry.turn_id, entry.event
        if turn_id is None:
            return
        if isinstance(event, TurnStartedEvent):
            if "parent_turn_id" not in event.data:
                self.turns[turn_id] = ListedTurn(
                    id=turn_id,
                    message_id=event.data["message_id"],
                    input=event.data["input"],
                    after_seq=entry.seq - 1,
                    last_seq=entry.seq,
                    started_at=entry.ts,
                )
        elif (turn := self.turns.get(turn_id)) is not None:
            match event:
                case ToolCallEvent():
                    turn.tool_calls += 1
                case _ if (outcome := _outcome(event)) is not None:
                    turn.ended_at, turn.outcome = entry.ts, outcome
                case _:
                    pass
