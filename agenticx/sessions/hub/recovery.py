"""Reading of the turns that an earlier process, or a failed write, left without an end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.resume import ResumedTurn, ResumePoint
from agenticx.sessions.history.interrupted import (
    InterruptedTurn,
    child_resume_point,
    resume_point,
    work_resume_point,
)
from agenticx.sessions.hub.state import read_conversation
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.damage import DamagedData, map_decode_errors
from agenticx.sessions.store.entries import Fact, ProcessStarted, StoredEvent, TurnWaiting, decode
from agenticx.sessions.store.hosts import is_this_host
from agenticx.sessions.store.records import Loaded, TurnRecord
from agenticx.threads import run_in_thread
from agenticx.tools.processes import StartedProcess, kill_leftovers

__all__ = ["OpenTurns", "end_leftover_processes", "read_interrupted", "read_turn_events", "resumable_turns"]

_log = get_logger(__name__)

TurnEvents = Mapping[str, Sequence[StoredEvent]]
"""The events of turns, by the ids of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurns:
    """The turns without an end that can go on.

    `point` is where the running one does, None if there is none or it cannot; it `needs_work` if that of an application
    took the place of its model calls, not that of its session. `outliving` are those below it, or below an earlier one,
    that go on by themselves.
    """

    point: ResumePoint | None = None
    needs_work: bool = False
    outliving: Sequence[ResumedTurn] = ()


async def read_turn_events(log: Log, session_id: str, turns: Sequence[TurnRecord]) -> TurnEvents:
    """Return the events of turns that have not ended; raises `DamagedData`."""
    events: dict[str | None, list[StoredEvent]] = {turn.id: [] for turn in turns}
    if turns:
        async for page in read_log_pages(log, session_id, min(turn.after_seq or 0 for turn in turns)):
            for event in page:
                if event.turn_id in events:
                    events[event.turn_id].append(event)
    return {turn.id: events[turn.id] for turn in turns}


async def read_interrupted(log: Log, turn: TurnRecord, loaded: Loaded) -> InterruptedTurn:
    """Return the state of an open turn in its log and facts; if they are unreadable, only that it runs."""
    try:
        return _interrupted(turn, loaded, (await read_turn_events(log, turn.session_id, [turn]))[turn.id])
    except DamagedData as exc:
        _log.error("log of an interrupted turn unreadable", turn=turn.id, error=str(exc))
        return InterruptedTurn(session_id=turn.session_id)


def _interrupted(turn: TurnRecord, loaded: Loaded, events: Sequence[StoredEvent]) -> InterruptedTurn:
    if loaded.facts_damaged:
        raise DamagedData("a fact of the turn is damaged")
    return InterruptedTurn.from_log(events, [fact for fact in loaded.open_facts if fact.turn_id == turn.id])


async def resumable_turns(
    log: Log, loaded: Loaded, messages: Sequence[Message], is_repeatable: Callable[[str], bool], *, has_work: bool
) -> OpenTurns:
    """Return the open turns that wait for a person and can go on exactly; none if their log or facts are damaged.

    `messages` is the conversation of the running turn, `is_repeatable` says which of its tools may run again, and
    `has_work` is true if it runs the work of its session. Such a turn goes on only if all turns below it do.
    """
    running, children = loaded.running, loaded.children
    try:
        events = await read_turn_events(log, loaded.record.id, [*children, *([] if running is None else [running])])
        tree = _OpenTree(loaded, events)
        with map_decode_errors("the log of a turn"):
            outliving = [resumed for turn in tree.outliving if (resumed := tree.resumed(turn)) is not None]
            if running is None:
                return OpenTurns(outliving=outliving)
            interrupted = _interrupted(running, loaded, events[running.id])
            is_work = not interrupted.round
            if has_work or is_work:
                below = tree.resumed_below(running.id)
                point = None if below is None else work_resume_point(interrupted, below)
            else:
                point = resume_point(interrupted, messages, is_repeatable)
            return OpenTurns(point=point, needs_work=is_work and not has_work, outliving=outliving)
    except DamagedData as exc:
        _log.error("log of interrupted turns unreadable", error=str(exc))
        return OpenTurns()


class _OpenTree:
    """The open turns below others, of which those with a conversation in a fact have asked the user."""

    def __init__(self, loaded: Loaded, events: TurnEvents) -> None:
        self._loaded = loaded
        self._events = events
        self._waiting = {fact.key: fact for fact in loaded.open_facts if isinstance(fact, TurnWaiting)}
        outliving = {fact.key for fact in self._waiting.values() if fact.outlives_parent}
        self.outliving = [turn for turn in loaded.children if turn.id in outliving]

    def resumed(self, turn: TurnRecord) -> ResumedTurn | None:
        """Return the turn as it goes on, with those below it; None if it cannot."""
        events = self._events[turn.id]
        interrupted = _interrupted(turn, self._loaded, events)
        messages, state = list[Message](), None
        waiting = self._waiting.get(turn.id)
        if waiting is not None and waiting.conversation is not None:
            read, state = read_conversation(waiting.conversation)
            messages += read
        if interrupted.round:
            point = None if state is None else child_resume_point(interrupted, messages)
        else:
            below = self.resumed_below(turn.id)
            point = None if below is None else work_resume_point(interrupted, below)
        if point is None:
            return None
        return ResumedTurn(
            turn_id=turn.id,
            parent_turn_id=turn.parent_turn_id or "",
            agent_path=(interrupted.agent_id,) if waiting is None else waiting.agent_path,
            point=point,
            messages=messages,
            events=[decode(event).event for event in events],
            **({} if state is None else {"state": state}),
        )

    def resumed_below(self, turn_id: str) -> Sequence[ResumedTurn] | None:
        """Return the turns below that one which do not outlive it; None if one of them cannot go on."""
        below = [turn for turn in self._loaded.children if turn.parent_turn_id == turn_id]
        resumed = [self.resumed(turn) for turn in below if turn not in self.outliving]
        return None if None in resumed else [turn for turn in resumed if turn is not None]


async def end_leftover_processes(log: Log, facts: Sequence[Fact]) -> None:
    """Terminate the processes on this host that are left of a turn of an earlier process."""
    for fact in facts:
        if isinstance(fact, ProcessStarted) and is_this_host(fact.host, log):
            process = StartedProcess(fact.pid, fact.started, fact.mark)
            await run_in_thread(kill_leftovers, process, name="agx ending processes")
