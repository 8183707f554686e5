"""Reading of the turns that an earlier process, or a failed write, left without an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.resume import ResumedTurn, ResumePoint
from agenticx.sessions.history.interrupted import (
    InterruptedTurn,
    child_resume_point,
    resume_point,
    work_resume_point,
)
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import SessionEvent, TokenMerger, decode
from agenticx.sessions.log.records import ChildTurnSaved, Fact, ProcessStarted
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.log.tool_state import decode_tool_state
from agenticx.sessions.log.turn_tree import LoggedTurn, TurnTree
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.hosts import is_this_host
from agenticx.threads import run_in_thread
from agenticx.tools.processes import StartedProcess, kill_leftovers

__all__ = ["OpenTurns", "end_leftover_processes", "read_interrupted", "resumable_turns"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurns:
    """The turns without an end that can be resumed, and the `tree` of all of them.

    - `point` is the resume point of the main turn, None without one or if it cannot be resumed.
    - `needs_work`: work of the application, not of the session, replaces its model calls.
    - `detached` are child turns, of it or of earlier turns, that are resumed by themselves.
    """

    point: ResumePoint | None = None
    needs_work: bool = False
    detached: Sequence[ResumedTurn] = ()
    tree: TurnTree = field(default_factory=TurnTree)


async def read_interrupted(log: Log, turn: TurnRecord, loaded: LoadedSession) -> InterruptedTurn:
    """Return the state of an open turn from its log and facts; if they are unreadable, only that it runs."""
    try:
        return (await _read_open_turns(log, [turn], loaded)).interrupted(turn)
    except DamagedData as exc:
        _log.error("log of an interrupted turn unreadable", turn=turn.id, error=str(exc))
        return InterruptedTurn(turn.session_id, LoggedTurn(turn.id))


async def resumable_turns(
    log: Log,
    loaded: LoadedSession,
    messages: Sequence[Message],
    is_repeatable: Callable[[str], bool],
    *,
    has_work: bool,
) -> OpenTurns:
    """Return the open turns that wait for a person and can be resumed exactly; none if log or facts are damaged.

    `messages` is the conversation of the running turn, `is_repeatable` returns whether a tool of it may run again, and
    `has_work` is true if it runs the work of its session; such a turn is resumed only if all its child turns are.
    """
    running, children = loaded.main_turn, loaded.child_turns
    try:
        tree = await _read_open_turns(log, [*children, *([] if running is None else [running])], loaded)
        with map_decode_errors("the log of a turn"):
            detached = [resumed for turn in tree.detached if (resumed := tree.resumed(turn)) is not None]
            if running is None:
                return OpenTurns(detached=detached, tree=tree.tree)
            interrupted = tree.interrupted(running)
            is_work = not interrupted.turn.round
            if has_work or is_work:
                children = tree.resumed_children(running.id)
                point = None if children is None else work_resume_point(interrupted, children)
            else:
                point = resume_point(interrupted, messages, is_repeatable)
            return OpenTurns(point=point, needs_work=is_work and not has_work, detached=detached, tree=tree.tree)
    except DamagedData as exc:
        _log.error("log of interrupted turns unreadable", error=str(exc))
        return OpenTurns()


async def _read_open_turns(log: Log, turns: Sequence[TurnRecord], loaded: LoadedSession) -> _OpenTurnsReader:
    """Read the events of turns that have not ended; raises `DamagedData`."""
    found = _OpenTurnsReader(loaded)
    ids, after = {turn.id for turn in turns}, min((turn.after_seq or 0 for turn in turns), default=0)
    if turns:
        async for page in read_log_pages(log, loaded.record.id, after):
            for event in page:
                if event.turn_id in ids:
                    found.add(decode(event))
    return found


class _OpenTurnsReader:
    """The open turns of a session, with the saved state of child turns that have asked the user."""

    def __init__(self, loaded: LoadedSession) -> None:
        self._loaded = loaded
        self.tree = TurnTree()
        self._events = {turn.id: TokenMerger() for turn in loaded.child_turns}
        self._saved = {fact.key: fact for fact in loaded.open_facts if isinstance(fact, ChildTurnSaved)}
        detached = {fact.key for fact in self._saved.values() if fact.detached}
        self.detached = [turn for turn in loaded.child_turns if turn.id in detached]

    def add(self, entry: SessionEvent) -> None:
        """Fold an event of one of the turns; raises `DamagedData`."""
        with map_decode_errors(f"the log of turn {entry.turn_id!r}"):
            self.tree.apply(entry.event, entry.ts)
        if (events := self._events.get(entry.turn_id or "")) is not None:
            events.add(entry)

    def interrupted(self, turn: TurnRecord) -> InterruptedTurn:
        """Return a turn with its facts; raises `DamagedData`."""
        if self._loaded.facts_damaged:
            raise DamagedData("a fact of the turn is damaged")
        return InterruptedTurn.with_facts(turn.session_id, self.tree[turn.id], self._loaded.open_facts)

    def resumed(self, turn: TurnRecord) -> ResumedTurn | None:
        """Return the resume point of a turn and its child turns, or None."""
        interrupted = self.interrupted(turn)
        messages, state = list[Message](), None
        saved = self._saved.get(turn.id)
        if saved is not None and saved.state is not None:
            messages += saved.messages
            with map_decode_errors(f"the state of turn {turn.id!r}"):
                state = decode_tool_state(saved.state)
        if interrupted.turn.round:
            point = None if state is None else child_resume_point(interrupted, messages)
        else:
            children = self.resumed_children(turn.id)
            point = None if children is None else work_resume_point(interrupted, children)
        if point is None:
            return None
        return ResumedTurn(
            turn_id=turn.id,
            parent_turn_id=turn.parent_turn_id or "",
            agent_path=(interrupted.turn.agent_id,) if saved is None else saved.agent_path,
            point=point,
            messages=messages,
            events=[entry.event for entry in self._events[turn.id].events()],
            **({} if state is None else {"state": state}),
        )

    def resumed_children(self, turn_id: str) -> Sequence[ResumedTurn] | None:
        """Return the attached child turns of that turn, None if one of them cannot be resumed."""
        children = [turn for turn in self._loaded.child_turns if turn.parent_turn_id == turn_id]
        resumed = [self.resumed(turn) for turn in children if turn not in self.detached]
        return None if None in resumed else [turn for turn in resumed if turn is not None]


async def end_leftover_processes(log: Log, facts: Sequence[Fact]) -> None:
    """Terminate the processes on this host that a turn of an earlier process left."""
    for fact in facts:
        if isinstance(fact, ProcessStarted) and is_this_host(fact.host, log):
            process = StartedProcess(fact.pid, fact.started, fact.mark)
            await run_in_thread(kill_leftovers, process, name="agx ending processes")
