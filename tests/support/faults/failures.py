"""Failures of a model call, for promise C6: the point of failure, and the outcome by the contract."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from tests.support.faults.provider import Exchange, ProviderFault, Stream, framed

__all__ = ["GOOD", "REFUSED", "TLS_FAILED", "random_fault", "random_silence"]

JSON = "application/json"
NEAR_SECONDS, FAR_SECONDS = 20.0, 3600.0
"""Limits of dates in Retry-After: on a slow machine a date just over the longest wait may be within it when read."""

STATUSES: dict[int, tuple[str, bool, bool]] = {
    # code · retryable · fallback allowed
    **dict.fromkeys((401, 402, 403), ("provider.auth", False, True)),
    429: ("provider.rate_limited", True, True),
    **dict.fromkeys((408, 409, 425, 500, 502, 503, 504, 529), ("provider.overloaded", True, True)),
    **dict.fromkeys((302, 400, 422, 501), ("provider.bad_request", False, False)),
    404: ("provider.bad_request", False, True),
    413: ("context_overflow", False, False),
}
BODIES: list[tuple[bytes, str]] = [
    (json.dumps({"error": {"message": "Not now."}}).encode(), JSON),
    (json.dumps({"message": "Not now.", "type": "sorry"}).encode(), JSON),
    (b"<html><h1>Bad Gateway</h1></html>", "text/html"),
    (b"no healthy upstream", "text/plain"),
    (b"", JSON),
    (b'{"error":', JSON),
]
STREAM_ERRORS: list[tuple[str, bool, bool, int, str, str]] = [
    # code · retryable · fallback allowed · Google's code and status · the type of the other providers
    ("provider.overloaded", True, True, 503, "UNAVAILABLE", "overloaded_error"),
    ("provider.overloaded", True, True, 500, "INTERNAL", "server_error"),
    ("provider.rate_limited", True, True, 429, "RESOURCE_EXHAUSTED", "rate_limit_error"),
    ("provider.bad_request", False, False, 400, "INVALID_ARGUMENT", "invalid_request_error"),
    ("provider.auth", False, True, 401, "UNAUTHENTICATED", "authentication_error"),
]


async def _good(exchange: Exchange) -> None:
    exchange.head()
    exchange.send(*exchange.stream.events)
    exchange.end()


GOOD = ProviderFault(name="good", respond=_good, code=None, boundary=10_000)
REFUSED = ProviderFault(name="refused", respond=_good, code="provider.transport", retryable=False)
"""The port does not listen, as set by the provider's `refusals`."""

TLS_FAILED = ProviderFault(name="no TLS", respond=_good, code="provider.transport", retryable=True)
"""The model connects with https, which the provider does not support."""


