"""Calls that a model wrote into its text: only in the two explicit wrapper forms, only at the end, never from prose.

1. `<tool_code>…</tool_code>` around JSON (`{"name": …, "arguments": {…}}` or a list of such) or
   around `tool(key="literal", …)` lines, with or without `print(…)`, as Gemma and Gemini write them.
2. A fenced block that holds nothing but `{"tool_calls": [{"name": …, "arguments": {…}}]}`, or the same in
   OpenAI's nested form.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from typing import Any, cast

from agenticx.messages import ToolCall

__all__ = ["inline_calls"]

_TOOL_CODE = re.compile(r"<tool_code>((?:(?!<tool_code>).)*)</tool_code>\s*\Z", re.DOTALL)
_FENCE = re.compile(r"^```(?:json|tool_calls?)?[ \t]*\n(\{(?:(?!^```).)*\})\s*^```\s*\Z", re.DOTALL | re.MULTILINE)
_MAX_CHARS = 200_000


def inline_calls(text: str, known: Collection[str]) -> tuple[str, list[ToolCall]]:
    """The text before the wrapper and the calls inside it (without ids); the whole text and no call otherwise.

    A wrapper counts only if every call in it names one of the `known` tools.
    """
    if len(text) > _MAX_CHARS or not ("</tool_code>" in text or "```" in text):
        return text, []
    for pattern, read in ((_TOOL_CODE, _read_tool_code), (_FENCE, _read_fence)):
        if match := pattern.search(text):
            calls = read(match.group(1).strip())
            if calls and all(call.name in known for call in calls):
                return text[: match.start()].rstrip(), calls
    return text, []


def _read_tool_code(body: str) -> list[ToolCall]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _read_python(body)
    return _from_json(cast(list[Any], value) if isinstance(value, list) else [value])


def _read_fence(body: str) -> list[ToolCall]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if isinstance(value, dict) and set(value) == {"tool_calls"} and isinstance(value["tool_calls"], list):  # pyright: ignore[reportUnknownArgumentType]
        return _from_json(value["tool_calls"])  # pyright: ignore[reportUnknownArgumentType]
    return []


def _from_json(rows: list[Any]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("function"), dict):  # pyright: ignore[reportUnknownMemberType]
            row = row["function"]  # pyright: ignore[reportUnknownVariableType]
        if not (isinstance(row, dict) and isinstance(row.get("name"), str)):  # pyright: ignore[reportUnknownMemberType]
            return []
        arguments: Any = row.get("arguments", {})  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(id="", name=row["name"], arguments=text))  # pyright: ignore[reportUnknownArgumentType]
    return calls


def _read_python(body: str) -> list[ToolCall]:
    """`tool(key=literal, …)` statements; anything that is not a literal makes the whole block no call."""
    try:
        statements = ast.parse(body).body
        return [_from_expression(statement) for statement in statements]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


def _from_expression(statement: ast.stmt) -> ToolCall:
    node = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with keyword arguments alone")
    match node.func:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="default_api"), attr=name):
            pass
        case _:
            raise ValueError("not a plain function name")
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
    if None in arguments:
        raise ValueError("** is not a literal")
    return ToolCall(id="", name=name, arguments=json.dumps(arguments, allow_nan=False))
