"""A provider on loopback that fails on purpose: each request gets the next fault, or a good reply."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agenticx.llms import ChatModel
from agenticx.testing._accepted import AcceptedConnections
from tests.support.wires.wires import WIRES

__all__ = ["Exchange", "FaultyProvider", "ProviderFault", "Stream", "make_stream", "provider"]


_COUNTS = (b'"usage"', b'"usageMetadata"', b'"eval_count"')
"""The fields of events with token counts."""


@dataclass(frozen=True)
class Stream:
    """A good reply, event by event.

    `texts[n]` is the text of event `n`; the reply is complete with event `marker`.
    """

    events: Sequence[bytes]
    texts: Sequence[str]
    marker: int

    def text_before(self, boundary: int) -> str:
        return "".join(self.texts[:boundary])

    def has_counts_before(self, boundary: int) -> bool:
        """Return True if one of the events before `boundary` has token counts."""
        return any(name in event for event in self.events[:boundary] for name in _COUNTS)


@dataclass(frozen=True, kw_only=True)
class ProviderFault:
    """A provider's behaviour for one request, and the outcome it must have.

    `code` is the error's, None for a good reply. `retryable` says that the same model may be called again,
    `fallback_allowed` that a fallback may. `boundary` is how many events of a good reply the client gets; only text in
    them is ever shown. `retry_after` is the wait that the provider requests, in seconds; if it does so by a date,
    `dates` has each that it sent. With `may_overtake` the client may get fewer events, unless it gets text.
    """

    name: str
    respond: Callable[[Exchange], Awaitable[None]]
    code: str | None
    retryable: bool = False
    fallback_allowed: bool = True
    boundary: int = 0
    retry_after: float | None = None
    dates: list[datetime] | None = None
    may_overtake: bool = False


@dataclass
class Exchange:
    """A request with its connection and the reply to be sent."""

    provider: FaultyProvider
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    stream: Stream
    shown: asyncio.Future[None]

    def head(self, status: int = 200, **headers: str) -> None:
        named = {"Content-Type": self.provider.content_type, "Transfer-Encoding": "chunked"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in named.items() if value)]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    def send(self, *events: bytes) -> None:
        self.writer.write(b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events))

    def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    def answer(self, status: int, body: bytes, content_type: str, **headers: str) -> None:
        self.head(status, Content_Type=content_type, Transfer_Encoding="", Content_Length=str(len(body)), **headers)
        self.writer.write(body)

    def hang_up(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Reset the connection (RST), as a crash does."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def be_silent(self) -> None:
        """Wait until the client closes the connection."""
        await self.reader.read()


@dataclass
class FaultyProvider:
    """A server of one wire; `arrivals` has the time of each request."""

    wire: str
    script: list[ProviderFault]
    streams: list[Stream]
    port: int
    speaks_http: bool = True
    arrivals: list[float] = field(default_factory=list)
    awaited: tuple[str, asyncio.Future[None]] | None = None

    @property
    def content_type(self) -> str:
        return WIRES[self.wire].content_type

    def model(self, scheme: str = "http") -> ChatModel:
        return WIRES[self.wire].model(f"{scheme}://127.0.0.1:{self.port}")

    def report_shown(self, text: str) -> None:
        """Record that the client has shown `text` so far."""
        if self.awaited is not None and text.endswith(self.awaited[0]) and not self.awaited[1].done():
            self.awaited[1].set_result(None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.speaks_http:
            self.arrivals.append(asyncio.get_running_loop().time())
            writer.write(b"220 ready\r\n")
            return
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(size.partition(b":")[2]))
            self.arrivals.append(asyncio.get_running_loop().time())
            number = min(len(self.arrivals), len(self.script)) - 1  # further requests get the last one
            fault, shown = self.script[number], asyncio.get_running_loop().create_future()
            exchange = Exchange(self, reader, writer, self.streams[number], shown)
            self.awaited = (exchange.stream.text_before(fault.boundary), exchange.shown)
            if not self.awaited[0]:
                exchange.shown.set_result(None)
            await fault.respond(exchange)


@asynccontextmanager
async def provider(
    wire: str, script: Sequence[ProviderFault], streams: Sequence[Stream], *, refusals: int = 0
) -> AsyncIterator[tuple[FaultyProvider, Callable[[], Awaitable[None]]]]:
    """Yield a provider, and a function that makes it listen; until then its port refuses."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    made = FaultyProvider(wire, list(script), list(streams), listener.getsockname()[1])
    servers: list[asyncio.Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await made.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client has disconnected
        finally:
            writer.close()

    accepted = AcceptedConnections(serve)

    async def listen() -> None:
        if not servers:
            servers.append(await asyncio.start_server(accepted, sock=listener))

    if not refusals:
        await listen()
    try:
        yield made, listen
    finally:
        await accepted.end(*servers)
        listener.close()


# --- good replies -------------------------------------------------------------------------------------------------


def make_stream(wire: str, words: Sequence[str]) -> Stream:
    """Return a reply of `words`, one event each."""
    before, text_event, after, marker = _REPLIES[wire]
    events = [
        *((event, "") for event in before),
        *((text_event(word), word) for word in words),
        *((e, "") for e in after),
    ]
    frames = [framed(wire, event) for event, _ in events]
    return Stream(frames, [text for _, text in events], len(before) + len(words) + marker)


def framed(wire: str, event: Any) -> bytes:
    """Return one event in the framing of that wire."""
    text = event if isinstance(event, str) else json.dumps(event)
    if WIRES[wire].ending == "ndjson":
        return f"{text}\n".encode()
    name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
    return f"{name}data: {text}\n\n".encode()


def _chat(delta: Any, finish: str | None = None) -> Any:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _gemini(text: str, **more: Any) -> Any:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}]}


_DONE = {"status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 3}}
_STARTED = {"role": "assistant", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}

_REPLIES: dict[str, tuple[list[Any], Callable[[str], Any], list[Any], int]] = {
    # events before the text · event of a word · events after the text · index of the end marker among the latter
    "openai_chat": (
        [_chat({"role": "assistant", "content": ""})],
        lambda word: _chat({"content": word}),
        [_chat({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}, "[DONE]"],
        0,
    ),
    "openai_responses": (
        [
            {"type": "response.created", "response": {"status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        ],
        lambda word: {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": word},
        [{"type": "response.completed", "response": _DONE}],
        0,
    ),
    "anthropic": (
        [
            {"type": "message_start", "message": _STARTED},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
        ],
        lambda word: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}},
        [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ],
        2,
    ),
    "gemini": (
        [{"usageMetadata": {"promptTokenCount": 5}}],
        _gemini,
        [_gemini("", finishReason="STOP") | {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3}}],
        0,
    ),
    "ollama": (
        [],
        lambda word: {"message": {"role": "assistant", "content": word}, "done": False},
        [{"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3, "prompt_eval_count": 5}],
        0,
    ),
}
