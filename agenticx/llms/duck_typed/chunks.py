"""Conversion of the output of duck-typed models to Chat Completions events.

Supported, as chunks and as complete replies: text; the dicts `{"type": "content", "text"}`, `{"type":
"tool_call_delta", …}` and `{"type": "done"}`; OpenAI responses and chunks, as dicts or SDK objects; objects with
`content` and `tool_calls` or `tool_call_chunks`.
"""

from __future__ import annotations

from typing import Any, cast

__all__ = ["chat_event"]

_TEXT_KINDS = frozenset({"content", "text", "token", "delta"})
_THINKING_KINDS = frozenset({"thinking", "reasoning"})
_KNOWN_FIELDS = ("content", "text", "tool_calls", "tool_call_chunks", "choices", "usage", "finish_reason", "error")
_CHUNK_FIELDS = ("content", "reasoning_content", "reasoning", "refusal", "thinking_blocks")
_PROVIDER_FIELDS = ("extra_content", "provider_specific_fields")
"""Fields of a call that LiteLLM and OpenAI's SDK pass on; the provider expects them back."""


def chat_event(chunk: object) -> dict[str, Any]:
    """Return a chunk of a reply, or a complete reply, as a Chat Completions event; `TypeError` for anything else."""
    if chunk is None or isinstance(chunk, str):
        return _event({"content": chunk})
    typed = _typed_event(chunk)
    if typed is not None:
        return typed
    if not any(_has(chunk, name) for name in _KNOWN_FIELDS):
        raise TypeError(f"unknown reply type {type(chunk).__name__}; it has none of {', '.join(_KNOWN_FIELDS)}")
    choices = _field(chunk, "choices")
    if not isinstance(choices, list | tuple):
        return _event(_delta(chunk), finish_reason=_field(chunk, "finish_reason")) | _usage(chunk)
    event: dict[str, Any] = {"choices": [_choice(choice) for choice in cast("list[object]", choices)]}
    if isinstance(error := _field(chunk, "error"), str | dict):
        event["error"] = error
    return event | _usage(chunk)


def _typed_event(chunk: object) -> dict[str, Any] | None:
    if not isinstance(chunk, dict):
        return None
    chunk = cast("dict[str, Any]", chunk)
    kind: object = chunk.get("type")
    if kind in _TEXT_KINDS:
        return _event({"content": _text(chunk)})
    if kind in _THINKING_KINDS:
        return _event({"reasoning": _text(chunk)})
    if kind in ("tool_call_delta", "tool_call"):
        return _event({"tool_calls": [_call(chunk)]})
    if kind == "done":
        return _event({}, finish_reason=_first_field(chunk, "finish_reason") or "stop") | _usage(chunk)
    if kind == "error":
        return {"error": _first_field(chunk, "error", "message", "text") or "no reason given"}
    return _usage(chunk) if kind == "usage" else None


def _text(chunk: object) -> str:
    text = _first_field(chunk, "text", "content", "delta")
    return text if isinstance(text, str) else ""


def _event(delta: dict[str, Any], *, finish_reason: object = None) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish_reason}]}


def _choice(choice: object) -> dict[str, Any]:
    message = _field(choice, "delta")
    message = _field(choice, "message") if message is None else message
    event = {"index": _field(choice, "index"), "finish_reason": _field(choice, "finish_reason")}
    return event | {"delta": {} if message is None else _delta(message)}


def _delta(message: object) -> dict[str, Any]:
    found = ((name, _field(message, name)) for name in _CHUNK_FIELDS)
    delta: dict[str, Any] = {name: value for name, value in found if isinstance(value, str | list)}
    if "content" not in delta and isinstance(text := _field(message, "text"), str):
        delta["content"] = text
    calls = _field(message, "tool_call_chunks") or _field(message, "tool_calls")
    if isinstance(calls, list | tuple):
        delta["tool_calls"] = [_call(call) for call in cast("list[object]", calls)]
    return delta


def _call(call: object) -> dict[str, Any]:
    function = _field(call, "function")
    function = call if function is None else function
    index = _first_field(call, "tool_index", "index")
    extra: dict[str, Any] = {name: value for name in _PROVIDER_FIELDS if isinstance(value := _field(call, name), dict)}
    return {
        **extra,
        "index": index if isinstance(index, int) else None,
        "id": _first_field(call, "tool_call_id", "id"),
        "function": {
            "name": _first_field(function, "tool_name", "name"),
            "arguments": _first_field(function, "arguments_delta", "arguments", "args"),
        },
    }


def _usage(chunk: object) -> dict[str, Any]:
    counts = _first_field(chunk, "usage", "usage_metadata", "token_usage")
    if counts is None:
        return {}
    usage = {
        "prompt_tokens": _first_field(counts, "prompt_tokens", "input_tokens"),
        "completion_tokens": _first_field(counts, "completion_tokens", "output_tokens"),
    }
    return {"usage": usage}


def _first_field(value: object, *names: str) -> Any:
    fields = (_field(value, name) for name in names)
    return next((field for field in fields if field is not None), None)


def _has(value: object, name: str) -> bool:
    return name in cast("dict[str, Any]", value) if isinstance(value, dict) else hasattr(value, name)


def _field(value: object, name: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(name)
    return getattr(value, name, None)
