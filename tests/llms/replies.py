"""How tests read a reply without a network: bodies made of events, and what a parser makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._reading import ReplyParser
from agenticx.llms.base import Delta, Reply, ReplyBuilder

__all__ = ["deltas_of", "read_with", "sse"]


def sse(*events: Any, end: str = "\n\n") -> bytes:
    """A stream of these events; those that are strings stand in it as they are."""
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return "".join(f"data: {text}{end}" for text in texts).encode()


def deltas_of(parser: ReplyParser, chunks: Iterable[bytes]) -> Iterator[Delta]:
    """All that comes out of a body that comes in these pieces and ends cleanly."""
    for chunk in chunks:
        yield from parser.feed(chunk)
        if parser.done or parser.error:
            return
    yield from parser.end()


def read_with(parser: ReplyParser, chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """The reply in such a body, and the error that ended it."""
    builder = ReplyBuilder()
    for delta in deltas_of(parser, chunks):
        builder.add(delta)
    return builder.reply(), parser.error
