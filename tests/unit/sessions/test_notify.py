"""The notifier: a few readers are woken at once, many readers together within a delay."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from agenticx.sessions.store.notify import Notifier
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


def subscribed(notifier: Notifier, stack: ExitStack, count: int) -> list[asyncio.Event]:
    readers = [asyncio.Event() for _ in range(count)]
    for wakeup in readers:
        stack.enter_context(notifier.subscribe("s", wakeup))
    return readers


async def test_a_few_readers_are_woken_at_once() -> None:
    notifier = Notifier()
    with ExitStack() as stack:
        readers = subscribed(notifier, stack, 50)
        notifier.notify("s")
        assert all(wakeup.is_set() for wakeup in readers)


async def test_many_readers_are_woken_together_and_once_for_several_events() -> None:
    notifier = Notifier()
    with ExitStack() as stack:
        readers = subscribed(notifier, stack, 51)
        for _ in range(5):
            notifier.notify("s")
        assert not any(wakeup.is_set() for wakeup in readers)
        async with asyncio.timeout(PATIENCE):
            await readers[0].wait()
        assert all(wakeup.is_set() for wakeup in readers)

        for wakeup in readers:
            wakeup.clear()
        notifier.notify("s")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(wakeup.wait() for wakeup in readers))


async def test_readers_that_left_before_a_delayed_wake_up_are_ignored() -> None:
    notifier = Notifier()
    with ExitStack() as stack:
        subscribed(notifier, stack, 60)
        notifier.notify("s")
    with ExitStack() as stack:
        [one] = subscribed(notifier, stack, 1)
        notifier.notify("s")
        assert one.is_set()
