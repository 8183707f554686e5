"""Every answer goes out piece by piece, and a client that takes none of it is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agenticx.alarms import ResettableTimer

__all__ = ["ABORT", "GONE", "PIECE_BYTES", "STALLED_SECONDS", "Piecewise"]

ABORT = "agenticx.abort"
"""The key in the ASGI scope under which the server puts a callable that drops the connection at once."""

GONE = "agenticx.gone"
"""The key of a callable that tells whether the connection was dropped: what is sent from then on goes nowhere."""

PIECE_BYTES = 64 * 1024
STALLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Piecewise:
    """ASGI middleware that writes a large body in pieces, each once the socket has drained the one before.

    Framing and buffering copy what is written, and a copy of a piece is all that a client which stopped reading may
    cost; after `stalled_seconds` its connection is aborted. No other message falls in between the pieces of one.
    """

    app: ASGIApp
    stalled_seconds: float = STALLED_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if (abort := scope.get(ABORT)) is None:
            return await self.app(scope, receive, _in_pieces(send))
        impatient = _Impatient(send, abort, self.stalled_seconds)
        try:
            await self.app(scope, receive, _in_pieces(impatient))
        finally:
            impatient.close()


class _Impatient:
    """Sends one message after the other, and aborts the connection if one of them is not taken within `seconds`."""

    def __init__(self, send: Send, abort: Callable[[], None], seconds: float) -> None:
        self._send = send
        self._abort = abort
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        self._alarm = ResettableTimer(self._look)

    async def __call__(self, message: Message) -> None:
        self._until = self._loop.time() + self._seconds
        self._alarm.set(self._until)
        try:
            await self._send(message)
        finally:
            self._until = None

    def close(self) -> None:
        self._alarm.cancel()

    def _look(self) -> None:
        if self._until is None:
            return
        if self._loop.time() < self._until:
            self._alarm.set(self._until)
        else:
            self._abort()


def _in_pieces(send: Send) -> Send:
    whole = asyncio.Lock()

    async def sending(message: Message) -> None:
        async with whole:
            for piece in _pieces(message):
                await send(piece)

    return sending


def _pieces(message: Message) -> Iterator[Message]:
    body: bytes = message.get("body", b"")
    last = max(len(body) - 1, 0) // PIECE_BYTES * PIECE_BYTES
    for start in range(0, last, PIECE_BYTES):
        yield {**message, "body": body[start : start + PIECE_BYTES], "more_body": True}
    yield message if last == 0 else {**message, "body": body[last:]}
