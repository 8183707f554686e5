"""Faults of event streams, installed by changes to the given studio alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agenticx.sessions import StoredEvent
from studio.http.response_writer import WRITER_KEY
from studio.services import Services
from tests.support.intercepted_store import InterceptedCalls, StoreCall
from tests.support.timeouts import wait_until

__all__ = ["STREAMS"]

ODD_CURSOR = "NaN"
HEARTBEAT = b": beat\n\n"
CLOSING_FRAME = b"server_closing"

ServicesFault = Callable[[Services], None]
Wrap = Callable[[ASGIApp], ASGIApp]
Answer = Awaitable[tuple[int, bytes]]


# --- requests to the relay ---------------------------------------------------------------------------------------


def _shift_cursors(steps: int) -> ServicesFault:
    """Move each cursor by so many events, though never after the last one."""

    async def start(feed: Any, usual: Any, cursor: str | None) -> tuple[int, bytes]:
        place, reset = await usual(cursor)
        far = cursor is not None and not reset and await feed._reaches(place + steps + 1)
        return (max(place + steps, 0) if far else place), reset

    return partial(_replace_start, start)


def _answer_odd_cursor(answer: Callable[[Answer], Answer]) -> ServicesFault:
    """Answer one invalid cursor with the result of `answer` for the usual answer."""

    async def start(_feed: Any, usual: Any, cursor: str | None) -> tuple[int, bytes]:
        return await (answer(usual(cursor)) if cursor == ODD_CURSOR else usual(cursor))

    return partial(_replace_start, start)


async def _no_reset(usual: Answer) -> tuple[int, bytes]:
    place, _reset = await usual
    return place, b""


async def _no_answer(usual: Answer) -> tuple[int, bytes]:
    await usual
    return await asyncio.get_running_loop().create_future()


async def _failure(usual: Answer) -> tuple[int, bytes]:
    await usual
    raise ValueError("broken on purpose")


def _replace_start(start: Callable[..., Any], services: Services) -> None:
    """Replace the `start` of every feed by `start(feed, usual, cursor)`."""
    relay: Any = services.relay
    usual = relay._feed

    def feed_of(session_id: str | None) -> Any:
        feed = usual(session_id)
        if "start" not in vars(feed):
            feed.start = partial(start, feed, feed.start)
        return feed

    relay._feed = feed_of


def _keep_disconnected_readers(services: Services) -> None:
    """Keep disconnected readers in the list of readers."""
    _on_disconnect(services, lambda readers, reader: readers.add(reader))


def _stop_turn_with_reader(services: Services) -> None:
    """Stop the turn of a stream when its reader disconnects."""
    stopping: set[asyncio.Task[Any]] = set()

    def stop(_readers: set[Any], reader: Any) -> None:
        task = asyncio.create_task(services.hub.stop(reader.feed._session_id))
        stopping.add(task)
        task.add_done_callback(stopping.discard)

    _on_disconnect(services, stop)


def _on_disconnect(services: Services, then: Callable[[set[Any], Any], None]) -> None:
    """Call `then` with the relay's readers and each reader that was removed from them."""

    class Readers(set[Any]):
        def discard(self, reader: Any, /) -> None:
            super().discard(reader)
            then(self, reader)

    relay: Any = services.relay
    relay._readers = Readers()


def _close_streams_first(services: Services) -> None:
    """End streams before the turns."""
    hub: Any = services.hub
    usual = hub.close

    async def close() -> None:
        services.relay.closing.set()
        await wait_until(lambda: not services.relay.readers)
        await usual()

    hub.close = close


def _fail_to_close(services: Services) -> None:
    hub: Any = services.hub
    usual = hub.close

    async def close() -> None:
        await usual()
        raise RuntimeError("broken on purpose")

    hub.close = close


# --- responses ----------------------------------------------------------------------------------------------------


def _queue_for_each_reader(services: Services) -> None:
    """Copy all messages for each reader at once, and keep them after they were sent or the reader has disconnected."""
    queues: list[list[Message]] = []

    def wrap(stream: ASGIApp) -> ASGIApp:
        async def with_queue(scope: Scope, receive: Receive, send: Send) -> None:
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

        return with_queue

    _wrap_streams(wrap, services)


