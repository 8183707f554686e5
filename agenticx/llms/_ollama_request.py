"""A `ModelRequest` as the JSON body of an Ollama `/api/chat` request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from agenticx.llms._ollama_reply import WIRE
from agenticx.llms.base import ModelRequest, ToolSchema
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage, clean_text

__all__ = ["message_rows", "request_body", "tool_rows"]


def request_body(request: ModelRequest, *, model: str, context_window: int | None) -> bytes:
    """The body, UTF-8; lone surrogates in it become U+FFFD.

    The server cuts what does not fit its window, silently and from the front, so a known window is asked for. It has
    no word for a call that must be made; with `tool_choice` none it is not told of the tools.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": message_rows(request.messages, model=model),
        "stream": True,
    }
    if request.tools and request.tool_choice != "none":
        body["tools"] = tool_rows(request.tools)
    options = {"num_ctx": context_window, "num_predict": request.max_output_tokens}
    if known := {name: value for name, value in options.items() if value is not None}:
        body["options"] = known
    try:
        return to_json(body, inf_nan_mode="null")
    except PydanticSerializationError:
        return clean_text(json.dumps(body, ensure_ascii=False, default=str)).encode()


def message_rows(messages: Sequence[Message], *, model: str) -> list[dict[str, Any]]:
    """The messages as Ollama has them; `model` gets its thoughts back."""
    return [_row(message, model) for message in messages]


def tool_rows(tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """The tools as Ollama has them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def _row(message: Message, model: str) -> dict[str, Any]:
    match message:
        case SystemMessage() | UserMessage():
            return {"role": message.role, "content": message.content}
        case ToolMessage():
            return {
                "role": "tool",
                "content": message.content,
                "tool_name": message.name,
                "tool_call_id": message.tool_call_id,
            }
        case AssistantMessage():
            return _assistant_row(message, model)
        case _:
            assert_never(message)


def _assistant_row(message: AssistantMessage, model: str) -> dict[str, Any]:
    row: dict[str, Any] = {"role": "assistant", "content": message.content}
    state = message.provider_state
    if state is not None and (state.wire, state.model) == (WIRE, model) and message.reasoning:
        row["thinking"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [_call(index, call) for index, call in enumerate(message.tool_calls)]
    return row


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": _arguments(call.arguments)}}


def _arguments(text: str) -> dict[str, Any]:
    """The arguments as an object, which is all that the server takes."""
    try:
        value = from_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"malformed_arguments": text} if text.strip() else {}
