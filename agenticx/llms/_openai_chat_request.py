"""A `ModelRequest` as the JSON body of a Chat Completions request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, assert_never

from pydantic import ConfigDict
from pydantic_core import PydanticSerializationError, from_json, to_json

from agenticx.llms._attachments import DOCUMENTS, IMAGES, data_url, message_pieces
from agenticx.llms._openai_chat_reply import REASONING_FIELDS, WIRE
from agenticx.llms._strict_schema import strict_schema
from agenticx.llms._values import items_in, text_in
from agenticx.llms.base import ModelRequest, OutputSchema, ToolSchema
from agenticx.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    clean_text,
)

__all__ = ["Dialect", "message_rows", "request_body", "tool_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Where a compatible server departs from what most of them take."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # models.toml has it as a table

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field for the output limit; OpenAI's reasoning models refuse the older name."""

    stream_options: bool = True
    """Whether usage is asked for with `stream_options`; Mistral refuses the field and sends usage anyway."""

    short_call_ids: bool = False
    """Whether call ids must be nine letters or digits (Mistral)."""

    returns_reasoning: bool = False
    """Whether reasoning that led to calls goes back with their results (DeepSeek and Moonshot refuse without)."""

    images: bool = True
    """Whether images may stand in a message; models that do not see refuse."""

    files: bool = False
    """Whether PDFs may stand in a message (OpenAI, OpenRouter)."""

    output_schemas: bool = False
    """Whether an answer can be held to a schema; many servers refuse, or take it and do not call tools any more."""


def request_body(request: ModelRequest, *, model: str, dialect: Dialect, stream: bool) -> bytes:
    """The body, UTF-8; lone surrogates in it become U+FFFD."""
    body: dict[str, Any] = {
        "model": model,
        "messages": message_rows(request.messages, model=model, dialect=dialect),
        "stream": stream,
    }
    if stream and dialect.stream_options:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = tool_rows(request.tools)
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
    if request.max_output_tokens is not None:
        body[dialect.output_limit] = request.max_output_tokens
    if request.output_schema is not None and dialect.output_schemas:
        body["response_format"] = _response_format(request.output_schema)
    try:
        return to_json(body, inf_nan_mode="null")
    except PydanticSerializationError:
        return clean_text(json.dumps(body, ensure_ascii=False, default=str)).encode()


def _response_format(output: OutputSchema) -> dict[str, Any]:
    strict = strict_schema(output.schema)
    schema = dict(output.schema) if strict is None else strict
    return {
        "type": "json_schema",
        "json_schema": {"name": output.name, "schema": schema, "strict": strict is not None},
    }


def message_rows(messages: Sequence[Message], *, model: str, dialect: Dialect) -> list[dict[str, Any]]:
    """The messages as Chat Completions has them."""
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


def _row(message: Message, model: str, dialect: Dialect) -> dict[str, Any]:
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


def _user_content(message: UserMessage, dialect: Dialect) -> str | list[dict[str, Any]]:
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


def _assistant_row(message: AssistantMessage, model: str, dialect: Dialect) -> dict[str, Any]:
    row: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        row["content"] = message.content or None
        row["tool_calls"] = [_call(call, dialect) for call in message.tool_calls]
    state = message.provider_state
    if dialect.returns_reasoning and state and (state.wire, state.model) == (WIRE, model):
        if details := items_in(state.payload, "details"):
            row["reasoning_details"] = details
        elif (field := text_in(state.payload, "field")) in REASONING_FIELDS:
            row[field] = message.reasoning
    return row


def _call(call: ToolCall, dialect: Dialect) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": _call_id(call.id, dialect), "type": "function", "function": function}


def _arguments(text: str) -> str:
    """The arguments as the model wrote them, if a server will take them: several parse them and refuse the request."""
    try:
        if isinstance(from_json(text, allow_inf_nan=False), dict):
            return text
    except ValueError:
        pass
    return json.dumps({"malformed_arguments": text}) if text.strip() else "{}"


def _call_id(call_id: str, dialect: Dialect) -> str:
    if not dialect.short_call_ids or re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
