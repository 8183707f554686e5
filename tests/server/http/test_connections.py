"""Connections that send nothing, too little or too much: each is closed, the others are unaffected."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import sys
import weakref
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agenticx.clocks import SystemClock
from studio.http.connection import ConnectionLimit
from tests.support.server.agx_processes import ServedStudio, agx_serve, outcome
from tests.support.server.running_studio import TOKEN, RunningStudio, StudioMaker
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, PatientClock, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]

SHORT_REQUEST_TIMEOUT = PatientClock({30.0: 2.0})
"""A clock with a shorter request timeout, though longer than a delay of a busy machine."""
HEALTH = "GET /api/health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
POST = "POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
TICKET = "POST /api/ticket HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Type: application/json\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"
AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\n"


@asynccontextmanager
async def connected(port: int, first: str) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(first.replace("PORT", str(port)).encode())
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Read a response; return its status, and True if it has the header `Connection: close`."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length: "))
    await reader.readexactly(int(length.removeprefix("content-length: ")))
    return int(head.split()[1]), "\r\nconnection: close\r\n" in head


async def assert_closed(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        assert await reader.read() == b""


async def trickle(writer: asyncio.StreamWriter, drops: str) -> None:
    """Send a byte every 50 ms, at the end the last one again and again."""
    at = 0
    while True:
        writer.write(drops[min(at, len(drops) - 1)].encode())
        at += 1
        await asyncio.sleep(0.05)


# --- time -------------------------------------------------------------------------------------------------------------


INCOMPLETE_REQUESTS = {
    "nothing": ("", ""),
    "a word": ("", "GET"),
    "nothing more": (f"{HEALTH}\r\n", ""),
    "one more word": (f"{HEALTH}\r\n", "GET"),
    "a head without end": (f"{HEALTH}\r\n", f"{HEALTH}X: y"),
    "pipelined": (f"{HEALTH}\r\n{HEALTH}\r\nG", ""),
}


async def test_a_connection_without_a_complete_request_in_time_is_closed(make_studio: StudioMaker) -> None:
    async def dropped(studio: RunningStudio, first: str, drops: str) -> None:
        async with connected(studio.port, first) as (reader, writer):
            for _ in range(first.count(HEALTH)):
                assert await read_response(reader) == (200, False)
            trickling = asyncio.create_task(trickle(writer, drops)) if drops else None
            async with asyncio.timeout(PATIENCE):
                await assert_closed(reader)
            if trickling is not None:
                trickling.cancel()

    async with make_studio(clock=SHORT_REQUEST_TIMEOUT) as studio:
        ways = (dropped(studio, *bytes_) for bytes_ in INCOMPLETE_REQUESTS.values())
        outcomes = await asyncio.gather(*ways, return_exceptions=True)
    assert dict(zip(INCOMPLETE_REQUESTS, outcomes, strict=True)) == dict.fromkeys(INCOMPLETE_REQUESTS)


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (f"{POST}Content-Length: 1000000\r\n\r\n", 401),
        (f"{POST}{CHUNKED}", 401),
        (f"{HEALTH}{CHUNKED}", 200),
        (f"{HEALTH}Content-Length: 1000000\r\n\r\n", 200),
        (f"{TICKET}Content-Length: 1000000\r\n\r\n", 413),
    ],
    ids=["401", "401 in chunks", "200 in chunks", "200", "413"],
)
@pytest.mark.parametrize("drops", ["", "1\r\nx\r\n"])
@pytest.mark.cases(quick=3)
async def test_a_response_sent_before_the_body_arrived_closes_the_connection(
    make_studio: StudioMaker, first: str, status: int, drops: str
) -> None:
    clock = PatientClock({5.0: 1.0})
    async with make_studio(clock=clock) as studio, connected(studio.port, first) as (reader, writer):
        async with asyncio.timeout(PATIENCE):
            assert await read_response(reader) == (status, True)
        trickling = asyncio.create_task(trickle(writer, drops * 1000)) if drops else None
        async with asyncio.timeout(PATIENCE):
            await assert_closed(reader)
        if trickling is not None:
            trickling.cancel()


async def test_a_client_that_sends_a_large_body_before_reading_gets_its_response(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        stranger = {"Authorization": "Bearer of nothing", "Content-Type": "application/json"}
        for _ in range(10):
            answer = await studio.client.post("/api/sessions", headers=stranger, content=b"x" * 3_000_000)
            assert (answer.status_code, answer.headers["connection"]) == (401, "close")
            assert (await studio.client.get("/api/tools")).status_code == 200


async def test_a_connection_whose_bodies_are_read_stays_open(make_studio: StudioMaker) -> None:
    head = f"{POST}{AUTHORIZED}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n"
    async with make_studio() as studio, connected(studio.port, "") as (reader, writer):
        for _ in range(3):
            writer.write(head.replace("PORT", str(studio.port)).encode())
            await wait_for_receive(studio)
            writer.write(b'{"name":"a"}    ')
            assert await read_response(reader) == (201, False)


async def wait_for_receive(studio: RunningStudio) -> None:
    """Wait until the application waits for a body."""
    await wait_until(lambda: studio.server.server_state.tasks)


async def test_a_stream_is_not_limited_by_the_request_timeout(make_studio: StudioMaker) -> None:
    clock = PatientClock({**SHORT_REQUEST_TIMEOUT.but, 10.0: 0.25})
    async with make_studio(clock=clock) as studio, studio.frames("/api/events") as frames:
        for _ in range(10):  # longer than the request timeout
            assert (await anext(frames)).type == "comment"


async def test_a_closed_connection_is_freed_without_the_garbage_collector(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        gc.disable()
        try:
            async with connected(studio.port, f"{HEALTH}\r\n") as (reader, _):
                assert await read_response(reader) == (200, False)
                references = [weakref.ref(connection) for connection in studio.server.server_state.connections]
            await wait_until(lambda: [connection() for connection in references] == [None])
        finally:
            gc.enable()


# --- number -----------------------------------------------------------------------------------------------------------


@contextmanager
def limited_open_files(most: int) -> Generator[None]:
    """Limit the number of open files of processes that are started in the block."""
    own, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, ceiling))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, ceiling))


@asynccontextmanager
async def serve_with_file_limit(home: Path, most: int) -> AsyncGenerator[ServedStudio]:
    serving = agx_serve(home)
    with limited_open_files(most):
        served = await serving.__aenter__()
    try:
        yield served
    finally:
        await serving.__aexit__(None, None, None)


async def test_connections_above_the_file_limit_are_refused_with_one_log_line(
    tmp_path: Path,
) -> None:
    async with serve_with_file_limit(tmp_path / "home", 400) as served:
        async with served.client() as client:
            path = (
                f"/api/sessions/{(await client.post('/api/sessions', json={'permission_mode': 'auto'})).json()['id']}"
            )
        log = StreamClient(served.port, f"{path}/events", served.token)
        async with log.connect() as stream:
            opening = [asyncio.open_connection("127.0.0.1", served.port) for _ in range(600)]
            connections = await asyncio.gather(*opening)
            ends = [asyncio.create_task(assert_closed(reader)) for reader, _ in connections]
            await wait_until(lambda: sum(end.done() for end in ends) >= 401)
            assert sum(end.done() for end in ends) == 401
            for _, writer in connections:
                writer.transport.abort()
            await asyncio.gather(*ends)
            async with served.client() as client:
                await client.post(f"{path}/turns", json={"input": "run ls"})
            async with asyncio.timeout(PATIENCE):
                await stream.reader.readuntil(b'"type":"final"')
        served.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(served.process)
    assert (code, err.count("\n"), err.count("too many connections")) == (0, 1, 1)


@pytest.mark.ci_lane
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a running process are set with prlimit")
async def test_connections_wait_while_no_file_is_free_and_one_line_is_logged(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served, connected(served.port, f"{HEALTH}\r\n") as (first, _):
        assert await read_response(first) == (200, False)  # after it the server has opened all files of its start
        pid = served.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        free = min({*range(1024)} - {int(name) for name in os.listdir(f"/proc/{pid}/fd")})
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
        async with connected(served.port, f"{HEALTH}\r\n") as (reader, _):
            async with asyncio.timeout(PATIENCE):
                line = await served.process.stderr.readline()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            async with asyncio.timeout(PATIENCE):
                assert await read_response(reader) == (200, False)
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")
    assert line.endswith(
        b"WARNING studio.http.connection new connections cannot be accepted and wait reason='this process has too many "
        b"open files; raise its limit (`ulimit -n`) or close connections'\n"
    )


async def test_accept_errors_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = [0.0, 1.0, 59.0, 60.0, 61.0, 119.0, 120.0]

    class Watch(SystemClock):
        def monotonic(self) -> float:
            return times.pop(0)

    limit = ConnectionLimit(Watch())
    while times:
        limit.log_accept_error(OSError(errno.ENOBUFS, "No buffer space available"))
    assert len(caplog.records) == 3
    assert "reason='No buffer space available'" in caplog.text


async def test_other_errors_of_the_loop_reach_the_previous_exception_handler() -> None:
    loop, reported = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    try:
        with ConnectionLimit().log_accept_errors_of(loop):
            loop.call_exception_handler({"message": "another", "exception": OSError(errno.EMFILE, "too many")})
        loop.call_exception_handler({"message": "later"})
    finally:
        loop.set_exception_handler(None)
    assert reported == ["another", "later"]


# --- what else a server should keep to itself -------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_an_upgrade_request_is_answered_as_a_plain_request(tmp_path: Path, protocol: str) -> None:
    upgrade = f"Connection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    async with agx_serve(tmp_path / "home") as served:
        async with connected(served.port, f"{HEALTH}{upgrade}{HEALTH}\r\n") as (reader, _):
            assert [await read_response(reader), await read_response(reader)] == [(200, False)] * 2
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")


async def test_a_client_that_keeps_sending_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served, connected(served.port, f"{POST}{CHUNKED}") as (reader, writer):
        assert await read_response(reader) == (401, True)
        trickling = asyncio.create_task(trickle(writer, "1\r\nx\r\n" * 1000))
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")
        trickling.cancel()


async def test_an_unexpected_error_is_a_500_that_closes_the_connection(make_studio: StudioMaker) -> None:
    async def broken(_request: Request) -> Response:
        raise ZeroDivisionError

    async with make_studio() as studio:
        cast(Starlette, studio.server.config.app).router.routes.append(Route("/api/broken", broken))
        for _ in range(5):
            answer = await studio.client.get("/api/broken")
            assert (answer.status_code, answer.json()["code"], answer.headers["connection"]) == (
                500,
                "internal",
                "close",
            )
            assert (await studio.client.get("/api/tools")).status_code == 200
