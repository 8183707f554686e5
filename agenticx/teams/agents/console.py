"""Printing of a run."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TypeVar

from agenticx.errors import AgenticXError
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    Response,
    TaskResult,
)

__all__ = ["Console"]

ResultT = TypeVar("ResultT", TaskResult, Response)


async def Console(stream: AsyncIterator[BaseAgentEvent | BaseChatMessage | ResultT]) -> ResultT:
    """Print the messages of `run_stream` or `on_messages_stream` to stdout and return the last result."""
    last: ResultT | None = None
    streamed: str | None = None
    async for item in stream:
        if isinstance(item, ModelClientStreamingChunkEvent):
            _write("" if streamed else _heading(item), item.content)
            streamed = item.full_message_id or item.source
            continue
        message = item.chat_message if isinstance(item, Response) else item
        if isinstance(message, TaskResult):
            last = item  # pyright: ignore[reportAssignmentType]
            continue
        if isinstance(item, Response):
            last = item
        if streamed:
            _write("\n")
        if streamed not in {message.id, message.source}:
            _write(_heading(message), message.to_text(), "\n")
        streamed = None
    if last is None:
        raise AgenticXError("the stream had no TaskResult or Response")
    return last


def _heading(message: BaseAgentEvent | BaseChatMessage) -> str:
    return f"---------- {type(message).__name__} ({message.source}) ----------\n"


def _write(*texts: str) -> None:
    sys.stdout.write("".join(texts))
    sys.stdout.flush()
