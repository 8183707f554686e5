"""The turns of a session that have not ended, and the status of each.

The status of a turn, from its beginning in this process, or in an earlier one, to its end:

    queued     begun here; none of its events is stored yet
    running    its task is alive
    waiting    its task is alive, and has asked a person
    suspended  a process left it without an end: another one, or this one later, resumes or ends it
    ended      its terminal event is stored, or nothing of it ever was

    from                        to                 when
    (begun here)                queued             `add`
    (left by an earlier owner)  suspended          the session is claimed
    queued                      running            its first events are stored
    running                     waiting            an event is stored that asks
    waiting                     running            the events with all answers are stored
    suspended                   running, waiting   it is begun again here (`resume`)
    queued, running, waiting    suspended          the program ends while nothing of it goes on without an answer, or
                                                   another process owns the session (`suspend`, `leave`)
    any                         ended              its terminal event is stored

The stored state of a turn is in the `StoredSession` that its owner folds; this module has the rest. A
turn that cannot go on keeps its status until its end is stored: `due_end` is that end, and no other event of the turn
is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agenticx.errors import AgenticXError
from agenticx.runtime import Steering, StopSignal
from agenticx.runtime.child_turns import ChildTurn
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.runtime.resume import ResumedTurn, ResumePoint
from agenticx.sessions.hub.turn_services import TurnSetup
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.log.state import StoredSession
from agenticx.sessions.log.turn_tree import LoggedTurn, TurnStatus, TurnTree

__all__ = ["NOT_STORED", "DueEnd", "LiveTurn", "LiveTurns", "MainTurn"]


class DueEnd(NamedTuple):
    """The end of a turn that did not emit one itself: the code and the text of its `error`."""

    code: str
    text: str


NOT_STORED = DueEnd("storage", "The session's log could not be written.")
"""The end of a turn whose own end could not be stored."""


@dataclass(slots=True, eq=False, kw_only=True)
class LiveTurn:
    """A turn that has not ended: a child turn, or a `MainTurn`. Its `status` changes as the module's table says.

    - `tree` has what is stored of it.
    - `due_end` is the end that is to be stored for it.
    - A suspended turn with a `resume_point` is resumed here once it is begun again.
    - `asked_again` are the requests of an earlier process that it is to ask again, by id; an event is set once that is
      done, or the turn will not ask any more.
    - `running_calls` are the calls without a result that have begun.
    - `child` is the child turn while it runs here.
    """

    record: TurnRecord
    tree: TurnTree
    status: TurnStatus = "queued"
    due_end: DueEnd | None = None
    detached: bool = False
    resume_point: ResumePoint | None = None
    asked_again: Mapping[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    running_calls: set[str] = field(default_factory=set[str])
    child: ChildTurn | None = None

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def logged(self) -> LoggedTurn:
        """The turn as its stored events show it, without the text of its messages."""
        return self.tree[self.id]

    @property
    def is_over(self) -> bool:
        """True if none of its events is stored any more, except for a due end."""
        return self.status == "ended" or self.due_end is not None

    @property
    def accepts_events(self) -> bool:
        """True if the events of its task are stored."""
        return not (self.is_over or self.status == "suspended")

    @property
    def awaits_resume(self) -> bool:
        """True if it is suspended until it is begun again here."""
        return self.status == "suspended" and self.resume_point is not None and not self.is_over

    @property
    def stays_suspended(self) -> bool:
        """True if it is suspended until another process, or a later call, goes on with the session."""
        return self.status == "suspended" and self.resume_point is None and not self.is_over

    @property
    def runs_here(self) -> bool:
        """True if it is a child turn with a running task in this process."""
        return self.child is not None and self.status != "suspended"

    def expect_requests(self, point: ResumePoint) -> None:
        """Expect the turn to ask its unanswered requests at `point` again."""
        requests = (resumed for resumed in point.requests.values() if resumed.answer is None)
        self.asked_again = {resumed.request.id: resumed.asked for resumed in requests}

    def ask_no_more(self) -> None:
        """Wake up everything that waits for the turn to ask its requests again."""
        for asked in self.asked_again.values():
            asked.set()

    def resume(self) -> None:
        """Continue the turn from its state in the log; it is being begun again here."""
        self.status, self.resume_point = self.logged.status, None

    def leave(self) -> None:
        """Leave the turn to another owner of its session."""
        self.status, self.due_end, self.resume_point = "suspended", None, None
        self.ask_no_more()


@dataclass(slots=True, eq=False, kw_only=True)
class MainTurn(LiveTurn):
    """A turn of the session itself: not a child turn.

    - `started` has the sequence number before the turn's first event once that is stored; callers shield it when they
      wait.
    - `done_event` is set once the turn's end is stored, the session is deleted, or the end is left to a later try;
      never for a turn that is suspended when the program ends.
    - `derived_name` becomes the name of a session without one once the turn has begun.
    - `setup` is None until the turn runs here.
    - `has_guest`: an agent acts that the hub does not have, so the session returns to its main agent at the end.
    - `picked_after` is the sequence number before the pick that its message made, None without a pick.
    """

    setup: TurnSetup | None = None
    derived_name: str | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    steering: Steering = field(default_factory=Steering)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    done_event: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    has_guest: bool = False
    picked_after: int | None = None

    @property
    def has_failed_to_begin(self) -> bool:
        """True if the turn ended before its first event was stored, as far as is known."""
        return self.started.done() and self.started.exception() is not None

    @property
    def has_pending_end(self) -> bool:
        """True if its end could not be stored, and is to be stored before the session's next turn begins."""
        return self.due_end is not None and self.done_event.is_set()

    def fail_to_begin(self, why: AgenticXError) -> None:
        """Raise `why` in all that wait for the turn to begin, unless it has begun."""
        if not self.started.done():
            self.started.set_exception(why)
            self.started.exception()  # retrieved: nobody awaits the begin of a queued message's turn


