"""One run of a team: its messages so far, and the queue from the task that runs it to the consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agenticx import user_code
from agenticx.batch_queue import BatchQueue
from agenticx.runtime import StopSignal
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.agents.spending import Spending
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent
from agenticx.teams.replay import EarlierRun
from agenticx.teams.termination.base import ConditionRun, Run
from agenticx.teams.termination.repetition import Repetition

__all__ = ["Speaking", "TeamRun", "is_being_cancelled", "outcome"]

Speaking = BaseAgentEvent | BaseChatMessage


@dataclass(slots=True, kw_only=True, eq=False)
class TeamRun:
    """One run.

    `messages` are the task and the messages of speeches, as conditions see them; `output` has the messages of the
    result. `given` are the messages that no participant said: the task, also the task of an earlier run that this one
    continues, and what the user sent meanwhile. `new_task` are the messages of the `task` that the team has not been
    given before. With `continues` a process that ended began the run. `stop_work` cancels the task in which it is at
    work. `fallback` is the reply of a model that was to choose the next speaker but named none, until that speaker is
    announced.
    """

    condition: ConditionRun | None
    spending: Spending
    token: CancellationToken = field(default_factory=CancellationToken)
    task: Sequence[BaseChatMessage] = ()
    new_task: Sequence[BaseChatMessage] = ()
    messages: list[Speaking] = field(default_factory=list[Speaking])
    given: list[BaseChatMessage] = field(default_factory=list[BaseChatMessage])
    output: list[Speaking] = field(default_factory=list[Speaking])
    queue: BatchQueue[Speaking] = field(default_factory=BatchQueue[Speaking])
    repetition: Repetition = field(default_factory=Repetition)
    turns: int = 0
    stop_reason: str | None = None
    warned: bool = False
    stopped: bool = False
    continues: bool = False
    fallback: str | None = None
    stop_work: Callable[[], object] | None = None
    unlink: Callable[[], None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    began_ns: int = field(default_factory=time.perf_counter_ns)

    async def emit(self, message: Speaking) -> None:
        """Pass a message to the consumer and wait until it asks for the next one; raises CancelledError after it."""
        self.check()
        if not isinstance(message, ModelClientStreamingChunkEvent):
            self.output.append(message)
        self.queue.put(message)
        await self.queue.join()
        self.check()

    def go_on_from(self, earlier: EarlierRun) -> None:
        """Go on with an earlier run; one of an earlier process is in the same turn."""
        self.continues = earlier.turn_id is not None
        self.messages += earlier.messages
        self.given += earlier.given
        self.turns = earlier.speeches
        for message in earlier.messages:
            self.repetition.add(message)
        for usage in earlier.usages:
            self.spending.add(usage)

    def add_given(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages of the user, or of an outer team: the task, or what was sent meanwhile."""
        self.messages += messages
        self.given += messages

    def add_speech(self, said: Sequence[Speaking]) -> None:
        """Add the messages of a speech that is finished."""
        self.messages += said
        self.turns += 1
        for message in said:
            self.repetition.add(message)

    def obey(self, token: CancellationToken) -> None:
        """Cancel the run with `token`, which may be cancelled in another thread, until the run has ended."""
        stop = StopSignal()
        stop.watch(self.cancel)
        self.token.add_callback(stop.set)
        self.unlink = token.add_callback(self.token.cancel)

    def end(self) -> None:
        """Detach from the token, and wake the waiters for the end of the run."""
        if self.unlink is not None:
            self.unlink()
        self.ended.set()

    def cancel(self) -> None:
        """Cancel the work of the run and what it has started, and end the stream of its messages."""
        self.queue.close()
        stop, self.stop_work = self.stop_work, None
        if stop is not None:
            stop()
        self.token.cancel()

    def check(self) -> None:
        """Raise CancelledError if the run was cancelled, even if a participant ignored the cancellation."""
        if self.token.is_cancelled():
            self.cancel()  # in another thread: the event loop will learn of it later
            raise asyncio.CancelledError

    async def is_over(self) -> bool:
        """Return whether the condition ends the run."""
        if self.condition is None:
            return False
        run = Run(
            messages=tuple(self.messages),
            task=tuple(self.given),
            usage=self.spending.usage,
            cost_usd=self.spending.cost_usd,
            seconds=self.spending.seconds,
            turns=self.turns,
            began=self.began_ns,
        )
        with user_code.translated_errors("a termination condition"):
            stop = await self.condition.check(run)
        self.stop_reason = None if stop is None else stop.content
        return stop is not None


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled from outside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def outcome(task: asyncio.Task[None]) -> None:
    """Raise what a task that has ended raised."""
    if task.cancelled():
        raise TeamError("the run of the team was cancelled by code of a participant")
    await task
