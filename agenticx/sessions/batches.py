"""From single events to what is written at once: whatever gathered while the last batch was being stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from agenticx.runtime.events import EventType, RuntimeEvent

__all__ = ["Batches", "merge_deltas"]

_DELTAS = frozenset({EventType.TOKEN, EventType.THINKING})


class Batches:
    """Hands events to `write` in order, as many at a time as are there, at most about `most`."""

    def __init__(self, write: Callable[[Sequence[RuntimeEvent]], Awaitable[None]], *, most: int = 1000) -> None:
        self._write = write
        self._most = most
        self._waiting: list[RuntimeEvent] = []
        self._exhausted = False
        self._something, self._room, self._written = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._written.set()

    async def drain(self, source: AsyncGenerator[RuntimeEvent, None]) -> None:
        """Take all of `source`; raises what either side raises, and closes `source` in every case.

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
            _retrieve(pumping, writing)

    async def written(self) -> None:
        """Wait until everything is written that the source has yielded so far; for ever if writing failed."""
        await self._written.wait()

    async def _pump(self, source: AsyncGenerator[RuntimeEvent, None]) -> None:
        try:
            async with aclosing(source):
                async for event in source:
                    self._waiting.append(event)
                    self._written.clear()
                    self._something.set()
                    if len(self._waiting) >= self._most:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._exhausted = True
            self._something.set()

    async def _write_all(self) -> None:
        while self._waiting or not self._exhausted:
            await self._something.wait()
            self._something.clear()
            if self._waiting:
                await self._write_waiting()

    async def _write_waiting(self) -> None:
        batch = self._waiting.copy()
        self._waiting.clear()
        self._room.set()
        await self._write(merge_deltas(batch))
        if not self._waiting:
            self._written.set()


def _retrieve(*tasks: asyncio.Task[None]) -> None:
    """Have asked for what tasks raised, so that asyncio does not complain of it."""
    for task in tasks:
        if not task.cancelled():
            task.exception()


def merge_deltas(batch: Sequence[RuntimeEvent]) -> list[RuntimeEvent]:
    """`batch` with neighbouring text deltas of one message as one delta.

    >>> one, two = (RuntimeEvent(EventType.TOKEN, {"text": t, "message_id": "m", "offset": o}) for t, o in ("a0", "b1"))
    >>> [event.data["text"] for event in merge_deltas([one, two])]
    ['ab']
    """
    merged: list[RuntimeEvent] = []
    texts: list[str] = []  # of the run of deltas whose first stands last in `merged`
    for event in batch:
        if merged and texts and _continues(merged[-1], event):
            texts.append(event.data["text"])
            continue
        _settle(merged, texts)
        merged.append(event)
        texts = [event.data["text"]] if event.type in _DELTAS and "waiting" not in event.data else []
    _settle(merged, texts)
    return merged


def _continues(first: RuntimeEvent, event: RuntimeEvent) -> bool:
    return (
        event.type is first.type
        and event.agent_id == first.agent_id
        and event.data["message_id"] == first.data["message_id"]
        and "waiting" not in event.data
    )


def _settle(merged: list[RuntimeEvent], texts: list[str]) -> None:
    if len(texts) > 1:
        first = merged[-1]
        merged[-1] = RuntimeEvent(first.type, {**first.data, "text": "".join(texts)}, first.agent_id)
