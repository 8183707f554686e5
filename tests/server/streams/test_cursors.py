"""Tests of cursors: exact resume, odd cursors, the stream of all sessions."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.llms import ScriptedModel
from agenticx.testing import hang, say
from tests.support.lanes import Count
from tests.support.server.running_studio import StudioMaker, until
from tests.support.server.stream_checks import (
    check_odd_cursors,
    check_odd_cursors_of_all,
    many_events,
    resume_differences,
    run_turn,
    until_subscribed,
)
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


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
    readers, hops, events = count(3, 10, 100), count(5, 20, 100), count(2_000, 10_000, 10_000)
    async with make_studio(ScriptedModel([many_events(events)])) as studio:
        assert await resume_differences(studio, readers, hops, events) == []


async def test_the_stream_of_all_sessions_sends_new_events_and_resumes_by_its_own_cursors(
    make_studio: StudioMaker,
) -> None:
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


# --- odd cursors ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("B2")
@pytest.mark.parametrize("state", ["idle", "live", "finished"])
@pytest.mark.cases(quick=1)
async def test_an_odd_cursor_is_answered_by_one_reset_and_the_whole_log(make_studio: StudioMaker, state: str) -> None:
    scripts = {"idle": [], "live": [[say("a"), hang()]], "finished": ["hello"]}
    async with make_studio(ScriptedModel(scripts[state])) as studio:
        session_id = await studio.session()
        if state != "idle":
            await studio.turn(session_id)
        until_type = {"idle": "", "live": "token", "finished": "final"}[state]
        log = [frame.raw for frame in await studio.events_until(session_id, until_type)] if until_type else []
        await check_odd_cursors(studio, session_id, log)


@pytest.mark.promise("B2")
async def test_an_odd_cursor_of_all_sessions_is_answered_by_one_reset_and_the_next_events(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        await check_odd_cursors_of_all(studio)


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
