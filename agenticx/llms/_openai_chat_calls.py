"""Which call a piece of a tool call belongs to, when providers number and name them in every way there is.

Seen in the wild: no index (Mistral), index 0 for every call (Ollama, Gemini's compatible endpoint), ids that come
late, change with each piece or are empty, the name repeated in each piece or `"None"`, arguments as an object or null,
a whole call sent twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx.errors import ModelError
from agenticx.llms.base import ToolCallDelta

__all__ = ["MAX_ARGUMENT_CHARS", "MAX_CALLS", "CallSorter"]

MAX_CALLS = 256
"""Calls of one reply; real models ask for a few dozen at most."""

MAX_ARGUMENT_CHARS = 8 * 1024 * 1024
"""Argument text of one call."""

_COMPARED_CHARS = 64 * 1024  # longer arguments are never taken for complete: looking would not be linear any more


@dataclass(slots=True)
class _Call:
    number: int
    id: str = ""
    name: str = ""
    size: int = 0
    pieces: list[str] = field(default_factory=list[str])

    def add(self, arguments: str) -> None:
        self.size += len(arguments)
        if self.size > _COMPARED_CHARS:
            self.pieces.clear()
        else:
            self.pieces.append(arguments)

    def is_complete(self) -> bool:
        """Whether the arguments so far are one whole JSON object."""
        if self.size > _COMPARED_CHARS or not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self.pieces)), dict)
        except (ValueError, RecursionError):
            return False

    def equals(self, arguments: str) -> bool:
        return bool(arguments) and self.size == len(arguments) and "".join(self.pieces) == arguments


class CallSorter:
    """Numbers the calls of one reply in order of first appearance and sorts each piece to its call."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int | str, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def sort(self, piece: object) -> ToolCallDelta | None:
        """The delta for one element of `tool_calls`, None if it brings nothing; raises `ModelError` over a limit."""
        if not isinstance(piece, dict):
            return None
        fields = cast("dict[str, Any]", piece)
        function = fields.get("function")
        inner = cast("dict[str, Any]", function) if isinstance(function, dict) else fields
        id_, name, arguments = _text(fields.get("id")), _name(inner.get("name")), _arguments(inner.get("arguments"))
        index = fields.get("index")
        call = self._find(index if isinstance(index, int | str) else None, id_, name, arguments)
        if call.equals(arguments) and name == call.name and id_ == call.id and call.is_complete():
            return None
        return self._continue(call, id_, name, arguments)

    def _find(self, index: int | str | None, id_: str, name: str, arguments: str) -> _Call:
        if index is not None:
            call = self._by_index.get(index)
        else:
            call = self._by_id.get(id_) or (self._calls[-1] if self._calls else None)
        if call is None or _begins_another(call, id_, name, arguments):
            call = self._open(id_)
        if index is not None:
            self._by_index[index] = call
        return call

    def _open(self, id_: str) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise ModelError(
                f"the reply asks for more than {MAX_CALLS} tool calls",
                code="provider.bad_reply",
                provider_type="protocol_error",
            )
        call = _Call(len(self._calls))
        self._calls.append(call)
        if id_:
            self._by_id[id_] = call
        return call

    def _continue(self, call: _Call, id_: str, name: str, arguments: str) -> ToolCallDelta | None:
        new_id = "" if call.id else id_
        new_name = "" if call.name else name
        first = not (call.id or call.name or call.size)
        call.id, call.name = call.id or id_, call.name or name
        if arguments:
            call.add(arguments)
            if call.size > MAX_ARGUMENT_CHARS:
                raise ModelError(
                    f"the arguments of a tool call are longer than {MAX_ARGUMENT_CHARS} characters",
                    code="provider.bad_reply",
                    provider_type="protocol_error",
                )
        if not (new_id or new_name or arguments or first):
            return None
        return ToolCallDelta(call.number, new_id, new_name, arguments)


def _begins_another(call: _Call, id_: str, name: str, arguments: str) -> bool:
    """Whether a piece that carries the index of `call`, or none, is the head of the next call all the same."""
    if not name or not call.name or (id_ and id_ == call.id):
        return False
    if name != call.name:
        return True
    return bool(id_ or arguments) and call.is_complete()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(value: object) -> str:
    name = _text(value)
    return "" if name.strip().lower() in ("none", "null") else name


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
