"""The event log as server-sent events: resumed by cursor, then live, the same bytes for every reader.

Differences from what one may expect:

1. There is no queue per reader. A reader has a position in the log and reads on when the store's notifier sets its
   event, so a slow reader costs only the chunk that is being written and the buffer of its socket, 64 kB each
   (`http.response_writer`, `server`).
2. So a slow reader has a time limit and no byte limit: nothing of it could grow. If a client reads nothing for ten
   seconds, its socket is aborted without a frame, and it resumes by cursor. A client that reads at least 16 kB/s is
   served, no matter how far behind it is.
3. All pending events are sent in one write, and readers at the same position share the same bytes object.
4. The Last-Event-ID header takes precedence over `?cursor=`: a reconnecting EventSource repeats its first URL with the
   first cursor, while the header has the latest one.
5. The stream of all sessions opens with its cursor, an `id` without `data`: clients store it as the last event id
   without dispatching an event. Otherwise a client whose connection is closed before the first event would reconnect
   without a cursor and miss the events in between. A session's stream without a cursor starts at the first event and
   misses nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from weakref import WeakValueDictionary

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, StoreError
from agenticx.logs import get_logger
from agenticx.sessions.log.events import Position, StoredEvent
from agenticx.sessions.log.turn_tree import TurnFilter
from agenticx.sessions.store.base import Log, Store, ended_turn_id, read_log_pages, related_turn_id
from studio.http.frames import ClosingReason, ResetFrame, ServerClosingFrame
from studio.http.response_writer import CHUNK_BYTES, WRITER_KEY, BodyWriter

__all__ = ["EventPage", "InvalidCursor", "Relay"]

_HEARTBEAT_SECONDS = 10.0
_SHUTDOWN_SECONDS = 4.5  # longer than the hub takes to stop its turns
_WRITE_EVENTS = 512
_PAGE_BYTES = 4 * 1024 * 1024

_RETRY_FIELD = b"retry: 500\n"
_HEARTBEAT = ServerSentEvent(comment="beat", sep="\n").encode()
_CURSOR = re.compile(r"(0|[1-9a-f][0-9a-f]{0,1023})-([0-9a-f]{16})")

_log = get_logger(__name__)


class InvalidCursor(AgenticXError):
    """An error for a cursor that is not one of the session's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events of a session, the cursors just before the first and of the last, and True if there are others beyond."""

    events: Sequence[StoredEvent]
    before: str
    cursor: str
    has_more: bool


class Relay:
    """A source of event streams over a store's log; once `closing` is set each ends with a `server_closing` frame."""

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        self.closing = anyio.Event()
        self.closing_reason: ClosingReason = "stopped"
        """The reason that the `server_closing` frames state."""
        self.shutdown_seconds = _SHUTDOWN_SECONDS
        """The time from a signal to the end of a stream that `closing` has not ended; it may be infinite."""
        self._log = store.log
        self._heartbeat_seconds = (clock or SystemClock()).real(_HEARTBEAT_SECONDS)
        self._feeds: WeakValueDictionary[str | None, _Feed] = WeakValueDictionary()
        self._readers: set[_Reader] = set()

    @property
    def readers(self) -> int:
        """The number of open streams."""
        return len(self._readers)

    def cursor(self, session_id: str, seq: int) -> str:
        """Return the cursor just after event `seq` of a session."""
        return self._feed(session_id).cursor(seq)

    async def read_page(self, session_id: str, after: str | None, until: str | None, limit: int) -> EventPage:
        """Return the first events after the cursor `after`, or without one the last events, up to the cursor `until`.

        These are at most `limit` events, or about 4 MiB. Raises `InvalidCursor` and `StoreError`.
        """
        feed = self._feed(session_id)
        end = await self._log.head(session_id) if until is None else await feed.position_of(until)
        start = max(0, end - limit) if after is None else await feed.position_of(after)
        events = list[StoredEvent]()
        async for page in read_log_pages(self._log, session_id, start, until=min(end, start + limit)):
            events += page
        events = _fitting(events[::-1], _PAGE_BYTES)[::-1] if after is None else _fitting(events, _PAGE_BYTES)
        first, last = (events[0].seq - 1, events[-1].seq) if events else (start, start)
        return EventPage(
            events=events,
            before=feed.cursor(first),
            cursor=feed.cursor(last),
            has_more=first > 0 if after is None else last < end,
        )

    async def respond(
        self, session_id: str | None, cursor: str | None, *, types: Collection[str] | None = None
    ) -> Response:
        """Return a stream of the events after `cursor` of a session, or of all sessions for None.

        With `types` it has the events of these types only. Raises `StoreError` if the first events cannot be read: a
        client whose stream fails would only reconnect again and again.
        """
        feed = self._feed(session_id)
        position, reset = await feed.start(cursor)
        return await self._stream(feed, position, types=types, reset=reset)

    async def respond_to_turn(self, session_id: str, turn_id: str, *, after_seq: int) -> Response:
        """Return a stream of a session's events after `after_seq` that ends after the turn's terminal event.

        Of other turns it has only the child turns of this one. Raises `StoreError` as `respond` does.
        """
        return await self._stream(self._feed(session_id), after_seq, turn=TurnFilter({turn_id}))

    async def run(self) -> None:
        """Have all readers send heartbeats until `closing`, and then end; runs as a task as long as the server does."""
        while not self.closing.is_set():
            with anyio.move_on_after(self._heartbeat_seconds):
                await self.closing.wait()
            for reader in self._readers:
                reader.heartbeat_due = True
                reader.wakeup.set()

    def _feed(self, session_id: str | None) -> _Feed:
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = _Feed(self._log, session_id)
        return feed

    async def _stream(
        self,
        feed: _Feed,
        position: int,
        *,
        turn: TurnFilter | None = None,
        types: Collection[str] | None = None,
        reset: bytes = b"",
    ) -> _EventStream:
        first = await feed.read_after(position, turn, types)
        reader = _Reader(feed, position, turn, types, self.closing, lambda: self.closing_reason, first=first)
        opening = feed.opening_frame(position) + reset
        return _EventStream(opening, reader, self._readers, self.shutdown_seconds)


