"""The format into which Ollama decodes a chat request, written apart from the code that builds it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["violations"]

_FIELDS = {"model": str, "messages": list, "stream": bool, "tools": list, "options": dict, "format": dict}
_MESSAGE = {"role": str, "content": str, "thinking": str, "tool_calls": list, "tool_name": str, "tool_call_id": str}
_MESSAGE |= {"images": list}
_OPTIONS = {"num_ctx", "num_predict", "temperature", "top_p", "stop", "seed"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""The limits of the providers that its cloud models may be behind."""


def violations(body: dict[str, Any]) -> list[str]:
    """Return the violations of this request that a strict server would refuse, empty if it accepts it."""
    if body.get("think", True) not in (True, False, "low", "medium", "high"):
        return [f"think is {body['think']!r}"]
    found = _typed("the request", {name: value for name, value in body.items() if name != "think"}, _FIELDS)
    if unknown := body.get("options", {}).keys() - _OPTIONS:
        found.append(f"unknown options {unknown}")
    for tool in body.get("tools", []):
        if tool["type"] != "function" or not isinstance(tool["function"]["parameters"], dict):
            found.append(f"a malformed tool {tool}")
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    found += [f"the tool name {name!r} does not fit" for name in names if not _NAME.fullmatch(name)]
    if len(set(names)) < len(names):
        found.append("two tools of one name")
    return [*found, *_messages(body["messages"])]


def _messages(rows: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    awaited: list[tuple[str, str]] = []
    for place, row in enumerate(rows):
        found += _typed(f"message {place}", row, _MESSAGE)
        if row["role"] not in ("system", "user", "assistant", "tool"):
            found.append(f"message {place}: role {row['role']}")
        if row["role"] == "tool":
            given = row["tool_call_id"], row["tool_name"]
            if not awaited or given != awaited.pop(0):
                found.append(f"message {place}: the result {given} is not awaited")
        elif awaited:
            found.append(f"message {place}: the results {awaited} are missing")
            awaited = []
        if row.keys() & {"tool_calls", "thinking"} and row["role"] != "assistant":
            found.append(f"message {place}: calls or thoughts of the {row['role']}")
        if "images" in row and (row["role"] != "user" or not all(isinstance(image, str) for image in row["images"])):
            found.append(f"message {place}: images of the {row['role']}")
        for index, call in enumerate(row.get("tool_calls", [])):
            function = call["function"]
            fits = _NAME.fullmatch(function["name"]) and _ID.fullmatch(call["id"])
            if not fits or function["index"] != index or not isinstance(function["arguments"], dict):
                found.append(f"message {place}: a malformed call {call}")
            awaited.append((call["id"], function["name"]))
    return [*found, *(["results are missing"] if awaited else [])]


def _typed(what: str, row: dict[str, Any], types: dict[str, type]) -> list[str]:
    unknown = [f"{what}: unknown field {name}" for name in row.keys() - types.keys()]
    return [
        *unknown,
        *(f"{what}: {name} is {row[name]!r}" for name in row.keys() & types if type(row[name]) is not types[name]),
    ]
