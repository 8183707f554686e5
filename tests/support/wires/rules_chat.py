"""The request rules of a strict Chat Completions server, written apart from the code."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

__all__ = ["mistral_refusal", "mistral_violations", "template_refusal", "template_violations", "violations"]

_TOP = {"model", "messages", "stream", "stream_options", "max_tokens", "response_format"}
_TOP |= {"temperature", "top_p", "stop", "seed", "reasoning_effort"}
_WITH_TOOLS = {"tools", "tool_choice", "parallel_tool_calls"}
_FIELDS = {
    "system": {"content"},
    "user": {"content"},
    "assistant": {"content", "tool_calls", "reasoning_details", "reasoning_content", "reasoning"},
    "tool": {"content", "tool_call_id"},
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""OpenAI's limit, and the characters of its own ids; Kimi's own (`functions.NAME:0`) go back to Kimi alone."""


def violations(body: dict[str, Any]) -> list[str]:
    """Return the violations of this request that a strict server would refuse, empty if it accepts it."""
    found = [f"unknown parameter {name!r}" for name in body.keys() - _TOP - _WITH_TOOLS]
    if not body.get("tools"):
        found += [f"{name!r} without tools" for name in body.keys() & _WITH_TOOLS]
    found += _tools(body.get("tools", []))
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


# --- the order of roles


_AFTER = {
    "system": {"system", "user", "assistant"},
    "user": {"system", "user", "assistant"},
    "assistant": {"user", "assistant", "tool"},
    "tool": {"assistant", "tool"},
}
"""The roles that may follow each role, by Mistral's validator (`mistral_common`)."""


def mistral_refusal(body: dict[str, Any]) -> str | None:
    """Return the message with which Mistral's API refuses the order of the roles, None if it accepts it."""
    roles = [row["role"] for row in body["messages"]]
    for before, role in pairwise(roles):
        if role not in _AFTER[before]:
            return f"Unexpected role '{role}' after role '{before}'"
    if roles[-1:] not in (["user"], ["tool"]):
        return f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {roles[-1]}"
    return None


def template_refusal(body: dict[str, Any]) -> str | None:
    """Return the exception of the chat templates of Gemma 3 (without results) and Mistral, None if they accept."""
    rows = body["messages"][body["messages"][0]["role"] == "system" :]
    spoken = [row["role"] for row in rows if row["role"] != "tool" and not row.get("tool_calls")]
    expected = ["user", "assistant"] * len(spoken)
    if spoken != expected[: len(spoken)]:
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    return None


def mistral_violations(body: dict[str, Any]) -> list[str]:
    """Return the violations that Mistral's API would refuse: those of any strict server, ids, fields and roles."""
    fields = {**body, "seed": 0} if "random_seed" in body else dict(body)
    fields.pop("random_seed", None)
    found = [*violations(fields), *(["stream_options"] if "stream_options" in body else [])]
    ids = [call["id"] for row in body["messages"] for call in row.get("tool_calls", ())]
    found += [f"the call id {id_!r} does not fit" for id_ in ids if not re.fullmatch("[a-zA-Z0-9]{9}", id_)]
    return [*found, *filter(None, [mistral_refusal(body)])]


def template_violations(body: dict[str, Any]) -> list[str]:
    """Return the violations that a local server with a strict chat template would refuse."""
    return [*violations(body), *filter(None, [template_refusal(body)])]


# --- tools, rows and calls


def _tools(tools: list[dict[str, Any]]) -> list[str]:
    names = [tool["function"]["name"] for tool in tools]
    found = [f"tools[{place}]: the name {name!r} does not fit" for place, name in enumerate(names) if not _takes(name)]
    return [*found, *(["two tools of one name"] if len(set(names)) < len(names) else [])]


def _takes(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _row(row: dict[str, Any]) -> list[str]:
    found = [f"unknown field {name!r}" for name in row.keys() - _FIELDS[row["role"]] - {"role"}]
    if row["role"] == "tool" and not _ID.fullmatch(row["tool_call_id"]):
        found.append(f"the call id {row['tool_call_id']!r} does not fit")
    calls = row.get("tool_calls")
    if row["content"] is None and not calls:
        found.append("no content")
    if row["role"] == "assistant" and not row["content"] and not calls:
        found.append("an answer that says nothing")
    if calls is None:
        return found
    ids = [call["id"] for call in calls]
    if not calls or "" in ids or len(set(ids)) < len(ids):
        found.append(f"call ids {ids} are not distinct")
    return [*found, *(fault for call in calls if (fault := _call(call)))]


def _call(call: dict[str, Any]) -> str | None:
    if call.keys() != {"id", "type", "function"} or call["function"].keys() != {"name", "arguments"}:
        return f"a malformed call {call}"
    if not _takes(call["function"]["name"]):
        return f"the name {call['function']['name']!r} does not fit"
    if not _ID.fullmatch(call["id"]):
        return f"the call id {call['id']!r} does not fit"
    if not _is_object(call["function"]["arguments"]):
        return f"arguments that are no object: {call['function']['arguments']!r}"
    return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except ValueError:
        return False


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
