"""StopSignal and Interrupts: a turn is ended once, for one reason, from any thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agenticx.runtime import StopSignal, TurnInterrupted
from agenticx.runtime.interrupts import Interrupts
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


# --- StopSignal -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("C8")
async def test_setting_a_signal_in_another_thread_wakes_waiting_tasks():
    signal = StopSignal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    threading.Thread(target=signal.set).start()
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    assert signal.is_set()


async def test_waiting_for_a_signal_that_is_set_returns():
    signal = StopSignal()
    signal.set()
    await asyncio.wait_for(signal.wait(), PATIENCE)


async def test_many_threads_can_set_a_signal_while_watchers_are_added_and_removed():
    for _ in range(50):
        signal = StopSignal()
        threads = [threading.Thread(target=signal.set) for _ in range(4)]
        waiting = [asyncio.create_task(signal.wait()) for _ in range(5)]
        for thread in threads:
            thread.start()
        waiting += [asyncio.create_task(signal.wait()) for _ in range(5)]
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)


async def test_a_removed_watcher_is_not_called():
    signal, heard = StopSignal(), []
    forget = signal.watch(lambda: heard.append("first"))
    signal.watch(lambda: heard.append("second"))
    forget()
    forget()
    signal.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == ["second"]


async def test_a_cancelled_wait_leaves_no_watcher():
    signal = StopSignal()
    task = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    signal.set()
    assert task.cancelled()


def test_a_watcher_of_a_closed_event_loop_is_ignored():
    signal = StopSignal()

    async def watch():
        signal.watch(lambda: None)

    asyncio.run(watch())
    signal.set()
    assert signal.is_set()


# --- Interrupts -----------------------------------------------------------------------------------------------------


async def hang():
    await asyncio.Event().wait()


async def run(interrupts, body=hang):
    async with interrupts:
        await body()


async def test_fire_ends_the_body_with_its_reason():
    interrupts = Interrupts()
    task = asyncio.create_task(run(interrupts))
    await asyncio.sleep(0)
    interrupts.fire("stopped")
    with pytest.raises(TurnInterrupted) as caught:
        await task
    assert caught.value.reason == "stopped"
    assert task.cancelling() == 0


async def test_the_first_reason_counts():
    interrupts = Interrupts()
    task = asyncio.create_task(run(interrupts))
    await asyncio.sleep(0)
    interrupts.fire("stopped")
    interrupts.fire("timeout.turn")
    with pytest.raises(TurnInterrupted) as caught:
        await task
    assert caught.value.reason == "stopped"


async def test_the_body_does_not_begin_if_fired_before_entry():
    interrupts, begun = Interrupts(), []

    async def body():
        begun.append(True)

    interrupts.fire("stopped")
    with pytest.raises(TurnInterrupted):
        await run(interrupts, body)
    assert begun == []


async def test_the_time_limit_ends_the_body():
    with pytest.raises(TurnInterrupted) as caught:
        await asyncio.wait_for(run(Interrupts(0.02)), PATIENCE)
    assert caught.value.reason == "timeout.turn"


async def test_a_body_that_ends_within_the_limit_is_not_cancelled():
    interrupts = Interrupts(0.02)
    await run(interrupts, lambda: asyncio.sleep(0))
    await asyncio.sleep(0.04)


async def test_a_body_that_ends_at_the_moment_of_fire_ends_normally():
    """The cancellation that is on its way must not hit what comes behind the scope."""
    interrupts = Interrupts()

    async def body():
        interrupts.fire("stopped")

    await run(interrupts, body)
    await asyncio.sleep(0)


async def test_an_outer_cancellation_is_propagated():
    task = asyncio.create_task(run(Interrupts()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_simultaneous_cancellation_takes_precedence():
    interrupts = Interrupts()
    task = asyncio.create_task(run(interrupts))
    await asyncio.sleep(0)
    interrupts.fire("stopped")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_raised_while_the_body_is_cancelled_is_propagated():
    interrupts = Interrupts()

    async def body():
        try:
            await hang()
        except asyncio.CancelledError:
            raise KeyError("while ending") from None

    task = asyncio.create_task(run(interrupts, body))
    await asyncio.sleep(0)
    interrupts.fire("stopped")
    with pytest.raises(KeyError):
        await task
    assert task.cancelling() == 0
