"""What the bodies of all wires have in common: the arguments of earlier calls, and the JSON that is posted."""

from __future__ import annotations

import json
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from agenticx.messages import clean_text

__all__ = ["arguments_object", "arguments_text", "body_bytes"]


def arguments_object(text: str) -> dict[str, Any]:
    """A call's arguments as an object, for servers that take nothing else; what is none goes as text in one."""
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"malformed_arguments": text} if text.strip() else {}


def arguments_text(text: str) -> str:
    """A call's arguments as the model wrote them, if a server will take them: several parse and refuse them."""
    try:
        if isinstance(from_json(text, allow_inf_nan=False), dict):
            return text
    except ValueError:
        pass
    return json.dumps({"malformed_arguments": text}) if text.strip() else "{}"


def body_bytes(body: dict[str, Any]) -> bytes:
    """The body, UTF-8; lone surrogates in it become U+FFFD, numbers that JSON does not have null."""
    try:
        return to_json(body, inf_nan_mode="null")
    except PydanticSerializationError:
        return clean_text(json.dumps(body, ensure_ascii=False, default=str)).encode()
