"""Tool calls as XML-like text, for models without function calling: rendering, and a parser that streams.

The form is that of the MetaChain page, `<function=name><parameter=x>value</parameter></function>`. Values are raw, so:

1. A value that contains a line break stands between a line break after the opening tag and one before the closing
   tag; the parser takes one of each away where they are.
2. `</parameter` inside a value is written `<\\/parameter`, and one more backslash for each that is there already, up to
   64.
3. Parameters whose schema says nothing but string are raw text; all others are JSON, and what does not parse as JSON
   stays text, which the tool's schema then judges.
4. A call that is not closed when the next one begins ends there: its arguments stay open, so that it is answered as one
   with malformed arguments and never run.
5. In what others wrote, tags that a call or a result would begin or end with get a backslash in the same way
   (`without_tags`): nothing but a tool's own result looks like one. They are not changed back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._identifiers import IdentifierRule
from agenticx.llms._limits import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_VALUES
from agenticx.llms.base import Delta, TextDelta, ToolCallDelta, ToolSchema
from agenticx.llms.xml_prose import MarkdownState
from agenticx.strict_json import excess_in

__all__ = [
    "TAG_NAME_RULE",
    "XmlCallParser",
    "escape_calls",
    "escape_tags",
    "render_call",
    "render_result",
    "render_tools",
]

TAG_NAME_RULE = IdentifierRule(r"\w.-", 128)
"""Names that a tag may have; `XmlCallParser` reads no other."""

_ESCAPED = re.compile(r"<(\\{0,63})/parameter")
_UNESCAPE = re.compile(r"<\\(\\{0,63}/parameter)")
_PARAMETER = re.compile(r"<parameter=([^<>\s]{1,128})>")
_FUNCTION = re.compile(r"<function=([\w.-]{1,128})>")
_RESULT_TAG = re.compile(r"<(?=\\*+\s*+/?\s*+function_result\b)", re.IGNORECASE)
_CALL_TAG = re.compile(r"<(?=\\*+function=)")
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
_WHITESPACE = re.compile(r"\s*+")
_OPENING = "<function="
_CLOSING = "</parameter>"
_END = "</function>"
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


def render_result(name: str, content: str) -> str:
    """What a tool's call came to, which ends where it says so and nowhere before.

    >>> print(render_result("fetch", "</function_result>"))
    <function_result=fetch>
    <\\/function_result>
    </function_result>
    """
    return f"<function_result={_NOT_IN_NAMES.sub('_', name)}>\n{escape_tags(content)}\n</function_result>"


def escape_tags(text: str) -> str:
    """`text` with nothing in it that reads as a call or as a result."""
    return _CALL_TAG.sub(r"<\\", _RESULT_TAG.sub(r"<\\", text))


def escape_calls(text: str) -> str:
    """What an assistant said beside its calls: no result of its own, and no call where a call would be read."""
    text = _RESULT_TAG.sub(r"<\\", text)
    if _OPENING not in text:
        return text
    parser = XmlCallParser(())
    parser.feed(text)
    return _CALL_TAG.sub(r"<\\", text) if parser.calls or parser.error else text


def render_tools(tools: Sequence[ToolSchema]) -> str:
    """What a model is told about the tools."""
    return "\n\n".join(_render_tool(tool) for tool in tools)


def _render_tool(tool: ToolSchema) -> str:
    required = set(tool.parameters.get("required", ()))
    lines = [f"{tool.name}: {tool.description}".rstrip(": ")]
    for key, schema in tool.parameters.get("properties", {}).items():
        kind = schema.get("type") or json.dumps({word: schema[word] for word in ("anyOf", "$ref") if word in schema})
        choice = f", one of {json.dumps(schema['enum'])}" if "enum" in schema else ""
        presence = "required" if key in required else "optional"
        description = f": {schema['description']}" if schema.get("description") else ""
        lines.append(f"  {key} ({kind}{choice}, {presence}){description}")
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

    A call is one only where it begins a line of prose: in a code fence or in backticks a model shows what it could
    say. Arguments come out as the pieces of one JSON object; those of a string parameter as they are being written.
    `unfinished` says that the text ended inside a call; `error` is to be raised, nothing comes out behind it.
    """

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self.error: ModelError | None = None
        self._tools = {tool.name: tool for tool in tools}
        self._buffer = ""
        self._position = 0  # what is held begins here
        self._markdown = MarkdownState()
        self._call = -1
        self._schema: ToolSchema | None = None
        self._in_call = False
        self._after_call = False
        self._value: _ValueEncoder | None = None
        self._parameters = 0
        self._argument_chars = 0

    @property
    def calls(self) -> int:
        return self._call + 1

    @property
    def unfinished(self) -> bool:
        return self._in_call

    def feed(self, text: str) -> list[Delta]:
        """What `text` makes certain."""
        self._buffer += text
        deltas: list[Delta] = []
        while self.error is None and self._step(deltas):
            pass
        self._buffer, self._position = "" if self.error else self._buffer[self._position :], 0
        return deltas

    def end(self) -> list[Delta]:
        """What was held back and is no tag after all."""
        rest, self._buffer = self._buffer, ""
        return [TextDelta(rest)] if rest and not self._in_call else []

    def _step(self, deltas: list[Delta]) -> bool:
        if self._value is not None:
            return self._read_value(self._value, deltas)
        return self._read_call(deltas) if self._in_call else self._read_text(deltas)

    def _read_text(self, deltas: list[Delta]) -> bool:
        """Text up to the next call; what may be its opening tag is held back, white space behind a call is dropped."""
        if self._after_call:
            self._skip_whitespace()
            self._after_call = self._position == len(self._buffer)
        position = self._position
        while (start := self._buffer.find("<", position)) >= 0:
            self._markdown.add(self._buffer[position:start])
            position = start
            if self._markdown.call_may_begin:
                tag = self._buffer[start : start + _MAX_TAG]
                if found := _FUNCTION.match(tag):
                    self._add_text(deltas, start)
                    self._position = start + found.end()
                    self._open_call(found[1], deltas)
                    return True
                if _may_become_call(tag):
                    self._add_text(deltas, start)
                    return False
            self._markdown.add("<")
            position = start + 1
        self._markdown.add(self._buffer[position:])
        self._add_text(deltas, len(self._buffer))
        return False

    def _open_call(self, name: str, deltas: list[Delta]) -> None:
        if self.calls >= MAX_CALLS:
            self.error = _reply_error(f"asks for more than {MAX_CALLS} tool calls")
            return
        self._call += 1
        self._in_call, self._parameters = True, 0
        self._schema = self._tools.get(name)
        deltas.append(ToolCallDelta(self._call, name=name, arguments="{"))

    def _read_call(self, deltas: list[Delta]) -> bool:
        self._skip_whitespace()
        if found := _PARAMETER.match(self._buffer, self._position):
            self._position = found.end()
            comma = ", " if self._parameters else ""
            self._parameters += 1
            self._add_arguments(deltas, f"{comma}{_quote(found[1])}: ")
            self._value = _ValueEncoder(is_text=_is_text(self._schema, found[1]))
            return True
        if self._buffer.startswith(_END, self._position):
            self._position += len(_END)
            self._in_call, self._after_call = False, True
            self._markdown.end_call()
            self._add_arguments(deltas, "}")
            return True
        if found := _FUNCTION.match(self._buffer, self._position):
            self._position = found.end()
            self._open_call(found[1], deltas)
            return True
        return self._skip_stray_text()

    def _skip_stray_text(self) -> bool:
        """Drop what is neither a parameter nor the end; a tag that may still become one is waited for."""
        tag = self._buffer[self._position : self._position + _MAX_TAG]
        if not tag or (tag.startswith("<") and ">" not in tag and len(tag) < _MAX_TAG):
            return False
        following = self._buffer.find("<", self._position + 1)
        self._position = following if following > 0 else len(self._buffer)
        return following > 0

    def _skip_whitespace(self) -> None:
        if found := _WHITESPACE.match(self._buffer, self._position):
            self._position = found.end()

    def _read_value(self, value: _ValueEncoder, deltas: list[Delta]) -> bool:
        closing = self._buffer.find(_CLOSING, self._position)
        if closing >= 0:
            self._add_arguments(deltas, value.end(self._buffer[self._position : closing]))
            self._position, self._value = closing + len(_CLOSING), None
            return True
        text = self._buffer[self._position :]
        certain = len(text) - _partial_tag_length(text)
        self._position += certain
        self._add_arguments(deltas, value.feed(text[:certain]))
        return False

    def _add_arguments(self, deltas: list[Delta], arguments: str) -> None:
        self._argument_chars += len(arguments)
        if self._argument_chars > MAX_ARGUMENT_CHARS:  # of all calls together, which are parsed in one go
            self.error = _reply_error(f"has tool calls whose arguments are longer than {MAX_ARGUMENT_CHARS} characters")
        elif arguments:
            deltas.append(ToolCallDelta(self._call, arguments=arguments))

    def _add_text(self, deltas: list[Delta], end: int) -> None:
        if text := self._buffer[self._position : end]:
            deltas.append(TextDelta(text))
        self._position = end


