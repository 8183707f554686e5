"""The reading loop of all wires: socket reads are fed to a parser that returns batches of deltas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from agenticx.errors import ModelError
from agenticx.llms.base import Delta, Finished, TextDelta, ThinkingDelta, ToolCallDelta
from agenticx.llms.transport.http import ProviderResponse
from agenticx.llms.wires.json_events import malformed_reply
from agenticx.threads import run_sized

__all__ = ["ReplyParser", "read_reply"]

_DRAIN_SECONDS = 0.1
"""Seconds to wait for the end of the body after the end marker before the connection is dropped."""

_ANSWER_DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)


class ReplyParser(Protocol):
    """A wire's parser. After each call the caller raises `error`, and stops reading if `done`.

    `finishing` means that the reply is complete already, although more that belongs to it may follow. `buffered_bytes`
    is the size of an incomplete event: a large one is parsed off the event loop.
    """

    error: ModelError | None
    done: bool

    @property
    def finishing(self) -> bool: ...

    @property
    def buffered_bytes(self) -> int: ...

    def feed(self, data: bytes, /) -> list[Delta]: ...

    def end(self) -> list[Delta]: ...


async def read_reply(
    send: Callable[[], Awaitable[ProviderResponse]],
    new_parser: Callable[[], ReplyParser],
    *,
    label: str,
    redact: Callable[[ModelError], ModelError],
    try_downgrade: Callable[[ModelError], bool],
    tail_seconds: float | None = None,
) -> AsyncGenerator[Sequence[Delta], None]:
    """Yield the reply to the request made by `send`, one batch per socket read. Closing the iterator closes the socket.

    Once the reply is complete, its trailing events are awaited for `tail_seconds`; the time starts again only if more
    of the answer arrives. A broken connection ends such a reply too, but then its calls are not run. `redact` removes
    secrets from an error in the reply. A reply that is nothing but an error is requested again if `try_downgrade`
    returns True for the error.
    """
    has_begun = False
    while True:
        response, parser = await send(), new_parser()
        tail = _Tail(response, tail_seconds)
        try:
            _check_response(response, label)
            while not parser.done:
                data = await (tail.next_bytes() if parser.finishing else response.next_bytes())
                batch = await _parse(parser, data)
                if tail.connection_lost:
                    batch = [_as_broken(delta) for delta in batch]
                if any(isinstance(delta, _ANSWER_DELTAS) for delta in batch):
                    tail.restart()
                if batch:
                    has_begun = True
                    yield batch
                if parser.error:
                    error = redact(parser.error)
                    if has_begun or not try_downgrade(error):
                        raise error
                    break
                if data is None:
                    return
            else:
                await _drain(response)
                return
        finally:
            await response.aclose()


async def _parse(parser: ReplyParser, data: bytes | None) -> list[Delta]:
    """Feed the bytes of one read to the parser; None is the end of the body."""
    if data is None:
        return await run_sized(parser.end, size=parser.buffered_bytes, name="agx parsing")
    return await run_sized(parser.feed, data, size=parser.buffered_bytes + len(data), name="agx parsing")


def _check_response(response: ProviderResponse, label: str) -> None:
    if response.is_compressed:
        raise malformed_reply("it is compressed although the request forbids it", label=label)
    if response.content_type == "text/html":
        raise malformed_reply("it is a web page; is the base URL right?", label=label)


class _Tail:
    """The reads after a complete reply; `connection_lost` is true if the connection broke instead of being closed."""

    def __init__(self, response: ProviderResponse, seconds: float | None) -> None:
        self.connection_lost = False
        self._response = response
        self._seconds = seconds
        self._deadline: float | None = None

    def restart(self) -> None:
        """Start the time for trailing events again, at the next read."""
        self._deadline = None

    async def next_bytes(self) -> bytes | None:
        now = asyncio.get_running_loop().time()
        if self._deadline is None and self._seconds is not None:
            self._deadline = now + self._seconds
        if self._deadline is not None and now >= self._deadline:
            return None
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._response.next_bytes()
        except TimeoutError:
            return None
        except ModelError:
            self.connection_lost = True
            return None


def _as_broken(delta: Delta) -> Delta:
    broke_off = isinstance(delta, Finished) and delta.stop == "tool_calls"
    return replace(delta, stop="broken") if broke_off else delta


async def _drain(response: ProviderResponse) -> None:
    """Read to the end of the body, so that the connection can serve the next call."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await response.next_bytes() is not None:
                pass
    except (TimeoutError, ModelError):
        return
