"""Tool calls as XML-like text, for models without function calling: rendering, and a parser that streams.

The form is that of the MetaChain page, `<function=name><parameter=x>value</parameter></function>`. Values are raw, so:

1. A value that contains a line break stands between a line break after the opening tag and one before the closing
   tag; the parser takes one of each away where they are.
2. `</parameter` inside a value is written `<\\/parameter`, and one more backslash for each that is there already.
3. Parameters whose schema says nothing but string are raw text; all others are JSON, and what does not parse as JSON
   stays text, which the tool's schema then judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

from agenticx.llms.base import Delta, TextDelta, ToolCallDelta, ToolSchema

__all__ = ["XmlCallParser", "render_call", "render_tools"]

_ESCAPED = re.compile(r"<(\\*)/parameter")
_UNESCAPE = re.compile(r"<\\(\\*/parameter)")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>")
_FUNCTION = re.compile(r"<function=([\w.-]{1,128})>")
_END = re.compile(r"\s*</function>")
_OPENING = "<function="
_MAX_TAG = 160


def render_call(name: str, arguments: Mapping[str, Any], schema: ToolSchema | None = None) -> str:
    """One call, so that `XmlCallParser` reads the same call back.

    >>> print(render_call("add", {"left": 1}))
    <function=add>
    <parameter=left>1</parameter>
    </function>
    """
    rows = [f"<function={name}>"]
    for key, value in arguments.items():
        rows.append(f"<parameter={key}>{_render_value(value, _is_text(schema, key))}</parameter>")
    return "\n".join([*rows, "</function>"])


def render_tools(tools: Sequence[ToolSchema]) -> str:
    """What a model is told about the tools."""
    return "\n\n".join(_render_tool(tool) for tool in tools)


def _render_tool(tool: ToolSchema) -> str:
    required = set(tool.parameters.get("required", ()))
    lines = [f"{tool.name}: {tool.description}".rstrip(": ")]
    for key, schema in tool.parameters.get("properties", {}).items():
        kind = schema.get("type") or json.dumps({word: schema[word] for word in ("anyOf", "$ref") if word in schema})
        choice = f", one of {json.dumps(schema['enum'])}" if "enum" in schema else ""
        need = "required" if key in required else "optional"
        about = f": {schema['description']}" if schema.get("description") else ""
        lines.append(f"  {key} ({kind}{choice}, {need}){about}")
    return "\n".join(lines)


def _is_text(schema: ToolSchema | None, key: str) -> bool:
    if schema is None:
        return False
    properties: Mapping[str, Any] = schema.parameters.get("properties", {})
    return properties.get(key, {}).get("type") == "string"


def _render_value(value: object, is_text: bool) -> str:
    text = value if is_text and isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _ESCAPED.sub(lambda found: f"<\\{found[1]}/parameter", text)
    return f"\n{text}\n" if "\n" in text else text


class XmlCallParser:
    """Turns streamed text into text deltas and tool-call deltas, the same however the text is cut.

    Arguments come out as the pieces of one JSON object; those of a string parameter as they are being written.
    `unfinished` says that the text ended inside a call.
    """

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._held = ""
        self._call = -1
        self._schema: ToolSchema | None = None
        self._inside = False
        self._after_call = False
        self._value: _Value | None = None
        self._parameters = 0

    @property
    def calls(self) -> int:
        return self._call + 1

    @property
    def unfinished(self) -> bool:
        return self._inside

    def feed(self, text: str) -> list[Delta]:
        """What `text` makes certain."""
        self._held += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        return deltas

    def end(self) -> list[Delta]:
        """What was held back and is no tag after all."""
        held, self._held = self._held, ""
        return [TextDelta(held)] if held and not self._inside else []

    def _step(self, deltas: list[Delta]) -> bool:
        if self._value is not None:
            return self._in_value(self._value, deltas)
        return self._between_parameters(deltas) if self._inside else self._in_text(deltas)

    def _in_text(self, deltas: list[Delta]) -> bool:
        """Text up to the next call; what may be its opening tag is held back, white space behind a call is dropped."""
        if self._after_call:
            self._held = self._held.lstrip()
            self._after_call = not self._held
        start = self._held.find("<")
        while start >= 0:
            tag = self._held[start : start + _MAX_TAG]
            if found := _FUNCTION.match(tag):
                self._say(deltas, self._held[:start])
                self._held = self._held[start + found.end() :]
                self._open(found[1], deltas)
                return True
            if tag.startswith(_OPENING[: len(tag)]) and ">" not in tag and len(tag) < _MAX_TAG:
                self._say(deltas, self._held[:start])
                self._held = self._held[start:]
                return False
            start = self._held.find("<", start + 1)
        self._say(deltas, self._held)
        self._held = ""
        return False

    def _open(self, name: str, deltas: list[Delta]) -> None:
        self._call += 1
        self._inside, self._parameters = True, 0
        self._schema = self._tools.get(name)
        deltas.append(ToolCallDelta(self._call, name=name, arguments="{"))

    def _between_parameters(self, deltas: list[Delta]) -> bool:
        if found := _PARAMETER.match(self._held):
            self._held = self._held[found.end() :]
            comma = ", " if self._parameters else ""
            self._parameters += 1
            deltas.append(ToolCallDelta(self._call, arguments=f"{comma}{_quote(found[1])}: "))
            self._value = _Value(is_text=_is_text(self._schema, found[1]))
            return True
        if found := _END.match(self._held):
            self._held = self._held[found.end() :]
            self._inside, self._after_call = False, True
            deltas.append(ToolCallDelta(self._call, arguments="}"))
            return True
        return self._skip_stray()

    def _skip_stray(self) -> bool:
        """Drop what is neither a parameter nor the end; a tag that may still become one is waited for."""
        held = self._held.lstrip()
        if not held or (held.startswith("<") and ">" not in held and len(held) < _MAX_TAG):
            return False
        following = held.find("<", 1)
        self._held = held[following:] if following > 0 else ""
        return following > 0

    def _in_value(self, value: _Value, deltas: list[Delta]) -> bool:
        text, closing, rest = self._held.partition("</parameter>")
        if closing:
            self._held, self._value = rest, None
            deltas.append(ToolCallDelta(self._call, arguments=value.last(text)))
            return True
        keep = _may_close(text)
        self._held = text[len(text) - keep :]
        if piece := value.more(text[: len(text) - keep]):
            deltas.append(ToolCallDelta(self._call, arguments=piece))
        return False

    def _say(self, deltas: list[Delta], text: str) -> None:
        if text:
            deltas.append(TextDelta(text))


class _Value:
    """One parameter's value on its way from raw text to JSON."""

    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text
        self._gathered: list[str] = []
        self._begun = False

    def more(self, text: str) -> str:
        """The JSON that `text` adds; a text value streams, any other waits for its end."""
        if not text:
            return ""
        if not self._is_text:
            self._gathered.append(text)
            return ""
        opening = "" if self._begun else '"'
        text = text if self._begun else text.removeprefix("\n")
        self._begun = True
        return opening + _quote(_plain(text))[1:-1]

    def last(self, text: str) -> str:
        """The JSON that ends the value."""
        if self._is_text:
            if not self._begun and text == "\n":
                return '""'
            return (self.more(text.removesuffix("\n")) or ("" if self._begun else '"')) + '"'
        whole = _plain("".join([*self._gathered, text]).removeprefix("\n").removesuffix("\n"))
        return json.dumps(_json_value(whole))


def _plain(text: str) -> str:
    return _UNESCAPE.sub(r"<\1", text)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"true": True, "false": False, "none": None}.get(text.strip().lower(), text)


_TAG_BEGUN = re.compile(r"\n?<\\*(?:/(?:p(?:a(?:r(?:a(?:m(?:e(?:t(?:e(?:r)?)?)?)?)?)?)?)?)?)?\Z|\n\Z")


def _may_close(text: str) -> int:
    """How much of the end of `text` may belong to a closing tag, with the line break that belongs to it."""
    start = text.rfind("<")
    found = _TAG_BEGUN.search(text, max(0, start - 1) if start >= 0 else max(0, len(text) - 1))
    return len(text) - found.start() if found else 0
