"""The peer of a benchmark, a process with a provider and with clients of the studio.

It is a process of its own so that its work is not measured. As a program it prints the port of its provider and then
runs one JSON command per line of its input. The provider streams Chat Completions according to the model's name:
`burst:N` N tokens at once, `paced:N` N tokens 10 ms apart, `stamped:N` the same with the time of sending as text,
`call` one tool call, `tools:N` N rounds of a call, then text.
At the paths of the other wires it streams `burst:N` as their servers do.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import cache
from typing import Any

from tests.benchmarks.paced_streams import READERS, measure_load, stamp
from tests.benchmarks.wire_streams import stream_for

__all__ = ["Peer", "peer"]

PACE_SECONDS = 0.01
_MODEL = re.compile(rb'"model":\s*"([^"]*)"')
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _head(media_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


_HEAD = _head("text/event-stream")


# --- the provider ---------------------------------------------------------------------------------------------------


def _chunk(payload: bytes) -> bytes:
    """Return one event as one chunk of the body, as sent by servers that flush each token."""
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _event(**more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "bench"}
    return _chunk(json.dumps(head | more, separators=(",", ":")).encode())


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return _event(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}])


def _end(finish_reason: str) -> bytes:
    return _delta({}, finish_reason) + _event(choices=[], usage=_USAGE) + _chunk(b"[DONE]") + b"0\r\n\r\n"


_NO_STAMP = b"0" * len(stamp())
_STAMPED = _delta({"content": f"{_NO_STAMP.decode()} "})
_BEGIN = _HEAD + _delta({"role": "assistant", "content": "", "refusal": None})


@cache
def _burst(tokens: int) -> bytes:
    return _BEGIN + b"".join(_delta({"content": f"word{number % 7} "}) for number in range(tokens)) + _end("stop")


def _call(number: int) -> bytes:
    """Return a call as OpenAI streams it: id and name, then the arguments token by token."""
    function = {"name": "look", "arguments": ""}
    opening = {"index": 0, "id": f"call_{number}_{time.monotonic_ns()}", "type": "function", "function": function}
    begin = _delta({"role": "assistant", "content": None, "tool_calls": [opening], "refusal": None})
    pieces = ('{"', "number", '":', str(number), "}")
    rest = [_delta({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    return _HEAD + begin + b"".join(rest) + _end("tool_calls")


class _Provider(asyncio.Protocol):
    """A connection that answers each request according to its model's name."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = bytes(self._received).partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if length is None or len(body) < int(length[1]):
            return
        self._received.clear()
        self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        named = _MODEL.search(body)
        model = named[1].decode() if named else "burst:1"
        if found := stream_for(f"{path}#{model}"):
            self._transport.write(_head(found[0]) + found[1])
            return
        kind, _, count = model.partition(":")
        match kind:
            case "burst":
                self._transport.write(_burst(int(count)))
            case "paced":
                self._pace(int(count), _delta({"content": "word "}))
            case "stamped":
                self._pace(int(count), _STAMPED)
            case "call":
                self._transport.write(_call(0))
            case _:
                answered = body.count(b'"role":"tool"')
                self._transport.write(_call(answered) if answered < int(count) else _burst(1))

    def _pace(self, tokens: int, token: bytes) -> None:
        """Send `token` so often, with the time in the place of a `_NO_STAMP`."""
        loop = asyncio.get_running_loop()
        self._transport.write(_BEGIN)
        began = loop.time()

        def tick(number: int) -> None:
            if self._transport.is_closing():
                return
            if number == tokens:
                self._transport.write(_end("stop"))
                return
            self._transport.write(token.replace(_NO_STAMP, stamp()))
            loop.call_at(began + (number + 1) * PACE_SECONDS, tick, number + 1)

        tick(0)


# --- readers of the studio ------------------------------------------------------------------------------------------


class _Studio:
    """A client of the studio at `port` in plain HTTP/1.1."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._streams: list[asyncio.Task[None]] = []
        self._opened = asyncio.Semaphore(0)

    async def _send(self, method: str, path: str, body: object = None, accept: str = "*/*") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\nauthorization: Bearer {self._token}\r\n"
        head += f"accept: {accept}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + content)
        reader.writer = writer  # type: ignore[attr-defined]  # keeps the connection open while it is read
        return reader

    async def create(self, count: int) -> list[str]:
        made: list[str] = []
        for _ in range(count):
            answer = await (await self._send("POST", "/api/sessions", {})).read()
            if b" 201 " not in answer[:20]:
                raise RuntimeError(f"the studio answered {answer!r}")
            made.append(json.loads(answer.partition(b"\r\n\r\n")[2])["id"])
        return made

    async def turn(self, session: str, model: str) -> int:
        """Run a turn, read its events to the end, and return their number of bytes."""
        body, path = {"input": "go", "model": model}, f"/api/sessions/{session}/turns"
        return len(await (await self._send("POST", path, body, accept="text/event-stream")).read())

    async def load(self, sessions: Sequence[str], reader: str, tokens: int, pid: int) -> dict[str, float]:
        """Run a turn of `tokens` stamped tokens in each session, and return the fields of a `Load`."""
        client = READERS[reader](self._port, self._token)
        load = await measure_load(client, sessions, f"openai-chat:stamped:{tokens}", tokens, pid)
        await client.close()
        return asdict(load)

    async def open(self, session: str, count: int) -> int:
        """Open `count` streams and keep reading them in the background."""
        for _ in range(count):
            reader = await self._send("GET", f"/api/sessions/{session}/events", accept="text/event-stream")
            self._streams.append(asyncio.create_task(self._drain(reader)))
            await self._opened.acquire()
        return count

    async def close(self) -> int:
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        count = len(self._streams)
        self._streams.clear()
        return count

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        first = True
        with suppress(ConnectionError):
            while await reader.read(2**18):
                if first:
                    self._opened.release()
                    first = False


async def _run_commands() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Provider, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    studio: _Studio | None = None
    while line := await commands.readline():
        name, *arguments = json.loads(line)
        if name == "studio":
            studio, done = _Studio(*arguments), None
        else:
            done = await getattr(studio, name)(*arguments)
        print(json.dumps(done), flush=True)


# --- the parent's side -----------------------------------------------------------------------------------------------


class Peer:
    """The running peer process; `command` sends it a command and waits for the result."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def command(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def peer():
    """Yield a peer process that ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield Peer(process, int(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_run_commands())
