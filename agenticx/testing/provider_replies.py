"""The replies of the fake provider beside scripted ones: the faults of servers and networks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agenticx.errors import ModelError
from agenticx.llms.scripted import Part, Script

__all__ = [
    "PlainReply",
    "ProviderReply",
    "ProviderRequest",
    "RawReply",
    "Silence",
    "Streamed",
    "Whole",
    "as_json",
    "body",
    "drip",
    "hang_up",
    "huge_line",
    "no_streaming",
    "pings",
    "reset",
    "silence",
    "status",
]


@dataclass(frozen=True, slots=True)
class RawReply:
    """A response with these bytes and status; then `size` bytes of `fill` follow, repeated, never all in memory."""

    content: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    fill: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """A connection that stays open without any response, not even headers."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A scripted reply as server-sent events, with faults in its transport."""

    script: Script
    bytes_at_a_time: int | None = None
    seconds_between: float = 0.0
    pings_every: float | None = None
    ending: Literal["clean", "hang_up", "reset"] = "clean"


@dataclass(frozen=True, slots=True)
class Whole:
    """A scripted reply as one JSON object; with `refuse_streaming` streaming requests get 400 and do not use it up."""

    script: Script
    refuse_streaming: bool = False


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A received request; `client_gone` is set when the client has closed its socket."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> dict[str, Any]:
        """The body, decoded from JSON."""
        return json.loads(self.body)


PlainReply = str | Part | ModelError | Sequence[Script] | RawReply | Silence | Streamed | Whole
ProviderReply = PlainReply | Callable[[ProviderRequest], PlainReply]
"""A reply of the fake provider: a scripted one, which is streamed if the request has `stream: true`, a fault made by
the functions below, or a function of the request that returns one of these."""


def status(
    code: int, message: str = "", *, error_type: str | None = None, retry_after: float | None = None
) -> RawReply:
    """Return an HTTP error with a JSON body in OpenAI's format; `error_type` is its type and its code."""
    message = message or f"the fake provider reports {code}"
    error = {"message": message, "type": error_type, "code": error_type, "param": None}
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return RawReply(json.dumps({"error": error}).encode(), code, "application/json", headers)


def body(content: bytes | str, *, status: int = 200, content_type: str = "text/event-stream") -> RawReply:
    """Return a response with exactly these bytes."""
    return RawReply(content.encode() if isinstance(content, str) else content, status, content_type)


def huge_line(size: int) -> RawReply:
    """Return an event whose line has `size` bytes and no end."""
    return RawReply(b'data: {"choices":[{"index":0,"delta":{"content":"', fill=b"x" * 65_536, size=size)


def silence() -> Silence:
    """Return a reply that never sends anything, not even headers.

    `hang()` as a scripted reply is silence after the headers.
    """
    return Silence()


def pings(script: Script = (), *, every: float = 1.0) -> Streamed:
    """Return the scripted reply without its end, then SSE comments for ever, one every `every` nominal seconds."""
    return Streamed(script, pings_every=every)


def drip(script: Script, *, size: int = 1, every: float = 0.0) -> Streamed:
    """Return the scripted reply in chunks of `size` bytes, with `every` nominal seconds between them."""
    return Streamed(script, bytes_at_a_time=size, seconds_between=every)


def hang_up(script: Script = ()) -> Streamed:
    """Return the scripted reply without its end; then the connection is closed in the middle of the body."""
    return Streamed(script, ending="hang_up")


def reset(script: Script = ()) -> Streamed:
    """Return the scripted reply without its end; then the connection is reset."""
    return Streamed(script, ending="reset")


def as_json(script: Script) -> Whole:
    """Return the reply as one JSON object, even if the request has `stream: true`."""
    return Whole(script)


def no_streaming(script: Script) -> Whole:
    """Return a reply that answers 400 to a streaming request, and itself to the same request without streaming."""
    return Whole(script, refuse_streaming=True)
