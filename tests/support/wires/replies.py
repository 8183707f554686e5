"""Response bodies made of events, and replies parsed from them without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Delta, Reply, ReplyBuilder
from agenticx.llms.wires.reply_reader import ReplyParser

__all__ = ["deltas_of", "parse_reply", "sse"]


def sse(*events: Any, end: str = "\n\n") -> bytes:
    """Return a stream of these events; strings are included unchanged."""
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return "".join(f"data: {text}{end}" for text in texts).encode()


def deltas_of(parser: ReplyParser, chunks: Iterable[bytes]) -> Iterator[Delta]:
    """Yield the deltas of a body that arrives in these chunks and ends cleanly."""
    for chunk in chunks:
        yield from parser.feed(chunk)
        if parser.done or parser.error:
            return
    yield from parser.end()


def parse_reply(parser: ReplyParser, chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in such a body, and the error that ended it, else None."""
    builder = ReplyBuilder()
    for delta in deltas_of(parser, chunks):
        builder.add(delta)
    return builder.reply(), parser.error
