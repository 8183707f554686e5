"""The delivery of queued messages: one task per handler, and the end of handlers that are cancelled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.errors import UserCodeError
from agenticx.logs import get_logger
from agenticx.teams.actors.deliveries import Delivery, DeliveryQueue
from agenticx.teams.actors.errors import UndeliverableException
from agenticx.teams.actors.handling import Handling, current_handling
from agenticx.teams.actors.ids import AgentId
from agenticx.teams.actors.protocols import MessageRuntime

__all__ = ["Dispatcher"]

_log = get_logger(__name__)


class Dispatcher:
    """The queue and the running handlers of one runtime; the runtime decides which agents handle a message.

    At most `queue_size` handlers are at work, without handlers that wait for an answer or for room in the queue.
    """

    def __init__(
        self,
        runtime: MessageRuntime,
        *,
        autostart: bool,
        queue_size: int,
        clock: Clock,
        handle: Callable[[Delivery, Handling], Coroutine[Any, Any, Any]],
        recipients: Callable[[Delivery], Sequence[AgentId]],
        report: Callable[[Delivery, Exception, AgentId | None], None],
    ) -> None:
        self._runtime = runtime
        self._autostart = autostart
        self._most_busy = queue_size
        self._handle = handle
        self._recipients = recipients
        self._report = report
        self._queue = DeliveryQueue(queue_size, clock)
        self._active: dict[asyncio.Task[Any], Delivery] = {}
        self._sending = 0  # handlers at work that wait for an answer or for room
        self._steps: deque[asyncio.Future[Delivery]] = deque()
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._stops = 0  # calls of `stop` that have not returned
        self.started = self.closed = False

    # --- messages in --------------------------------------------------------------------------------------------------

    async def send(self, delivery: Delivery) -> Any:
        """Queue a message and return its answer; after a cancellation wait for the end of its handler."""
        with self._place_released():
            await self._enqueue(delivery)
            try:
                return await delivery.answer
            except asyncio.CancelledError:
                if not delivery.answer.cancelled() and (error := delivery.answer.exception()) is not None:
                    _log.warning("nobody waits any more for a message that failed", to=delivery.name, exc_info=error)
                for task in [*delivery.handlings]:
                    await self._await_end(delivery, task)
                raise

    async def publish(self, delivery: Delivery) -> None:
        """Queue a message."""
        with self._place_released():
            await self._enqueue(delivery)

    @property
    def queued(self) -> int:
        """The number of messages in the queue."""
        return len(self._queue)

    def current_handling(self) -> Handling | None:
        """Return the handler of this runtime that is at work in the caller's context."""
        handling = current_handling.get()
        return handling if handling is not None and handling.runtime is self._runtime and not handling.ended else None

    async def _enqueue(self, delivery: Delivery) -> None:
        handling = current_handling.get()
        abandoned = handling is not None and handling.runtime is self._runtime and handling.abandoned
        if self.closed or self._stops or abandoned:
            state = "closed" if self.closed else "stopped"
            raise UndeliverableException(f"{delivery.name} was not queued: the runtime is {state}")
        if self._autostart and not self.started:
            self.start()
        delivery.answer.add_done_callback(lambda _: self._on_answered(delivery))
        delivery.context.cancellation_token.link_future(delivery.answer)
        if delivery.answer.cancelled():
            raise asyncio.CancelledError
        try:
            await self._queue.put(delivery)
        except BaseException:
            delivery.answer.cancel()
            raise
        self._pump()

    @contextmanager
    def _place_released(self) -> Generator[None]:
        """Let another handler begin while the calling handler waits for an answer or for room."""
        if (handling := self.current_handling()) is None:
            yield
            return
        handling.sends += 1
        self._sending += handling.sends == 1
        self._pump()
        try:
            yield
        finally:
            handling.sends -= 1
            self._sending -= handling.sends == 0 and not handling.ended

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver queued messages, and new ones as they arrive; RuntimeError if closed."""
        self._check_open()
        self.started = True
        self._pump()

    async def step(self) -> None:
        """Deliver the next message, waiting for one if need be, and return when its handlers have begun.

        CancelledError at a stop, RuntimeError if closed.
        """
        self._check_open()
        step: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._steps.append(step)
        self._pump()
        try:
            delivery = await step
        finally:
            if step in self._steps:
                self._steps.remove(step)
        for handling in [*delivery.handlings.values()]:
            await handling.begun.wait()

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("the runtime is closed")

    async def stop_when_idle(self) -> None:
        """Stop when no message waits and no handler is at work.

        Raises RuntimeError if called by a handler, or if messages wait for a runtime that is not started.
        """
        if asyncio.current_task() in self._active:
            raise RuntimeError("a handler cannot wait until no handler is at work; it may call `stop`")
        while self._queue or self._active:
            if self._queue and not self.started:
                raise RuntimeError(f"the runtime is not started, and {len(self._queue)} messages wait for it")
            waiter = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter
        self.started = False

    async def stop(self) -> None:
        """Cancel all handlers except the caller's own, and all deliveries in the queue or waiting for room in it."""
        self.started = False
        self._stops += 1
        try:
            current = asyncio.current_task()
            active = [(task, delivery) for task, delivery in self._active.items() if task is not current]
            for task, delivery in active:
                _cancel(delivery, task)
            dropped = self._queue.clear()
            for delivery in [*dropped, *(delivery for _, delivery in active if delivery.context.is_rpc)]:
                delivery.answer.cancel()
            if published := sum(not delivery.context.is_rpc for delivery in dropped):
                _log.warning("published messages were dropped by a stop", messages=published)
            while self._steps:
                self._steps.popleft().cancel()
            await asyncio.gather(*(self._await_end(delivery, task) for task, delivery in active))
        finally:
            self._stops -= 1
            self._wake_when_idle()

    # --- messages out -------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin deliveries while there are some and handlers may begin."""
        while self._queue:
            while self._steps and self._steps[0].done():
                self._steps.popleft()
            if not self._steps and not (self.started and len(self._active) - self._sending < self._most_busy):
                return
            delivery = self._queue.pop()
            if not delivery.answer.done():  # else it was cancelled in this iteration of the event loop
                self._begin(delivery)

    def _begin(self, delivery: Delivery) -> None:
        recipients = [delivery.recipient] if delivery.recipient else self._recipients(delivery)
        for agent_id in recipients:
            handling = Handling(self._runtime, agent_id)
            variables = delivery.variables.copy()
            task = asyncio.get_running_loop().create_task(self._handle(delivery, handling), context=variables)
            delivery.handlings[task] = handling
            self._active[task] = delivery
            task.add_done_callback(self._on_handled)
        if not recipients:
            delivery.answer.set_result(None)
        if self._steps:
            self._steps.popleft().set_result(delivery)

    def _on_handled(self, task: asyncio.Task[Any]) -> None:
        """Settle a handler that ended; an abandoned handler is settled already."""
        if (delivery := self._active.pop(task, None)) is None:
            return
        handling, answer = self._end(delivery, task), delivery.answer
        error = None if task.cancelled() else _as_exception(task.exception(), handling)
        if error is not None and answer.cancelled() and isinstance(error.__cause__, asyncio.CancelledError):
            error = None  # cancelled by the token itself, before this message's answer could cancel the handler
        if error is not None and (handling.cancelled or answer.done()):
            _log.warning("a handler failed after its cancellation", agent_id=str(handling.agent_id), exc_info=error)
        elif error is not None and not delivery.context.is_rpc:
            self._report(delivery, error, handling.agent_id)
        if answer.done() or delivery.handlings:
            pass
        elif not delivery.context.is_rpc:
            answer.set_result(None)
        elif task.cancelled():
            answer.cancel()
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())
        self._pump()
        self._wake_when_idle()

    def _on_answered(self, delivery: Delivery) -> None:
        if delivery.answer.cancelled():
            self._queue.remove(delivery)
            for task in delivery.handlings:
                _cancel(delivery, task)
            self._wake_when_idle()

    async def _await_end(self, delivery: Delivery, task: asyncio.Task[Any]) -> None:
        """Wait for the end of a cancelled handler; abandon it if it does not end."""
        if (handling := delivery.handlings.get(task)) is None:
            return
        await user_code.await_end(task, f"agent {handling.agent_id}")
        if self._active.pop(task, None) is not None:
            handling.abandoned = True
            self._end(delivery, task)
            if not delivery.handlings:
                delivery.answer.cancel()
            self._pump()
            self._wake_when_idle()

    def _end(self, delivery: Delivery, task: asyncio.Task[Any]) -> Handling:
        handling = delivery.handlings.pop(task)
        handling.ended = True
        handling.begun.set()
        self._sending -= bool(handling.sends)
        return handling

    def _wake_when_idle(self) -> None:
        if self._queue or self._active:
            return
        for waiter in self._idle_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._idle_waiters.clear()


def _cancel(delivery: Delivery, task: asyncio.Task[Any]) -> None:
    """Cancel a handler once: a second cancellation would interrupt its clean-up."""
    if (handling := delivery.handlings.get(task)) is not None and not handling.cancelled:
        handling.cancelled = True
        task.cancel()


def _as_exception(error: BaseException | None, handling: Handling) -> Exception | None:
    if error is None or isinstance(error, Exception):
        return error
    what = f"agent {handling.agent_id}"
    return UserCodeError(f"{what} raised {user_code.describe_exception(error)}", what=what, kind="raised")
