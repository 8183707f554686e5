"""A turn of a session while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from agenticx.errors import AgenticXError
from agenticx.runtime import Steering, StopSignal
from agenticx.runtime.resume import ResumePoint
from agenticx.sessions.hub.turn_services import TurnSetup
from agenticx.sessions.store.records import TurnRecord

__all__ = ["RunningTurn"]


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn from its beginning until it has emitted its last event.

    `closed`: no further event of it is stored, because the terminal event is stored, the turn is being
    aborted, or it is `suspended`. `suspended` is set when the turn waits for the user while the program ends: it
    continues after the next start. `started` has the sequence number before the turn's first event once that is stored;
    a caller that waits for it shields it. `done_event` is set once the turn's end is stored, its session deleted or its
    end left to a later try; never for a suspended turn. `derived_name` becomes the name of a session without one once
    the turn has begun. `open_questions` are those that a resumed turn is to ask again, by id; each event is set once
    the question is asked, or the turn is closed. `setup` is that with which it runs; it is None while a turn of an
    earlier process waits for the application to run its work again: nothing of it runs then. `has_guest` says that an
    agent acts which the hub does not have, so that the session goes back to its main agent at the end of the turn.
    `picked_after` is the sequence number before the pick that its message made, None if it made none.
    """

    turn: TurnRecord
    setup: TurnSetup | None
    derived_name: str | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    steering: Steering = field(default_factory=Steering)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    closed: bool = False
    done_event: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: bool = False
    open_questions: Mapping[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    task: asyncio.Task[None] | None = None
    has_guest: bool = False
    picked_after: int | None = None

    @property
    def waits_for_work(self) -> bool:
        """True if the turn goes on when the application runs its work again."""
        return self.setup is None

    @property
    def asks_here(self) -> bool:
        """True if its questions are at the gate of this process."""
        return not (self.suspended or self.waits_for_work)

    @property
    def has_failed_to_begin(self) -> bool:
        """True if the turn ended before its first event was stored, as far as is known."""
        return self.started.done() and self.started.exception() is not None

    @property
    def asks_again(self) -> bool:
        """True if the gate does not have all questions of an earlier process again yet."""
        return not all(asked.is_set() for asked in self.open_questions.values())

    def resume(self, point: ResumePoint) -> None:
        """Take the questions that the turn is to ask again; it has begun already."""
        questions = (question for question in point.questions.values() if question.answer is None)
        self.open_questions = {question.request.id: question.asked for question in questions}
        if not self.started.done():
            self.started.set_result(self.turn.after_seq or 0)

    def close(self) -> None:
        """Take no further events of the turn."""
        self.closed = True
        for asked in self.open_questions.values():
            asked.set()

    def fail_to_begin(self, why: AgenticXError) -> None:
        """Raise `why` in all that wait for the turn to begin, unless it has begun."""
        if not self.started.done():
            self.started.set_exception(why)
            self.started.exception()  # retrieved: nobody awaits the begin of a queued message's turn
