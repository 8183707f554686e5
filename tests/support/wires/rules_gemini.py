"""The rules of the Gemini API for a request, written apart from the code that builds it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["violations"]

_ID = re.compile(r"[!-~]{1,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_KINDS = {"text", "functionCall", "functionResponse", "inlineData", "executableCode", "codeExecutionResult"}
_MEDIA_TYPES = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf"}
_CONFIG = {"maxOutputTokens", "thinkingConfig", "responseMimeType", "responseJsonSchema"}
_CONFIG |= {"temperature", "topP", "stopSequences", "seed"}
_BESIDE = {"thought", "thoughtSignature"}
_KEYWORDS = {
    *("type", "format", "title", "description", "default", "enum", "pattern", "required", "properties", "items"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength"),
    *("prefixItems", "additionalProperties", "anyOf", "$ref", "$defs"),
}


def violations(body: dict[str, Any], *, signed: bool) -> list[str]:
    """Return the violations of this request that a strict server would refuse, empty if it accepts it.

    `signed` requires the call signatures that Gemini 3 asks for.
    """
    found = [f"unknown field {name}" for name in body.keys() - _FIELDS]
    if "systemInstruction" in body and not all(part["text"] for part in body["systemInstruction"]["parts"]):
        found.append("an empty instruction")
    config = body.get("generationConfig", {})
    found += [f"unknown setting {name}" for name in config.keys() - _CONFIG]
    if {"thinkingLevel", "thinkingBudget"} <= config.get("thinkingConfig", {}).keys():
        found.append("a level and a budget of thinking")
    if schema := config.get("responseJsonSchema"):
        found += _schema(schema)
        found += [] if config.get("responseMimeType") == "application/json" else ["a schema for what is no JSON"]
    return [*found, *_tools(body), *_order(body["contents"]), *_calls(body["contents"], signed=signed)]


def _tools(body: dict[str, Any]) -> list[str]:
    rows = [row for tool in body.get("tools", []) for row in tool["functionDeclarations"]]
    names = [row["name"] for row in rows]
    found = [f"tool name {name!r}" for name in names if not _NAME.fullmatch(name)]
    if "tools" in body and not rows:
        found.append("tools are an empty list")
    if len(set(names)) < len(names):
        found.append("two tools of one name")
    for row in rows:
        found += [
            f"unknown field {name} of a tool" for name in row.keys() - {"name", "description", "parametersJsonSchema"}
        ]
        if schema := row.get("parametersJsonSchema"):
            found += _schema(schema)
    if "toolConfig" in body and body["toolConfig"]["functionCallingConfig"]["mode"] not in ("AUTO", "ANY", "NONE"):
        found.append("unknown mode")
    if "toolConfig" in body and not rows:
        found.append("toolConfig without tools")
    return found


def _schema(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return [f"{schema!r} is no schema"]
    found = [f"unknown keyword {name}" for name in schema.keys() - _KEYWORDS]
    if "$ref" in schema and not all(name.startswith("$") for name in schema):
        found.append("keywords beside $ref")
    if not all(
        isinstance(value, str | int | float) and not isinstance(value, bool) for value in schema.get("enum", [])
    ):
        found.append("an enum of neither texts nor numbers")
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    inner += [*schema.get("prefixItems", []), *([schema["items"]] if "items" in schema else [])]
    if isinstance(schema.get("additionalProperties", True), dict):
        inner.append(schema["additionalProperties"])
    return [*found, *(fault for part in inner for fault in _schema(part))]


def _order(contents: list[dict[str, Any]]) -> list[str]:
    if not contents:
        return ["no content"]
    found: list[str] = []
    if [contents[0]["role"], contents[-1]["role"]] != ["user", "user"]:
        found.append("the first and the last content must be the user's")
    for place, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            found.append(f"content {place}: role {content['role']}")
        if place and content["role"] == contents[place - 1]["role"]:
            found.append(f"content {place}: two of one role")
        if not content["parts"]:
            found.append(f"content {place}: no parts")
        found += [f"content {place}: {fault}" for part in content["parts"] for fault in _part(content["role"], part)]
    return found


def _part(role: str, part: dict[str, Any]) -> list[str]:
    kinds = part.keys() & _KINDS
    found = [f"unknown field {name} of a part" for name in part.keys() - _KINDS - _BESIDE]
    if len(kinds) != 1:
        found.append(f"a part of the kinds {sorted(kinds)}")
    if kinds == {"text"} and not (part["text"] or part.get("thoughtSignature")):
        found.append("a part without text")
    if "inlineData" in kinds and part["inlineData"].get("mimeType") not in _MEDIA_TYPES:
        found.append(f"inline data {part['inlineData'].get('mimeType')}")
    if role == "user" and not kinds <= {"text", "functionResponse", "inlineData"}:
        found.append(f"{sorted(kinds)} from the user")
    if role == "user" and part.keys() & _BESIDE:
        found.append("a thought of the user")
    if role == "model" and "functionResponse" in kinds:
        found.append("a result from the model")
    return found


def _calls(contents: list[dict[str, Any]], *, signed: bool) -> list[str]:
    found: list[str] = []
    awaited: list[dict[str, Any]] = []
    for place, content in enumerate(contents):
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if content["parts"][: len(results)] != [{"functionResponse": result} for result in results]:
            found.append(f"content {place}: results behind something else")
        if [_identity(call) for call in awaited] != [_identity(result) for result in results]:
            found.append(f"content {place}: {awaited} are followed by {results}")
        if not all(isinstance(result["response"], dict) for result in results):
            found.append(f"content {place}: a result that is no object")
        awaited = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        found += [f"content {place}: a malformed call {call}" for call in awaited if not _is_call(call)]
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if signed and first is not None and not first.get("thoughtSignature"):
            found.append(f"content {place}: an unsigned call")
    return found + (["calls without results"] if awaited else [])


def _identity(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["name"], row.get("id")


def _is_call(call: dict[str, Any]) -> bool:
    return (
        bool(_NAME.fullmatch(call["name"]) and _ID.fullmatch(call.get("id", "none")))
        and isinstance(call["args"], dict)
        and call.keys() <= {"name", "args", "id"}
    )
