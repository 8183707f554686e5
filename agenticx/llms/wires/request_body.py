"""Helpers for the request bodies of all wires: arguments of earlier calls, tools, and JSON encoding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from agenticx.llms.base import ToolSchema
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.reply_limits import MAX_VALUES
from agenticx.messages import clean_text
from agenticx.strict_json import find_excess

__all__ = ["arguments_object", "arguments_text", "body_bytes", "encode_tools"]

_MAX_DEPTH = 200  # of the parser


def arguments_object(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object, for servers that accept nothing else.

    Text that is no JSON object becomes the value of `malformed_arguments`.
    """
    try:
        value = _parse(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"malformed_arguments": text} if text.strip() else {}


def arguments_text(text: str) -> str:
    """Return a call's arguments as the model wrote them if they are a JSON object, else wrapped in one.

    Several servers parse the arguments of earlier calls and refuse invalid ones.
    """
    try:
        if isinstance(_parse(text), dict):
            return text
    except ValueError:
        pass
    return json.dumps({"malformed_arguments": text}) if text.strip() else "{}"


def _parse(text: str) -> Any:
    """Return the value of `text`; raise `ValueError` for invalid JSON, or more than `parse_arguments` accepts."""
    if (excess := find_excess(text, max_depth=_MAX_DEPTH, max_values=MAX_VALUES)) is not None:
        raise ValueError(excess)
    return from_json(text, allow_inf_nan=False)


def encode_tools(tools: Sequence[ToolSchema], names: ToolNames) -> list[dict[str, Any]]:
    """Return the tools in the format of Chat Completions and Ollama."""
    return [
        {
            "type": "function",
            "function": {
                "name": names.sent_name(tool.name),
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def body_bytes(body: dict[str, Any]) -> bytes:
    """Return the body as UTF-8; lone surrogates become U+FFFD, numbers that JSON does not have become null."""
    try:
        return to_json(body, inf_nan_mode="null")
    except PydanticSerializationError:
        return clean_text(json.dumps(body, ensure_ascii=False, default=str)).encode()
