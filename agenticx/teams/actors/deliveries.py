"""Messages on their way, and the bounded queue in which they wait."""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agenticx.clocks import Clock
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.errors import UndeliverableException
from agenticx.teams.actors.handling import Handling
from agenticx.teams.actors.ids import AgentId

__all__ = ["PUT_SECONDS", "Delivery", "DeliveryQueue"]

PUT_SECONDS = 30.0
"""Nominal seconds that a message waits for room in the queue."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A message on its way to `recipient`, or to the subscribers of its topic.

    `answer` is the recipient's answer, for a published message None once all subscribers are done; cancelling it
    cancels the delivery. `variables` is the sender's context; the handlers run in it.
    """

    message: Any
    context: MessageContext
    recipient: AgentId | None
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    variables: contextvars.Context = field(default_factory=contextvars.copy_context)
    handlings: dict[asyncio.Task[Any], Handling] = field(default_factory=dict[asyncio.Task[Any], Handling])

    @property
    def name(self) -> str:
        return f"{type(self.message).__name__} to {self.recipient or self.context.topic_id}"


class DeliveryQueue:
    """A queue of at most `size` deliveries; further deliveries wait for room."""

    def __init__(self, size: int, clock: Clock) -> None:
        if size < 1:
            raise ValueError(f"queue_size must be at least 1, not {size}")
        self._size = size
        self._clock = clock
        self._queued: OrderedDict[Delivery, None] = OrderedDict()
        self._waiting: OrderedDict[Delivery, asyncio.Future[None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queued)

    async def put(self, delivery: Delivery) -> None:
        """Add a delivery, after the deliveries that already wait for room.

        Raises `UndeliverableException` if there is no room within `PUT_SECONDS`, and CancelledError if the delivery is
        cancelled before.
        """
        if len(self._queued) < self._size:
            self._queued[delivery] = None
            return
        room = self._waiting[delivery] = asyncio.get_running_loop().create_future()
        either = {room, delivery.answer}
        try:
            await asyncio.wait(either, timeout=self._clock.real(PUT_SECONDS), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.pop(delivery, None)
        if delivery.answer.cancelled():
            raise asyncio.CancelledError
        if not room.done():
            raise UndeliverableException(
                f"{delivery.name} was not queued: {self._size} messages wait already, and there was no room within "
                f"{PUT_SECONDS:g} s"
            )

    def pop(self) -> Delivery:
        """Remove and return the first delivery."""
        delivery, _ = self._queued.popitem(last=False)
        self._admit()
        return delivery

    def remove(self, delivery: Delivery) -> None:
        """Remove a delivery if it is queued."""
        if delivery in self._queued:
            del self._queued[delivery]
            self._admit()

    def clear(self) -> Sequence[Delivery]:
        """Remove and return all deliveries, including deliveries that wait for room."""
        cleared = [*self._queued, *self._waiting]
        self._queued.clear()
        self._waiting.clear()
        return cleared

    def _admit(self) -> None:
        while self._waiting and len(self._queued) < self._size:
            delivery, room = self._waiting.popitem(last=False)
            if not delivery.answer.done():
                self._queued[delivery] = None
                room.set_result(None)
