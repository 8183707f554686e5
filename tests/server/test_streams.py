"""Event streams: exact resume, heartbeats, the closing frame, and limits for readers that stall."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest

from agenticx.llms.scripted import ScriptedModel, call, hang, pause, say, think
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.tools.base import ToolContext
from agenticx.tools.registry import tool
from tests.support.lanes import Count
from tests.support.patience import PATIENCE, PatientClock
from tests.support.server.reading import Reader
from tests.support.server.running import TOKEN, Frame, Studio, StudioMaker, note, until

pytestmark = pytest.mark.anyio


@tool(risk="read")
async def wait(context: ToolContext) -> None:
    """Run for ever."""
    await asyncio.get_running_loop().create_future()


async def run_turn(studio: Studio, session_id: str, text: str = "hi") -> list[Frame]:
    """Run a turn and return its frames."""
    cursor = (await studio.turn(session_id, text)).json()["cursor"]
    return await studio.events_until(session_id, "final", cursor=cursor)


async def fill(studio: Studio, session_id: str, count: int, text: str = "x") -> None:
    """Append token events to the log directly, as the hub would."""
    events = [RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0})] * count
    store = studio.services.store
    await store.append(session_id, None, events, expected_seq=await store.last_seq(session_id))


# --- resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("B1")
async def test_live_and_replayed_frames_are_the_same_bytes_and_any_cursor_resumes_exactly(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(ScriptedModel([say("a b c d e", pieces=9)])) as studio:
        session_id = await studio.session()
        async with studio.events(session_id) as frames:
            await studio.turn(session_id)
            live = await until(frames, "final")
        replayed = await studio.events_until(session_id, "final")
        assert [frame.raw for frame in replayed] == [frame.raw for frame in live]
        assert [frame.data["seq"] for frame in live] == list(range(1, len(live) + 1))
        for place, frame in enumerate(live[:-1], 1):
            rest = await studio.events_until(session_id, "final", cursor=frame.id)
            assert [frame.raw for frame in rest] == [frame.raw for frame in live[place:]]


async def test_the_cursor_can_come_in_the_query_and_the_header_wins(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        log = await run_turn(studio, session_id)
        path = f"/api/sessions/{session_id}/events?cursor={log[-3].id}"
        async with studio.frames(path) as frames:
            assert (await anext(frames)).raw == log[-2].raw
        for came_back in (studio.frames(path, cursor=log[-2].id), studio.frames(f"{path}&lastEventId={log[-2].id}")):
            async with came_back as frames:
                assert (await anext(frames)).raw == log[-1].raw


@pytest.mark.promise("B1")
async def test_readers_that_reconnect_during_a_turn_get_every_event_once(
    make_studio: StudioMaker, count: Count
) -> None:
    readers, hops = count(5, 10, 100), count(10, 20, 100)
    async with make_studio(ScriptedModel([many_events(10_000)])) as studio:
        assert await resume_differences(studio, readers, hops, 10_000) == []


def many_events(count: int) -> list[Any]:
    """Return a reply that makes `count` events; it alternates, since adjacent deltas of one kind would be merged."""
    return [[say("word "), think("word "), pause(0)]] * (count // 2)


async def resume_differences(studio: Studio, readers: int, hops: int, events: int) -> list[str]:
    """Return how the frames of readers differ from the log.

    Each of `readers` disconnects `hops` times, at random bytes, during a turn of `events` events.
    """
    session_id, event_bytes = await studio.session(), 200

    async def hop(rng: random.Random) -> tuple[Reader, int]:
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


def differences(reader: Reader, log: list[bytes]) -> list[str]:
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


def odd_cursors(studio: Studio, own: str, foreign: str) -> list[str]:
    """Return cursors that were never issued for the session `own`; some differ in one character from a valid one."""
    ahead, other = studio.services.relay.cursor(own, 99), studio.services.relay.cursor(foreign, 1)
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


@pytest.mark.promise("B2")
@pytest.mark.parametrize("state", ["idle", "live", "finished"])
async def test_an_odd_cursor_is_answered_by_one_reset_and_the_whole_log(make_studio: StudioMaker, state: str) -> None:
    scripts = {"idle": [], "live": [[say("a"), hang()]], "finished": ["hello"]}
    async with make_studio(ScriptedModel(scripts[state])) as studio:
        session_id = await studio.session()
        if state != "idle":
            await studio.turn(session_id)
        until_type = {"idle": "", "live": "token", "finished": "final"}[state]
        log = [frame.raw for frame in await studio.events_until(session_id, until_type)] if until_type else []
        await check_odd_cursors(studio, session_id, log)


async def check_odd_cursors(studio: Studio, session_id: str, log: list[bytes], *, seconds: float = PATIENCE) -> None:
    """Check that each odd cursor is answered by a reset and the log, within `seconds` of real time."""
    odd = odd_cursors(studio, session_id, foreign=await studio.session())
    assert len(odd) >= 40
    for cursor in odd:
        reader = studio.reader(session_id, query=f"?cursor={quote(cursor, safe='%')}")
        await reader.read(lambda reader: len(reader.frames) >= len(log) and bool(reader.unnumbered), seconds=seconds)
        (reset,) = reader.unnumbered
        assert (cursor, json.loads(reset.removeprefix(b"data: "))["type"]) == (cursor, "reset")
        assert reader.frames == log


@pytest.mark.promise("B2")
async def test_an_odd_cursor_of_all_sessions_is_answered_by_one_reset_and_the_next_events(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        await check_odd_cursors_of_all(studio)


async def check_odd_cursors_of_all(studio: Studio) -> None:
    session_id = await studio.session()
    of_session = [frame.id or "" for frame in await run_turn(studio, session_id)]
    odd = [*odd_cursors(studio, session_id, session_id), of_session[0], of_session[-1]]
    readers = [Reader(studio.port, f"/api/events?cursor={quote(cursor, safe='%')}", TOKEN) for cursor in odd]
    live = Reader(studio.port, "/api/events", TOKEN)

    async def answered(reader: Reader) -> None:
        await reader.read(lambda reader: bool(reader.ended_turns))

    async with asyncio.TaskGroup() as group:
        for reader in (*readers, live):
            group.create_task(answered(reader))
        async with asyncio.timeout(PATIENCE):
            while not all(reader.unnumbered for reader in readers):
                await asyncio.sleep(0.005)
        await until_subscribed(studio, len(readers) + 1)
        await run_turn(studio, session_id)
    assert live.types[0] == "turn_started"
    for reader in readers:
        assert [json.loads(frame.removeprefix(b"data: "))["type"] for frame in reader.unnumbered] == ["reset"]
        assert reader.frames == live.frames


@pytest.mark.promise("B2")
async def test_the_last_cursor_waits_for_new_events_without_a_reset(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        log = await run_turn(studio, session_id)
        async with studio.events(session_id, cursor=log[-1].id) as frames:
            waiting = asyncio.ensure_future(anext(frames))
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
            await studio.turn(session_id, "more")
            assert (await waiting).data["data"]["input"] == "more"


async def test_an_odd_cursor_on_an_empty_session_is_answered_too(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id, cursor="nonsense") as frames, asyncio.timeout(PATIENCE):
            assert (await anext(frames)).type == "reset"


# --- all sessions -----------------------------------------------------------------------------------------------------


async def test_the_stream_of_all_sessions_is_live_and_resumes_by_its_own_cursors(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        one, two = await studio.session(), await studio.session()
        await run_turn(studio, one)
        async with studio.frames("/api/events") as frames:
            await until_subscribed(studio)
            for session_id in (two, one):
                await studio.turn(session_id)
                seen = await until(frames, "final")
                assert {frame.data["session_id"] for frame in seen} == {session_id}
            last = seen[-1]
        await run_turn(studio, two)
        async with studio.frames("/api/events", cursor=last.id) as frames:
            assert {frame.data["session_id"] for frame in await until(frames, "final")} == {two}
        of_session = (await studio.events_until(one, "final"))[-1].id
        async with studio.frames("/api/events", cursor=of_session) as frames:
            assert (await anext(frames)).type == "reset"
            await studio.turn(one)
            seen = await until(frames, "final")
            assert {frame.data["session_id"] for frame in seen} == {one}
            assert seen[0].type == "turn_started"


async def until_subscribed(studio: Studio, readers: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while studio.services.relay.readers != readers:
            await asyncio.sleep(0.005)


# --- heartbeats, shutdown ---------------------------------------------------------------------------------------------


SPEED = 50.0
SHORT_HEARTBEAT_INTERVAL = {10.0: 10 / SPEED}
"""A heartbeat interval `SPEED` times shorter than in real time; all other waits keep their length."""

STATES = {
    "idle": ([], None),
    "model": ([[say("a"), hang()]], "token"),
    "tool": ([call("wait")], "tool_call"),
    "confirm": ([call("note", {"text": "x"}), "done"], "confirm_required"),
    "queued": ([[say("a"), hang()]], "token"),
}
"""The script of the model, and the event after which nothing more happens."""


_WATCH_SECONDS = 0.002


@dataclass
class HeartbeatLog:
    """The times of heartbeats, each with the total delay of the event loop until then, in nominal seconds."""

    beats: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _delay: float = 0.0
    _last_wake: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @classmethod
    async def record(cls, frames: AsyncIterator[Frame], count: int = 4) -> HeartbeatLog:
        """Return the next heartbeats of a stream, after those that are already buffered."""
        beats, loop = cls(), asyncio.get_running_loop()
        watching = asyncio.create_task(beats._watch())
        try:
            while len(beats.beats) < count:
                asked = loop.time()
                await until(frames, "comment")
                if beats.beats or loop.time() - asked > 10 * _WATCH_SECONDS:
                    beats._record()
        finally:
            watching.cancel()
        return beats

    async def _watch(self) -> None:
        while True:
            self._measure_delay()
            await asyncio.sleep(_WATCH_SECONDS)

    def _measure_delay(self) -> None:
        """Add the delay since the last call; server and client share this loop, so it delays both."""
        now = asyncio.get_running_loop().time()
        self._delay += max(now - self._last_wake - _WATCH_SECONDS, 0)
        self._last_wake = now

    def _record(self) -> None:
        self._measure_delay()
        self.beats.append((self._last_wake * SPEED, self._delay * SPEED))

    def check(self) -> None:
        for (earlier, late_before), (later, late) in pairwise(self.beats):
            assert later - earlier <= 15 + late - late_before
            assert later - earlier >= 9 - late


@pytest.mark.promise("B5")
@pytest.mark.parametrize("state", STATES)
async def test_a_heartbeat_comes_every_ten_seconds_in_every_state(make_studio: StudioMaker, state: str) -> None:
    model = ScriptedModel(STATES[state][0])
    async with make_studio(model, tools=[note, wait], clock=PatientClock(SHORT_HEARTBEAT_INTERVAL)) as studio:
        await check_heartbeats(studio, state)


async def check_heartbeats(studio: Studio, state: str, *, seconds: float = PATIENCE) -> None:
    """Check four heartbeats in that state, on the session's stream and that of all, within `seconds` of real time."""
    session_id, last = await studio.session(), STATES[state][1]
    async with studio.events(session_id) as frames, studio.frames("/api/events") as of_all:
        if last is not None:
            await studio.turn(session_id)
            await until(frames, last)
        if state == "queued":
            await studio.turn(session_id, "more", when_busy="queue")
            await until(frames, "queued")
        async with asyncio.timeout(seconds):
            both = await asyncio.gather(HeartbeatLog.record(frames), HeartbeatLog.record(of_all))
        for beats in both:
            beats.check()


