"""Tests of event streams: heartbeats, the closing frame, stalled and aborted readers, framing."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.sessions import MemoryStore
from agenticx.testing import hang, say
from tests.support.intercepted_store import InterceptedStore, StoreCall
from tests.support.lanes import Count
from tests.support.server.heartbeats import SHORT_HEARTBEAT_INTERVAL, STATES, check_heartbeats, check_intervals, wait
from tests.support.server.running_studio import IN_A_FILE, Frame, StudioMaker, note, until
from tests.support.server.stream_checks import (
    check_framing,
    fill,
    last_types_before_close,
    leaks_of_aborted_readers,
    odd_events,
    stalled_reader,
    start_running_turn,
    until_subscribed,
)
from tests.support.timeouts import PATIENCE, PatientClock, wait_until

pytestmark = pytest.mark.anyio


# --- heartbeats -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("B5")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.cases(quick=2)
async def test_a_heartbeat_comes_every_ten_seconds_in_every_state(make_studio: StudioMaker, state: str) -> None:
    model = ScriptedModel(STATES[state][0])
    async with make_studio(model, tools=[note, wait], clock=PatientClock(SHORT_HEARTBEAT_INTERVAL)) as studio:
        await check_heartbeats(studio, state)


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
            await check_intervals(frames)


@pytest.mark.promise("B5")
@IN_A_FILE
async def test_a_heartbeat_does_not_wait_for_a_slow_read_of_the_log(make_studio: StudioMaker) -> None:
    reads, slow, ended = 0, asyncio.Event(), asyncio.Event()

    async def read_slowly(call: StoreCall) -> Any:
        nonlocal reads
        if call.name == "read" and slow.is_set():
            await ended.wait()
        reads += call.name == "read"
        return await call.run()

    store = InterceptedStore(MemoryStore(), lambda write: write.make(), read_slowly)
    async with make_studio(store=store, clock=PatientClock(SHORT_HEARTBEAT_INTERVAL)) as studio:
        session_id = await studio.session()
        reads = 0
        async with studio.events(session_id) as frames:
            await wait_until(lambda: reads >= 2)  # it waits for events or a heartbeat
            slow.set()
            try:
                await until(frames, "comment")
            finally:
                ended.set()


# --- the end of a stream ----------------------------------------------------------------------------------------------


@pytest.mark.promise("B6")
async def test_a_closing_server_stops_turns_then_sends_every_reader_a_closing_frame(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]] * 3)) as studio:
        assert await last_types_before_close(studio) == [("error", "server_closing")] * 4


async def test_a_stream_of_a_session_that_is_deleted_ends(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        async with studio.events(session_id) as frames:
            await until_subscribed(studio)
            assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
            assert [frame async for frame in frames] == []
        assert (await studio.client.get(f"/api/sessions/{session_id}/events")).status_code == 404


# --- stalled and aborted readers --------------------------------------------------------------------------------------


@pytest.mark.promise("B3")
async def test_a_stalled_reader_is_dropped_and_the_others_are_not(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 2.5})) as studio:
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
    aborts = count(50, 500, 2_000)
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        assert await leaks_of_aborted_readers(studio, await start_running_turn(studio), aborts) == {"turns": 1}


# --- responses --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("B8")
async def test_no_text_in_any_field_of_any_event_breaks_the_framing(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        await check_framing(studio, odd_events(5_000))


async def test_head_opens_no_stream(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        answer = await studio.client.head(f"/api/sessions/{session_id}/events")
        assert (answer.status_code, answer.content) == (200, b"")
        assert studio.services.relay.readers == 0


# --- events of some types ---------------------------------------------------------------------------------------------


async def test_a_stream_of_some_types_has_those_events_and_heartbeats_advance_its_cursor(
    make_studio: StudioMaker,
) -> None:
    clock = PatientClock(SHORT_HEARTBEAT_INTERVAL)
    async with make_studio(ScriptedModel(["one", "two", "three"]), clock=clock) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}/events?types=turn_started,final"
        for text in ("first", "second"):
            cursor = (await studio.turn(session_id, text)).json()["cursor"]
            whole = await studio.events_until(session_id, "final", cursor=cursor)
        async with studio.frames(path) as frames:
            seen = list[Frame]()
            while len(seen) < 4:
                seen += [frame] if (frame := await anext(frames)).data is not None else []
            assert [frame.type for frame in seen] == ["turn_started", "final"] * 2
            assert seen[-1].raw == whole[-1].raw
            await studio.client.patch(f"/api/sessions/{session_id}", json={"pinned": True})
            head = await studio.services.store.log.head(session_id)
            passed = studio.services.relay.cursor(session_id, head)
            while (frame := await anext(frames)).id != passed:
                assert frame.data is None
        async with studio.frames(path, cursor=passed) as frames:
            await studio.turn(session_id, "third")
            assert [frame.type for frame in await until(frames, "final") if frame.data] == ["turn_started", "final"]
