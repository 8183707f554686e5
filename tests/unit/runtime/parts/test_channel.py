"""Channel: every event once and in order, waiting producers, and a close that wakes everyone."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.runtime.channel import Channel, WritePacer

pytestmark = pytest.mark.anyio


def event(number):
    return RuntimeEvent(EventType.ROUND_START, {"round": number, "max_rounds": 0})


async def run_pending_tasks():
    for _ in range(5):
        await asyncio.sleep(0)


async def consume(channel, taken):
    while batch := await channel.take():
        taken += [one.data["round"] for one in batch]
        await asyncio.sleep(0)


@given(st.lists(st.sampled_from(["put", "put", "yield", "room", "written"])))
async def test_every_event_arrives_once_and_in_order(steps):
    channel, taken, put = Channel(limit=3), [], 0
    consumer = asyncio.create_task(consume(channel, taken))
    for step in steps:
        match step:
            case "put":
                channel.put(event(put))
                put += 1
            case "yield":
                await asyncio.sleep(0)
            case "room":
                await asyncio.wait_for(channel.wait_for_room(), 1)
            case "written":
                await asyncio.wait_for(channel.wait_until_written(), 1)
                assert taken == list(range(put))
    channel.close()
    await asyncio.wait_for(consumer, 1)
    assert taken == list(range(put))


async def test_all_queued_events_are_taken_at_once():
    channel = Channel()
    for number in range(3):
        channel.put(event(number))
    assert await channel.take() == [event(0), event(1), event(2)]


async def test_events_put_while_a_batch_is_written_become_the_next_batch():
    channel, gate, batches = Channel(), asyncio.Event(), []

    async def sink(batch):
        await gate.wait()
        batches.append([one.data["round"] for one in batch])

    channel.put(event(0))
    writing = asyncio.create_task(channel.write_to(sink))
    await run_pending_tasks()
    channel.put(event(1))
    channel.put(event(2))
    gate.set()
    await asyncio.wait_for(channel.wait_until_written(), 1)
    assert batches == [[0], [1, 2]]
    channel.close()
    await writing


async def test_events_put_before_close_are_still_taken_and_later_ones_are_dropped():
    channel = Channel()
    channel.put(event(0))
    channel.close()
    channel.put(event(1))
    assert await channel.take() == [event(0)]
    assert await channel.take() == []


async def test_a_producer_waits_while_its_consumer_is_behind():
    channel = Channel(limit=2)
    for number in range(3):
        channel.put(event(number))
    waiting = asyncio.create_task(channel.wait_for_room())
    await run_pending_tasks()
    assert not waiting.done()
    await channel.take()
    await asyncio.wait_for(waiting, 1)


async def test_events_are_delivered_once_the_consumer_asks_for_more():
    channel = Channel()
    channel.put(event(0))
    waiting = asyncio.create_task(channel.wait_until_written())
    await channel.take()
    await run_pending_tasks()
    assert not waiting.done()  # taken, but perhaps not yet shown or stored
    again = asyncio.create_task(channel.take())
    await asyncio.wait_for(waiting, 1)
    channel.close()
    assert await again == []


@pytest.mark.parametrize("wait", ["wait_for_room", "wait_until_written", "take"])
async def test_close_wakes_all_waiting_tasks(wait):
    channel = Channel(limit=0)
    if wait != "take":
        channel.put(event(0))
    waiting = asyncio.create_task(getattr(channel, wait)())
    await run_pending_tasks()
    assert not waiting.done()
    channel.close()
    await asyncio.wait_for(waiting, 1)


async def test_a_take_returns_nothing_at_its_time_and_the_next_one_gets_what_comes_later():
    channel, loop = Channel(), asyncio.get_running_loop()
    assert await channel.take(loop.time() + 0.001) == []
    taking = asyncio.create_task(channel.take(loop.time() + 60))
    await run_pending_tasks()
    channel.put(event(0))
    assert await asyncio.wait_for(taking, 1) == [event(0)]


async def test_a_cancelled_producer_does_not_affect_others():
    channel = Channel(limit=0)
    channel.put(event(0))
    first, second = asyncio.create_task(channel.wait_for_room()), asyncio.create_task(channel.wait_for_room())
    await run_pending_tasks()
    first.cancel()
    await run_pending_tasks()
    assert first.cancelled()
    assert await channel.take() == [event(0)]
    await asyncio.wait_for(second, 1)


# --- writes of many turns together ------------------------------------------------------------------------------------


def delta(text):
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0})


async def busy_pacer():
    """Return a pacer whose last window had many writes."""
    pacer = WritePacer()
    loop = asyncio.get_running_loop()
    for _ in range(2):
        started = loop.time()
        for _ in range(50):
            pacer.defer(loop.create_future())
        while loop.time() - started < 0.021:
            await asyncio.sleep(0.005)
    assert pacer.defer(loop.create_future())
    return pacer


async def paced_consumer(pacer):
    channel, batches = Channel(), []

    async def sink(batch):
        batches.append(batch)

    channel.pacer = pacer
    writing = asyncio.create_task(channel.write_to(sink))
    await run_pending_tasks()
    return channel, batches, writing


async def test_text_deltas_of_few_writes_are_written_at_once():
    channel, batches, writing = await paced_consumer(WritePacer())
    channel.put(delta("a"))
    await run_pending_tasks()
    assert batches == [[delta("a")]]
    channel.close()
    await writing


async def test_text_deltas_of_many_writes_wait_for_the_next_tick():
    channel, batches, writing = await paced_consumer(await busy_pacer())
    for text in "ab":
        channel.put(delta(text))
    await run_pending_tasks()
    assert batches == []
    await asyncio.wait_for(channel_is_written(channel, batches), 1)
    assert batches == [[delta("a"), delta("b")]]
    channel.close()
    await writing


async def channel_is_written(channel, batches):
    while not batches:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("hurry", ["another event", "a barrier", "the close"])
async def test_text_deltas_do_not_wait_for_a_tick_before(hurry):
    channel, batches, writing = await paced_consumer(await busy_pacer())
    channel.put(delta("a"))
    match hurry:
        case "another event":
            channel.put(event(1))
        case "a barrier":
            barrier = asyncio.create_task(channel.wait_until_written())
        case "the close":
            channel.close()
    await run_pending_tasks()
    assert batches == [[delta("a"), event(1)] if hurry == "another event" else [delta("a")]]
    channel.close()
    if hurry == "a barrier":
        await barrier
    await writing