@pytest.mark.promise("B5")
async def test_heartbeats_go_on_after_a_restart_while_a_question_and_a_message_wait(make_studio: StudioMaker) -> None:
    script, last = STATES["confirm"]
    async with make_studio(ScriptedModel(script)) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        await studio.events_until(session_id, last or "")
        await studio.turn(session_id, "more", when_busy="queue")
        queued = (await studio.events_until(session_id, "queued"))[-1]
    async with make_studio(ScriptedModel(script[1:]), clock=PatientClock(SHORT_HEARTBEAT_INTERVAL)) as studio:
        assert studio.services.hub.running_turn_id(session_id) is not None
        async with studio.events(session_id, cursor=queued.id) as frames:
            (await HeartbeatLog.record(frames)).check()


@pytest.mark.promise("B6")
async def test_a_closing_server_stops_turns_then_sends_every_reader_a_closing_frame(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]] * 3)) as studio:
        assert await last_types_before_close(studio) == [("error", "server_closing")] * 4


async def last_types_before_close(studio: Studio) -> list[tuple[str, ...]]:
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


async def test_a_stream_of_a_session_that_is_deleted_ends(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id) as frames:
            await until_subscribed(studio)
            assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
            assert [frame async for frame in frames] == []
        assert (await studio.client.get(f"/api/sessions/{session_id}/events")).status_code == 404


