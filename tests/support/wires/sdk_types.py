"""Checks of requests against the request types of the providers' own SDKs, made strict.

A TypedDict lets unknown fields pass and leaves iterables unread; here both are checked. Fields that only other servers
of a wire know are taken out first, each with its reason. Without the SDK (extra `oracles`) nothing is checked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

__all__ = ["PACKAGES", "check_on_request", "found_beside_rules", "needs_sdk", "type_errors"]

PACKAGES = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google.genai",
}
"""The SDK of each wire that has one."""

_FOREIGN_FIELDS = {"reasoning_details", "reasoning_content", "reasoning"}
"""Fields of an assistant message in Chat Completions that OpenRouter, DeepSeek and vLLM require; OpenAI has none."""

_OLDER_FIELDS = {"temperature", "top_p"}
"""Fields of version 2023-06-01 of the Messages API, which is the one we use; the SDK's own version has none."""

Check = Callable[[Any], None]

_on_request = False


def check_on_request() -> None:
    """Let only `type_errors` check from now on, since the SDKs take a worker several seconds to import."""
    global _on_request
    _on_request = True


def found_beside_rules(wire: str, body: dict[str, Any]) -> list[str]:
    """Return what `type_errors` does, or nothing after `check_on_request`."""
    return [] if _on_request else type_errors(wire, body)


def needs_sdk(wire: str) -> pytest.MarkDecorator:
    """Skip a test, with the reason, if the SDK of this wire is not installed."""
    package = PACKAGES[wire]
    return pytest.mark.skipif(
        not _is_installed(wire), reason=f"the {package} package (extra 'oracles') is not installed"
    )


def type_errors(wire: str, body: dict[str, Any]) -> list[str]:
    """Return the errors that the SDK's types find in this request; empty if they accept it or there is no SDK."""
    check = _check(wire)
    if check is None:
        return []
    try:
        check(_without_foreign_fields(wire, body))
    except ValidationError as exc:
        return [f"the SDK's types: {error['loc']}: {error['msg']}" for error in exc.errors(include_url=False)[:5]]
    return []


def _without_foreign_fields(wire: str, body: dict[str, Any]) -> dict[str, Any]:
    if wire == "anthropic":
        return {name: value for name, value in body.items() if name not in _OLDER_FIELDS}
    if wire != "openai_chat":
        return body
    rows = [{name: row[name] for name in row if name not in _FOREIGN_FIELDS} for row in body["messages"]]
    return {**body, "messages": rows}


def _is_installed(wire: str) -> bool:
    package = PACKAGES.get(wire)
    if package is None or find_spec(package.partition(".")[0]) is None:
        return False
    return find_spec(package) is not None


@cache
def _check(wire: str) -> Check | None:
    if not _is_installed(wire):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by imports of the SDKs
        return _CHECKS[wire]()


def _openai_chat() -> Check:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    return _strict(CompletionCreateParamsStreaming)


def _openai_responses() -> Check:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    return _strict(ResponseCreateParamsStreaming)


def _anthropic() -> Check:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return _strict(MessageCreateParamsStreaming)


def _gemini() -> Check:
    """Build the check of a Gemini request.

    Google's SDK has no type for the whole body, only for its parts; those forbid unknown fields.
    """
    from google.genai import types

    class Body(BaseModel, extra="forbid"):
        contents: list[types.Content]
        systemInstruction: types.Content | None = None
        tools: list[types.Tool] | None = None
        toolConfig: types.ToolConfig | None = None
        generationConfig: types.GenerationConfig | None = None

    return lambda body: Body.model_validate_json(json.dumps(body), strict=True)


_CHECKS = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def _strict(type_: Any) -> Check:
    validator = SchemaValidator(_closed(TypeAdapter(type_).core_schema))
    return lambda body: validator.validate_json(json.dumps(body), strict=True)


def _closed(schema: Any) -> Any:
    """Return a core schema whose objects forbid unknown fields and whose iterables are lists with checked items."""
    if isinstance(schema, list | tuple):
        return type(schema)(_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    match closed.get("type"):
        case "typed-dict" | "model-fields":
            closed["extra_behavior"] = "forbid"
        case "generator":
            closed["type"] = "list"
        case "model":  # only its fields: the model's own settings would decide how the model itself is validated
            return closed["schema"] | ({"ref": closed["ref"]} if "ref" in closed else {})
    return closed
