"""The log as server-sent events: resume by cursor, then live; every reader sends the same bytes.

Differences from what one may expect:

1. There is no queue per reader. A reader keeps a place in the log and reads on when the bell rings, so a slow one costs
   only the piece that is being written and what its socket buffers, 64 kB each (`pieces`, `server`).
2. So a slow reader is not dropped at a byte limit, as the contract has it: there is nothing that could grow up to one.
   Limited is the time. One that takes nothing for ten seconds has its socket aborted, without a frame, and resumes by
   cursor; one that goes on taking a little at a time, 16 kB/s at least, is served, however far behind.
3. All that waits goes out as one write, and readers at the same place share the very same bytes object.
4. The Last-Event-ID header wins over `?cursor=`: a reconnecting EventSource repeats its URL but knows better by then.
5. The stream of all sessions opens with its cursor, `id` without `data`, which clients take for seen and hand on to
   nobody: one that is cut off before its first event would come back without a cursor and miss what happened meanwhile.
   A session's stream without a cursor begins anew and misses nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.base import Store, StoredEvent
from studio.pieces import GONE, PIECE_BYTES

__all__ = ["Relay", "asked_cursor"]

_HEARTBEAT_SECONDS = 10.0
_FAREWELL_SECONDS = 4.5  # longer than the hub takes to stop its turns
_WRITE_EVENTS = 512

_OPENING = b"retry: 500\n"
_FAREWELL = b'data: {"type":"server_closing"}\n\n'
_CURSOR = re.compile(r"(0|[1-9a-f][0-9a-f]{0,14})-([0-9a-f]{16})")

_log = get_logger(__name__)


def asked_cursor(request: Request) -> str | None:
    """Where the client wants to go on, None for from the beginning."""
    query = request.query_params
    return request.headers.get("last-event-id") or query.get("lastEventId") or query.get("cursor")


class Relay:
    """Makes streams of a store's log until `closing` is set; then each ends with a farewell."""

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        self.closing = anyio.Event()
        self._store = store
        self._clock = clock or SystemClock()
        self._feeds: WeakValueDictionary[str | None, _Feed] = WeakValueDictionary()
        self._readers: set[asyncio.Event] = set()

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return len(self._readers)

    def cursor(self, session_id: str, seq: int) -> str:
        """The cursor that stands just behind event `seq` of a session."""
        return self._feed(session_id).cursor(seq)

    async def respond(self, session_id: str | None, cursor: str | None, *, of_turn: str | None = None) -> Response:
        """The events of a session (None: of all) behind `cursor`; with `of_turn` up to that turn's terminal one, and
        none of other turns.

        Raises `StoreError` where the first of them cannot be read: a stream would only ask for them again and again.
        """
        feed, news = self._feed(session_id), asyncio.Event()
        place, reset = await feed.start(cursor)
        first = await feed.after(place, of_turn)
        wire = _Wire()
        return _EventStream(
            self._frames(feed, news, wire, place, of_turn, reset, first),
            wire=wire,
            subscription=self._subscription(feed, news),
            heartbeat_seconds=self._clock.real(_HEARTBEAT_SECONDS),
        )

    async def wake_at_closing(self) -> None:
        """Runs beside the server: gets all readers moving when it closes."""
        await self.closing.wait()
        for news in self._readers:
            news.set()

    def _feed(self, session_id: str | None) -> _Feed:
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = _Feed(self._store, session_id)
        return feed

    @contextmanager
    def _subscription(self, feed: _Feed, news: asyncio.Event) -> Generator[None]:
        with feed.subscribe(news):
            self._readers.add(news)
            try:
                yield
            finally:
                self._readers.discard(news)

    async def _frames(
        self,
        feed: _Feed,
        news: asyncio.Event,
        wire: _Wire,
        place: int,
        of_turn: str | None,
        reset: bytes,
        first: _Chunk | None,
    ) -> AsyncIterator[bytes]:
        """Frames in the order of the log, as many at a time as are there; the reader is subscribed already."""
        try:
            yield feed.opening(place) + reset
            while not wire.gone():
                news.clear()
                chunk, first = first or await feed.after(place, of_turn), None
                if chunk is not None:
                    place = chunk.last
                    if chunk.frames:
                        yield chunk.frames
                    if of_turn is not None and chunk.ends == of_turn:
                        return
                elif self.closing.is_set():
                    yield _FAREWELL
                    return
                else:
                    await news.wait()
        except StoreError as exc:  # deleted while it was read, or the storage failed: the client asks again
            _log.info("a stream ended early", reason=str(exc))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Chunk:
    """Frames to be sent together, the place behind which to read on, and the turn that ends there, if any."""

    frames: bytes
    last: int
    ends: str | None


