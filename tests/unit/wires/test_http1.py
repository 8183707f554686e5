"""Tests of HTTP/1.1 over real sockets: bodies at any chunking, connection reuse, invalid responses."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.http.http1 import ConnectionPool, ProtocolError, request_bytes
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Server:
    """A server that sends the next of `answers` for each request, chunk by chunk; None closes the connection."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.connections = 0
        self.client_gone = asyncio.Event()
        self.origin = ("127.0.0.1", 0, False)

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while self.answers:
                await reader.readuntil(b"\r\n\r\n")
                for piece in self.answers.pop(0):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.client_gone.set()
            writer.close()


@asynccontextmanager
async def serving(*answers):
    server = Server(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.origin = ("127.0.0.1", listening.sockets[0].getsockname()[1], False)
    connections = ConnectionPool(idle_seconds=60)
    try:
        yield server, connections
    finally:
        connections.close()
        listening.close()


async def ask(server, connections, timeout=PATIENCE):
    wire = await connections.acquire(server.origin, timeout)
    request = request_bytes("POST", "/v1", {"host": "here"}, b"")
    return await connections.send(wire, request, timeout)


async def body_of(reply):
    body = b""
    try:
        while data := await reply.read():
            body += data
    finally:
        reply.close()
    return body


async def get(server, connections, **more):
    return await body_of(await ask(server, connections, **more))


def chunked(chunks, extension=b"", end=b"\r\n"):
    sized = (b"%x%b%b%b%b" % (len(chunk), extension, end, chunk, end) for chunk in chunks if chunk)
    return b"".join(sized) + b"0" + end + end


def split(data, sizes):
    pieces, place = [], 0
    for size in sizes:
        pieces.append(data[place : place + size])
        place += size
    return [*pieces, data[place:]]


# --- bodies ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.lists(st.integers(1, 200), max_size=10),
    st.sampled_from([b"", b";name=value", b" "]),
    st.sampled_from([b"\r\n", b"\n"]),
)
async def test_a_chunked_body_is_read_at_any_chunk_and_read_sizes(chunks, sizes, extension, end):
    answer = split(CHUNKED + chunked(chunks, extension, end), sizes)
    async with serving(answer) as (server, connections):
        assert await get(server, connections) == b"".join(chunks)


@given(st.binary(max_size=500), st.lists(st.integers(1, 100), max_size=10))
async def test_a_body_with_content_length_is_read_to_that_length(body, sizes):
    answer = split(OK + b"content-length: %d\r\n\r\n" % len(body) + body, sizes)
    async with serving(answer) as (server, connections):
        assert await get(server, connections) == body


async def test_a_body_without_length_ends_with_the_connection():
    async with serving([OK + b"\r\n", b"all ", b"of it", None]) as (server, connections):
        assert await get(server, connections) == b"all of it"


