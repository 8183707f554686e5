"""XML-like text form of tool calls, for models without function calling: renderer and parser.

The form is that of the published MetaChain, `<function=name><parameter=x>value</parameter></function>`. Values are raw,
so:

1. A value that contains a line break is written between a line break after the opening tag and one before the closing
   tag; the parser removes one of each if they are there.
2. `</parameter` inside a value is written `<\\/parameter`, and one more backslash for each that is there already, up to
   64.
3. Parameters whose schema has exactly the type string are raw text; all others are JSON. A value that does not parse as
   JSON stays text; the tool's schema validates it.
4. A call that is not closed when the next one begins ends there: its JSON arguments stay unclosed, so that it is
   answered as a call with malformed arguments and never run.
5. In text from other sources, the tags of calls and results get a backslash in the same way (`escape_tags`), so that
   only a tool's own result looks like one. They are not changed back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms.base import Delta, TextDelta, ToolCallDelta, ToolSchema
from agenticx.llms.identifiers import IdentifierRule
from agenticx.llms.reply_limits import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_VALUES
from agenticx.llms.wrappers.markdown_state import MarkdownState
from agenticx.strict_json import find_excess

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
"""The rule for names in tags; `XmlCallParser` accepts no others."""

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
    """Render one call so that `XmlCallParser` reads the same call back.

    >>> print(render_call("add", {"left": 1}))
    <function=add>
    <parameter=left>1</parameter>
    </function>
    """
    lines = [f"<function={name}>"]
    for key, value in arguments.items():
        lines.append(f"<parameter={key}>{_render_value(value, _is_text(schema, key))}</parameter>")
    return "\n".join([*lines, "</function>"])


def render_result(name: str, content: str) -> str:
    """Render the result of a tool call; tags in `content` are escaped, so that it cannot end the result early.

    >>> print(render_result("fetch", "</function_result>"))
    <function_result=fetch>
    <\\/function_result>
    </function_result>
    """
    return f"<function_result={_NOT_IN_NAMES.sub('_', name)}>\n{escape_tags(content)}\n</function_result>"


def escape_tags(text: str) -> str:
    """Escape everything in `text` that could be read as a call or as a result."""
    return _CALL_TAG.sub(r"<\\", _RESULT_TAG.sub(r"<\\", text))


def escape_calls(text: str) -> str:
    """Escape results in an assistant's text, and the tags of calls if the parser would read a call in it."""
    text = _RESULT_TAG.sub(r"<\\", text)
    if _OPENING not in text:
        return text
    parser = XmlCallParser(())
    parser.feed(text)
    return _CALL_TAG.sub(r"<\\", text) if parser.calls or parser.error else text


def render_tools(tools: Sequence[ToolSchema]) -> str:
    """Render the descriptions of tools for the prompt."""
    return "\n\n".join(_render_tool(tool) for tool in tools)


