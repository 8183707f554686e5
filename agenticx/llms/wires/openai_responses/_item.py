"""One output item of a streaming Responses reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from agenticx.llms.base import Delta, ReplySize, TextDelta, ThinkingDelta, ToolCallDelta
from agenticx.llms.json_values import items_in, json_string_fragment, text_in
from agenticx.llms.reply_limits import MAX_ITEMS
from agenticx.llms.wires.json_events import malformed_reply

__all__ = ["THOUGHT_SEPARATOR", "ItemState", "OutputItem", "TextKind", "is_call", "item_texts", "part_text"]

TextKind = Literal["text", "refusal", "summary", "reasoning", "arguments", "input"]
"""The kind of a text; a custom tool's `input` is any text, `arguments` is JSON."""

_PART_TYPES: dict[str, tuple[TextKind, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("summary", "text"),
    "reasoning_text": ("reasoning", "text"),
}

THOUGHT_SEPARATOR = ThinkingDelta("\n\n")
"""Emitted before each thought; `OutputItems` drops it before the first of a reply."""

_PART_BYTES = 512  # memory of a part in addition to its text

ItemState = Literal["open", "arguments_done", "done", "incomplete"]
"""The state of an item. It begins `open`; `arguments_done` is a call whose arguments are whole and whose item has not
ended. An item that ended is `done`, or `incomplete` if its status says so. Only calls that are `arguments_done` or
`done` run.
"""

_IDENTITY_FIELDS = ("type", "call_id", "name", "arguments", "input", "content", "summary")
"""The fields that identify an item where ids change with each event."""


def is_call(item: dict[str, Any]) -> bool:
    """Return whether an item calls a tool of the request; xAI reports its own searches on X as custom tool calls."""
    kind = item.get("type")
    return kind == "function_call" or (kind == "custom_tool_call" and not text_in(item, "call_id").startswith("xs_"))


class OutputItem:
    """One item; it begins as `head`, at `index` if that is a number. `call` is its number, None if it is no call.

    `final` is the item of its end event, None before. The methods return the deltas to emit; they raise `ModelError`,
    with the provider's `label`, if the item contradicts itself or exceeds a limit of `size`.
    """

    def __init__(self, head: dict[str, Any], *, index: object, call: int | None, label: str, size: ReplySize) -> None:
        self.head = head
        self.kind = text_in(head, "type")
        self.id = text_in(head, "id")
        self.call_id = text_in(head, "call_id")
        self.index = index if type(index) is int else None
        self.call = call
        self.state: ItemState = "open"
        self.final: dict[str, Any] | None = None
        self._label = label
        self._size = size
        self._name_sent = self._id_sent = False
        self._parts: dict[tuple[TextKind, int], _TextPart] = {}
        self._latest: dict[TextKind, tuple[int, _TextPart]] = {}
        self._alternative_arguments: str | None = None

    @property
    def is_runnable(self) -> bool:
        """True if the item is a complete call."""
        return self.call is not None and self.state in ("arguments_done", "done")

    @property
    def streamed_text(self) -> str:
        """All text that was streamed so far."""
        return "".join(part.text for part in self._parts.values())

    def repeats(self, index: object, item: dict[str, Any]) -> bool:
        """Return whether `item`, at `index`, is this finished item again, not another one with the same number."""
        final = self.final or {}
        if all(final.get(name) == item.get(name) for name in _IDENTITY_FIELDS):
            return True
        moved = type(index) is int and self.index is not None and index != self.index
        ids = ((self.id, text_in(item, "id")), (self.call_id, text_in(item, "call_id")))
        return not moved and any(own_id and own_id == other_id for own_id, other_id in ids)

    # --- events

    def begin(self) -> list[Delta]:
        """Return the deltas of the item's start: the head of a call."""
        return self._emit_identity(self.head, last=False)

    def extend(self, text_kind: TextKind, index: int, text: str) -> list[Delta]:
        """Append the next fragment of a part."""
        if self.call is not None and self.state != "open":
            raise malformed_reply("a tool call continues after its end", label=self._label)
        part = self._parts.get((text_kind, index))
        return self._emit(text_kind, self._begin_part(text_kind, index) if part is None else part, text)

    def complete(self, text_kind: TextKind, index: int, full_text: str) -> list[Delta]:
        """Complete a part with its whole text."""
        if text_kind in ("arguments", "input"):
            deltas = self._complete_arguments(text_kind, full_text)
            self.state = "arguments_done" if self.state == "open" else self.state
            return deltas
        part = self._find_part(text_kind, index, full_text)
        part.ended = True
        return self._complete_text(text_kind, part, full_text)

    def close(self, item: dict[str, Any]) -> list[Delta]:
        """End the item with its final version."""
        was_closed, self.final = self.final is not None, item
        self.id, self.call_id = self.id or text_in(item, "id"), self.call_id or text_in(item, "call_id")
        deltas = [*self._emit_identity(item, last=True), *self._emit_rest(item)]
        if self.kind == "custom_tool_call" and self.call is not None and not was_closed:
            deltas.append(ToolCallDelta(self.call, arguments='"' if self.streamed_text else '""'))
        self.state = "incomplete" if item.get("status") == "incomplete" else "done"
        return deltas

    # --- the end of the reply

    def reconcile(self, item: dict[str, Any]) -> list[Delta]:
        """Reconcile with the item in the final list; one listed as in progress keeps the state from its events."""
        if self.final is not None:
            return self._emit_rest(item)
        state = self.state
        deltas = self.close(item)
        self.state = state if item.get("status") == "in_progress" else self.state
        return deltas

    def flush(self) -> list[Delta]:
        """Return the deltas of the start of an item that never ended, if nothing of it was streamed since."""
        return self._emit_rest(self.head) if self.final is None and not self.streamed_text else []

    # --- deltas

    def _emit_identity(self, item: dict[str, Any], *, last: bool) -> list[Delta]:
        """Return the call's name and id once they are known; at the end, the item's id replaces a missing one."""
        if self.call is None or (self._name_sent and self._id_sent):
            return []
        name = "" if self._name_sent else text_in(item, "name")
        id_ = "" if self._id_sent else text_in(item, "call_id") or (text_in(item, "id") if last else "")
        self._name_sent, self._id_sent = self._name_sent or bool(name), self._id_sent or bool(id_)
        return [ToolCallDelta(self.call, id_, name)]

    def _emit_rest(self, item: dict[str, Any]) -> list[Delta]:
        """Return the deltas of everything in the whole item that was not streamed."""
        if self.kind == "function_call":
            return self._complete_arguments("arguments", text_in(item, "arguments"))
        if self.kind == "custom_tool_call":
            return self._complete_arguments("input", text_in(item, "input"))
        deltas: list[Delta] = []
        listed: dict[TextKind, list[tuple[int, str]]] = {}
        for text_kind, index, text in item_texts(item):
            listed.setdefault(text_kind, []).append((index, text))
        for text_kind, texts in listed.items():
            for part, text in self._match_parts(text_kind, texts):
                deltas += self._complete_text(text_kind, part, text)
        return deltas

    def _complete_arguments(self, text_kind: TextKind, full_text: str) -> list[Delta]:
        """Return the rest of whole arguments; one other spelling of the same arguments is accepted."""
        part = self._parts.get((text_kind, 0)) or self._begin_part(text_kind, 0)
        remainder = part.remainder(full_text)
        if remainder is not None and (not remainder or not part.size or self.state == "open"):
            return self._emit(text_kind, part, remainder)
        if full_text in ("", self._alternative_arguments):
            return []
        if self._alternative_arguments is not None or not (
            part.text.startswith(full_text) or _equal_json(part.text, full_text)
        ):
            raise malformed_reply(
                "it contains two different versions of the arguments of a tool call", label=self._label
            )
        self._alternative_arguments = full_text
        return []

    def _complete_text(self, text_kind: TextKind, part: _TextPart, full_text: str) -> list[Delta]:
        """Return the rest of a whole text, nothing if the streamed text differs from it."""
        return self._emit(text_kind, part, part.remainder(full_text) or "")

    def _emit(self, text_kind: TextKind, part: _TextPart, text: str) -> list[Delta]:
        if not text:
            return []
        first = not part.size
        part.add(text)
        match text_kind:
            case "text" | "refusal":
                return [TextDelta(text)]
            case "summary" | "reasoning":
                return [THOUGHT_SEPARATOR, ThinkingDelta(text)] if first else [ThinkingDelta(text)]
            case "input":
                text = json_string_fragment(text, first=first)
            case "arguments":
                pass
        return [] if self.call is None else [ToolCallDelta(self.call, arguments=text)]

    # --- its parts

    def _begin_part(self, text_kind: TextKind, index: int) -> _TextPart:
        if len(self._parts) >= MAX_ITEMS:
            raise malformed_reply(f"an item of it has more than {MAX_ITEMS} parts", label=self._label)
        self._size.add_kept_bytes(_PART_BYTES)
        part = self._parts[text_kind, index] = _TextPart()
        self._latest[text_kind] = (index, part)
        return part

    def _find_part(self, text_kind: TextKind, index: int, full_text: str) -> _TextPart:
        """Return the part at `index`, else the latest open one if it is a prefix of `full_text`, else a new one."""
        if (part := self._parts.get((text_kind, index))) is not None:
            return part
        latest_index, latest = self._latest.get(text_kind, (index, None))
        if latest is None or latest.ended or latest.remainder(full_text) is None:
            return self._begin_part(text_kind, index)
        self._parts[text_kind, index] = self._parts.pop((text_kind, latest_index))
        self._latest[text_kind] = (index, latest)
        return latest

    def _match_parts(self, text_kind: TextKind, texts: list[tuple[int, str]]) -> list[tuple[_TextPart, str]]:
        """Return each text of the whole item with its part: by index, or in order if the indexes differ."""
        streamed = sorted(index for kind, index in self._parts if kind == text_kind)
        if set(streamed) <= {index for index, _ in texts}:
            indexes = [index for index, _ in texts]
        else:
            last = streamed[-1]
            indexes = [*streamed, *(last + 1 + offset for offset in range(len(texts) - len(streamed)))]
        parts = (self._parts.get((text_kind, index)) or self._begin_part(text_kind, index) for index in indexes)
        return [(part, text) for part, (_, text) in zip(parts, texts, strict=False)]


def _equal_json(left: str, right: str) -> bool:
    try:
        return json.loads(left) == json.loads(right)
    except (ValueError, RecursionError):
        return False


# --- texts ------------------------------------------------------------------------------------------------------------


class _TextPart:
    """One text as streamed so far, `size` characters. `ended` is true once an event had the whole text."""

    __slots__ = ("_fragments", "ended", "size")

    def __init__(self) -> None:
        self.ended = False
        self._fragments: list[str] = []
        self.size = 0

    @property
    def text(self) -> str:
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
        return self._fragments[0] if self._fragments else ""

    def add(self, text: str) -> None:
        """Append the next fragment."""
        self._fragments.append(text)
        self.size += len(text)

    def remainder(self, full_text: str) -> str | None:
        """Return the part of `full_text` not streamed yet, None if the streamed text differs; linear in `full_text`."""
        if len(full_text) < self.size:
            return None
        position = 0
        for fragment in self._fragments:
            if not full_text.startswith(fragment, position):
                return None
            position += len(fragment)
        return full_text[position:]


def item_texts(item: dict[str, Any]) -> Iterator[tuple[TextKind, int, str]]:
    """Yield the texts of a whole item that is no call: the kind, the index within its list, the text."""
    for name in ("summary", "content"):
        for index, part in enumerate(items_in(item, name)):
            if found := part_text(part):
                yield found[0], index, found[1]


def part_text(part: dict[str, Any]) -> tuple[TextKind, str] | None:
    """Return the kind and the text of a part of an item, None if it has no text."""
    part_type = _PART_TYPES.get(text_in(part, "type"))
    return None if part_type is None else (part_type[0], text_in(part, part_type[1]))
