"""Checks of event streams: resume, odd cursors, aborted readers, shutdown, framing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.testing import pause, say, think
from tests.support.commits import append
from tests.support.server.running_studio import TOKEN, Frame, RunningStudio
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, wait_until


async def run_turn(studio: RunningStudio, session_id: str, text: str = "hi") -> list[Frame]:
    """Run a turn and return its frames."""
    cursor = (await studio.turn(session_id, text)).json()["cursor"]
    return await studio.events_until(session_id, "final", cursor=cursor)


async def fill(studio: RunningStudio, session_id: str, count: int, text: str = "x") -> None:
    """Append token events to the log directly, as the hub would."""
    events = [RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0})] * count
    store = studio.services.store
    await append(store, session_id, None, events)


async def until_subscribed(studio: RunningStudio, readers: int = 1) -> None:
    await wait_until(lambda: studio.services.relay.readers == readers)


# --- resume -----------------------------------------------------------------------------------------------------------


def many_events(count: int) -> list[Any]:
    """Return a reply that makes `count` events; it alternates, since adjacent deltas of one kind would be merged."""
    return [[say("word "), think("word "), pause(0)]] * (count // 2)


async def resume_differences(studio: RunningStudio, readers: int, hops: int, events: int) -> list[str]:
    """Return how the frames of readers differ from the log.

    Each of `readers` disconnects `hops` times, at random bytes, during a turn of `events` events.
    """
    session_id, event_bytes = await studio.session(), 200

    async def hop(rng: random.Random) -> tuple[StreamClient, int]:
        reader, leaves = studio.reader(session_id), 0
        while not reader.ended_turns:
            most = rng.randrange(1, 2 * events * event_bytes // hops) if leaves < hops else None
            leaves += not await reader.read(lambda reader: bool(reader.ended_turns), max_bytes=most)
        return reader, leaves

    hopping = [asyncio.create_task(hop(random.Random(seed))) for seed in range(readers)]
    await studio.turn(session_id)
    hopped = await asyncio.gather(*hopping)
    whole = studio.reader(session_id)
    await whole.read(lambda reader: bool(reader.ended_turns))
    assert len(whole.frames) > events
    assert [envelope["seq"] for envelope in whole.envelopes] == list(range(1, len(whole.frames) + 1))
    assert all(leaves >= hops * 0.9 for _, leaves in hopped)  # the turn may end before the last ones
    return [wrong for reader, _ in hopped for wrong in differences(reader, whole.frames)]


def differences(reader: StreamClient, log: list[bytes]) -> list[str]:
    """Return the differences between a reader's frames and the log, in words."""
    times = Counter(reader.frames)
    found = [f"came {times[frame]} times: {frame!r}" for frame in log if times[frame] != 1]
    found += [f"is not in the log: {frame!r}" for frame in (*(times.keys() - set(log)), *reader.unnumbered)]
    return found or ([] if reader.frames == log else ["the order is not that of the log"])


# --- odd cursors ------------------------------------------------------------------------------------------------------


ODD_CURSORS = [
    "0",
    "-1",
    "1",
    "999999999999",
    "null",
    "undefined",
    "NaN",
    "%00",
    "%0d%0aid: 1",
    "../../etc/passwd",
    "a" * 4000,
    "%F0%9F%98%80",
    "%FF%FE",
    "{}",
    "1-",
    "-",
    "1-deadbeefdeadbeef",
    " 1",
    "01",
    "1e3",
    "0x1",
    "'; drop table events; --",
    "true",
    "[1]",
    "1.0",
    "+1",
]


def odd_cursors(studio: RunningStudio, own: str, other_session: str) -> list[str]:
    """Return cursors that were never issued for the session `own`; some differ in one character from a valid one."""
    ahead, other = studio.services.relay.cursor(own, 99), studio.services.relay.cursor(other_session, 1)
    place, _, tag = ahead.partition("-")
    near = [
        f"0{place}-{tag}",
        f"{place}-{tag}x",
        f"-{place}-{tag}",
        f"{place}{tag}",
        f"{place}-{tag[::-1]}",
        place,
        tag,
    ]
    near += [f"{place}-{tag.upper()}g", f"{place}-", f"-{tag}", f" {place}-{tag}x", f"{place}-{tag},{place}-{tag}"]
    return [*ODD_CURSORS, other, f"ffffffffffffffff-{tag}", f"fffffff-{tag}", ahead, *near]


async def check_odd_cursors(
    studio: RunningStudio, session_id: str, log: list[bytes], *, seconds: float = PATIENCE
) -> None:
    """Check that each odd cursor is answered by a reset and the log, within `seconds` of real time."""
    odd = odd_cursors(studio, session_id, other_session=await studio.session())
    assert len(odd) >= 40
    for cursor in odd:
        reader = studio.reader(session_id, query=f"?cursor={quote(cursor, safe='%')}")
        await reader.read(lambda reader: len(reader.frames) >= len(log) and bool(reader.unnumbered), seconds=seconds)
        (reset,) = reader.unnumbered
        assert (cursor, json.loads(reset.removeprefix(b"data: "))["type"]) == (cursor, "reset")
        assert reader.frames == log


