"""Who is woken when: a few readers at once, a crowd together and soon."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from agenticx.sessions.bell import Notifier
from tests.patience import PATIENCE

pytestmark = pytest.mark.anyio


def subscribed(bell: Notifier, stack: ExitStack, count: int) -> list[asyncio.Event]:
    readers = [asyncio.Event() for _ in range(count)]
    for news in readers:
        stack.enter_context(bell.subscribe("s", news))
    return readers


async def test_a_few_readers_are_woken_at_once() -> None:
    bell = Notifier()
    with ExitStack() as stack:
        readers = subscribed(bell, stack, 50)
        bell.notify("s")
        assert all(news.is_set() for news in readers)


async def test_a_crowd_is_woken_together_and_once_for_many_events() -> None:
    bell = Notifier()
    with ExitStack() as stack:
        readers = subscribed(bell, stack, 51)
        for _ in range(5):
            bell.notify("s")
        assert not any(news.is_set() for news in readers)
        async with asyncio.timeout(PATIENCE):
            await readers[0].wait()
        assert all(news.is_set() for news in readers)

        for news in readers:
            news.clear()
        bell.notify("s")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(news.wait() for news in readers))


async def test_a_crowd_that_left_in_the_meantime_is_not_missed() -> None:
    bell = Notifier()
    with ExitStack() as stack:
        subscribed(bell, stack, 60)
        bell.notify("s")
    with ExitStack() as stack:
        [one] = subscribed(bell, stack, 1)
        bell.notify("s")
        assert one.is_set()