@dataclass(slots=True, eq=False)
class _Reader:
    """A reader of a feed at a position; `first` is what it has read ahead, `writer` is set once the response starts."""

    feed: _Feed
    position: int
    turn: TurnFilter | None
    types: Collection[str] | None
    closing: anyio.Event
    closing_reason: Callable[[], ClosingReason]
    first: _Chunk | None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeat_due: bool = False
    writer: BodyWriter = field(init=False)

    async def body(self, opening: bytes) -> AsyncIterator[bytes]:
        """Yield `opening`, then write all that follows to the connection itself."""
        yield opening
        await self._write_frames(self.writer)

    async def _write_frames(self, writer: BodyWriter) -> None:
        """Write frames in the order of the log, as many at a time as are available; the reader is already subscribed.

        `wakeup` is cleared before each read: an event that is stored after the read sets it again, so none is missed.
        A stream on a closing connection stops reading: large events would be loaded only to be garbage.
        """
        try:
            while not writer.is_closing():
                self.wakeup.clear()
                if self.heartbeat_due and not self.closing.is_set():  # before a read, which may take long
                    self.heartbeat_due = False
                    # Without the events of other types, only this advances the cursor of the client.
                    passed = b"" if self.types is None else self.feed.id_frame(self.position)
                    await writer.write(_HEARTBEAT + passed)
                    continue
                chunk = self.first or await self.feed.read_after(self.position, self.turn, self.types)
                self.first = None
                if chunk is not None:
                    self.position = chunk.last_position
                    await writer.write(chunk.frames)
                    if self.turn is not None and chunk.ended_turn_id in self.turn.turn_ids:
                        return
                elif self.closing.is_set():
                    await writer.write(_encode({"type": "server_closing", "data": {"reason": self.closing_reason()}}))
                    return
                else:
                    await self.wakeup.wait()
        except StoreError as exc:  # the session was deleted, or the storage failed: the client reconnects
            _log.info("event stream ended early", reason=str(exc))


@dataclass(slots=True, weakref_slot=True, eq=False)  # not frozen: that takes three times as long to make
class _Chunk:
    """Frames to be sent together, the position of the last one, and the turn that ends there, if any."""

    frames: bytes
    last_position: int
    ended_turn_id: str | None


