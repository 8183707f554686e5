"""From single events to what is written at once: whatever gathered while the last batch was being stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

from agenticx.runtime.events import EventType, RuntimeEvent

__all__ = ["merge_deltas", "write_in_batches"]

_DELTAS = frozenset({EventType.TOKEN, EventType.THINKING})


async def write_in_batches(
    source: AsyncGenerator[RuntimeEvent, None],
    write: Callable[[Sequence[RuntimeEvent]], Awaitable[None]],
    *,
    most: int = 1000,
) -> None:
    """Hand all events of `source` to `write`, in order, as many at a time as are there, at most about `most`.

    Raises what either raises; `source` is closed in every case.
    """
    waiting: list[RuntimeEvent] = []
    something, room = asyncio.Event(), asyncio.Event()

    async def pump() -> None:
        try:
            async with aclosing(source):
                async for event in source:
                    waiting.append(event)
                    something.set()
                    if len(waiting) >= most:
                        room.clear()
                        await room.wait()
        finally:
            something.set()

    pumping = asyncio.create_task(pump())
    try:
        while not (pumping.done() and not waiting):
            await something.wait()
            something.clear()
            batch = waiting.copy()
            waiting.clear()
            room.set()
            if batch:
                await write(merge_deltas(batch))
            else:
                await asyncio.wait([pumping])
        await pumping
    finally:
        pumping.cancel()
        with suppress(asyncio.CancelledError):
            await pumping


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
