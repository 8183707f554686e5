"""A stock client of the stream of all sessions that is cut off before anything has happened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import httpx_sse
import pytest

from tests.studio.reading import Reader
from tests.studio.running import Studio, StudioMaker
from tests.studio.serving import agx_serve, outcome

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B1")]


@asynccontextmanager
async def following(client: httpx.AsyncClient, cursor: str) -> AsyncGenerator[httpx_sse.EventSource]:
    """As httpx-sse's own page says: it parses, asking again from the last id is for whoever uses it."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    async with httpx_sse.aconnect_sse(client, "GET", "/api/events", headers=headers) as source:
        yield source


async def opening(source: httpx_sse.EventSource) -> httpx_sse.ServerSentEvent:
    async for frame in source.aiter_sse():
        return frame
    raise AssertionError("the stream ended")


async def up_to_final(source: httpx_sse.EventSource) -> list[tuple[str, object]]:
    """The session and the number of each event up to the end of a turn."""
    seen: list[tuple[str, object]] = []
    async for frame in source.aiter_sse():
        if frame.data:
            event = frame.json()
            seen.append((event["session_id"], event.get("seq")))
            if event["type"] == "final":
                return seen
    raise AssertionError("the stream ended")


async def cut_off(studio: Studio, cursor: str) -> str:
    """The last id that a client has whose connection is cut once its stream has opened."""
    with suppress(httpx.TransportError):
        async with following(studio.client, cursor) as source:
            async for frame in source.aiter_sse():
                cursor = frame.id or cursor
                if not frame.data:
                    for connection in studio.server.server_state.connections:
                        connection.transport.abort()  # type: ignore[union-attr]
    return cursor


@pytest.mark.parametrize("cursor", ["", "garbage"])
async def test_a_connection_that_ends_before_the_first_event_loses_nothing_that_happens_before_the_next(
    make_studio: StudioMaker, cursor: str
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "before anybody looked")
        before = await studio.events_until(session_id, "final")
        cursor = await cut_off(studio, cursor)
        await studio.turn(session_id, "meanwhile")
        meanwhile = await studio.events_until(session_id, "final", cursor=before[-1].id)
        async with following(studio.client, cursor) as source:
            expected = [(session_id, frame.data["seq"]) for frame in meanwhile]
            assert await up_to_final(source) == expected


async def test_a_server_that_is_killed_before_the_first_event_loses_nothing_that_happens_before_the_client_is_back(
    tmp_path: Path,
) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        async with following(client, "") as source:
            first = await opening(source)
            assert (first.retry, first.data) == (500, "")
        served.process.kill()
        await outcome(served.process)
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        path = f"/api/sessions/{(await client.post('/api/sessions', json={'name': 'Named'})).json()['id']}"
        await client.post(f"{path}/turns", json={"input": "say hi"})
        log = Reader(served.port, f"{path}/events", served.token)
        await log.read(lambda log: bool(log.over))
        async with following(client, first.id) as source:
            seen = await up_to_final(source)
        assert [seq for _, seq in seen] == [event["seq"] for event in log.envelopes]
