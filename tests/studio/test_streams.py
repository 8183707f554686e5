"""The log as a stream: resumed exactly, never silent, ended politely, and bounded for readers that do not read."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress
from itertools import pairwise

import pytest

from agenticx.clocks import ScaledClock
from agenticx.llms.scripted import ScriptedModel, call, hang, pause, say, think
from agenticx.runtime.events import EventType, RuntimeEvent
from tests.studio.running import TOKEN, Frame, Studio, StudioMaker, until

pytestmark = pytest.mark.anyio


async def a_turn(studio: Studio, session_id: str, text: str = "hi") -> list[Frame]:
    """One whole turn's frames."""
    cursor = (await studio.turn(session_id, text)).json()["cursor"]
    return await studio.events_until(session_id, "final", cursor=cursor)


async def fill(studio: Studio, session_id: str, count: int, text: str = "x") -> None:
    """Put events straight into the log, as the hub would."""
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
        log = await a_turn(studio, session_id)
        path = f"/api/sessions/{session_id}/events?cursor={log[-3].id}"
        async with studio.frames(path) as frames:
            assert (await anext(frames)).raw == log[-2].raw
        async with studio.frames(path, cursor=log[-2].id) as frames:
            assert (await anext(frames)).raw == log[-1].raw


@pytest.mark.promise("B1")
async def test_readers_that_come_and_go_during_a_turn_see_all_of_it_once(
    make_studio: StudioMaker, request: pytest.FixtureRequest
) -> None:
    events, readers, hops = (10_000, 100, 100) if request.config.getoption("--deep") else (2_000, 10, 20)
    reply = [[say("word "), think("word "), pause(0)]] * (events // 2)  # neighbours of one kind would be joined
    async with make_studio(ScriptedModel([reply])) as studio:
        session_id = await studio.session()

        async def hop(rng: random.Random) -> list[bytes]:
            got: list[Frame] = []
            while not got or got[-1].type != "final":
                leave = len(got) + rng.randrange(1, 2 * events // hops)
                async with studio.events(session_id, cursor=got[-1].id if got else None) as frames:
                    async for frame in frames:
                        if frame.type != "comment":
                            got.append(frame)
                            assert frame.data["seq"] == len(got)
                        if frame.type == "final" or len(got) == leave:
                            break
            return [frame.raw for frame in got]

        hopping = [asyncio.create_task(hop(random.Random(seed))) for seed in range(readers)]
        await studio.turn(session_id)
        logs = await asyncio.gather(*hopping)
        whole = [frame.raw for frame in await studio.events_until(session_id, "final")]
        assert len(whole) > events
        assert logs == [whole] * readers


# --- odd cursors ------------------------------------------------------------------------------------------------------

ODD = [
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
]


@pytest.mark.promise("B2")
async def test_an_odd_cursor_is_answered_by_one_reset_and_the_whole_log(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id, other = await studio.session(), await studio.session()
        log = [frame.raw for frame in await a_turn(studio, session_id)]
        foreign = [frame.id for frame in await a_turn(studio, other)]
        last = str((await studio.events_until(session_id, "final"))[-1].id)
        place, _, tag = last.partition("-")
        ahead = [f"{int(place, 16) + 1:x}-{tag}", f"ffffffff-{tag}", f"0{place}-{tag}", f"{place}-{tag}x"]
        for cursor in [*ODD, *foreign, *ahead, ""]:
            async with studio.frames(f"/api/sessions/{session_id}/events?cursor={cursor}") as frames:
                async with asyncio.timeout(1):
                    reset, *replay = await until(frames, "final")
            assert (cursor, reset.type, reset.id) == (cursor, "reset", None)
            assert [frame.raw for frame in replay] == log


@pytest.mark.promise("B2")
async def test_the_cursor_at_the_end_waits_for_what_comes_and_resets_nothing(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        log = await a_turn(studio, session_id)
        async with studio.events(session_id, cursor=log[-1].id) as frames:
            waiting = asyncio.ensure_future(anext(frames))
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
            await studio.turn(session_id, "more")
            assert (await waiting).data["data"]["input"] == "more"


async def test_an_odd_cursor_on_an_empty_session_is_answered_too(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id, cursor="nonsense") as frames, asyncio.timeout(1):
            assert (await anext(frames)).type == "reset"


# --- all sessions -----------------------------------------------------------------------------------------------------


async def test_the_stream_of_all_sessions_is_live_and_resumes_by_its_own_cursors(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        one, two = await studio.session(), await studio.session()
        await a_turn(studio, one)
        async with studio.frames("/api/events") as frames:
            await until_subscribed(studio)
            for session_id in (two, one):
                await studio.turn(session_id)
                seen = await until(frames, "final")
                assert {frame.data["session_id"] for frame in seen} == {session_id}
            last = seen[-1]
        await a_turn(studio, two)
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
    async with asyncio.timeout(5):
        while studio.services.relay.readers != readers:
            await asyncio.sleep(0.005)


# --- silence, farewell ------------------------------------------------------------------------------------------------


@pytest.mark.promise("B5")
@pytest.mark.parametrize("state", ["idle", "model", "confirm"])
async def test_a_heartbeat_comes_every_ten_seconds_in_every_state(make_studio: StudioMaker, state: str) -> None:
    speed = 50.0
    replies = {"idle": [], "model": [[say("a"), hang()]], "confirm": [call("note", {"text": "x"}), "done"]}
    async with make_studio(ScriptedModel(replies[state]), clock=ScaledClock(speed)) as studio:
        session_id = await studio.session()
        async with studio.events(session_id) as frames:
            if state != "idle":
                await studio.turn(session_id)
                await until(frames, {"model": "token", "confirm": "confirm_required"}[state])
            loop, beats = asyncio.get_running_loop(), list[float]()
            async for frame in frames:
                if frame.type == "comment":
                    beats.append(loop.time() * speed)
                if len(beats) == 4:
                    break
        gaps = [later - earlier for earlier, later in pairwise(beats)]
        assert max(gaps) <= 15
        assert min(gaps) >= 9


@pytest.mark.promise("B6")
async def test_a_closing_server_ends_turns_then_says_farewell_to_every_reader(make_studio: StudioMaker) -> None:
    model = ScriptedModel([[say("a"), hang()]] * 3)
    async with make_studio(model) as studio:
        sessions = [await studio.session() for _ in range(3)]
        for session_id in sessions:
            await studio.turn(session_id)

        async def watch(path: str) -> list[str]:
            async with studio.frames(path) as frames:
                return [frame.type async for frame in frames]

        paths = [*(f"/api/sessions/{session_id}/events" for session_id in sessions), "/api/events"]
        watching = [asyncio.create_task(watch(path)) for path in paths]
        await until_subscribed(studio, len(paths))
        async with asyncio.timeout(5):
            await studio.close()
            logs = await asyncio.gather(*watching)
    for log in logs:
        assert log[-2:] == ["error", "server_closing"]


async def test_a_stream_of_a_session_that_is_deleted_ends(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id) as frames:
            await until_subscribed(studio)
            assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
            assert [frame async for frame in frames] == []
        assert (await studio.client.get(f"/api/sessions/{session_id}/events")).status_code == 404


# --- readers that do not read, readers that die -----------------------------------------------------------------------


def stalled_reader(studio: Studio, session_id: str) -> socket.socket:
    """A connection that asks for the stream and takes nothing."""
    quiet = socket.socket()
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    quiet.connect(("127.0.0.1", studio.port))
    head = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
    quiet.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
    return quiet


@pytest.mark.promise("B3")
async def test_a_reader_that_takes_nothing_is_dropped_and_the_others_are_not(make_studio: StudioMaker) -> None:
    async with make_studio(clock=ScaledClock(20)) as studio:
        session_id = await studio.session()
        with stalled_reader(studio, session_id) as quiet:
            await until_subscribed(studio)
            async with studio.events(session_id) as frames:
                await until_subscribed(studio, 2)
                await fill(studio, session_id, 301, "x" * 100_000)
                while (await until(frames, "token"))[-1].data["seq"] < 301:
                    pass
                await until_subscribed(studio, 1)
                await fill(studio, session_id, 1)
                assert (await until(frames, "token"))[-1].data["seq"] == 302
            await asyncio.to_thread(read_to_the_end, quiet)


def read_to_the_end(quiet: socket.socket) -> None:
    """Return when the connection is over; fail if it stays open."""
    quiet.settimeout(5)
    with suppress(ConnectionResetError):
        while quiet.recv(1 << 16):
            pass


@pytest.mark.promise("B4")
async def test_readers_that_die_leave_nothing_behind(make_studio: StudioMaker, request: pytest.FixtureRequest) -> None:
    aborts = 2_000 if request.config.getoption("--deep") else 500
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        await asyncio.sleep(0)
        before = len(asyncio.all_tasks())
        connections = studio.server.server_state.connections
        for number in range(aborts):
            reader = stalled_reader(studio, session_id)
            if number % 2:
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            reader.close()
        async with asyncio.timeout(5):
            while studio.services.relay.readers or len(connections) > 1 or len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)
        assert studio.services.hub.running_turn(session_id) is not None


@pytest.mark.promise("B8")
async def test_no_text_breaks_the_framing(make_studio: StudioMaker) -> None:
    rng = random.Random(8)
    frame_like = ["\r\n\r\n", "\n\ndata: x\n\n", "id: 1", ":", ""]
    odd = [*frame_like, "\0", "\u2028\u2029", "\ufeff", "\U0001f600", "\x85", "a" * 1_000_000]
    texts = [*odd, *("".join(rng.choices(odd[:-1], k=rng.randrange(20))) for _ in range(5_000 - len(odd)))]
    async with make_studio() as studio:
        session_id = await studio.session()
        for text in texts:
            await fill(studio, session_id, 1, text)
        got: list[str] = []
        async with studio.events(session_id) as frames:
            async for frame in frames:
                got.append(frame.data["data"]["text"])
                if len(got) == len(texts):
                    break
        assert got == texts


async def test_head_opens_no_stream(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        answer = await studio.client.head(f"/api/sessions/{session_id}/events")
        assert (answer.status_code, answer.content) == (200, b"")
        assert studio.services.relay.readers == 0
