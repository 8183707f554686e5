"""What duck-typed models say, in any of its shapes, as Chat Completions events.

Understood, as pieces and as whole replies: text; the dicts `{"type": "content", "text"}`, `{"type":
"tool_call_delta", …}` and `{"type": "done"}`; OpenAI responses and chunks, as dicts or SDK objects; objects with
`content` and `tool_calls` or `tool_call_chunks`.
"""

from __future__ import annotations

from typing import Any, cast

__all__ = ["chat_event"]

_TEXT_KINDS = frozenset({"content", "text", "token", "delta"})
_THINKING_KINDS = frozenset({"thinking", "reasoning"})
_KNOWN_FIELDS = ("content", "text", "tool_calls", "tool_call_chunks", "choices", "usage", "finish_reason", "error")
_CHUNK_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")


def chat_event(said: object) -> dict[str, Any]:
    """One piece, or the whole, of what a model said, as a Chat Completions event; `TypeError` for anything else."""
    if said is None or isinstance(said, str):
        return _event({"content": said})
    typed = _typed(said)
    if typed is not None:
        return typed
    if not any(_has(said, name) for name in _KNOWN_FIELDS):
        raise TypeError(f"a model cannot say {type(said).__name__}; it has none of {', '.join(_KNOWN_FIELDS)}")
    choices = _field(said, "choices")
    if not isinstance(choices, list | tuple):
        return _event(_delta(said), finish_reason=_field(said, "finish_reason")) | _usage(said)
    event: dict[str, Any] = {"choices": [_choice(choice) for choice in cast("list[object]", choices)]}
    if isinstance(error := _field(said, "error"), str | dict):
        event["error"] = error
    return event | _usage(said)


def _typed(piece: object) -> dict[str, Any] | None:
    if not isinstance(piece, dict):
        return None
    piece = cast("dict[str, Any]", piece)
    kind: object = piece.get("type")
    if kind in _TEXT_KINDS:
        return _event({"content": _text(piece)})
    if kind in _THINKING_KINDS:
        return _event({"reasoning": _text(piece)})
    if kind in ("tool_call_delta", "tool_call"):
        return _event({"tool_calls": [_call(piece)]})
    if kind == "done":
        return _event({}, finish_reason=_first(piece, "finish_reason") or "stop") | _usage(piece)
    if kind == "error":
        return {"error": _first(piece, "error", "message", "text") or "no reason given"}
    return _usage(piece) if kind == "usage" else None


def _text(piece: object) -> str:
    text = _first(piece, "text", "content", "delta")
    return text if isinstance(text, str) else ""


def _event(delta: dict[str, Any], *, finish_reason: object = None) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish_reason}]}


def _choice(choice: object) -> dict[str, Any]:
    said = _field(choice, "delta")
    said = _field(choice, "message") if said is None else said
    event = {"index": _field(choice, "index"), "finish_reason": _field(choice, "finish_reason")}
    return event | {"delta": {} if said is None else _delta(said)}


def _delta(said: object) -> dict[str, Any]:
    found = ((name, _field(said, name)) for name in _CHUNK_FIELDS)
    delta: dict[str, Any] = {name: value for name, value in found if isinstance(value, str | list)}
    if "content" not in delta and isinstance(text := _field(said, "text"), str):
        delta["content"] = text
    calls = _field(said, "tool_call_chunks") or _field(said, "tool_calls")
    if isinstance(calls, list | tuple):
        delta["tool_calls"] = [_call(call) for call in cast("list[object]", calls)]
    return delta


def _call(call: object) -> dict[str, Any]:
    function = _field(call, "function")
    function = call if function is None else function
    index = _first(call, "tool_index", "index")
    return {
        "index": index if isinstance(index, int) else None,
        "id": _first(call, "tool_call_id", "id"),
        "function": {
            "name": _first(function, "tool_name", "name"),
            "arguments": _first(function, "arguments_delta", "arguments", "args"),
        },
    }


def _usage(said: object) -> dict[str, Any]:
    counts = _first(said, "usage", "usage_metadata", "token_usage")
    if counts is None:
        return {}
    usage = {
        "prompt_tokens": _first(counts, "prompt_tokens", "input_tokens"),
        "completion_tokens": _first(counts, "completion_tokens", "output_tokens"),
    }
    return {"usage": usage}


def _first(said: object, *names: str) -> Any:
    return next((value for name in names if (value := _field(said, name)) is not None), None)


def _has(said: object, name: str) -> bool:
    return name in cast("dict[str, Any]", said) if isinstance(said, dict) else hasattr(said, name)


def _field(said: object, name: str) -> Any:
    if isinstance(said, dict):
        return cast("dict[str, Any]", said).get(name)
    return getattr(said, name, None)
