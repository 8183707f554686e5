"""One run of a team: its messages so far, and the queue from the task that runs it to the consumer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from agenticx import user_code
from agenticx.batch_queue import BatchQueue
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.agents.spending import Spending
from agenticx.teams.group_chats.stored_talk import StoredRun
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent
from agenticx.teams.termination.base import ConditionRun, Run
from agenticx.teams.termination.repetition import Repetition

__all__ = ["Speaking", "TeamRun"]

Speaking = BaseAgentEvent | BaseChatMessage


@dataclass(slots=True, kw_only=True, eq=False)
class TeamRun:
    """One run.

    `messages` are the task and the messages of speeches, which conditions see; `output` are those of the result. With
    `continues` a process that ended began the run.
    """

    token: CancellationToken
    condition: ConditionRun | None
    spending: Spending
    messages: list[Speaking] = field(default_factory=list[Speaking])
    output: list[Speaking] = field(default_factory=list[Speaking])
    queue: BatchQueue[Speaking] = field(default_factory=BatchQueue[Speaking])
    repetition: Repetition = field(default_factory=Repetition)
    turns: int = 0
    stop_reason: str | None = None
    warned: bool = False
    stopped: bool = False
    continues: bool = False
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

    def go_on_from(self, earlier: StoredRun) -> None:
        """Take over what an earlier process has stored of this run."""
        self.continues = True
        self.messages += earlier.messages
        self.turns = earlier.speeches
        for message in earlier.messages:
            self.repetition.add(message)
        for usage in earlier.usages:
            self.spending.add(usage)

    def cancel(self) -> None:
        """Cancel what the run has started, and end the stream of its messages."""
        self.token.cancel()
        self.queue.close()

    def check(self) -> None:
        """Raise CancelledError if the run was cancelled, also if a participant ignored that."""
        if self.token.is_cancelled():
            raise asyncio.CancelledError

    async def is_over(self) -> bool:
        """Return whether the condition ends the run."""
        if self.condition is None:
            return False
        run = Run(
            messages=tuple(self.messages),
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