# --- stalled readers, aborted readers ---------------------------------------------------------------------------------


def stalled_reader(studio: Studio, session_id: str) -> socket.socket:
    """Return a connection that requests the stream and never reads."""
    quiet = socket.socket()
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    quiet.connect(("127.0.0.1", studio.port))
    head = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
    quiet.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
    return quiet


@pytest.mark.promise("B3")
async def test_a_stalled_reader_is_dropped_and_the_others_are_not(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 5.0})) as studio:
        session_id = await studio.session()
        with stalled_reader(studio, session_id) as quiet:
            await until_subscribed(studio)
            async with studio.events(session_id) as frames:
                await until_subscribed(studio, 2)
                await fill(studio, session_id, 101, "x" * 100_000)
                while (await until(frames, "token"))[-1].data["seq"] < 101:
                    pass
                await until_subscribed(studio, 1)
                await fill(studio, session_id, 1)
                assert (await until(frames, "token"))[-1].data["seq"] == 102
            await asyncio.to_thread(read_to_the_end, quiet)


def read_to_the_end(quiet: socket.socket) -> None:
    """Read until the connection is closed; fail if it stays open."""
    quiet.settimeout(PATIENCE)
    with suppress(ConnectionResetError):
        while quiet.recv(1 << 16):
            pass