class _Feed:
    """The log of a session or of all sessions as positions, cursors and frames; shared by all its readers."""

    def __init__(self, log: Log, session_id: str | None) -> None:
        self._log = log
        self._session_id = session_id
        self._position: Callable[[StoredEvent], int] = attrgetter("position" if session_id is None else "seq")
        log_name = f"log {log.log_id}" if session_id is None else f"session {session_id}"
        self._tag = hashlib.sha256(log_name.encode()).hexdigest()[:16]
        self._frame = b"id: %x-" + self._tag.encode() + b"\ndata: %b\n\n"
        self._chunks: WeakValueDictionary[tuple[int, int, int], _Chunk] = WeakValueDictionary()
        self._latest: _Chunk | None = None  # keeps it in `_chunks` for readers that are about to reach its position

    def subscribe(self, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        return self._log.subscribe(self._session_id, wakeup)

    def cursor(self, position: int) -> str:
        return f"{position:x}-{self._tag}"

    def opening_frame(self, position: int) -> bytes:
        """Return the first bytes of a stream that resumes after `position`."""
        return _RETRY_FIELD + (self.id_frame(position) if self._session_id is None else b"\n")

    def id_frame(self, position: int) -> bytes:
        """Return a frame without data that moves the cursor of a client."""
        return b"id: %b\n\n" % self.cursor(position).encode()

    async def start(self, cursor: str | None) -> tuple[int, bytes]:
        """Return the position to resume from, and a reset frame if the cursor is not valid for this stream."""
        first = await self._log.position() or 0 if self._session_id is None else 0
        if cursor is None:
            return first, b""
        try:
            return await self.position_of(cursor), b""
        except InvalidCursor as exc:
            return first, self._reset_frame(f"The cursor {exc}.")

    async def position_of(self, cursor: str) -> int:
        """Return the position of a cursor; raise `InvalidCursor` if it has none in this log."""
        match = _CURSOR.fullmatch(cursor)
        if match is None or match[2] != self._tag:
            raise InvalidCursor("is not one of this stream")
        position = int(match[1], 16)
        if not await self._reaches(position):
            raise InvalidCursor("lies ahead of the log")
        return position

    async def read_after(self, position: int, turn: TurnFilter | None, types: Collection[str] | None) -> _Chunk | None:
        """Return the events after `position` that fit in one write, with a `turn` none after its end; None if none.

        With `types` the others have no frame.
        """
        if self._session_id is None:
            events = await self._log.read_all(Position(position), _WRITE_EVENTS)
        else:
            events = await self._log.read(self._session_id, position, _WRITE_EVENTS)
        if not events:
            return None
        if turn is not None:
            return self._turn_chunk(events, turn)
        if types is not None:
            return self._chunk(events, [event for event in events if event.type in types])
        return self._shared_chunk(_fitting_events(events))

    def _shared_chunk(self, events: Sequence[StoredEvent]) -> _Chunk:
        """Return the frames of `events`, the same object for all readers at this position while one of them has it."""
        position = self._position
        key = (position(events[0]), position(events[-1]), len(events))
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = self._chunks[key] = self._latest = self._chunk(events, events)
        return chunk

    def _turn_chunk(self, events: Sequence[StoredEvent], turn: TurnFilter) -> _Chunk:
        """Return the frames of the events of a turn and its child turns, up to its end."""
        events, related = _fitting_events(events, turn.turn_ids), {None, *turn.turn_ids}
        shown = [
            event
            for event in events
            if turn.includes(event) or related_turn_id(event) in related or ended_turn_id(event) in turn.turn_ids
        ]
        return self._chunk(events, shown, ended_turn_id(events[-1]))

    def _chunk(
        self, events: Sequence[StoredEvent], shown: Sequence[StoredEvent], ended_turn: str | None = None
    ) -> _Chunk:
        last = events[-1]
        frames = b"".join([self._frame % (self._position(event), event.frame_json) for event in shown])
        return _Chunk(frames, self._position(last), ended_turn)

    async def _reaches(self, position: int) -> bool:
        """Return whether the log reaches as far as `position`."""
        if self._session_id is None:
            return await self._log.position(position) is not None
        return position <= await self._log.head(self._session_id)

    def _reset_frame(self, reason: str) -> bytes:
        return _encode({"type": "reset", "data": {"reason": reason}, "session_id": self._session_id})


def _encode(frame: ResetFrame | ServerClosingFrame) -> bytes:
    """Return a frame without an id: a client keeps the cursor that it has."""
    return f"data: {json.dumps(frame, separators=(',', ':'))}\n\n".encode()


def _fitting_events(events: Sequence[StoredEvent], turn_ids: Collection[str] = ()) -> Sequence[StoredEvent]:
    """Return the first of `events` that together fit in one write, none after the end of one of these turns.

    The first one is returned in any case.
    """
    size = 0
    for count, event in enumerate(events):
        size += len(event.frame_json)
        if size > CHUNK_BYTES and count:
            return events[:count]
        if turn_ids and ended_turn_id(event) in turn_ids:
            return events[: count + 1]
    return events


def _fitting(events: list[StoredEvent], size: int) -> list[StoredEvent]:
    """Return the first of `events` that together have at most `size` bytes; the first one in any case."""
    for count, event in enumerate(events):
        size -= len(event.frame_json)
        if size < 0 and count:
            return events[:count]
    return events


class _EventStream(EventSourceResponse):
    """The response that sends a stream; it is subscribed to new events while it runs.

    Only the opening frame is sent as an ASGI message: what follows is written to the connection directly.
    """

    def __init__(self, opening: bytes, reader: _Reader, readers: set[_Reader], shutdown_seconds: float) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            reader.body(opening),
            ping=0,  # the relay sends the heartbeats of all readers from one task
            sep="\n",
            shutdown_grace_period=shutdown_seconds,  # a shutdown_event would be set before the turns have ended
        )
        self._reader = reader
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._reader.writer = scope.get(WRITER_KEY) or _SendingWriter(send)
        with self._reader.feed.subscribe(self._reader.wakeup):
            self._readers.add(self._reader)
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._readers.discard(self._reader)


class _SendingWriter:
    """The writer for a server whose connections have none."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def is_closing(self) -> bool:
        return False