def _render_tool(tool: ToolSchema) -> str:
    required = set(tool.parameters.get("required", ()))
    lines = [f"{tool.name}: {tool.description}".rstrip(": ")]
    for key, schema in tool.parameters.get("properties", {}).items():
        kind = schema.get("type") or json.dumps({word: schema[word] for word in ("anyOf", "$ref") if word in schema})
        choice = f", one of {json.dumps(schema['enum'])}" if "enum" in schema else ""
        requirement = "required" if key in required else "optional"
        description = f": {schema['description']}" if schema.get("description") else ""
        lines.append(f"  {key} ({kind}{choice}, {requirement}){description}")
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
    """An incremental parser of streamed text into text deltas and tool-call deltas.

    How the text is split into pieces makes no difference. Only a tag at the beginning of a line of prose starts a call:
    one in a code fence or in backticks is an example. Arguments are returned as pieces of one JSON object; a
    string parameter is returned while it is being written. `unfinished` is True if the text has ended inside a call,
    `has_stray_text` if text inside a call was dropped, as it is in no parameter. If `error` is set, the caller must
    raise it; no deltas follow it.
    """

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self.error: ModelError | None = None
        self.has_stray_text = False
        self._tools = {tool.name: tool for tool in tools}
        self._buffer = ""
        self._position = 0  # of the first unread character in the buffer
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
        """Return the deltas that are certain after `text`; an end that may be part of a tag is held back."""
        self._buffer += text
        deltas: list[Delta] = []
        while self.error is None and self._step(deltas):
            pass
        self._buffer, self._position = "" if self.error else self._buffer[self._position :], 0
        return deltas

    def end(self) -> list[Delta]:
        """Return the text that was held back, as the reply has ended; none inside a call."""
        rest, self._buffer = self._buffer, ""
        return [TextDelta(rest)] if rest and not self._in_call else []

    def _step(self, deltas: list[Delta]) -> bool:
        if self._value is not None:
            return self._read_value(self._value, deltas)
        return self._read_call(deltas) if self._in_call else self._read_text(deltas)

    def _read_text(self, deltas: list[Delta]) -> bool:
        """Read text up to the next call; hold back a possible opening tag, drop white space after a call."""
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
        """Drop text that is neither a parameter nor the end; hold back a tag that is not complete yet."""
        tag = self._buffer[self._position : self._position + _MAX_TAG]
        if not tag or (tag.startswith("<") and ">" not in tag and len(tag) < _MAX_TAG):
            return False
        self.has_stray_text = True
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
        certain_length = len(text) - _partial_closing_tag_length(text)
        self._position += certain_length
        self._add_arguments(deltas, value.feed(text[:certain_length]))
        return False

    def _add_arguments(self, deltas: list[Delta], arguments: str) -> None:
        self._argument_chars += len(arguments)
        if self._argument_chars > MAX_ARGUMENT_CHARS:  # of all calls together, as they are parsed together
            self.error = _reply_error(f"has tool calls whose arguments are longer than {MAX_ARGUMENT_CHARS} characters")
        elif arguments:
            deltas.append(ToolCallDelta(self._call, arguments=arguments))

    def _add_text(self, deltas: list[Delta], end: int) -> None:
        if text := self._buffer[self._position : end]:
            deltas.append(TextDelta(text))
        self._position = end


def _may_become_call(tag: str) -> bool:
    """Return whether more text can turn `tag` into an opening tag."""
    return tag.startswith(_OPENING[: len(tag)]) and ">" not in tag and len(tag) < _MAX_TAG


def _reply_error(what: str) -> ModelError:
    return ModelError(f"the reply {what}", code="provider.bad_reply", provider_type="protocol_error")


class _ValueEncoder:
    """An incremental encoder of one parameter's raw text as JSON."""

    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text
        self._fragments: list[str] = []
        self._begun = False

    def feed(self, text: str) -> str:
        """Return the JSON that `text` adds; a string is returned piece by piece, any other value at its end."""
        if not text:
            return ""
        if not self._is_text:
            self._fragments.append(text)
            return ""
        opening = "" if self._begun else '"'
        text = text if self._begun else text.removeprefix("\n")
        self._begun = True
        return opening + _quote(_unescaped(text))[1:-1]

    def end(self, text: str) -> str:
        """Return the JSON that ends the value, `text` being its last piece."""
        if self._is_text:
            if not self._begun and text == "\n":
                return '""'
            return (self.feed(text.removesuffix("\n")) or ("" if self._begun else '"')) + '"'
        return _as_json(_unescaped("".join([*self._fragments, text]).removeprefix("\n").removesuffix("\n")))


def _unescaped(text: str) -> str:
    return _UNESCAPE.sub(r"<\1", text)


def _as_json(text: str) -> str:
    """Return `text` unchanged if it is JSON, else as a JSON string.

    Duplicate keys and too many values are not checked here: `parse_arguments` refuses them.
    """
    if find_excess(text, max_depth=len(text), max_values=MAX_VALUES) is not None:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        word = text.strip().lower()
        return {"true": "true", "false": "false", "none": "null"}.get(word) or json.dumps(text)
    return text


_PARTIAL_TAG = re.compile(r"\n?<\\{0,64}(?:/(?:p(?:a(?:r(?:a(?:m(?:e(?:t(?:e(?:r)?)?)?)?)?)?)?)?)?)?\Z|\n\Z")


def _partial_closing_tag_length(text: str) -> int:
    """Return the length of the end of `text` that may begin a closing tag, including the line break before it."""
    start = text.rfind("<")
    found = _PARTIAL_TAG.search(text, max(0, start - 1) if start >= 0 else max(0, len(text) - 1))
    return len(text) - found.start() if found else 0
