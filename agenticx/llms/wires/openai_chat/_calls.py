"""Assembly of streamed tool calls from fragments, however a provider numbers and names them.

Seen in the wild: no index (Mistral), index 0 for every call (Ollama, Gemini's compatible endpoint), ids that come
late, change with each fragment or are empty, the name repeated in each fragment, split itself or `"None"`, arguments
as an object or null, a whole call sent twice.

The input of a custom tool is any text; its arguments are the JSON text of that string, whose closing quote comes last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx.llms.base import Delta, ReplySize, ToolCallDelta
from agenticx.llms.call_fields import CallFields, call_states
from agenticx.llms.json_values import json_string_fragment, json_text
from agenticx.llms.reply_limits import MAX_NAME_CHARS

__all__ = ["ToolCallAssembler"]

_MAX_COMPARED_CHARS = 64 * 1024  # longer arguments are never taken for complete, and not kept to be compared
_MAX_INDEX_LENGTH = 64
_STRUCTURAL = re.compile(r'\\(?:.|$)|["{}\[\]]', re.DOTALL)


class _BracketCounter:
    """A counter of open brackets in growing JSON text; it reads each character once."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._after_backslash = False

    @property
    def closed(self) -> bool:
        return not (self._depth or self._in_string or self._after_backslash)

    def read(self, fragment: str) -> None:
        """Count the brackets of the next fragment."""
        if self._after_backslash and fragment:
            fragment, self._after_backslash = fragment[1:], False
        for token_match in _STRUCTURAL.finditer(fragment):
            token = token_match[0]
            if token[0] == "\\":
                self._after_backslash = len(token) == 1
            elif token == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if token in "{[" else -1


@dataclass(slots=True)
class _StreamedCall:
    number: int
    id: str = ""
    name: str = ""
    size: int = 0
    freeform: bool = False
    fragments: list[str] = field(default_factory=list[str])
    provider_fields: CallFields = field(default_factory=CallFields)
    _brackets: _BracketCounter = field(default_factory=_BracketCounter)
    _scanned: int = 0  # the number of fragments with counted brackets
    _never_complete: bool = False  # more text cannot make it an object

    def add(self, arguments: str) -> None:
        self.size += len(arguments)
        if self.size > _MAX_COMPARED_CHARS:
            self._never_complete = True
            self.fragments.clear()
        else:
            self.fragments.append(arguments)

    def is_complete_object(self) -> bool:
        """Return whether the arguments so far are one whole JSON object.

        Brackets are counted only once. The text is parsed only if all are closed, and never again once it was closed
        and no object.
        """
        if self._never_complete or not self.fragments or not self.fragments[-1].rstrip().endswith("}"):
            return False
        for fragment in self.fragments[self._scanned :]:
            self._brackets.read(fragment)
        self._scanned = len(self.fragments)
        if not self._brackets.closed:
            return False
        try:
            self._never_complete = not isinstance(json.loads("".join(self.fragments)), dict)
        except (ValueError, RecursionError):
            self._never_complete = True
        return not self._never_complete

    def has_arguments(self, arguments: str) -> bool:
        return bool(arguments) and self.size == len(arguments) and "".join(self.fragments) == arguments


class ToolCallAssembler:
    """An assembler of one reply's calls, numbered in order of first appearance."""

    def __init__(self, size: ReplySize) -> None:
        self._size = size
        self._calls: list[_StreamedCall] = []
        self._by_index: dict[int | str, _StreamedCall] = {}
        self._by_id: dict[str, _StreamedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, fragment: object) -> ToolCallDelta | None:
        """Return the delta of an element of `tool_calls`, None if it adds nothing; raise `ModelError` over a limit."""
        if not isinstance(fragment, dict):
            return None
        fields = cast("dict[str, Any]", fragment)
        function, custom = fields.get("function"), fields.get("custom")
        freeform = isinstance(custom, dict) and not isinstance(function, dict)
        inner = cast("dict[str, Any]", custom if freeform else function if isinstance(function, dict) else fields)
        id_, name = _text(fields.get("id")), _name(inner.get("name"))
        arguments = _text(inner.get("input")) if freeform else _arguments(inner.get("arguments"))
        call = self._find_or_open(_index(fields.get("index")), id_, name, arguments)
        if added := call.provider_fields.add(fields, inner):
            self._size.add_kept_json(added)
        if freeform:
            call.freeform = True
            arguments = json_string_fragment(arguments, first=not call.size)
        if call.has_arguments(arguments) and name == call.name and id_ == call.id and call.is_complete_object():
            return None
        return self._extend(call, id_, name, arguments)

    def states(self) -> list[dict[str, Any]]:
        """Return the provider's fields of the calls, as a part of the provider state; empty if there are none."""
        return call_states([(call.id, call.provider_fields) for call in self._calls])

    def close(self, deltas: list[Delta]) -> None:
        """Add the deltas that close the inputs of custom tools, at the end of the reply."""
        deltas.extend(ToolCallDelta(call.number, arguments='"') for call in self._calls if call.freeform)

    def _find_or_open(self, index: int | str | None, id_: str, name: str, arguments: str) -> _StreamedCall:
        if index is not None:
            call = self._by_index.get(index)
        else:
            call = self._by_id.get(id_) or (self._calls[-1] if self._calls else None)
        if call is None or _starts_new_call(call, id_, name, arguments, has_index=index is not None):
            call = self._open(id_)
        if index is not None:
            self._by_index[index] = call
        return call

    def _open(self, id_: str) -> _StreamedCall:
        call = _StreamedCall(self._size.allocate_call())
        self._calls.append(call)
        if id_:
            self._by_id[id_] = call
        return call

    def _extend(self, call: _StreamedCall, id_: str, name: str, arguments: str) -> ToolCallDelta | None:
        new_id = "" if call.id else id_
        first = not (call.id or call.name or call.size)
        new_name = _updated_name(call, name)
        call.id, call.name = call.id or id_, new_name or call.name
        if arguments:
            call.add(arguments)
        if not (new_id or new_name or arguments or first):
            return None
        return ToolCallDelta(call.number, new_id, new_name, arguments)


def _starts_new_call(call: _StreamedCall, id_: str, name: str, arguments: str, *, has_index: bool) -> bool:
    """Return whether a fragment with the index of `call`, or without one, begins another call."""
    if not name or not call.name or (id_ and id_ == call.id):
        return False
    is_bare = not (call.size or call.freeform)
    if name != call.name:
        return not (has_index and call.id and not id_ and is_bare)  # else it is the rest of the name
    if id_ and call.id and (is_bare or call.freeform):
        return True
    return bool(id_ or arguments) and call.is_complete_object()


def _updated_name(call: _StreamedCall, name: str) -> str:
    """Return the name of `call` after a fragment with `name`, `""` if it does not change."""
    if not call.name or not name:
        return name
    if call.size or name == call.name or len(call.name) > MAX_NAME_CHARS:
        return ""
    return name if name.startswith(call.name) else call.name + name


def _index(value: object) -> int | str | None:
    """Return the index of a fragment, None if it is no usable index."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_INDEX_LENGTH else None
    return value if isinstance(value, int) and value.bit_length() <= _MAX_INDEX_LENGTH else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(value: object) -> str:
    name = _text(value)
    return "" if name.strip().lower() in ("none", "null") else name


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)
