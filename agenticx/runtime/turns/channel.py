"""The queue of the events that a turn emits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agenticx.batch_queue import BatchQueue
from agenticx.runtime.events import Event, EventType, RuntimeEvent
from agenticx.runtime.turns.write_pacer import WritePacer

__all__ = ["Channel", "EventSink"]

_TEXT_DELTAS = frozenset({EventType.TOKEN, EventType.THINKING, EventType.TOOL_CALL_DELTA})

EventSink = Callable[[Sequence[RuntimeEvent]], Awaitable[None]]
"""A writer of events. It is called with one batch at a time, in order; an exception that it raises ends the turn."""


class Channel(BatchQueue[Event]):
    """The queue of a turn's events.

    With a `pacer` the consumer gets text deltas at its ticks, and all other events at once.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        super().__init__(limit=limit)
        self.pacer: WritePacer | None = None
        self._wakes_at_tick: asyncio.Future[None] | None = None

    def put(self, *events: Event) -> None:
        if self._closed or not events:
            return
        self._items += events
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if (
            self.pacer is not None
            and all(event.type in _TEXT_DELTAS for event in events)
            and (waiter is self._wakes_at_tick or self.pacer.defer(waiter))
        ):
            self._wakes_at_tick = waiter
        else:
            waiter.set_result(None)

    async def wait_until_written(self) -> None:
        """Wait until the consumer has taken or written every event put so far and waits for more.

        What is to happen only once its events are known to others, such as a call, waits here first.
        """
        if self._items:
            self._wake_consumer()
        await self.join()
