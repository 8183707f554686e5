"""The task that runs a turn, and the wait for one whose consumer has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from agenticx.logs import bound_ids
from agenticx.runtime.interrupts import StopSignal, cancel_and_wait, watch_stop
from agenticx.runtime.session import Session
from agenticx.runtime.turn import BACKGROUND_SECONDS, Turn

__all__ = ["TurnTask", "wait_for_abandoned_turn"]

_CLOSING_ITERATIONS = 4  # of the event loop, in which it begins to close a generator that was dropped


class TurnTask:
    """A turn that runs in a task until its consumer closes it; an internal bug is raised from the task."""

    def __init__(
        self, turn: Turn, work: Coroutine[Any, Any, None], should_stop: StopSignal | Callable[[], bool] | None
    ) -> None:
        self._turn = turn
        self._unwatch_stop = watch_stop(should_stop, turn.stop)
        with bound_ids(session=turn.session.id, agent=turn.agent_id, organization=turn.agent.organization_id):
            self.task = asyncio.create_task(work, name=f"agx turn {turn.session.id}")
            self.task.add_done_callback(turn.end)

    async def close(self) -> None:
        """End the turn and everything it started."""
        ended = self._turn.closing = asyncio.Event()
        self._unwatch_stop()
        await cancel_and_wait(self.task)
        self._turn.session.end_turn(self._turn)
        ended.set()
        await self._turn.finish_background_tasks()


async def wait_for_abandoned_turn(session: Session) -> None:
    """Wait, bounded, for the end of a turn whose generator was dropped by a `break`; the event loop closes it soon."""
    for _ in range(_CLOSING_ITERATIONS):
        turn = session.running_turn
        if not isinstance(turn, Turn):
            return
        if turn.closing is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(turn.closing.wait(), BACKGROUND_SECONDS)
            return
        await asyncio.sleep(0)
