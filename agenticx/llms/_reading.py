"""The loop that all wires share: reads of the socket go into a parser, batches of deltas come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from agenticx.errors import ModelError
from agenticx.llms._http import Answer
from agenticx.llms._json_events import malformed
from agenticx.llms.base import Delta, Finished, TextDelta, ThinkingDelta, ToolCallDelta
from agenticx.threads import run_sized

__all__ = ["ReplyParser", "read_reply"]

_DRAIN_SECONDS = 0.1
"""How long the end of the body may lag behind the end marker before the connection is given up."""

_ANSWER = (TextDelta, ThinkingDelta, ToolCallDelta)


class ReplyParser(Protocol):
    """A wire's parser. After each call `error` is to be raised and `done` means that nothing more is wanted.

    `finishing` means that the reply is whole already, although something that belongs to it may follow. `held` is the
    size of an event that has begun: a large one is parsed off the event loop.
    """

    error: ModelError | None
    done: bool

    @property
    def finishing(self) -> bool: ...

    @property
    def held(self) -> int: ...

    def feed(self, data: bytes, /) -> list[Delta]: ...

    def end(self) -> list[Delta]: ...


async def read_reply(
    ask: Callable[[], Awaitable[Answer]],
    parser: ReplyParser,
    *,
    who: str,
    told: Callable[[ModelError], ModelError],
    tail_seconds: float | None = None,
) -> AsyncGenerator[Sequence[Delta], None]:
    """The reply to what `ask` sends, read by read. Closing the iterator closes the socket.

    Once it is whole, what may follow it is waited for `tail_seconds`, anew only where that goes on with the answer, and
    a broken connection is its end too, behind which no calls run. `told` makes of an error in it what people may see.
    """
    answer = await ask()
    tail = _Tail(answer, tail_seconds)
    try:
        _check(answer, who)
        while not parser.done:
            data = await (tail.next_bytes() if parser.finishing else answer.next_bytes())
            batch = await _parsed(parser, data)
            if tail.broke:
                batch = [_without_calls(delta) for delta in batch]
            if any(isinstance(delta, _ANSWER) for delta in batch):
                tail.begin()
            if batch:
                yield batch
            if parser.error:
                raise told(parser.error)
            if data is None:
                return
        await _drain(answer)
    finally:
        await answer.aclose()


async def _parsed(parser: ReplyParser, data: bytes | None) -> list[Delta]:
    """Feed a read to the parser, or the end of the body."""
    if data is None:
        return await run_sized(parser.end, size=parser.held, name="agx parsing")
    return await run_sized(parser.feed, data, size=parser.held + len(data), name="agx parsing")


def _check(answer: Answer, who: str) -> None:
    if answer.is_compressed:
        raise malformed("it is compressed, which it was asked not to be", who=who)
    if answer.content_type == "text/html":
        raise malformed("it is a web page; is the base URL right?", who=who)


class _Tail:
    """What comes behind a reply that is whole; `broke` says that the connection was cut instead of closed."""

    def __init__(self, answer: Answer, seconds: float | None) -> None:
        self.broke = False
        self._answer = answer
        self._seconds = seconds
        self._until: float | None = None

    def begin(self) -> None:
        """From now on it is waited for."""
        self._until = None

    async def next_bytes(self) -> bytes | None:
        now = asyncio.get_running_loop().time()
        if self._until is None and self._seconds is not None:
            self._until = now + self._seconds
        if self._until is not None and now >= self._until:
            return None
        try:
            async with asyncio.timeout_at(self._until):
                return await self._answer.next_bytes()
        except TimeoutError:
            return None
        except ModelError:
            self.broke = True
            return None


def _without_calls(delta: Delta) -> Delta:
    broke_off = isinstance(delta, Finished) and delta.stop == "tool_calls"
    return replace(delta, stop="broken") if broke_off else delta


async def _drain(answer: Answer) -> None:
    """Read to the end of the body, so that the connection can serve the next call."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await answer.next_bytes() is not None:
                pass
    except (TimeoutError, ModelError):
        return
