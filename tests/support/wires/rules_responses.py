"""The request rules of a strict, stateless Responses server, written apart from the code.

From OpenAI's API reference and from what its servers are reported to refuse: call ids over 64 characters, names outside
`[a-zA-Z0-9_-]`, a call without its output or the reverse, reasoning without what follows it, and, as nothing is stored,
reasoning without its content.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.support.wires.rules_schemas import schema_violations

__all__ = ["violations"]

_TOP = {
    "model",
    "input",
    "stream",
    "store",
    "include",
    "reasoning",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "text",
}
_FIELDS = {
    "message": {"role", "content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "custom_tool_call": {"call_id", "name", "input"},
    "custom_tool_call_output": {"call_id", "output"},
    "reasoning": {"id", "summary"},
    "web_search_call": {"id", "status"},
}
_OPTIONAL = {
    "message": {"id", "status", "phase"},
    "function_call": {"id", "status", "namespace"},
    "custom_tool_call": {"id"},
    "reasoning": {"encrypted_content", "content", "status"},
    "web_search_call": {"action"},
}
_ANSWERS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[!-~]{1,64}")
"""Of calls and items; reasoning has the id that its content is bound to, whatever that is."""


def violations(body: dict[str, Any]) -> list[str]:
    """Return the violations of a request, one sentence each; empty if a server accepts it."""
    unknown = (body.keys() - _TOP) | (body.get("reasoning", {}).keys() - {"summary", "effort"})
    found = [f"unknown parameter {name!r}" for name in unknown]
    if body.get("store") is not False:
        found.append("it would be stored")
    if body.get("max_output_tokens", 16) < 16:
        found.append("fewer than 16 output tokens")
    if len({tool["name"] for tool in body.get("tools", [])}) < len(body.get("tools", [])):
        found.append("two tools of one name")
    for tool in body.get("tools", []):
        if tool.keys() != {"type", "name", "description", "parameters", "strict"} or not _NAME.fullmatch(tool["name"]):
            found.append(f"tool {tool} is malformed")
    if "tool_choice" in body and not body.get("tools"):
        found.append("a tool choice without tools")
    if "text" in body:
        output = body["text"]["format"]
        if output.keys() != {"type", "name", "schema", "strict"} or not _NAME.fullmatch(output["name"]):
            found.append(f"an output format of {sorted(output)}")
        found += schema_violations(output["schema"]) if output["strict"] else []
    for place, item in enumerate(body["input"]):
        found += [f"input[{place}]: {complaint}" for complaint in _item(item)]
    return found + _sequence(body["input"])


def _item(item: dict[str, Any]) -> list[str]:
    kind = item.get("type")
    if kind not in _FIELDS:
        return [f"unknown type {kind!r}"]
    required, allowed = _FIELDS[kind], _FIELDS[kind] | _OPTIONAL.get(kind, set()) | {"type"}
    found = [f"no {name}" for name in required - item.keys()]
    found += [f"unknown parameter {name!r}" for name in item.keys() - allowed]
    found += [f"{name} is null" for name, value in item.items() if value is None]
    match kind:
        case "message":
            found += _message(item)
        case "function_call":
            found += [] if _NAME.fullmatch(item["name"]) else [f"the name {item['name']!r} does not fit"]
            found += [] if _is_object(item["arguments"]) else ["the arguments are no JSON object"]
        case "custom_tool_call":
            found += [] if _NAME.fullmatch(item["name"]) else [f"the name {item['name']!r} does not fit"]
        case "reasoning":
            found += [] if item.get("encrypted_content") or item.get("content") else ["reasoning that is not there"]
        case _:
            pass
    if "call_id" in required and not _ID.fullmatch(item["call_id"]):
        found.append(f"the call id {item['call_id']!r} does not fit")
    if kind != "reasoning" and not _ID.fullmatch(item.get("id", "none")):
        found.append(f"the item id {item['id']!r} does not fit")
    return found


def _message(item: dict[str, Any]) -> list[str]:
    role, content = item["role"], item["content"]
    if role not in ("system", "developer", "user", "assistant"):
        return [f"the role {role!r}"]
    if isinstance(content, str):
        return ["an assistant message without content"] if role == "assistant" and not content else []
    if role != "assistant":
        return [fault for part in content if (fault := _input_part(part))] or ([] if content else ["no content"])
    return [f"a part of type {part['type']!r}" for part in content if part["type"] not in ("output_text", "refusal")]


def _input_part(part: dict[str, Any]) -> str | None:
    match part["type"]:
        case "input_text":
            good = part.keys() == {"type", "text"} and isinstance(part["text"], str)
        case "input_image":
            good = part.keys() == {"type", "image_url", "detail"} and part["image_url"].startswith("data:image/")
        case "input_file":
            good = part.keys() == {"type", "filename", "file_data"}
            good = good and part["filename"] and part["file_data"].startswith("data:application/pdf;base64,")
        case _:
            good = False
    return None if good else f"a malformed part of type {part['type']!r}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _sequence(items: list[dict[str, Any]]) -> list[str]:
    called = [(item["call_id"], _ANSWERS[item["type"]]) for item in items if item["type"] in _ANSWERS]
    answered = [(item["call_id"], item["type"]) for item in items if item["type"] in _ANSWERS.values()]
    ids = [item["id"] for item in items if "id" in item]
    found = [
        f"call id {call_id!r} is used twice"
        for call_id, times in Counter(id_ for id_, _ in called).items()
        if times > 1
    ]
    found += [f"item id {id_!r} is used twice" for id_, times in Counter(ids).items() if times > 1]
    found += [f"no tool output found for call {call}" for call in called if answered.count(call) != 1]
    found += [f"no tool call found for output {answer}" for answer in answered if answer not in called]
    waiting: set[str] = set()
    for place, item in enumerate(items):
        if item["type"] in _ANSWERS:
            waiting.add(item["call_id"])
        elif item["type"] in _ANSWERS.values():
            if item["call_id"] not in waiting:
                found.append(f"input[{place}]: an output before its call")
            waiting.discard(item["call_id"])
        elif waiting and item.get("role") in ("user", "system"):
            found.append(f"input[{place}]: a message between calls and their outputs")
        if item["type"] == "reasoning":
            follower = items[place + 1] if place + 1 < len(items) else {"type": "nothing"}
            if (
                follower["type"] in _ANSWERS.values()
                or follower.get("role", "assistant") != "assistant"
                or follower["type"] == "nothing"
            ):
                found.append(f"input[{place}]: reasoning without its required following item")
    return found