@pytest.mark.promise("B4")
async def test_aborted_readers_leak_nothing(make_studio: StudioMaker, count: Count) -> None:
    aborts = count(100, 500, 2_000)
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        assert await leaks_of_aborted_readers(studio, await start_running_turn(studio), aborts) == {"turns": 1}


async def start_running_turn(studio: Studio) -> str:
    """Create a session with large events and a running turn, without readers, and return its id."""
    session_id = await studio.session()
    await fill(studio, session_id, 10, "x" * 20_000)
    cursor = (await studio.turn(session_id)).json()["cursor"]
    await studio.events_until(session_id, "token", cursor=cursor)
    await until_subscribed(studio, 0)
    return session_id


async def leaks_of_aborted_readers(
    studio: Studio, session_id: str, aborts: int, *, seconds: float = PATIENCE
) -> dict[str, int]:
    """Return the resources that aborted readers still hold after `seconds`, and the number of running turns."""

    def held() -> dict[str, int]:
        return {
            "connections": len(studio.server.server_state.connections),
            "readers": studio.services.relay.readers,
            "tasks": len(asyncio.all_tasks()),
            "files": len(os.listdir("/proc/self/fd")),
        }

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
            while growth(held(), before):
                await asyncio.sleep(0.01)
    return growth(held(), before) | {"turns": int(studio.services.hub.running_turn_id(session_id) is not None)}


def growth(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {what: now[what] - before[what] for what in now if now[what] > before[what]}


@pytest.mark.promise("B8")
async def test_no_text_in_any_field_of_any_event_breaks_the_framing(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        await check_framing(studio, odd_events(5_000))


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


async def check_framing(studio: Studio, events: list[RuntimeEvent]) -> None:
    """Check that every event is one frame of two lines by any line separator, with the data that was stored."""
    session_id = await studio.session()
    for start in range(0, len(events), 100):
        await studio.services.store.append(session_id, None, events[start : start + 100], expected_seq=start)
    reader = studio.reader(session_id)
    await reader.read(lambda reader: len(reader.frames) >= len(events))
    torn = [frame for frame in reader.frames if len(frame.decode().splitlines()) != 2]
    assert not torn, f"torn frames: {torn[:3]}"
    got = [(envelope["type"], envelope["agent_id"], envelope["data"]) for envelope in reader.envelopes]
    sent = [(event.type, event.agent_id, event.data) for event in events]
    decoded = json.loads(json.dumps(sent))  # JSON joins two adjacent surrogates to one character
    assert got == [tuple(one) for one in decoded]


async def test_head_opens_no_stream(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        answer = await studio.client.head(f"/api/sessions/{session_id}/events")
        assert (answer.status_code, answer.content) == (200, b"")
        assert studio.services.relay.readers == 0
