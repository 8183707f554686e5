"""Messages and tools as Chat Completions has them, for its servers and for models that take them the same way."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, assert_never

from agenticx.llms._attachments import DOCUMENTS, IMAGES, data_url, message_pieces
from agenticx.llms._bodies import arguments_text
from agenticx.llms._values import items_in, text_in
from agenticx.llms.base import ToolSchema
from agenticx.llms.chat_dialect import ChatDialect
from agenticx.llms.openai_chat._reply import REASONING_FIELDS, WIRE
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["message_rows", "tool_rows"]

_NOT_KNOWN = "(not known)"
"""The reasoning of an answer that came without; Moonshot takes an empty one for a missing one."""


def message_rows(messages: Sequence[Message], *, model: str | None, dialect: ChatDialect) -> list[dict[str, Any]]:
    """The messages as Chat Completions has them; `model` gets its own reasoning back."""
    return [_row(message, model, dialect) for message in messages]


def tool_rows(tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """The tools as Chat Completions has them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def _row(message: Message, model: str | None, dialect: ChatDialect) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.content}
        case UserMessage():
            return {"role": "user", "content": _user_content(message, dialect)}
        case ToolMessage():
            call_id = _call_id(message.tool_call_id, dialect)
            return {"role": "tool", "tool_call_id": call_id, "content": message.content}
        case AssistantMessage():
            return _assistant_row(message, model, dialect)
        case _:
            assert_never(message)


def _user_content(message: UserMessage, dialect: ChatDialect) -> str | list[dict[str, Any]]:
    if not message.attachments:
        return message.content
    taken = [*(IMAGES if dialect.images else ()), *(DOCUMENTS if dialect.files else ())]
    return [_part(piece) for piece in message_pieces(message, taken)]


def _part(piece: str | Attachment) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if piece.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(piece)}}
    return {"type": "file", "file": {"filename": piece.name, "file_data": data_url(piece)}}


def _assistant_row(message: AssistantMessage, model: str | None, dialect: ChatDialect) -> dict[str, Any]:
    row: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        row["content"] = message.content or None
        row["tool_calls"] = [_call(call, dialect) for call in message.tool_calls]
    own = _reasoning(message, model) if dialect.returns_reasoning else {}
    if dialect.needs_reasoning and not own.get("reasoning_content"):
        own["reasoning_content"] = message.reasoning if own and message.reasoning else _NOT_KNOWN
    return row | own


def _reasoning(message: AssistantMessage, model: str | None) -> dict[str, Any]:
    """What this very model thought, in the field that it came in."""
    state = message.provider_state
    if state is None or (state.wire, state.model) != (WIRE, model):
        return {}
    if details := items_in(state.payload, "details"):
        return {"reasoning_details": details}
    field = text_in(state.payload, "field")
    return {field: message.reasoning} if field in REASONING_FIELDS else {}


def _call(call: ToolCall, dialect: ChatDialect) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": _call_id(call.id, dialect), "type": "function", "function": function}


def _call_id(call_id: str, dialect: ChatDialect) -> str:
    if not dialect.short_call_ids or re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
