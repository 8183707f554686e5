"""Named faults of a provider, each with the required last event of the turn; shared by all suites."""

from __future__ import annotations

from dataclasses import dataclass

from agenticx.errors import ModelError
from agenticx.llms.scripted import call, cut, fail, finish, hang, pause, say, stall_after, usage
from agenticx.testing.provider_replies import (
    ProviderReply,
    as_json,
    body,
    drip,
    hang_up,
    huge_line,
    no_streaming,
    pings,
    reset,
    silence,
    status,
)

__all__ = ["FaultPlan", "fault_plans"]

_WORDS = say("Once upon a time", pieces=4)
_CALL = call("add", {"a": 1, "b": 2}, pieces=4)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The replies of the fake provider, and the turn's last event as `outline(…, detail=True)` writes it."""

    name: str
    replies: tuple[ProviderReply, ...]
    ending: str


def fault_plans() -> tuple[FaultPlan, ...]:
    """Return all plans, from refusals by status to replies that look like faults but must succeed."""
    return (*_refused(), *_silent(), *_broken_off(), *_garbled(), *_harmless())


def _refused() -> tuple[FaultPlan, ...]:
    too_long = "This model's maximum context length is 8192 tokens"
    return (
        FaultPlan("status 400", (status(400),), "error:provider.bad_request"),
        FaultPlan("status 401", (status(401),), "error:provider.auth"),
        FaultPlan("status 404", (status(404),), "error:provider.bad_request"),
        FaultPlan("status 429", (status(429, retry_after=7),), "error:provider.rate_limited"),
        FaultPlan("status 503", (status(503),), "error:provider.overloaded"),
        FaultPlan("context length exceeded", (status(400, too_long),), "error:context_overflow"),
        FaultPlan("refused by a filter in the stream", ([_WORDS, finish("content_filter")],), _FILTERED),
    )


def _silent() -> tuple[FaultPlan, ...]:
    return (
        FaultPlan("nothing, not even headers", (silence(),), "error:timeout.first_chunk"),
        FaultPlan("headers, then nothing", (hang(),), "error:timeout.first_chunk"),
        FaultPlan("pings only", (pings(),), "error:timeout.first_chunk"),
        FaultPlan("words, then nothing", ([_WORDS, stall_after(2)],), "error:timeout.heartbeat"),
        FaultPlan("words, then pings", (pings(_WORDS),), "error:timeout.heartbeat"),
        FaultPlan("half a call, then nothing", ([_CALL, stall_after(2)],), "error:timeout.heartbeat"),
        FaultPlan("a word now and then, for ever", ([[say("word "), pause(2)] * 500],), "error:timeout.hard"),
    )


def _broken_off() -> tuple[FaultPlan, ...]:
    return (
        FaultPlan("a clean end without an end marker", ([_WORDS, cut()],), "error:provider.truncated"),
        FaultPlan("a call without an end marker", ([_CALL, cut()],), "error:provider.truncated"),
        FaultPlan("an empty stream", (body(b""),), "error:provider.truncated"),
        FaultPlan("hung up at once", (hang_up(),), "error:provider.transport"),
        FaultPlan("hung up in the text", (hang_up(_WORDS),), "error:provider.transport"),
        FaultPlan("hung up in a call", (hang_up(_CALL),), "error:provider.transport"),
        FaultPlan("reset in the text", (reset(_WORDS),), "error:provider.transport"),
    )


def _garbled() -> tuple[FaultPlan, ...]:
    overloaded = ModelError("overloaded", code="provider.overloaded", provider_type="server_error")
    return (
        FaultPlan("an error event in the stream", ([_WORDS, fail(overloaded)],), "error:provider.overloaded"),
        FaultPlan("no JSON", (body(b"data: {oops\n\n"),), "error:provider.bad_reply"),
        FaultPlan("a web page", (body("<h1>Hello</h1>", content_type="text/html"),), "error:provider.bad_reply"),
        FaultPlan("random bytes", (body(bytes(range(256)) * 16),), "error:provider.truncated|error:provider.bad_reply"),
        FaultPlan("a line of 64 MB", (huge_line(64 * 2**20),), "error:provider.bad_reply"),
    )


def _harmless() -> tuple[FaultPlan, ...]:
    reply = [_WORDS, usage(3, 4)]
    return (
        FaultPlan("byte by byte", (drip(reply),), "final:answer"),
        FaultPlan("one JSON object instead of a stream", (as_json(reply),), "final:answer"),
        FaultPlan("streaming refused", (no_streaming(reply),), "final:answer"),
        FaultPlan("cut by the output limit", ([_WORDS, finish("length")],), "final:partial"),
        FaultPlan("empty reply", ([],), "final:answer"),
    )


_FILTERED = "error:provider.content_filter"