class LiveTurns:
    """The live turns of one session, `by_id`, and the `stored` session.

    `main` is the last main turn; it stays after its end, for repetitions of its message. Once the turns are
    `abandoned`, because the session has another owner, no event of a child turn is stored any more.
    """

    def __init__(self, stored: StoredSession) -> None:
        self.stored = stored
        self.by_id: dict[str, LiveTurn] = {}
        self.main: MainTurn | None = None
        self.abandoned = False
        for record in stored.child_turns:
            self.add(LiveTurn(record=record, tree=self.tree, status="suspended"))
        if (record := stored.main_turn) is not None:
            self.main = MainTurn(record=record, tree=self.tree, status="suspended")
            self.main.started.set_result(record.after_seq or 0)
            self.add(self.main)

    @property
    def tree(self) -> TurnTree:
        """The turns as their stored events show them."""
        return self.stored.tree

    @property
    def children(self) -> Sequence[LiveTurn]:
        """The child turns."""
        return [turn for turn in self.by_id.values() if turn is not self.main]

    @property
    def has_attached(self) -> bool:
        """True if a child turn runs here that is not detached."""
        return any(turn.child is not None and not turn.detached for turn in self.by_id.values())

    @property
    def has_detached(self) -> bool:
        """True if a child turn is detached."""
        return any(turn.detached for turn in self.children)

    @property
    def has_suspended(self) -> bool:
        """True if a turn stays suspended."""
        return any(turn.stays_suspended for turn in self.by_id.values())

    def attached_to(self, turn_id: str) -> Sequence[LiveTurn]:
        """Return the child turns of a turn that are not detached."""
        return [turn for turn in self.children if turn.record.parent_turn_id == turn_id and not turn.detached]

    def asked_again(self, request_id: str) -> asyncio.Event | None:
        """Return the event that is set once a request of an earlier process is asked again; None for other requests."""
        return next((asked for turn in self.by_id.values() if (asked := turn.asked_again.get(request_id))), None)

    def add(self, turn: LiveTurn) -> None:
        self.by_id[turn.id] = turn

    def update(self, turn_id: str | None, events: Sequence[RuntimeEvent]) -> None:
        """Update the status of a turn after these events of it were stored; an ended turn is removed."""
        if turn_id is None or not events or (turn := self.by_id.get(turn_id)) is None:
            return
        if turn.running_calls:
            results = (event for event in events if event.type is EventType.TOOL_RESULT)
            turn.running_calls.difference_update(event.data["tool_call_id"] for event in results)
        if events[-1].terminal:
            self.remove(turn)
        elif turn.status != "suspended":
            turn.status = turn.logged.status

    def remove(self, turn: LiveTurn) -> None:
        """Mark a turn as ended, and remove it."""
        turn.status, turn.due_end = "ended", None
        turn.ask_no_more()
        self.by_id.pop(turn.id, None)

    def fail(self, turn: LiveTurn, end: DueEnd) -> None:
        """Store only this end of a turn and of its attached child turns from now on; detached ones continue."""
        turn.due_end, turn.resume_point = end, None
        turn.ask_no_more()
        for child in self.attached_to(turn.id):
            self.fail(child, end)

    def leave(self) -> None:
        """Leave all turns to another owner of the session, or with the deleted session."""
        for turn in self.by_id.values():
            turn.leave()

    # --- turns of an earlier owner ------------------------------------------------------------------------------------

    def restore(self, tree: TurnTree) -> None:
        """Replace the suspended turns by their state in a tree that was read from the log."""
        for turn in self.by_id.values():
            if turn.status == "suspended" and turn.id in tree.turns:
                self.tree.turns[turn.id] = tree.turns[turn.id]

    def await_resume(self, resumed: Iterable[ResumedTurn], *, ask: bool = True) -> None:
        """Keep suspended child turns and their descendants until they are begun again.

        Without `ask`, no answer waits for them to ask their requests again.
        """
        for one in resumed:
            if (turn := self.by_id.get(one.turn_id)) is not None:
                turn.resume_point = one.point
                if ask:
                    turn.expect_requests(one.point)
                self.await_resume(one.point.children, ask=ask)

    # --- suspending ---------------------------------------------------------------------------------------------------

    def waits(self, turn: LiveTurn, *, has_work: bool) -> bool:
        """Return whether a turn cannot continue without an answer; with work, it or all of its child turns wait."""
        if not has_work:
            return turn.status == "waiting" and not turn.running_calls
        children = [child for child in self.attached_to(turn.id) if child.child is not None or child.awaits_resume]
        return bool(turn.status == "waiting" or children) and all(map(self._child_waits, children))

    def _child_waits(self, turn: LiveTurn) -> bool:
        return turn.awaits_resume or (turn.child is not None and self.waits(turn, has_work=turn.child.has_work))

    def suspend_detached(self) -> None:
        """Suspend the detached turns that wait for a person."""
        for turn in self.children:
            if turn.detached and not turn.is_over and self._child_waits(turn):
                self.suspend(turn)

    def suspend(self, turn: LiveTurn) -> None:
        """Store nothing more of a turn and its child turns: they go on after the next start."""
        turn.leave()
        if turn.child is not None:
            turn.child.suspend()
        for child in self.attached_to(turn.id):
            self.suspend(child)