def random_fault(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    """Return one fault at one point; `example` is a reply like the one that is sent with the fault."""
    kind = rng.choices([_status, _truncated_body, _error_event, _broken_head, _no_reply], [4, 5, 3, 2, 2])[0]
    return kind(rng, wire, example)


def random_silence(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    """Return a provider's silence, before its headers or after any of its events."""
    boundary = rng.randint(-1, example.marker)

    async def do(exchange: Exchange) -> None:
        if boundary >= 0:
            exchange.head()
            exchange.send(*exchange.stream.events[:boundary])
        await exchange.be_silent()

    shown = bool(example.text_before(max(0, boundary)))
    code = "timeout.heartbeat" if shown else "timeout.first_chunk"
    return ProviderFault(name=f"silent after {boundary}", respond=do, code=code, boundary=max(0, boundary))


# --- before the body ----------------------------------------------------------------------------------------------


def _broken_head(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    head = rng.choice([b"", b"HTTP/1.1 200 OK\r\nContent-Ty", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/1.1 100 \r\n\r\n"])
    ending = rng.choice([Exchange.hang_up, Exchange.reset])

    async def do(exchange: Exchange) -> None:
        exchange.writer.write(head)
        ending(exchange)

    return ProviderFault(
        name=f"{ending.__name__} behind {head!r}", respond=do, code="provider.transport", retryable=True
    )


def _status(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    status = rng.choice([*STATUSES, 429, 503, 529])
    code, retryable, fallback_allowed = STATUSES[status]
    body, content_type = rng.choice(BODIES)
    headers, retry_after, dates = _retry_after(rng) if retryable else (dict, None, None)
    torn = rng.random() < 0.2

    async def do(exchange: Exchange) -> None:
        if torn:
            exchange.head(status, Content_Type=content_type, **headers())
            exchange.send(body or b"{")
            exchange.hang_up()
        else:
            exchange.answer(status, body, content_type, **headers())

    name = f"{status}{' torn' if torn else ''} {headers()} {body!r}"
    more: Any = {
        "retryable": retryable,
        "fallback_allowed": fallback_allowed,
        "retry_after": retry_after,
        "dates": dates,
    }
    return ProviderFault(name=name, respond=do, code=code, **more)


Headers = Callable[[], dict[str, str]]


def _retry_after(rng: random.Random) -> tuple[Headers, float | None, list[datetime] | None]:
    """Return the headers, as a function because of dates, the seconds that they state, and the list of dates sent."""
    seconds = rng.choice([0, 2, 7, 20, 25, 25, 3600])
    match rng.randrange(6):
        case 0:
            return lambda: {"Retry_After": str(seconds)}, seconds, None
        case 1:
            return lambda: {"retry_after_ms": str(seconds * 1000), "Retry_After": "1"}, seconds, None
        case 2:
            return _by_date(FAR_SECONDS if seconds > NEAR_SECONDS else seconds)
        case 3:
            nonsense = rng.choice(["soon", "-5", "nan", "1e999", ""])
            return lambda: {"Retry_After": nonsense}, None, None
        case _:
            return dict, None, None


def _by_date(seconds: float) -> tuple[Headers, float, list[datetime]]:
    dates: list[datetime] = []

    def headers() -> dict[str, str]:
        dates.append((datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0))
        return {"RETRY_AFTER": format_datetime(dates[-1], usegmt=True)}

    return headers, seconds, dates


# --- in the body --------------------------------------------------------------------------------------------------


def _truncated_body(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    """Return a body that ends at an event boundary, or within the next event, before the end marker."""
    boundary, within = rng.randint(0, example.marker), rng.random() < 0.3
    how, together = rng.choice(["clean", "torn", "reset"]), rng.random() < 0.5

    async def do(exchange: Exchange) -> None:
        exchange.head()
        events = list(exchange.stream.events[: boundary + 1])
        last = events.pop()
        if within:
            events.append(last[: len(last) // 2])
        exchange.send(*([b"".join(events)] if together and events else events))
        if how == "clean":
            exchange.end()
            return
        if how == "torn":
            exchange.hang_up()
            return
        await exchange.shown  # a reset may overtake what was sent before it
        exchange.reset()

    code = "provider.truncated" if how == "clean" else "provider.transport"
    name = f"{how} cut {'within' if within else 'before'} event {boundary}"
    return ProviderFault(
        name=name, respond=do, code=code, retryable=True, boundary=boundary, may_overtake=how == "reset"
    )


def _error_event(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    """Return an error in a 200 response: instead of the body, or after any number of its events."""
    code, retryable, fallback_allowed, status, google, word = rng.choice(STREAM_ERRORS)
    event: Any = {"type": "error", "error": {"message": "Sorry.", "type": word}}
    if wire == "gemini":
        event = {"error": {"code": status, "message": "Sorry.", "status": google}}
    elif wire == "ollama":  # its errors are text only, without a type
        event, code, retryable, fallback_allowed = {"error": "Sorry."}, "provider.bad_reply", False, True
    elif wire == "openai_chat":
        event.pop("type")
    elif wire == "openai_responses" and rng.random() < 0.5:
        event = {"type": "response.failed", "response": {"status": "failed", "error": {"code": word, "message": "S."}}}
    boundary, alone = rng.randint(0, example.marker), rng.random() < 0.2
    if alone and event.get("type") == "response.failed":
        event = {"error": {"message": "Sorry.", "type": word}}

    async def do(exchange: Exchange) -> None:
        if alone:
            exchange.answer(200, json.dumps(event).encode(), JSON)
            return
        exchange.head()
        exchange.send(*exchange.stream.events[:boundary], framed(wire, event))
        exchange.send(*exchange.stream.events[boundary:])  # events after an error are not read
        exchange.end()

    boundary = 0 if alone else boundary
    name = f"{word} {'alone' if alone else f'before event {boundary}'}"
    return ProviderFault(
        name=name, respond=do, code=code, retryable=retryable, fallback_allowed=fallback_allowed, boundary=boundary
    )


def _no_reply(rng: random.Random, wire: str, example: Stream) -> ProviderFault:
    """Return a 200 response that is no reply: a web page, compressed bytes, no JSON, no object."""
    boundary = rng.randint(0, example.marker)
    what = rng.choice(["web page", "gzip", "no JSON", "no object", "deep"])
    events = {"no JSON": "not json", "no object": [1], "deep": "[" * 5000}

    async def do(exchange: Exchange) -> None:
        if what == "web page":
            exchange.answer(200, b"<html>Sign in</html>", "text/html; charset=utf-8")
        elif what == "gzip":
            body = gzip.compress(b"".join(exchange.stream.events))
            exchange.answer(200, body, exchange.provider.content_type, Content_Encoding="gzip")
        else:
            exchange.head()
            exchange.send(*exchange.stream.events[:boundary], framed(wire, events[what]), *exchange.stream.events)
            exchange.end()

    boundary = boundary if what in events else 0
    return ProviderFault(
        name=f"{what} before event {boundary}", respond=do, code="provider.bad_reply", boundary=boundary
    )
