"""Parsing, previewing and repairing of the JSON arguments of tool calls.

A preview shows a call while the model is still writing it:

    import asyncio
    import time

    from agenticx import AgentRuntime, tool
    from agenticx.llms import preview_arguments
    from agenticx.testing import ScriptedModel, call, say


    @tool(risk="read")
    def look_up(name: str) -> str:
        "Look somebody up."
        return f"{name} is in room 7"


    async def main() -> None:
        model = ScriptedModel([call("look_up", {"name": "Ada Lovelace"}, pieces=2), say("In room 7.")])
        written: dict[str, str] = {}
        shown = 0.0
        async for event in AgentRuntime(model).run_turn("Where is Ada?", tools=[look_up]):
            if event.type == "tool_call_delta":
                id_ = event.data["tool_call_id"]
                written[id_] = written.get(id_, "") + event.data["arguments_delta"]
                if time.monotonic() - shown > 0.1:
                    shown = time.monotonic()
                    print(event.data["name"], preview_arguments(written[id_]))
            elif event.type == "tool_call":
                print(event.data["name"], event.data["arguments"])


    asyncio.run(main())
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from agenticx.errors import InvalidArguments
from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.llms.reply_limits import MAX_DEPTH, MAX_DIGITS, MAX_VALUES
from agenticx.strict_json import clean_json, has_more_values, read_json

__all__ = ["check_value_count", "parse_arguments", "preview_arguments", "repair_arguments"]

_MAX_REPAIRED_CHARS = 64 * 1024


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse `text` as one JSON object; empty text is `{}`, as providers use it.

    Raises `InvalidArguments` for anything that is not exactly one JSON object. Duplicate keys and non-finite numbers
    are refused because two parsers may read them as different calls; numbers of more than 1,300 digits and more than
    10,000 values because no model writes them on purpose and every later step would be slow.
    """
    if not text.strip():
        return {}
    try:
        value = read_json(text, max_depth=MAX_DEPTH, max_digits=MAX_DIGITS, max_values=MAX_VALUES)
    except ValueError as exc:
        raise InvalidArguments(f"the arguments are not valid JSON: {exc}") from exc
    return _as_object(value)


def check_value_count(arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidArguments` for more values than `parse_arguments` allows; for arguments from other sources."""
    if has_more_values(dict(arguments), MAX_VALUES):
        text = f"the arguments hold more than {MAX_VALUES} values; make several calls, each with some of them"
        raise InvalidArguments(text)


def preview_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments received so far, for display only; None if `text` is not the beginning of one object.

    `text` is every `arguments_delta` of one call, joined. Successive previews only grow: the last string may be cut;
    keys, numbers, `true`, `false` and `null` appear once they are complete. If `parse_arguments` accepts the final
    text, every preview agrees with its result. A text that it will refuse may have previews as well; where a key is
    repeated they stop growing. The text of a freeform call, a JSON string, has none. Keep showing the last preview if
    None is returned later; the event `tool_call` has the final arguments.

    >>> preview_arguments('{"path": "notes.txt", "line": 1'), preview_arguments('{"path": "notes.txt", "line": 12}')
    ({'path': 'notes.txt'}, {'path': 'notes.txt', 'line': 12})

    Each call parses all of `text` again (3 to 25 µs per kB of strings, and 2 µs for each other value, measured on one
    slow core), so call it on a timer, ten times a second, not for each delta; `GrowingArguments` reads each piece once.
    Returns None for more values than `parse_arguments` allows.
    """
    arguments = GrowingArguments()
    arguments.add(text)
    if arguments.is_broken and arguments.repeated_key is None:
        return None
    return arguments.to_dict()


def repair_arguments(text: str) -> dict[str, Any]:
    """Return the most likely object of a complete but malformed text: code fence, single quotes, trailing commas.

    The result is a guess. Use it only for calls without side effects, validate it by the tool's schema and mark it as
    repaired. Raises `InvalidArguments` for anything but one complete object (cut off, followed by another, surrounded
    by prose), for duplicate keys, for more than 64 kB (seconds of work), and if the result is no object.
    """
    from json_repair import repair_json

    if len(text) > _MAX_REPAIRED_CHARS:
        raise InvalidArguments(f"the arguments are not valid JSON, and too long to be repaired: {len(text)} characters")
    body = _FENCE.sub(r"\1", text.strip())
    _check_single_object(body)
    try:
        value = clean_json(repair_json(body, return_objects=True, skip_json_loads=True), max_depth=MAX_DEPTH)
    except (RecursionError, ValueError) as exc:
        raise InvalidArguments(f"the arguments are not valid JSON and cannot be repaired: {exc}") from exc
    return _as_object(value)


# --- repair -----------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\Z", re.DOTALL)
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\],:]|[^\s{}\[\],:"']+)\s*""", re.DOTALL)
_CLOSES = {"}": "{", "]": "["}


def _check_single_object(text: str) -> None:
    """Raise `InvalidArguments` unless `text` is one closed object whose strings end and whose keys differ."""
    opened: list[tuple[str, set[str]]] = []
    position, previous = 0, ""
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or not (opened or (position == 0 and token[1] == "{")):
            raise InvalidArguments("the arguments are not one complete JSON object")
        token_text, position = token[1], token.end()
        if token_text in ("{", "["):
            opened.append((token_text, set()))
        elif token_text in _CLOSES and opened.pop()[0] != _CLOSES[token_text]:
            raise InvalidArguments("the brackets of the arguments do not match")
        elif token_text == ":" and opened[-1][0] == "{":
            key, keys = previous.strip("\"'"), opened[-1][1]
            if key in keys:
                raise InvalidArguments(f"the key {key!r} appears twice in the arguments")
            keys.add(key)
        previous = token_text
    if opened:
        raise InvalidArguments("the arguments are cut off")


def _as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be a JSON object, not {_json_kind(value)}")
    return cast("dict[str, Any]", value)


def _json_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case _:
            return "an array"
