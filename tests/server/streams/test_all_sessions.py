"""A stock client of the stream of all sessions whose connection ends before the first event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import httpx_sse
import pytest

from tests.support.server.agx_processes import agx_serve, outcome
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.server.stream_client import StreamClient

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B1")]


@asynccontextmanager
async def follow(client: httpx.AsyncClient, cursor: str) -> AsyncGenerator[httpx_sse.EventSource]:
    """Connect as httpx-sse documents: it only parses, and the caller reconnects with the last id."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    async with httpx_sse.aconnect_sse(client, "GET", "/api/events", headers=headers) as source:
        yield source


async def first_frame(source: httpx_sse.EventSource) -> httpx_sse.ServerSentEvent:
    async for frame in source.aiter_sse():
        return frame
    raise AssertionError("the stream ended")


async def up_to_final(source: httpx_sse.EventSource) -> list[tuple[str, object]]:
    """Return the session and `seq` of each event up to the end of a turn."""
    seen: list[tuple[str, object]] = []
    async for frame in source.aiter_sse():
        if frame.data:
            event = frame.json()
            seen.append((event["session_id"], event.get("seq")))
            if event["type"] == "final":
                return seen
    raise AssertionError("the stream ended")


async def cursor_of_cut_stream(studio: RunningStudio, cursor: str) -> str:
    """Return the last id of a client whose connection is aborted just after its stream opened."""
    with suppress(httpx.TransportError):
        async with follow(studio.client, cursor) as source:
            async for frame in source.aiter_sse():
                cursor = frame.id or cursor
                if not frame.data:
                    for connection in studio.server.server_state.connections:
                        connection.transport.abort()  # type: ignore[union-attr]
    return cursor


@pytest.mark.parametrize("cursor", ["", "garbage"])
async def test_no_event_is_lost_when_a_connection_ends_before_its_first_event(
    make_studio: StudioMaker, cursor: str
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "before anybody looked")
        before = await studio.events_until(session_id, "final")
        cursor = await cursor_of_cut_stream(studio, cursor)
        await studio.turn(session_id, "meanwhile")
        meanwhile = await studio.events_until(session_id, "final", cursor=before[-1].id)
        async with follow(studio.client, cursor) as source:
            expected = [(session_id, frame.data["seq"]) for frame in meanwhile]
            assert await up_to_final(source) == expected


async def test_no_event_is_lost_when_the_server_is_killed_before_the_first_event(
    tmp_path: Path,
) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        async with follow(client, "") as source:
            first = await first_frame(source)
            assert (first.retry, first.data) == (500, "")
        served.process.kill()
        await outcome(served.process)
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        path = f"/api/sessions/{(await client.post('/api/sessions', json={'name': 'Named'})).json()['id']}"
        await client.post(f"{path}/turns", json={"input": "say hi"})
        log = StreamClient(served.port, f"{path}/events", served.token)
        await log.read(lambda log: bool(log.ended_turns))
        async with follow(client, first.id) as source:
            seen = await up_to_final(source)
        assert [seq for _, seq in seen] == [event["seq"] for event in log.envelopes]
