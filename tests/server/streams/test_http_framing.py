"""The bodies of event streams as they are sent: in chunks, over HTTP/1.0, as ASGI messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import httpx
import pytest

from studio.app import make_app
from tests.support.server.running_studio import TOKEN, RunningStudio, StudioMaker
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

BODY = b'{"input":"hi"}'


def turn_request(studio: RunningStudio, session_id: str, version: str = "1.1") -> bytes:
    """Return a request for a turn and its events."""
    lines = [
        f"POST /api/sessions/{session_id}/turns HTTP/{version}",
        f"Host: 127.0.0.1:{studio.port}",
        f"Authorization: Bearer {TOKEN}",
        "Accept: text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + BODY


async def answer_to(studio: RunningStudio, request: bytes) -> bytes:
    """Send `request` and return all that comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)
    writer.write(request)
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


def unchunked(body: bytes) -> tuple[bytes, bytes]:
    """Return the content of a body in chunked transfer coding, and what follows it."""
    content = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        content, body = content + rest[:length], rest[length + 2 :]
        if length == 0:
            return content, body


def stream_of(frames: Iterable[bytes]) -> bytes:
    return b"retry: 500\n\n" + b"".join(frame + b"\n\n" for frame in frames)


async def frames_in_log(studio: RunningStudio, session_id: str) -> list[bytes]:
    reader = studio.reader(session_id)
    await reader.read(lambda reader: bool(reader.ended_turns))
    return reader.frames


async def test_the_response_after_a_stream_on_the_same_connection_is_whole(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        then = f"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\nConnection: close\r\n\r\n"
        answer = await answer_to(studio, turn_request(studio, session_id) + then.encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\ntransfer-encoding: chunked" in head.lower()
        content, rest = unchunked(body)
        assert content == stream_of(await frames_in_log(studio, session_id))
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert json.loads(rest.partition(b"\r\n\r\n")[2])["status"] == "ok"


async def test_a_client_of_http_1_0_gets_the_stream_without_chunks_until_the_connection_closes(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        head, _, body = (await answer_to(studio, turn_request(studio, session_id, "1.0"))).partition(b"\r\n\r\n")
        assert b"\r\ntransfer-encoding" not in head.lower()
        assert body == stream_of(await frames_in_log(studio, session_id))


async def test_a_server_that_offers_no_writer_gets_the_stream_as_messages(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        transport = httpx.ASGITransport(make_app(studio.services))
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream"}
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://127.0.0.1:{studio.port}", headers=headers
        ) as client:
            answer = await client.post(f"/api/sessions/{session_id}/turns", json={"input": "hi"})
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.content == stream_of(await frames_in_log(studio, session_id))