async def check_odd_cursors_of_all(studio: RunningStudio) -> None:
    session_id = await studio.session()
    of_session = [frame.id or "" for frame in await run_turn(studio, session_id)]
    odd = [*odd_cursors(studio, session_id, session_id), of_session[0], of_session[-1]]
    readers = [StreamClient(studio.port, f"/api/events?cursor={quote(cursor, safe='%')}", TOKEN) for cursor in odd]
    live = StreamClient(studio.port, "/api/events", TOKEN)

    async def answered(reader: StreamClient) -> None:
        await reader.read(lambda reader: bool(reader.ended_turns))

    async with asyncio.TaskGroup() as group:
        for reader in (*readers, live):
            group.create_task(answered(reader))
        await wait_until(lambda: all(reader.unnumbered for reader in readers))
        await until_subscribed(studio, len(readers) + 1)
        await run_turn(studio, session_id)
    assert live.types[0] == "turn_started"
    for reader in readers:
        assert [json.loads(frame.removeprefix(b"data: "))["type"] for frame in reader.unnumbered] == ["reset"]
        assert reader.frames == live.frames


# --- shutdown ---------------------------------------------------------------------------------------------------------


async def last_types_before_close(studio: RunningStudio) -> list[tuple[str, ...]]:
    """Close the studio and return the last two types on the streams of three running sessions and on that of all."""
    sessions = [await studio.session() for _ in range(3)]
    for session_id in sessions:
        await studio.turn(session_id)

    async def watch(path: str) -> list[str]:
        async with studio.frames(path) as frames:
            return [frame.type async for frame in frames]

    paths = [*(f"/api/sessions/{session_id}/events" for session_id in sessions), "/api/events"]
    watching = [asyncio.create_task(watch(path)) for path in paths]
    await until_subscribed(studio, len(paths))
    async with asyncio.timeout(PATIENCE):
        await studio.close()
        return [tuple(log[-2:]) for log in await asyncio.gather(*watching)]


# --- stalled and aborted readers --------------------------------------------------------------------------------------


def stalled_reader(studio: RunningStudio, session_id: str, *, buffer_bytes: int = 4096) -> socket.socket:
    """Return a connection that requests the stream and does not read."""
    quiet = socket.socket()
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    quiet.connect(("127.0.0.1", studio.port))
    head = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
    quiet.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
    return quiet


async def start_running_turn(studio: RunningStudio) -> str:
    """Create a session with large events and a running turn, without readers, and return its id."""
    session_id = await studio.session()
    await fill(studio, session_id, 10, "x" * 20_000)
    cursor = (await studio.turn(session_id)).json()["cursor"]
    await studio.events_until(session_id, "token", cursor=cursor)
    await until_subscribed(studio, 0)
    return session_id


async def leaks_of_aborted_readers(
    studio: RunningStudio, session_id: str, aborts: int, *, seconds: float = PATIENCE
) -> dict[str, int]:
    """Return the resources that aborted readers still hold after `seconds`, and the number of running turns."""

    def held() -> dict[str, int]:
        return {
            "connections": len(studio.server.server_state.connections),
            "readers": studio.services.relay.readers,
            "tasks": len(asyncio.all_tasks()),
            "files": len(os.listdir("/proc/self/fd")),
        }

    log = studio.services.store.log
    await asyncio.gather(*(log.head(session_id) for _ in range(32)))  # a pool of connections has all that it may have
    before = held() | {"connections": 1}
    for number in range(aborts):
        reader = stalled_reader(studio, session_id)
        if number % 3 == 2:  # half read
            await asyncio.to_thread(reader.recv, 1000)
        if number % 2:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        reader.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait_until(lambda: not growth(held(), before))
    return growth(held(), before) | {"turns": int(studio.services.hub.running_turn_id(session_id) is not None)}


def growth(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {what: now[what] - before[what] for what in now if now[what] > before[what]}


# --- framing ----------------------------------------------------------------------------------------------------------


def odd_events(count: int) -> list[RuntimeEvent]:
    """Return events of all types, with odd text in all fields."""
    rng = random.Random(8)
    frame_like = ["\r\n\r\n", "\n\ndata: x\n\n", "id: 1", ":", "", "\r", "retry: 1"]
    odd = [*frame_like, "\0", "\u2028\u2029", "\ufeff", "\U0001f600", "\x85", "\ud800", "\udc00\ud83d"]
    texts = ["a" * 1_000_000, *odd, *("".join(rng.choices(odd, k=rng.randrange(20))) for _ in range(count - len(odd)))]
    types = [type_ for type_ in EventType if type_ not in (EventType.TOKEN, EventType.THINKING)]
    needed = {"fatal": False, "model": "m", "input_tokens": 1, "output_tokens": 1}  # fields that a store reads
    return [
        RuntimeEvent(EventType.THINKING, {"text": text, "message_id": text[:20], "offset": 0}, text[:20])
        if number % 2
        else RuntimeEvent(rng.choice(types), {text[:20]: [{text[:20]: text}], **needed, "text": text}, text[:20])
        for number, text in enumerate(texts)
    ]


async def check_framing(studio: RunningStudio, events: list[RuntimeEvent]) -> None:
    """Check that every event is one frame of two lines by any line separator, with the data that was stored."""
    session_id = await studio.session()
    for start in range(0, len(events), 100):
        await append(studio.services.store, session_id, None, events[start : start + 100])
    reader = studio.reader(session_id)
    await reader.read(lambda reader: len(reader.frames) >= len(events))
    torn = [frame for frame in reader.frames if len(frame.decode().splitlines()) != 2]
    assert not torn, f"torn frames: {torn[:3]}"
    got = [(envelope["type"], envelope["agent_id"], envelope["data"]) for envelope in reader.envelopes]
    sent = [(event.type, event.agent_id, event.data) for event in events]
    decoded = json.loads(json.dumps(sent))  # JSON joins two adjacent surrogates to one character
    assert got == [tuple(one) for one in decoded]