def _no_heartbeat_after(type_: str | None) -> ServicesFault:
    """Send no heartbeat once an event of that type was sent; with None never send one."""
    marker = b"" if type_ is None else f'"type":"{type_}"'.encode()

    def make_filter() -> Callable[[bytes], bool]:
        marker_sent = False

        def is_dropped(body: bytes) -> bool:
            nonlocal marker_sent
            marker_sent = marker_sent or marker in body
            return marker_sent and body == HEARTBEAT

        return is_dropped

    return partial(_drop_bodies, make_filter)


def _no_closing_frame(services: Services) -> None:
    _drop_bodies(lambda: lambda body: CLOSING_FRAME in body, services)


def _drop_bodies(make_filter: Callable[[], Callable[[bytes], bool]], services: Services) -> None:
    """Drop from each stream the bodies for which its own filter, made by `make_filter()`, returns True."""

    def wrap(stream: ASGIApp) -> ASGIApp:
        async def filtered(scope: Scope, receive: Receive, send: Send) -> None:
            is_dropped = make_filter()

            async def sending(message: Message) -> None:
                if not is_dropped(message.get("body", b"")):
                    await send(message)

            await stream(scope, receive, sending)

        return filtered

    _wrap_streams(wrap, services)


def _wrap_streams(wrap: Wrap, services: Services) -> None:
    """Wrap every stream in `wrap`, which gets all that the stream sends as messages."""
    relay: Any = services.relay
    usual = relay.respond

    async def respond(*args: Any, **kwargs: Any) -> ASGIApp:
        stream = wrap(await usual(*args, **kwargs))

        async def without_writer(scope: Scope, receive: Receive, send: Send) -> None:
            del scope[WRITER_KEY]
            await stream(scope, receive, send)

        return without_writer

    relay.respond = respond


# --- frames of the log ------------------------------------------------------------------------------------------


def _change_frames(change: Callable[[bytes], bytes]) -> ServicesFault:
    """Make the relay read `change(frame)` instead of each frame."""

    async def around(call: StoreCall) -> Any:
        result = await call.run()
        if call.name not in {"read", "read_all"}:
            return result
        events: list[StoredEvent] = list(result)
        return [event._replace(frame_json=change(event.frame_json)) for event in events]

    def breaks(services: Services) -> None:
        relay: Any = services.relay
        relay._log = InterceptedCalls(relay._log, around)

    return breaks


def _unescaped(text: str) -> Callable[[bytes], bytes]:
    """Return a change that replaces the escaped form of that character with the character."""
    escaped = json.dumps(text)[1:-1].encode()
    return lambda frame: frame.replace(escaped, text.encode())


STREAMS: dict[str, ServicesFault] = {
    "skips an event after a reconnect": _shift_cursors(1),
    "repeats an event after a reconnect": _shift_cursors(-1),
    "sends no reset for an odd cursor": _answer_odd_cursor(_no_reset),
    "never answers an odd cursor": _answer_odd_cursor(_no_answer),
    "fails at an odd cursor": _answer_odd_cursor(_failure),
    "queues for each reader": _queue_for_each_reader,
    "keeps disconnected readers": _keep_disconnected_readers,
    "stops the turn of a disconnected reader": _stop_turn_with_reader,
    "never sends a heartbeat": _no_heartbeat_after(None),
    "sends no heartbeat after token": _no_heartbeat_after("token"),
    "sends no heartbeat after tool_call": _no_heartbeat_after("tool_call"),
    "sends no heartbeat after confirm_required": _no_heartbeat_after("confirm_required"),
    "sends no heartbeat after queued": _no_heartbeat_after("queued"),
    "closes streams before turns": _close_streams_first,
    "closes with an error": _fail_to_close,
    "sends no closing frame": _no_closing_frame,
    "leaves line feeds in frames": _change_frames(_unescaped("\n")),
    "leaves carriage returns in frames": _change_frames(_unescaped("\r")),
    "leaves line separators in frames": _change_frames(_unescaped("\u2028")),
}
"""The faults by name."""
