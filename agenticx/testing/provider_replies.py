"""What the fake provider can answer beside a scripted reply: the faults of servers and networks."""

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
    """These bytes with this status; `size` of `fill` are sent behind them without ever being held in memory."""

    content: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    fill: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """The connection stays open and nothing comes, not even headers."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A scripted reply as server-sent events, with what goes wrong on the way."""

    script: Script
    bytes_at_a_time: int | None = None
    seconds_between: float = 0.0
    pings_every: float | None = None
    ending: Literal["clean", "hang_up", "reset"] = "clean"


@dataclass(frozen=True, slots=True)
class Whole:
    """A scripted reply as one JSON object; `refuse_streaming` answers 400 until it is asked for without streaming."""

    script: Script
    refuse_streaming: bool = False


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One request as it came in; `client_gone` is set when the client has closed its socket."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> dict[str, Any]:
        """The body, decoded."""
        return json.loads(self.body)


PlainReply = str | Part | ModelError | Sequence[Script] | RawReply | Silence | Streamed | Whole
ProviderReply = PlainReply | Callable[[ProviderRequest], PlainReply]
"""One answer of the fake provider: a scripted reply, which streams if that was asked for, a fault as the functions
below make it, or a function of the request that returns one of these."""


def status(
    code: int, message: str = "", *, error_type: str | None = None, retry_after: float | None = None
) -> RawReply:
    """An HTTP error with a JSON body in OpenAI's form; `error_type` is its type and its code."""
    message = message or f"the fake provider says {code}"
    error = {"message": message, "type": error_type, "code": error_type, "param": None}
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return RawReply(json.dumps({"error": error}).encode(), code, "application/json", headers)


def body(content: bytes | str, *, status: int = 200, content_type: str = "text/event-stream") -> RawReply:
    """Exactly these bytes, whatever they are."""
    return RawReply(content.encode() if isinstance(content, str) else content, status, content_type)


def huge_line(size: int) -> RawReply:
    """One event whose line is `size` bytes long and never ends."""
    return RawReply(b'data: {"choices":[{"index":0,"delta":{"content":"', fill=b"x" * 65_536, size=size)


def silence() -> Silence:
    """Nothing comes, not even headers. (`hang()` as a scripted reply is silence after the headers.)"""
    return Silence()


def pings(script: Script = (), *, every: float = 1.0) -> Streamed:
    """The scripted reply without its end, then SSE comments for ever, one `every` nominal seconds."""
    return Streamed(script, pings_every=every)


def drip(script: Script, *, size: int = 1, every: float = 0.0) -> Streamed:
    """The scripted reply in pieces of `size` bytes, with `every` nominal seconds between them."""
    return Streamed(script, bytes_at_a_time=size, seconds_between=every)


def hang_up(script: Script = ()) -> Streamed:
    """The scripted reply without its end, then the connection is closed in the middle of the body."""
    return Streamed(script, ending="hang_up")


def reset(script: Script = ()) -> Streamed:
    """The scripted reply without its end, then the connection is reset."""
    return Streamed(script, ending="reset")


def as_json(script: Script) -> Whole:
    """One JSON object, although streaming was asked for."""
    return Whole(script)


def no_streaming(script: Script) -> Whole:
    """400 to a request for streaming, and the reply to the same request without it."""
    return Whole(script, refuse_streaming=True)
