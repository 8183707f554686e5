"""Actors: random orders of messages, errors, cancellations, starts and stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from agenticx.teams import (
    AgentId,
    BaseAgent,
    CancellationToken,
    DefaultSubscription,
    DefaultTopicId,
    SingleThreadedAgentRuntime,
    UndeliverableException,
)
from tests.support.lanes import Count
from tests.support.timeouts import PATIENCE

EXPECTED = (ValueError, UndeliverableException, asyncio.CancelledError)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Work:
    """A random order of calls, and the handlers that they begin."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.begun = self.ended = 0
        self.tasks: list[asyncio.Task[Any]] = []
        self.tokens = [CancellationToken()]
        self.runtime = SingleThreadedAgentRuntime(
            queue_size=rng.choice([1, 2, 5, 100]), autostart=rng.random() < 0.7, ignore_unhandled_exceptions=True
        )

    def agent(self) -> AgentId:
        return AgentId(self.rng.choice("ab"), "default")

    def message(self, depth: int) -> tuple[int, bool]:
        """Return a message with the number of handlers that may pass it on, and whether its handler fails."""
        return depth, self.rng.random() < 0.3

    def token(self) -> CancellationToken:
        self.tokens.append(CancellationToken())
        return self.tokens[-1]

    def call(self) -> None:
        runtime, rng = self.runtime, self.rng
        match rng.randrange(10):
            case 0 | 1 | 2:
                message = self.message(rng.randrange(4))
                self.begin(runtime.send_message(message, self.agent(), cancellation_token=self.token()))
            case 3 | 4:
                message = self.message(rng.randrange(3))
                self.begin(runtime.publish_message(message, DefaultTopicId(), cancellation_token=self.token()))
            case 5:
                rng.choice(self.tokens).cancel()
            case 6 if self.tasks:
                rng.choice(self.tasks).cancel()
            case 7 if rng.random() < 0.5:
                self.begin(runtime.stop())
            case 8:
                self.begin(runtime.process_next())
            case _:
                runtime.start()

    def begin(self, call: Any) -> None:
        self.tasks.append(asyncio.create_task(call))


class Worker(BaseAgent):
    """An agent that answers, fails, or passes a message on in one of several ways."""

    def __init__(self, work: Work) -> None:
        super().__init__("Works.")
        self.work = work

    async def on_message_impl(self, message, ctx):
        self.work.begun += 1
        try:
            return await self.pass_on(message, ctx)
        finally:
            self.work.ended += 1
            await asyncio.sleep(0)

    async def pass_on(self, message, ctx):
        (depth, fails), work = message, self.work
        for _ in range(work.rng.randrange(3)):
            await asyncio.sleep(0)
        if fails:
            raise ValueError("failed")
        match depth and work.rng.randrange(3):
            case 1:
                token = work.rng.choice([ctx.cancellation_token, None])
                await self.send_message(work.message(depth - 1), work.agent(), cancellation_token=token)
            case 2:
                sends = (self.send_message(work.message(depth - 1), work.agent()) for _ in range(2))
                await asyncio.gather(*sends, return_exceptions=True)
            case _ if depth:
                await self.publish_message(work.message(depth - 1), DefaultTopicId())


async def play(rng: random.Random) -> None:
    work, problems = Work(rng), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))

    async def make() -> Worker:
        await asyncio.sleep(0)
        if rng.random() < 0.3:
            raise ValueError("not made")
        return Worker(work)

    await work.runtime.register("a", make, [DefaultSubscription()])
    await work.runtime.register("b", lambda: Worker(work), [DefaultSubscription()])
    for _ in range(40):
        work.call()
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        if rng.random() < 0.5:
            await asyncio.sleep(0)  # let the last calls begin
            work.runtime.start()
            await work.runtime.stop_when_idle()
        await work.runtime.close()
        outcomes = await asyncio.gather(*work.tasks, return_exceptions=True)
    await asyncio.sleep(0)
    errors = [error for error in outcomes if isinstance(error, BaseException)]
    assert {repr(error) for error in errors if not isinstance(error, EXPECTED)} <= {
        "RuntimeError('the runtime is closed')"
    }
    assert (work.begun, work.runtime.unprocessed_messages_count) == (work.ended, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del outcomes
    work.tasks.clear()
    gc.collect()
    assert problems == []


def test_no_order_of_calls_leaves_a_task_a_message_or_an_error_behind(rng: random.Random, count: Count) -> None:
    for _ in range(count(8, 100, 3_000)):
        asyncio.run(play(rng))
