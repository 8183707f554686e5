"""Tool calls written in a reply's text: parsed only if the text is nothing but wrappers of calls.

For every model, one or several of one form in sequence:

1. `<tool_code>…</tool_code>` around JSON (`{"name": …, "arguments": {…}}` or a list of such) or around
   `tool(key="literal", …)` lines, with or without `print(…)`, as Gemma and Gemini write them.
2. A fenced block that holds nothing but `{"tool_calls": [{"name": …, "arguments": {…}}]}`, or the same in OpenAI's
   nested form.

Only for models that are known to use them (`InlineForm`):

3. `hermes`: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, one or several, as Hermes and Qwen are trained to.
4. `mistral`: `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or one or several of `[TOOL_CALLS]name{…}` and
   `[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}`, the formats of Mistral's tokenizers before version 11 and since.

5. `function`: `<function=name><parameter=key>value</parameter></function>`, alone or in `<tool_call>`, as Qwen3-Coder
   is trained to; values are read by the tool's schema. Text may come before these calls, as these models write it, if
   the first call begins a line and is in no code; between them and behind them there may be none.

Any text outside of the wrappers, for example an explanation around an example, makes all of it plain text. So does one
call that is incomplete, names no known tool, has arguments that are no object, repeats a key, or has an
unknown key or a stray word (`parameters` counts as `arguments`): the arguments of a tool are never guessed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from agenticx.llms.base import InlineForm, ReplyBuilder, TextDelta, ToolCallDelta, ToolSchema
from agenticx.llms.wrappers.xml_format import XmlCallParser
from agenticx.messages import ToolCall
from agenticx.strict_json import read_json
from agenticx.threads import run_in_thread

__all__ = ["parse_function_calls", "parse_inline_calls", "read_inline_calls"]

_MAX_CHARS = 48_000
_MAX_CHARS_ON_LOOP = 4096  # longer texts are parsed in a thread
_MAX_PYTHON_CHARS = 16_000  # parsing Python takes several times as long as JSON
_MAX_CALLS = 128  # as many as a wire accepts in one reply
_MAX_DEPTH = 100

_TOOL_CODE, _TOOL_CODE_END = "<tool_code>", "</tool_code>"
_TOOL_CALL, _TOOL_CALL_END = "<tool_call>", "</tool_call>"
_TOOL_CALLS = "[TOOL_CALLS]"
_FUNCTION = "<function="
_WRAPPER_TAGS = re.compile(r"</?tool_call>|\s")
_FENCE = re.compile(r"```(?:json|tool_calls?)?[ \t]*\n\s*+")
_FENCE_END = re.compile(r"[ \t]*\n\s*?```[ \t]*(?=\n|\Z)")
_NAME = re.compile(
    r"\s*+(?P<name>[^\s\[\]{}]{1,128})\s*+(?:\[CALL_ID\]\s*+[A-Za-z0-9_-]{1,64}\s*+)?(?:\[ARGS\]\s*+)?(?=\{)"
)
_INDENTED = re.compile(r"(?:[ \t]*+\n)*(?![ \t]*+\n)(?: {4}|\t)")  # an indented code block in Markdown
_BLANKS = re.compile(r"\s*+")
_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)

_ParsedCalls = tuple[list[ToolCall], int]
"""Calls, and the position in the text after them."""


async def read_inline_calls(
    text: str, tools: Sequence[ToolSchema], forms: Collection[InlineForm] = ()
) -> tuple[str, list[ToolCall]]:
    """Return the text before the calls in `text`, and the calls, without ids; a long text is parsed in a thread."""
    if len(text) <= _MAX_CHARS_ON_LOOP:
        return _parse_any(text, tools, forms)
    return await run_in_thread(_parse_any, text, tools, forms, name="agx inline calls")


def _parse_any(text: str, tools: Sequence[ToolSchema], forms: Collection[InlineForm]) -> tuple[str, list[ToolCall]]:
    if calls := parse_inline_calls(text, {tool.name for tool in tools}, forms):
        return "", calls
    return parse_function_calls(text, tools) if "function" in forms else (text, [])


def parse_function_calls(text: str, tools: Sequence[ToolSchema]) -> tuple[str, list[ToolCall]]:
    """Return the text before the calls of the form `function` at the end of `text`, and the calls, without ids.

    If the text is anything else, or calls another tool than `tools`, it is returned whole, without calls.
    """
    if len(text) > _MAX_CHARS or _FUNCTION not in text:
        return text, []
    parser = XmlCallParser(tools)
    deltas = [*parser.feed(text.rstrip()), *parser.end()]
    if not parser.calls or parser.error is not None or parser.unfinished or parser.has_stray_text:
        return text, []
    first = next(index for index, delta in enumerate(deltas) if isinstance(delta, ToolCallDelta))
    before, behind = (
        "".join(delta.text for delta in part if isinstance(delta, TextDelta))
        for part in (deltas[:first], deltas[first:])
    )
    builder = ReplyBuilder()
    builder.add(*deltas)
    try:
        calls = [_call(call.name, call.arguments) for call in builder.reply().tool_calls]
    except (ValueError, RecursionError):
        return text, []
    known = {tool.name for tool in tools}
    if _WRAPPER_TAGS.sub("", behind) or len(calls) > _MAX_CALLS or not all(call.name in known for call in calls):
        return text, []
    return before.rstrip().removesuffix(_TOOL_CALL).rstrip(), calls


def parse_inline_calls(text: str, known_tools: Collection[str], forms: Collection[InlineForm] = ()) -> list[ToolCall]:
    """Return the calls, without ids, that `text` consists of; none if it is anything but calls of `known_tools`.

    `forms` are the additional forms of its model; two forms are parsed for every model.
    """
    if len(text) > _MAX_CHARS:
        return []
    stripped = text.strip()
    read = None if _INDENTED.match(text) else _select_reader(stripped, forms)
    if read is None:
        return []
    try:
        calls = _read_all(stripped, read)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return calls if all(call.name in known_tools for call in calls) else []


def _select_reader(text: str, forms: Collection[InlineForm]) -> Callable[[str, int], _ParsedCalls] | None:
    """Return the function that parses one wrapper of the form that the text begins with."""
    if text.startswith(_TOOL_CODE):
        return _read_tool_code
    if text.startswith("```"):
        return _read_fence
    if text.startswith(_TOOL_CALL) and "hermes" in forms:
        return _read_hermes
    if text.startswith(_TOOL_CALLS) and "mistral" in forms:
        return _read_mistral
    return None


def _read_all(text: str, read: Callable[[str, int], _ParsedCalls]) -> list[ToolCall]:
    """Return the calls of all wrappers; raise `ValueError` if there is any other text."""
    calls: list[ToolCall] = []
    at = 0
    while at < len(text):
        found, at = read(text, at)
        calls += found
        if not found or len(calls) > _MAX_CALLS:
            raise ValueError(f"no call in a wrapper, or more than {_MAX_CALLS} in all")
        at = _skip_blanks(text, at)
    return calls


# --- one wrapper --------------------------------------------------------------------------------------------------


def _read_tool_code(text: str, at: int) -> _ParsedCalls:
    at = _skip_blanks(text, _skip_tag(text, at, _TOOL_CODE))
    if text.startswith(("{", "["), at):
        value, at = _json_at(text, at)
        entries = cast("list[Any]", value) if isinstance(value, list) else [value]
        return _from_json(entries), _skip_tag(text, _skip_blanks(text, at), _TOOL_CODE_END)
    end = text.index(_TOOL_CODE_END, at)
    if len(text) > _MAX_PYTHON_CHARS:
        raise ValueError("too long to be read as Python")
    statements = ast.parse(text[at:end].strip()).body
    if len(statements) > _MAX_CALLS:
        raise ValueError(f"more than {_MAX_CALLS} statements")
    return [_from_expression(statement) for statement in statements], end + len(_TOOL_CODE_END)


def _read_fence(text: str, at: int) -> _ParsedCalls:
    opening = _FENCE.match(text, at)
    if opening is None:
        raise ValueError("not a fence that may hold calls")
    value, at = _json_at(text, opening.end())
    closing = _FENCE_END.match(text, at)
    if closing is None or not isinstance(value, dict):
        raise ValueError("not one object in a fence")
    fields = cast("dict[str, Any]", value)
    if set(fields) != {"tool_calls"} or not isinstance(fields["tool_calls"], list):
        raise ValueError("not calls alone")
    return _from_json(cast("list[Any]", fields["tool_calls"])), closing.end()


def _read_hermes(text: str, at: int) -> _ParsedCalls:
    value, at = _json_at(text, _skip_blanks(text, _skip_tag(text, at, _TOOL_CALL)))
    return _from_json([value]), _skip_tag(text, _skip_blanks(text, at), _TOOL_CALL_END)


def _read_mistral(text: str, at: int) -> _ParsedCalls:
    at = _skip_blanks(text, _skip_tag(text, at, _TOOL_CALLS))
    if text.startswith("[", at):
        value, at = _json_at(text, at)
        return _from_json(cast("list[Any]", value)), at
    named = _NAME.match(text, at)
    if named is None:
        raise ValueError("not a name and its arguments")
    value, end = _json_at(text, named.end())
    return [_call(named["name"], value)], end


# --- its parts ------------------------------------------------------------------------------------------------------


def _skip_tag(text: str, at: int, tag: str) -> int:
    if not text.startswith(tag, at):
        raise ValueError(f"{tag} is missing")
    return at + len(tag)


def _skip_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the object or list that begins at `at`, and its end; raise `ValueError` if it is incomplete."""
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text, at):
        token = found[0]
        if token in ("{", "["):
            depth += 1
            if depth > _MAX_DEPTH:
                raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
        elif token in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return read_json(text[at : found.end()], max_depth=_MAX_DEPTH), found.end()
    raise ValueError("not complete")