class _Feed:
    """One log, of a session or of all, as places and frames; shared by all its readers."""

    def __init__(self, store: Store, session_id: str | None) -> None:
        self._store = store
        self._session_id = session_id
        named = f"log {store.log_id}" if session_id is None else f"session {session_id}"
        self._tag = hashlib.sha256(named.encode()).hexdigest()[:16]
        self._frame = b"id: %x-" + self._tag.encode() + b"\ndata: %b\n\n"
        self._chunks: WeakValueDictionary[tuple[int, int, int, str | None], _Chunk] = WeakValueDictionary()
        self._latest: _Chunk | None = None  # kept for readers that are about to be equally far

    def subscribe(self, news: asyncio.Event) -> AbstractContextManager[None]:
        return self._store.subscribe(self._session_id, news)

    def cursor(self, place: int) -> str:
        return f"{place:x}-{self._tag}"

    def place(self, event: StoredEvent) -> int:
        return event.position if self._session_id is None else event.seq

    def opening(self, place: int) -> bytes:
        """What a stream that goes on from `place` opens with."""
        return _OPENING + (b"id: %b\n\n" % self.cursor(place).encode() if self._session_id is None else b"\n")

    async def start(self, cursor: str | None) -> tuple[int, bytes]:
        """The place to go on from, and the reset frame that a cursor of no use here calls for."""
        last = await self._last()
        first = last if self._session_id is None else 0
        if cursor is None:
            return first, b""
        known = _CURSOR.fullmatch(cursor)
        if known is None or known[2] != self._tag:
            return first, self._reset("The cursor is not one of this stream.")
        place = int(known[1], 16)
        return (place, b"") if place <= last else (first, self._reset("The cursor lies ahead of the log."))

    async def after(self, place: int, of_turn: str | None) -> _Chunk | None:
        """What stands behind `place`, as much as makes one write; with `of_turn` not beyond its end."""
        if self._session_id is None:
            events = await self._store.read_all(place, _WRITE_EVENTS)
        else:
            events = await self._store.read(self._session_id, place, _WRITE_EVENTS)
        events = _up_to_end(of_turn, _one_write(events))
        return self._chunk(events, of_turn) if events else None

    def _chunk(self, events: Sequence[StoredEvent], of_turn: str | None) -> _Chunk:
        """The frames of `events`: the same object for all readers that are equally far, for as long as one is."""
        key = (self.place(events[0]), self.place(events[-1]), len(events), of_turn)
        chunk = self._chunks.get(key)
        if chunk is None:
            told = events if of_turn is None else [event for event in events if _turn(event) in (None, of_turn)]
            frames = [self._frame % (self.place(event), event.frame_json) for event in told]
            chunk = self._chunks[key] = _Chunk(b"".join(frames), key[1], _ended(events[-1]))
            self._latest = chunk
        return chunk

    async def _last(self) -> int:
        if self._session_id is None:
            return await self._store.last_position()
        return await self._store.last_seq(self._session_id)

    def _reset(self, reason: str) -> bytes:
        frame = {"type": "reset", "data": {"reason": reason}, "session_id": self._session_id}
        return f"data: {json.dumps(frame, separators=(',', ':'))}\n\n".encode()


def _one_write(events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """As many of `events` as make one write; the first in any case."""
    size = 0
    for count, event in enumerate(events):
        size += len(event.frame_json)
        if size > PIECE_BYTES and count:
            return events[:count]
    return events


def _up_to_end(turn_id: str | None, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """`events` up to the turn's terminal one, if it is among them."""
    if turn_id is None:
        return events
    ends = (count for count, event in enumerate(events, 1) if _ended(event) == turn_id)
    return events[: next(ends, len(events))]


def _turn(event: StoredEvent) -> str | None:
    """The turn that the event is about: its own, or the one that a message waits for; None for the whole session."""
    if event.type in ("queued", "handed_back"):
        return json.loads(event.frame_json)["data"].get("turn_id")
    return event.turn_id


def _ended(event: StoredEvent) -> str | None:
    """The turn of which nothing more will be told; one whose message is handed back never begins."""
    return _turn(event) if event.terminal or event.type == "handed_back" else None


@dataclass(slots=True)
class _Wire:
    """What a stream goes out on. Where it is `gone` nothing more is read: large events would pile up as litter."""

    gone: Callable[[], bool] = lambda: False


class _EventStream(EventSourceResponse):
    """The response that carries the frames, for as long as it is subscribed."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        wire: _Wire,
        subscription: AbstractContextManager[None],
        heartbeat_seconds: float,
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            frames,
            ping=heartbeat_seconds,
            ping_message_factory=_heartbeat,
            sep="\n",
            shutdown_grace_period=_FAREWELL_SECONDS,  # a shutdown_event would be set before the turns have ended
        )
        self._wire = wire
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._wire.gone = scope.get(GONE, self._wire.gone)
        with self._subscription:
            await super().__call__(scope, receive, send)


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="beat", sep="\n")
