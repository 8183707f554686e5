"""Responses written in chunks, with a time limit for each write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agenticx.timers import ResettableTimer

__all__ = ["ABORT_KEY", "CHUNK_BYTES", "IS_CLOSING_KEY", "WRITE_TIMEOUT_SECONDS", "WriteTimeoutMiddleware"]

ABORT_KEY = "agenticx.abort"
"""The key in the ASGI scope of a callable that aborts the connection at once."""

IS_CLOSING_KEY = "agenticx.is_closing"
"""The key in the ASGI scope of a callable that returns True once the connection is closing; later writes are lost."""

CHUNK_BYTES = 64 * 1024
WRITE_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WriteTimeoutMiddleware:
    """ASGI middleware that writes a large body in chunks, each after the socket has drained the previous one.

    Framing and buffering copy what is written; for a client that stopped reading only a copy of one chunk is in memory.
    When a write takes longer than `timeout_seconds`, the connection is aborted. The chunks of one message are written
    without another message in between.
    """

    app: ASGIApp
    timeout_seconds: float = WRITE_TIMEOUT_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if (abort := scope.get(ABORT_KEY)) is None:
            return await self.app(scope, receive, _send_in_chunks(send))
        timed_send = _TimedSend(send, abort, self.timeout_seconds)
        try:
            await self.app(scope, receive, _send_in_chunks(timed_send))
        finally:
            timed_send.close()


class _TimedSend:
    """An ASGI `send` that aborts the connection if a message is not written within `seconds`.

    One alarm serves all messages: it is not cancelled after each write, but set again if it fires before the deadline.
    """

    def __init__(self, send: Send, abort: Callable[[], None], seconds: float) -> None:
        self._send = send
        self._abort = abort
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._deadline: float | None = None
        self._alarm = ResettableTimer(self._check_deadline)

    async def __call__(self, message: Message) -> None:
        self._deadline = self._loop.time() + self._seconds
        self._alarm.set(self._deadline)
        try:
            await self._send(message)
        finally:
            self._deadline = None

    def close(self) -> None:
        self._alarm.cancel()

    def _check_deadline(self) -> None:
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._alarm.set(self._deadline)
        else:
            self._abort()


def _send_in_chunks(send: Send) -> Send:
    lock = asyncio.Lock()

    async def sending(message: Message) -> None:
        async with lock:
            for part in _split(message):
                await send(part)

    return sending


def _split(message: Message) -> Iterator[Message]:
    body: bytes = message.get("body", b"")
    last = max(len(body) - 1, 0) // CHUNK_BYTES * CHUNK_BYTES
    for start in range(0, last, CHUNK_BYTES):
        yield {**message, "body": body[start : start + CHUNK_BYTES], "more_body": True}
    yield message if last == 0 else {**message, "body": body[last:]}
