"""The rules of the Messages API for a request, written apart from the code that builds it."""

from __future__ import annotations

import re
from typing import Any

from tests.support.wires.rules_schemas import schema_violations

__all__ = ["violations"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""64 is what Bedrock and older versions of the API take; Anthropic itself takes names of 128 now."""
_FIELDS = {"model", "max_tokens", "stream", "messages", "system", "tools", "tool_choice", "thinking", "output_config"}
_FIELDS |= {"temperature", "top_p", "stop_sequences"}
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_THOUGHTS = ("thinking", "redacted_thinking")
_PROVIDERS_OWN = ("server_tool_use", "mcp_tool_use", "compaction")  # and whatever ends in _tool_result


def violations(body: dict[str, Any]) -> list[str]:
    """Return the violations of this request that a strict server would refuse, empty if it accepts it."""
    return [*_envelope(body), *_system(body), *_tools(body), *_order(body["messages"]), *_calls(body), *_cache(body)]


def _envelope(body: dict[str, Any]) -> list[str]:
    found = [f"unknown field {name}" for name in body.keys() - _FIELDS]
    if not (isinstance(body["max_tokens"], int) and body["max_tokens"] >= 1):
        found.append("max_tokens is not a number of tokens")
    if thinking := body.get("thinking"):
        if not thinking.get("budget_tokens", 0) < body["max_tokens"]:
            found.append("the budget for thinking is not below max_tokens")
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            found.append("thinking and a forced call")
        found += _thinking_of_the_turn(body["messages"])
    found += [f"unknown setting {name}" for name in body.get("output_config", {}).keys() - {"format", "effort"}]
    if not 0 <= body.get("temperature", 0) <= 1:
        found.append("a temperature above 1")
    if output := body.get("output_config", {}).get("format"):
        found += [] if output.keys() == {"type", "schema"} else [f"an output format of {sorted(output)}"]
        found += schema_violations(output["schema"], recursive=False)
    return found


def _thinking_of_the_turn(messages: list[dict[str, Any]]) -> list[str]:
    """Check that, with thinking enabled, the current turn begins with a thinking block."""
    begun = len(messages)
    while begun and (messages[begun - 1]["role"] == "assistant" or _has(messages[begun - 1], "tool_result")):
        begun -= 1
    turn = [message for message in messages[begun:] if message["role"] == "assistant"]
    if turn and any(_has(message, "tool_use") for message in turn) and turn[0]["content"][0]["type"] not in _THOUGHTS:
        return ["the turn under way does not begin with a thought"]
    return []


def _has(message: dict[str, Any], type_: str) -> bool:
    return any(block["type"] == type_ for block in message["content"])


def _system(body: dict[str, Any]) -> list[str]:
    if "system" not in body:
        return []
    blocks = body["system"]
    return [] if blocks and all(_is_text(block) for block in blocks) else ["system has blank or other blocks"]


def _is_text(block: dict[str, Any]) -> bool:
    return block["type"] == "text" and bool(block["text"].strip())


def _tools(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools", [])
    names = [tool["name"] for tool in tools]
    found = [f"tool name {name!r}" for name in names if not _NAME.fullmatch(name)]
    if "tools" in body and not tools:
        found.append("tools are an empty list")
    if len(set(names)) < len(names):
        found.append("two tools of one name")
    for tool in tools:
        schema = tool["input_schema"]
        if schema.get("type") != "object" or schema.keys() & {"oneOf", "anyOf", "allOf"}:
            found.append(f"the schema of {tool['name']} is not that of a plain object")
    if "tool_choice" in body and not tools:
        found.append("tool_choice without tools")
    if body.get("tool_choice", {"type": "auto"})["type"] not in ("auto", "any", "tool", "none"):
        found.append("tool_choice of an unknown type")
    if not tools and any(_has(message, "tool_use") or _has(message, "tool_result") for message in body["messages"]):
        found.append("calls in the conversation and no tools")
    return found


def _order(messages: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    if not messages:
        return ["no message"]
    if [messages[0]["role"], messages[-1]["role"]] != ["user", "user"]:
        found.append("the first and the last message must be the user's")
    for place, message in enumerate(messages):
        if place and message["role"] == messages[place - 1]["role"]:
            found.append(f"message {place}: two of one role")
        if not message["content"]:
            found.append(f"message {place}: no content")
            continue
        check = _user_block if message["role"] == "user" else _assistant_block
        found += [f"message {place}: {fault}" for block in message["content"] if (fault := check(block))]
        if message["role"] == "assistant" and message["content"][-1]["type"] in _THOUGHTS:
            found.append(f"message {place}: ends with a thought")
    return found


def _user_block(block: dict[str, Any]) -> str | None:
    match block["type"]:
        case "text":
            return None if _is_text(block) else "blank text"
        case "image":
            return _source(block, _IMAGES)
        case "document":
            return _source(block, ("application/pdf",))
        case "tool_result":
            if isinstance(content := block.get("content"), list):
                if block.get("is_error") and any(inner["type"] != "text" for inner in content):
                    return "an error with more than text"
                return next(filter(None, map(_user_block, content)), None)
            if block.get("is_error") and not (content or "").strip():
                return "an error without content"
            return "blank content" if content is not None and not content.strip() else None
        case kind:
            return f"a block of type {kind} from the user"


def _source(block: dict[str, Any], media_types: tuple[str, ...]) -> str | None:
    source = block["source"]
    good = source.keys() == {"type", "media_type", "data"} and source["type"] == "base64" and source["data"]
    if not good or block.keys() - {"type", "source", "title", "cache_control"}:
        return f"a malformed {block['type']}"
    return None if source["media_type"] in media_types else f"{source['media_type']} as {block['type']}"


def _assistant_block(block: dict[str, Any]) -> str | None:
    match block["type"]:
        case "text":
            return None if _is_text(block) else "blank text"
        case "tool_use":
            good = _ID.fullmatch(block["id"]) and _NAME.fullmatch(block["name"]) and isinstance(block["input"], dict)
            return None if good else f"a malformed call {block}"
        case "thinking":
            return None if block["signature"] and isinstance(block["thinking"], str) else "a thought unsigned"
        case "redacted_thinking":
            return None if block["data"] else "a redacted thought without data"
        case kind:
            known = kind in _PROVIDERS_OWN or kind.endswith("_tool_result")
            return None if known else f"a block of type {kind} from the assistant"


def _calls(body: dict[str, Any]) -> list[str]:
    """Check that each message with calls is followed by one that begins with exactly their results."""
    found: list[str] = []
    seen: set[str] = set()
    asked: list[str] = []
    for place, message in enumerate(body["messages"]):
        blocks = message["content"]
        answered = [block["tool_use_id"] for block in blocks[: len(asked)] if block["type"] == "tool_result"]
        if sorted(answered) != sorted(asked):
            found.append(f"message {place}: calls {asked} are followed by results {answered}")
        if any(block["type"] == "tool_result" for block in blocks[len(asked) :]):
            found.append(f"message {place}: a result that answers no call of the message before")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        found += [f"message {place}: the id {id_} comes again" for id_ in asked if id_ in seen]
        seen.update(asked)
        if len(set(asked)) < len(asked):
            found.append(f"message {place}: two calls of one id")
    return found


def _cache(body: dict[str, Any]) -> list[str]:
    blocks = [*body.get("system", []), *body.get("tools", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    marked = [block for block in blocks if "cache_control" in block]
    found = ["more than 4 marks for the cache"] if len(marked) > 4 else []
    if any(block.get("type") in _THOUGHTS for block in marked):
        found.append("a thought marked for the cache")
    return found
