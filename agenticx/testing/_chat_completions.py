"""The Chat Completions format of the fake provider: replies as chunks, or as one object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agenticx.llms.base import (
    Attempt,
    Delta,
    Finished,
    Reply,
    StopKind,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)

__all__ = ["ChunkEncoder", "completion", "event"]

_FINISH_REASONS: dict[StopKind, str] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "broken": "other",
    "failed": "error",
}


class ChunkEncoder:
    """An encoder of deltas as `chat.completion.chunk` events; usage follows the finish reason, as with OpenAI."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage: Usage | None = None
        self._first: dict[str, Any] = {"role": "assistant"}

    def encode(self, delta: Delta) -> bytes:
        match delta:
            case TextDelta():
                return self._chunk({"content": delta.text})
            case ThinkingDelta():
                return self._chunk({"reasoning_content": delta.text})
            case ToolCallDelta():
                return self._chunk({"tool_calls": [_call_delta(delta)]})
            case UsageDelta():
                self._usage = delta.usage
                return b""
            case Attempt():
                return b""  # made by the client, never sent by a provider
            case Finished():
                return b"".join((*self._end(delta), b"data: [DONE]\n\n"))

    def _chunk(self, fields: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {**self._first, **fields}, "finish_reason": finish_reason}
        self._first = {}
        return event(_envelope(self._model, "chat.completion.chunk", [choice]))

    def _end(self, finished: Finished) -> Iterator[bytes]:
        yield self._chunk({}, _FINISH_REASONS[finished.stop])
        if self._usage is not None:
            yield event({**_envelope(self._model, "chat.completion.chunk", []), "usage": _usage(self._usage)})


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    opening = {"id": delta.id, "type": "function"} if delta.id or delta.name else {}
    name = {"name": delta.name} if delta.name else {}
    return {"index": delta.index, **opening, "function": {**name, "arguments": delta.arguments}}


def completion(model: str, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
    finish_reason = _FINISH_REASONS[reply.stop] if reply.complete else None
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {**_envelope(model, "chat.completion", [choice]), "usage": _usage(reply.usage)}


def _envelope(model: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-fake", "object": kind, "created": 0, "model": model, "choices": choices}


def _usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counts


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
