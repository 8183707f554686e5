"""Events of Anthropic streams, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from agenticx.llms.wires.anthropic._reply import AnthropicReplyParser
from tests.support.wires.replies import parse_reply


def read(chunks: Iterable[bytes], **options: Any) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return parse_reply(AnthropicReplyParser(label="test", model="m", **options), chunks)


def message_start(*content: Any, **usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"role": "assistant", "content": [*content], "usage": usage}}


def content_block(index: int, type_: str, *deltas: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a content block from its start to its end."""
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": type_, **fields}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_delta(words: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": words}


def thinking_delta(words: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": words}


def signature_delta(signature: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": signature}


def json_delta(json_text: Any) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": json_text}


def message_delta(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **({"usage": usage} if usage else {})}


def error_event(type_: str, message: str = "m") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "message": message}}


END = {"type": "message_stop"}