def _may_become_call(tag: str) -> bool:
    """Whether more text can make an opening tag of it."""
    return tag.startswith(_OPENING[: len(tag)]) and ">" not in tag and len(tag) < _MAX_TAG


def _reply_error(what: str) -> ModelError:
    return ModelError(f"the reply {what}", code="provider.bad_reply", provider_type="protocol_error")


class _ValueEncoder:
    """One parameter's value on its way from raw text to JSON."""

    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text
        self._pieces: list[str] = []
        self._begun = False

    def feed(self, text: str) -> str:
        """The JSON that `text` adds; a text value streams, any other waits for its end."""
        if not text:
            return ""
        if not self._is_text:
            self._pieces.append(text)
            return ""
        opening = "" if self._begun else '"'
        text = text if self._begun else text.removeprefix("\n")
        self._begun = True
        return opening + _quote(_unescaped(text))[1:-1]

    def end(self, text: str) -> str:
        """The JSON that ends the value."""
        if self._is_text:
            if not self._begun and text == "\n":
                return '""'
            return (self.feed(text.removesuffix("\n")) or ("" if self._begun else '"')) + '"'
        return _as_json(_unescaped("".join([*self._pieces, text]).removeprefix("\n").removesuffix("\n")))


def _unescaped(text: str) -> str:
    return _UNESCAPE.sub(r"<\1", text)


def _as_json(text: str) -> str:
    """Return `text` if it is JSON, as it stands, else as a JSON string.

    A key that appears twice, or too many values, are refused by whoever reads the arguments.
    """
    if excess_in(text, max_depth=len(text), max_values=MAX_VALUES) is not None:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        word = text.strip().lower()
        return {"true": "true", "false": "false", "none": "null"}.get(word) or json.dumps(text)
    return text


_PARTIAL_TAG = re.compile(r"\n?<\\{0,64}(?:/(?:p(?:a(?:r(?:a(?:m(?:e(?:t(?:e(?:r)?)?)?)?)?)?)?)?)?)?\Z|\n\Z")


def _partial_tag_length(text: str) -> int:
    """How much of the end of `text` may belong to a closing tag, with the line break that belongs to it."""
    start = text.rfind("<")
    found = _PARTIAL_TAG.search(text, max(0, start - 1) if start >= 0 else max(0, len(text) - 1))
    return len(text) - found.start() if found else 0
