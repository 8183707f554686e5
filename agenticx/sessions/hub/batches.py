"""Event batches: all events that arrived while the previous batch was being stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from agenticx.runtime.events import EventType, RuntimeEvent

__all__ = ["EventBatcher", "merge_deltas"]

_DELTAS = frozenset({EventType.TOKEN, EventType.THINKING})


class EventBatcher:
    """A batcher that passes events to `write` in order, all that are pending at a time, at most about `max_events`."""

    def __init__(self, write: Callable[[Sequence[RuntimeEvent]], Awaitable[None]], *, max_events: int = 1000) -> None:
        self._write = write
        self._max_events = max_events
        self._pending: list[RuntimeEvent] = []
        self._exhausted = False
        self._data_ready, self._space_free, self._written = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._written.set()

    async def drain(self, source: AsyncGenerator[RuntimeEvent, None]) -> None:
        """Consume all of `source`; raises what either side raises, and closes `source` in every case.

        A cancellation closes it too, and is raised once all that it had yielded is written.
        """
        pumping = asyncio.create_task(self._pump(source))
        writing = asyncio.create_task(self._write_all())
        try:
            await asyncio.shield(writing)
            await pumping
        finally:
            pumping.cancel()
            await asyncio.wait((pumping, writing))
            _retrieve_exceptions(pumping, writing)

    async def flush(self) -> None:
        """Wait until all events that the source has yielded so far are written; waits forever if writing failed."""
        await self._written.wait()

    async def _pump(self, source: AsyncGenerator[RuntimeEvent, None]) -> None:
        try:
            async with aclosing(source):
                async for event in source:
                    self._pending.append(event)
                    self._written.clear()
                    self._data_ready.set()
                    if len(self._pending) >= self._max_events:
                        self._space_free.clear()
                        await self._space_free.wait()
        finally:
            self._exhausted = True
            self._data_ready.set()

    async def _write_all(self) -> None:
        while self._pending or not self._exhausted:
            await self._data_ready.wait()
            self._data_ready.clear()
            if self._pending:
                await self._write_pending()

    async def _write_pending(self) -> None:
        batch = self._pending.copy()
        self._pending.clear()
        self._space_free.set()
        await self._write(merge_deltas(batch))
        if not self._pending:
            self._written.set()


def _retrieve_exceptions(*tasks: asyncio.Task[None]) -> None:
    """Retrieve the exceptions of `tasks`, so that asyncio does not log them as never retrieved."""
    for task in tasks:
        if not task.cancelled():
            task.exception()


def merge_deltas(batch: Sequence[RuntimeEvent]) -> list[RuntimeEvent]:
    """Return `batch` with neighbouring text deltas of one message merged into one delta.

    >>> one, two = (RuntimeEvent(EventType.TOKEN, {"text": t, "message_id": "m", "offset": o}) for t, o in ("a0", "b1"))
    >>> [event.data["text"] for event in merge_deltas([one, two])]
    ['ab']
    """
    merged: list[RuntimeEvent] = []
    texts: list[str] = []  # of the run of deltas whose first one is the last event in `merged`
    for event in batch:
        if merged and texts and _can_merge(merged[-1], event):
            texts.append(event.data["text"])
            continue
        _join_texts(merged, texts)
        merged.append(event)
        texts = [event.data["text"]] if event.type in _DELTAS and "waiting" not in event.data else []
    _join_texts(merged, texts)
    return merged


def _can_merge(first: RuntimeEvent, event: RuntimeEvent) -> bool:
    return (
        event.type is first.type
        and event.agent_id == first.agent_id
        and event.data["message_id"] == first.data["message_id"]
        and "waiting" not in event.data
    )


def _join_texts(merged: list[RuntimeEvent], texts: list[str]) -> None:
    if len(texts) > 1:
        first = merged[-1]
        merged[-1] = RuntimeEvent(first.type, {**first.data, "text": "".join(texts)}, first.agent_id)
