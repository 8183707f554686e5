"""Streams that break a promise on purpose, by changes of the given studio alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agenticx.sessions import StoredEvent
from studio.services import Services
from tests.support.faults.faulty_stores import Operation, Surrounded

__all__ = ["STREAMS"]

ODD_CURSOR = "NaN"
BEAT = b": beat\n\n"
FAREWELL = b"server_closing"

Breaks = Callable[[Services], None]
Wrap = Callable[[ASGIApp], ASGIApp]
Answer = Awaitable[tuple[int, bytes]]


# --- what is asked of the relay ---------------------------------------------------------------------------------------


def _moving(steps: int) -> Breaks:
    """Move each cursor by so many events, though never behind the last one."""

    async def start(feed: Any, usual: Any, cursor: str | None) -> tuple[int, bytes]:
        place, reset = await usual(cursor)
        far = cursor is not None and not reset and place + steps < await feed._last()
        return (max(place + steps, 0) if far else place), reset

    return partial(_answer_cursors, start)


def _at_an_odd_one(answer: Callable[[Answer], Answer]) -> Breaks:
    """Answer one odd cursor with the result of `answer` for the usual answer."""

    async def start(_feed: Any, usual: Any, cursor: str | None) -> tuple[int, bytes]:
        return await (answer(usual(cursor)) if cursor == ODD_CURSOR else usual(cursor))

    return partial(_answer_cursors, start)


async def _no_reset(usual: Answer) -> tuple[int, bytes]:
    place, _reset = await usual
    return place, b""


async def _nothing(usual: Answer) -> tuple[int, bytes]:
    await usual
    return await asyncio.get_running_loop().create_future()


async def _failure(usual: Answer) -> tuple[int, bytes]:
    await usual
    raise ValueError("broken on purpose")


def _answer_cursors(start: Callable[..., Any], services: Services) -> None:
    """Replace the `start` of every feed by `start(feed, usual, cursor)`."""
    relay: Any = services.relay
    usual = relay._feed

    def feed_of(session_id: str | None) -> Any:
        feed = usual(session_id)
        if "start" not in vars(feed):
            feed.start = partial(start, feed, feed.start)
        return feed

    relay._feed = feed_of


def _keep_the_dead(services: Services) -> None:
    """Keep readers that are gone in the list."""
    relay: Any = services.relay
    _when_one_is_gone(services, lambda _feed, news: relay._readers.add(news))


def _stop_with_the_reader(services: Services) -> None:
    """Stop the turn that a reader followed when the reader is gone."""
    stopping: set[asyncio.Task[Any]] = set()

    def stop(feed: Any, _news: asyncio.Event) -> None:
        task = asyncio.create_task(services.hub.stop(feed._session_id))
        stopping.add(task)
        task.add_done_callback(stopping.discard)

    _when_one_is_gone(services, stop)


def _when_one_is_gone(services: Services, then: Callable[[Any, asyncio.Event], None]) -> None:
    relay: Any = services.relay
    usual = relay._subscription

    @contextmanager
    def subscription(feed: Any, news: asyncio.Event) -> Generator[None]:
        try:
            with usual(feed, news):
                yield
        finally:
            then(feed, news)

    relay._subscription = subscription


def _close_streams_first(services: Services) -> None:
    """End streams before the turns."""
    hub: Any = services.hub
    usual = hub.close

    async def close() -> None:
        services.relay.closing.set()
        while services.relay.readers:
            await asyncio.sleep(0.005)
        await usual()

    hub.close = close


def _close_badly(services: Services) -> None:
    hub: Any = services.hub
    usual = hub.close

    async def close() -> None:
        await usual()
        raise RuntimeError("broken on purpose")

    hub.close = close


# --- what goes out ----------------------------------------------------------------------------------------------------


def _queue_for_each(services: Services) -> None:
    """Copy all messages for each reader at once, and keep them after they were sent or the reader has gone."""
    queues: list[list[Message]] = []

    def wrap(stream: ASGIApp) -> ASGIApp:
        async def queueing(scope: Scope, receive: Receive, send: Send) -> None:
            queue, news = list[Message](), asyncio.Event()
            queues.append(queue)

            async def put(message: Message) -> None:
                queue.append({**message, "body": bytes(bytearray(message.get("body", b"")))})
                news.set()

            async def write() -> None:
                for place in count():
                    while place == len(queue):
                        news.clear()
                        await news.wait()
                    await send(queue[place])

            writing = asyncio.create_task(write())
            try:
                await stream(scope, receive, put)
            finally:
                writing.cancel()

        return queueing

    _through(wrap, services)


def _silent_behind(type_: str | None) -> Breaks:
    """Send no heartbeat once an event of that type was sent; None: none at all."""
    marker = b"" if type_ is None else f'"type":"{type_}"'.encode()

    def of_a_stream() -> Callable[[bytes], bool]:
        told = False

        def left_out(body: bytes) -> bool:
            nonlocal told
            told = told or marker in body
            return told and body == BEAT

        return left_out

    return partial(_leaving_out, of_a_stream)


def _no_farewell(services: Services) -> None:
    _leaving_out(lambda: lambda body: FAREWELL in body, services)


def _leaving_out(of_a_stream: Callable[[], Callable[[bytes], bool]], services: Services) -> None:
    """Drop from each stream the bodies for which its own `of_a_stream()` returns True."""

    def wrap(stream: ASGIApp) -> ASGIApp:
        async def quieter(scope: Scope, receive: Receive, send: Send) -> None:
            left_out = of_a_stream()

            async def sending(message: Message) -> None:
                if not left_out(message.get("body", b"")):
                    await send(message)

            await stream(scope, receive, sending)

        return quieter

    _through(wrap, services)


def _through(wrap: Wrap, services: Services) -> None:
    """Wrap every stream in `wrap`."""
    relay: Any = services.relay
    usual = relay.respond

    async def respond(*args: Any, **kwargs: Any) -> ASGIApp:
        return wrap(await usual(*args, **kwargs))

    relay.respond = respond


# --- what is read of the log ------------------------------------------------------------------------------------------


def _framing(change: Callable[[bytes], bytes]) -> Breaks:
    """Make the relay read `change(frame)` instead of each frame."""

    async def around(operation: Operation) -> Any:
        result = await operation.do()
        if operation.name not in {"read", "read_all"}:
            return result
        events: list[StoredEvent] = list(result)
        return [event._replace(frame_json=change(event.frame_json)) for event in events]

    def breaks(services: Services) -> None:
        relay: Any = services.relay
        relay._store = Surrounded(relay._store, around)

    return breaks


def _unescaped(text: str) -> Callable[[bytes], bytes]:
    """Return a change that writes that character unescaped."""
    escaped = json.dumps(text)[1:-1].encode()
    return lambda frame: frame.replace(escaped, text.encode())


STREAMS: dict[str, Breaks] = {
    "skips an event after a reconnect": _moving(1),
    "repeats an event after a reconnect": _moving(-1),
    "says nothing of an odd cursor": _at_an_odd_one(_no_reset),
    "never answers an odd cursor": _at_an_odd_one(_nothing),
    "fails at an odd cursor": _at_an_odd_one(_failure),
    "queues for each reader": _queue_for_each,
    "keeps readers that died": _keep_the_dead,
    "stops the turn of who dies": _stop_with_the_reader,
    "is always silent": _silent_behind(None),
    "is silent behind token": _silent_behind("token"),
    "is silent behind tool_call": _silent_behind("tool_call"),
    "is silent behind confirm_required": _silent_behind("confirm_required"),
    "is silent behind queued": _silent_behind("queued"),
    "closes streams before turns": _close_streams_first,
    "closes with an error": _close_badly,
    "says no farewell": _no_farewell,
    "breaks lines in frames": _framing(_unescaped("\n")),
    "returns carriages in frames": _framing(_unescaped("\r")),
    "leaves line separators in frames": _framing(_unescaped("\u2028")),
}
"""How each is broken, by name."""