async def test_trailers_are_skipped():
    async with serving([CHUNKED + b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n"]) as (server, connections):
        assert await get(server, connections) == b"abc"


async def test_one_read_returns_all_chunks_that_have_arrived():
    async with serving([CHUNKED + chunked([b"x"] * 100)]) as (server, connections):
        assert await (await ask(server, connections)).read() == b"x" * 100


@pytest.mark.ci_lane
async def test_other_tasks_run_while_a_large_body_is_read():
    async with serving([CHUNKED + chunked([b"x"] * 300_000)]) as (server, connections):
        reply, turns, seen = await ask(server, connections), 0, []

        async def others():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(others())
        while data := await reply.read():
            seen.append((turns, len(data)))
        beside.cancel()
    assert sum(size for _, size in seen) == 300_000
    assert max(size for _, size in seen) < 32 * 1024
    assert len({turns for turns, _ in seen}) >= len(seen) - 1


async def test_an_unread_body_is_buffered_up_to_a_limit():
    async with serving([CHUNKED, *[b"10000\r\n" + b"x" * 65_536 + b"\r\n"] * 500, b"0\r\n\r\n"]) as (
        server,
        connections,
    ):
        reply = await ask(server, connections)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(await reply.read()) < 1_000_000
        reply.close()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)


# --- heads ----------------------------------------------------------------------------------------------------------


async def test_the_head_is_parsed_at_any_read_sizes_and_letter_case():
    head = b"HTTP/1.1 201\r\nContent-LENGTH:0\r\nX-Odd:  a: b \t\r\nx-odd: c\r\n\r\n"
    async with serving([bytes([byte]) for byte in head]) as (server, connections):
        reply = await ask(server, connections)
    assert reply.head.status == 201
    assert reply.head.headers == [(b"Content-LENGTH", b"0"), (b"X-Odd", b"a: b"), (b"x-odd", b"c")]


async def test_informational_responses_are_skipped():
    async with serving(
        [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + CHUNKED + b"0\r\n\r\n"]
    ) as (
        server,
        connections,
    ):
        assert (await ask(server, connections)).head.status == 200


@pytest.mark.promise("C1")
@pytest.mark.parametrize(
    "answer",
    [
        [None],
        [b"HTTP/1.1 200 OK\r\n", None],
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
        [b"HTTP/2 200\r\n\r\n"],
        [b"HTTP/1.1 99\r\n\r\n"],
        [b"HTTP/1.1 101 Switching\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 13 + CHUNKED + b"0\r\n\r\n"],
        [OK + b"no colon\r\n\r\n"],
        [OK + b"folded: a\r\n b\r\n\r\n"],
        [OK + b"bad name : x\r\n\r\n"],
        [OK + b": x\r\n\r\n"],
        [b"HTTP/1.1 200 " + b"x" * 70_000],
        [OK + b"transfer-encoding: gzip, chunked\r\n\r\n"],
        [OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab"],
        [OK + b"content-length: -1\r\n\r\n"],
        [OK + b"content-length: +1\r\n\r\na"],
        [OK + b"content-length: 10\r\n\r\nshort", None],
        [CHUNKED, None],
        [CHUNKED + b"5\r\nabc", None],
        [CHUNKED + b"3\r\nabc\r\n", None],
        [CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n"],
        [CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"],
        [CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n"],
        [CHUNKED + b"\r\n\r\n"],
        [CHUNKED + b"g\r\n"],
        [CHUNKED + b"f" * 20 + b"\r\n"],
        [CHUNKED + b"1;" + b"x" * 10_000],
    ],
)
async def test_an_invalid_or_truncated_response_is_a_protocol_error_and_closes_the_connection(answer):
    async with serving(answer) as (server, connections):
        with pytest.raises(ProtocolError):
            await get(server, connections)
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (
            b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64",
            "the server speaks HTTP/2 only; put a proxy that speaks HTTP/1.1 in front of it",
        ),
        (b"\x15\3\1\0\2\2\x46", "the server speaks TLS; should the base URL begin with https://?"),
        (b"SSH-2.0-OpenSSH", "the response begins with b'SSH-2.0-OpenSSH', not with an HTTP/1.1 status"),
    ],
)
async def test_another_protocol_is_recognised_by_its_first_bytes(begin, said):
    async with serving([begin]) as (server, connections):
        with pytest.raises(ProtocolError, match=re.escape(said)):
            await get(server, connections)


@pytest.mark.parametrize("header", [("key", "a\r\nhost: evil"), ("a\nb", "x"), ("key", "\x00")])
def test_a_line_end_in_a_header_is_refused(header):
    with pytest.raises(ValueError, match="line end"):
        request_bytes("POST", "/", dict([header]), b"")


# --- connections ----------------------------------------------------------------------------------------------------

EMPTY = [CHUNKED + b"0\r\n\r\n"]


async def test_a_connection_is_reused():
    async with serving(*[EMPTY] * 5) as (server, connections):
        for _ in range(5):
            await get(server, connections)
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        [OK + b"connection: close\r\ncontent-length: 0\r\n\r\n"],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"],
        [OK + b"content-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"],
        [CHUNKED + b"0\r\n\r\n", None],
    ],
    ids=["it says close", "HTTP/1.0", "more than was asked for", "closed when idle"],
)
async def test_a_connection_that_the_server_closes_is_not_reused(answer):
    async with serving(answer, EMPTY) as (server, connections):
        await get(server, connections)
        for _ in range(10):
            await asyncio.sleep(0)
        assert await get(server, connections) == b""
    assert server.connections == 2


async def test_closing_a_partly_read_body_closes_the_connection():
    async with serving([CHUNKED + b"1\r\nx\r\n"], EMPTY) as (server, connections):
        reply = await ask(server, connections)
        await reply.read()
        reply.close()
        reply.close()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)
        await get(server, connections)
    assert server.connections == 2


async def test_a_connection_that_was_idle_too_long_is_not_reused():
    async with serving(EMPTY, EMPTY) as (server, _):
        connections = ConnectionPool(idle_seconds=0)
        await get(server, connections)
        await get(server, connections)
        connections.close()
    assert server.connections == 2


@pytest.mark.promise("C5")
async def test_a_silent_server_raises_timeout_error():
    async with serving([CHUNKED + b"1\r\nx\r\n"], []) as (server, connections):
        reply = await ask(server, connections, timeout=0.05)
        assert await reply.read() == b"x"
        with pytest.raises(TimeoutError):
            await reply.read()
        reply.close()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)
        server.client_gone.clear()
        with pytest.raises(TimeoutError):
            await ask(server, connections, timeout=0.05)
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)


async def test_cancelling_a_request_closes_its_connection():
    async with serving([]) as (server, connections):
        task = asyncio.create_task(ask(server, connections))
        while not server.connections:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)


async def test_a_refused_connection_is_an_os_error():
    async with serving() as (server, connections):
        pass
    with pytest.raises(OSError, match="Connect"):
        await ask(server, connections)


async def test_tls_requires_a_trusted_certificate_for_the_name(tmp_path):
    openssl = shutil.which("openssl") or pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {key} -out {certificate}"
    names = ["-subj", "/CN=here", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([openssl, *made.split(), *names], check=True, capture_output=True)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate, key)
    server = Server([EMPTY, [CHUNKED + chunked([b"x" * 100_000] * 20)]])
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=ours)
    port = listening.sockets[0].getsockname()[1]
    trusting = ConnectionPool(idle_seconds=60, tls=ssl.create_default_context(cafile=certificate))
    server.origin = ("localhost", port, True)
    assert await get(server, trusting) == b""
    assert await get(server, trusting) == b"x" * 2_000_000
    assert server.connections == 1
    for origin, tls in ((("127.0.0.1", port, True), trusting), (server.origin, None)):
        with pytest.raises(ssl.SSLCertVerificationError):
            await (tls or ConnectionPool(idle_seconds=60, tls=ssl.create_default_context())).acquire(origin, PATIENCE)
    trusting.close()
    listening.close()
    await listening.wait_closed()
