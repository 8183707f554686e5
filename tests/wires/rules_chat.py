"""The rules of Chat Completions for a request as a strict server has them, apart from the code that builds it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["violations"]

_TOP = {"model", "messages", "stream", "stream_options", "max_tokens", "response_format"}
_WITH_TOOLS = {"tools", "tool_choice", "parallel_tool_calls"}
_FIELDS = {
    "system": {"content"},
    "user": {"content"},
    "assistant": {"content", "tool_calls", "reasoning_details", "reasoning_content", "reasoning"},
    "tool": {"content", "tool_call_id"},
}


def violations(body: dict[str, Any]) -> list[str]:
    """What a strict server has against this request; empty if it takes it."""
    found = [f"unknown parameter {name!r}" for name in body.keys() - _TOP - _WITH_TOOLS]
    if not body.get("tools"):
        found += [f"{name!r} without tools" for name in body.keys() & _WITH_TOOLS]
    awaited: list[str] = []
    for place, row in enumerate(body["messages"]):
        if row["role"] not in _FIELDS:
            found.append(f"message {place}: the role {row['role']!r}")
            continue
        found += [f"message {place}: {fault}" for fault in _row(row)]
        if row["role"] == "tool":
            if not awaited or row["tool_call_id"] != awaited.pop(0):
                found.append(f"message {place}: the result of {row['tool_call_id']!r} is not awaited")
            continue
        if awaited:
            found.append(f"message {place}: the results of {awaited} are missing")
        awaited = [call["id"] for call in row.get("tool_calls", ())]
    return [*found, *([f"the results of {awaited} are missing"] if awaited else [])]


def _row(row: dict[str, Any]) -> list[str]:
    found = [f"unknown field {name!r}" for name in row.keys() - _FIELDS[row["role"]] - {"role"}]
    calls = row.get("tool_calls")
    if row["content"] is None and not calls:
        found.append("no content")
    if row["role"] == "assistant" and not row["content"] and not calls:
        found.append("an answer that says nothing")
    if calls is None:
        return found
    ids = [call["id"] for call in calls]
    if not calls or "" in ids or len(set(ids)) < len(ids):
        found.append(f"call ids {ids} cannot be told apart")
    for call in calls:
        if call.keys() != {"id", "type", "function"} or call["function"].keys() != {"name", "arguments"}:
            found.append(f"a malformed call {call}")
        elif not call["function"]["name"]:
            found.append("a call without a name")
        elif not _is_object(call["function"]["arguments"]):
            found.append(f"arguments that are no object: {call['function']['arguments']!r}")
    return found


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except ValueError:
        return False


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