def _from_json(entries: list[Any]) -> list[ToolCall]:
    return [_from_entry(entry) for entry in entries]


_ARGUMENT_KEYS = ("arguments", "parameters")
_CALL_KEYS = frozenset({*_ARGUMENT_KEYS, "name", "id", "type"})
_OUTER_KEYS = frozenset({"function", "id", "type"})


def _from_entry(entry: Any) -> ToolCall:
    if not isinstance(entry, dict):
        raise ValueError("not a call")
    fields = cast("dict[str, Any]", entry)
    if isinstance(fields.get("function"), dict) and fields.keys() <= _OUTER_KEYS:
        fields = cast("dict[str, Any]", fields["function"])
    name, argument_values = fields.get("name"), [fields[key] for key in _ARGUMENT_KEYS if key in fields]
    if not isinstance(name, str) or len(argument_values) > 1 or not fields.keys() <= _CALL_KEYS:
        raise ValueError("not a name and its arguments, and nothing else")
    return _call(name, argument_values[0] if argument_values else {})


def _call(name: str, arguments: Any) -> ToolCall:
    """Return a call; arguments given as a string are JSON themselves."""
    text = arguments.strip() or "{}" if isinstance(arguments, str) else json.dumps(arguments, allow_nan=False)
    value = read_json(text, max_depth=_MAX_DEPTH) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise ValueError("arguments that are no object")
    return ToolCall(id="", name=name, arguments=text)


def _from_expression(statement: ast.stmt) -> ToolCall:
    """Return the call of `tool(key=literal, …)`; raise `ValueError` for any other statement."""
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
    return _call(name, arguments)
