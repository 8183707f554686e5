"""The loop that all wires share: reads of the socket go into a parser, batches of deltas come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

from agenticx.errors import ModelError
from agenticx.llms._http import Answer
from agenticx.llms._json_events import malformed
from agenticx.llms.base import Delta

__all__ = ["ReplyParser", "read_reply"]

_DRAIN_SECONDS = 0.1
"""How long the end of the body may lag behind the end marker before the connection is given up."""


class ReplyParser(Protocol):
    """A wire's parser. After each call `error` is to be raised and `done` means that nothing more is wanted."""

    error: ModelError | None
    done: bool

    def feed(self, data: bytes, /) -> list[Delta]: ...

    def end(self) -> list[Delta]: ...


async def read_reply(
    ask: Callable[[], Awaitable[Answer]],
    parser: ReplyParser,
    *,
    who: str,
    next_bytes: Callable[[Answer], Awaitable[bytes | None]] = Answer.next_bytes,
) -> AsyncGenerator[Sequence[Delta], None]:
    """The reply to what `ask` sends, read by read with `next_bytes`. Closing the iterator closes the socket."""
    answer = await ask()
    try:
        _check(answer, who)
        while not parser.done:
            data = await next_bytes(answer)
            batch = parser.end() if data is None else parser.feed(data)
            if batch:
                yield batch
            if parser.error:
                raise parser.error
            if data is None:
                return
        await _drain(answer)
    finally:
        await answer.aclose()


def _check(answer: Answer, who: str) -> None:
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise malformed("it is compressed, which it was asked not to be", who=who)
    if answer.content_type == "text/html":
        raise malformed("it is a web page; is the base URL right?", who=who)


async def _drain(answer: Answer) -> None:
    """Read to the end of the body, so that the connection can serve the next call."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await answer.next_bytes() is not None:
                pass
    except (TimeoutError, ModelError):
        return
