"""A fake OpenAI-compatible server on loopback with scripted replies and faults; it records requests."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from http.client import responses
from types import TracebackType
from typing import Self

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import ModelError
from agenticx.llms.base import Delta, Finished, ModelRequest, ReplyBuilder
from agenticx.llms.scripted import Script, ScriptedModel
from agenticx.testing._accepted import AcceptedConnections
from agenticx.testing._chat_completions import ChunkEncoder, completion, event
from agenticx.testing.provider_replies import (
    PlainReply,
    ProviderReply,
    ProviderRequest,
    RawReply,
    Silence,
    Streamed,
    Whole,
    status,
)

__all__ = ["FakeOpenAIServer"]


class FakeOpenAIServer:
    """A server that answers `POST …/chat/completions` with `replies` in order, one per request.

    `GET …/models` uses none. At other paths, such as `/responses`, a scripted reply is not used up: the answer is 404,
    as that of a server that has Chat Completions alone.

    `async with FakeOpenAIServer([say("hi")]) as server` serves at `server.base_url`. On exit the block raises
    `AssertionError` if there were more or fewer requests than replies. Delays are nominal seconds of `clock`.
    """

    def __init__(
        self, replies: Iterable[ProviderReply] = (), *, model: str = "fake-model", clock: Clock | None = None
    ) -> None:
        self._replies: deque[ProviderReply] = deque(replies)
        self._clock: Clock = clock or SystemClock()
        self._player = ScriptedModel(name=model, clock=self._clock)
        self._server: asyncio.Server | None = None
        self._arrived = asyncio.Condition()
        self._too_many = 0
        self.model = model
        self.requests: list[ProviderRequest] = []

    @property
    def base_url(self) -> str:
        """The base URL for the provider's own SDK, `http://127.0.0.1:PORT/v1`."""
        assert self._server is not None, "the server runs inside its `async with` block"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def received(self, count: int = 1) -> ProviderRequest:
        """Wait until `count` requests have been received and return the last of these."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    def assert_done(self) -> None:
        """Raise `AssertionError` unless there were exactly as many requests as replies."""
        if self._replies or self._too_many:
            raise AssertionError(
                f"the fake provider got {len(self.requests)} requests, {self._too_many} of them beyond its replies; "
                f"{len(self._replies)} replies were never asked for"
            )

    async def __aenter__(self) -> Self:
        self._accepted = AcceptedConnections(self._serve)
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=2**24)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        await self._accepted.end(self._server)
        if exc_type is None:
            self.assert_done()

    # -- one connection: one request, one reply ------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # the client disconnected
            try:
                request = await _read_request(reader)
                answering = asyncio.create_task(self._answer(request, writer))
                leaving = asyncio.create_task(_client_leaves(reader, request))
                try:
                    await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
                    if answering.done():
                        answering.result()
                finally:
                    await _end(answering)
                    await _end(leaving)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer(self, request: ProviderRequest, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET" and request.path.endswith("/models"):
            listing = {"object": "list", "data": [{"id": self.model, "object": "model"}]}
            await _send_body(writer, RawReply(json.dumps(listing).encode(), content_type="application/json"))
            return
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        if not self._replies:
            self._too_many += 1
            await _send_body(writer, status(500, "the fake provider has no reply left"))
            return
        reply = self._replies.popleft()
        streaming = request.json.get("stream") is True
        if isinstance(reply, Whole) and reply.refuse_streaming and streaming:
            self._replies.appendleft(reply)
            await _send_body(writer, status(400, "stream=true is not supported", error_type="unsupported_value"))
            return
        plain = reply(request) if callable(reply) else reply
        if _has_chunks(plain) and not request.path.endswith("/chat/completions"):
            self._replies.appendleft(reply)
            await _send_body(writer, status(404, f"the fake provider has no {request.path}, only Chat Completions"))
            return
        await self._send(writer, plain, streaming=streaming)

    async def _send(self, writer: asyncio.StreamWriter, reply: PlainReply, *, streaming: bool) -> None:
        match reply:
            case RawReply():
                await _send_body(writer, reply)
            case Silence():
                await asyncio.get_running_loop().create_future()
            case Whole():
                await self._send_whole(writer, reply.script)
            case Streamed():
                await self._send_stream(writer, reply)
            case _ if streaming:
                await self._send_stream(writer, Streamed(reply))
            case _:
                await self._send_whole(writer, reply)

    async def _send_whole(self, writer: asyncio.StreamWriter, script: Script) -> None:
        builder = ReplyBuilder()
        async with aclosing(self._play(script)) as batches:
            async for batch in batches:
                for delta in batch:
                    builder.add(delta)
        content = json.dumps(completion(self.model, builder.reply())).encode()
        await _send_body(writer, RawReply(content, content_type="application/json"))

    async def _send_stream(self, writer: asyncio.StreamWriter, reply: Streamed) -> None:
        writer.write(_head(200, "text/event-stream", {"Transfer-Encoding": "chunked"}))
        await writer.drain()
        endless = reply.pings_every is not None or reply.ending != "clean"
        encoder = ChunkEncoder(self.model)
        try:
            async with aclosing(self._play(reply.script)) as batches:
                async for batch in batches:
                    for delta in batch:
                        if not (endless and isinstance(delta, Finished)):
                            await self._send_pieces(writer, encoder.encode(delta), reply)
        except ModelError as exc:
            error = {"message": str(exc), "type": exc.provider_type or "server_error", "code": exc.provider_type}
            await self._send_pieces(writer, event({"error": error}), reply)
        while reply.pings_every is not None:
            await _send_chunk(writer, b": ping\n\n")
            await self._clock.sleep(reply.pings_every)
        if reply.ending == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif reply.ending == "reset":
            _reset(writer)

    async def _send_pieces(self, writer: asyncio.StreamWriter, content: bytes, reply: Streamed) -> None:
        size = reply.bytes_at_a_time or max(1, len(content))
        for start in range(0, len(content), size):
            await _send_chunk(writer, content[start : start + size])
            if reply.seconds_between:
                await self._clock.sleep(reply.seconds_between)

    def _play(self, script: Script) -> AsyncGenerator[Iterable[Delta], None]:
        return self._player.play(script, ModelRequest(messages=()))


def _has_chunks(reply: PlainReply) -> bool:
    """Return True for a reply with content in the format of Chat Completions, False for other bytes and mere faults."""
    return not isinstance(reply, RawReply | Silence) and not (isinstance(reply, Streamed) and not reply.script)


# --- HTTP, the parts that are needed -----------------------------------------------------------------------------


async def _read_request(reader: asyncio.StreamReader) -> ProviderRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return ProviderRequest(method, path, headers, content)


async def _client_leaves(reader: asyncio.StreamReader, request: ProviderRequest) -> None:
    try:
        while await reader.read(65_536):
            pass
    except OSError:
        pass
    request.client_gone.set()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
        raise error


def _head(code: int, content_type: str, headers: Mapping[str, str]) -> bytes:
    fields = {"Content-Type": content_type, "Connection": "close", **headers}
    lines = [
        f"HTTP/1.1 {code} {responses.get(code, 'Unknown')}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _send_body(writer: asyncio.StreamWriter, body: RawReply) -> None:
    length = {"Content-Length": str(len(body.content) + body.size)}
    writer.write(_head(body.status, body.content_type, {**body.headers, **length}) + body.content)
    remaining = body.size
    while remaining:
        chunk = body.fill[:remaining]
        writer.write(chunk)
        await writer.drain()
        remaining -= len(chunk)
    await writer.drain()


async def _send_chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    if content:
        writer.write(b"%x\r\n%b\r\n" % (len(content), content))
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
