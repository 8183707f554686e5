"""The output items of a Responses reply while they stream: which event belongs to which, and what is still unsaid."""

from __future__ import annotations

import json
from typing import Any, Literal

from agenticx.llms._json_events import malformed
from agenticx.llms._values import items_in, text_in
from agenticx.llms.base import Delta, TextDelta, ThinkingDelta, ToolCallDelta

__all__ = ["MAX_ARGUMENT_CHARS", "MAX_CALLS", "MAX_ITEMS", "Channel", "OutputItem", "OutputItems", "is_call"]

MAX_CALLS = 256
"""Calls of one reply; real models ask for a few dozen at most."""

MAX_ITEMS = 4096
"""Output items of one reply."""

MAX_ARGUMENT_CHARS = 8 * 1024 * 1024
"""Argument text of one call."""

Channel = Literal["text", "refusal", "summary", "reasoning", "arguments", "input"]
"""What a piece of an item is; a custom tool's `input` is any text where `arguments` is JSON."""

_PARTS: dict[str, tuple[Channel, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("summary", "text"),
    "reasoning_text": ("reasoning", "text"),
}


def is_call(item: dict[str, Any]) -> bool:
    """Whether an item calls a tool of ours; xAI reports searches on X, which it runs itself, as custom tool calls."""
    kind = item.get("type")
    return kind == "function_call" or (kind == "custom_tool_call" and not text_in(item, "call_id").startswith("xs_"))


class OutputItem:
    """One item. `final` is the item as its `done` event has it, None until then."""

    def __init__(self, kind: str, id_: str, reply: OutputItems, number: int | None) -> None:
        self.kind = kind
        self.id = id_
        self.final: dict[str, Any] | None = None
        self._reply = reply
        self._number = number
        self._named = self._identified = False
        self._size = 0
        self._parts: dict[tuple[Channel, int], list[str]] = {}

    @property
    def is_call(self) -> bool:
        return self._number is not None

    def identify(self, item: dict[str, Any], deltas: list[Delta], *, final: bool) -> None:
        """Say the call's name and id as soon as they are known; the id of the item stands in for none at all."""
        if self._number is None or (self._named and self._identified):
            return
        name = "" if self._named else text_in(item, "name")
        id_ = "" if self._identified else text_in(item, "call_id") or (text_in(item, "id") if final else "")
        self._named, self._identified = self._named or bool(name), self._identified or bool(id_)
        deltas.append(ToolCallDelta(self._number, id_, name))

    def extend(self, channel: Channel, index: int, text: str, deltas: list[Delta]) -> None:
        """Take the next piece of a part."""
        pieces = self._parts.get((channel, index))
        if pieces is None:
            pieces = self._parts[channel, index] = []
            if channel in ("summary", "reasoning") and self._reply.thought:
                deltas.append(ThinkingDelta("\n\n"))
        pieces.append(text)
        self._reply.characters += len(text)
        if channel == "text" or channel == "refusal":
            deltas.append(TextDelta(text))
        elif channel == "summary" or channel == "reasoning":
            self._reply.thought = True
            deltas.append(ThinkingDelta(text))
        elif self._number is not None:
            self._argue(channel, text, len(pieces) == 1, deltas)

    def complete(self, channel: Channel, index: int, whole: str, deltas: list[Delta]) -> None:
        """Say what `whole` has and the pieces had not; raises `ModelError` for arguments that contradict them."""
        pieces = self._parts.get((channel, index))
        said = "".join(pieces) if pieces else ""
        if pieces:
            pieces[:] = [said]
        if whole.startswith(said):
            if rest := whole[len(said) :]:
                self.extend(channel, index, rest, deltas)
        elif channel in ("arguments", "input") and whole and not said.startswith(whole) and not _same(said, whole):
            raise malformed("it says twice, and differently, what a tool is called with", who=self._reply.who)

    def close(self, item: dict[str, Any], deltas: list[Delta]) -> None:
        """Take the finished item."""
        already = self.final is not None
        self.final = item
        self.identify(item, deltas, final=True)
        if self.kind == "function_call":
            self.complete("arguments", 0, text_in(item, "arguments"), deltas)
        elif self.kind == "custom_tool_call":
            self.complete("input", 0, text_in(item, "input"), deltas)
            if self._number is not None and not already:
                deltas.append(ToolCallDelta(self._number, arguments='"' if self._size else '""'))
        else:
            for name in ("summary", "content"):
                for index, part in enumerate(items_in(item, name)):
                    if found := _PARTS.get(text_in(part, "type")):
                        channel, field = found
                        self.complete(channel, index, text_in(part, field), deltas)

    def _argue(self, channel: Channel, text: str, first: bool, deltas: list[Delta]) -> None:
        self._size += len(text)
        if self._size > MAX_ARGUMENT_CHARS:
            what = f"the arguments of a tool call are longer than {MAX_ARGUMENT_CHARS} characters"
            raise malformed(what, who=self._reply.who)
        if channel == "input":  # as the JSON text of a string, so that arguments are always JSON
            text = json.dumps(text, ensure_ascii=False)[:-1] if first else json.dumps(text, ensure_ascii=False)[1:-1]
        deltas.append(ToolCallDelta(self._number or 0, arguments=text))


class OutputItems:
    """The items of one reply in the order in which they began.

    `calls` counts those that call a tool of ours, `characters` what has been said in all.
    """

    def __init__(self, *, who: str) -> None:
        self.who = who
        self.calls = 0
        self.characters = 0
        self.thought = False
        self._all: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        self._by_id: dict[str, OutputItem] = {}
        self._latest: dict[str, OutputItem] = {}

    @property
    def final(self) -> list[dict[str, Any]]:
        """The finished items."""
        return [item.final for item in self._all if item.final is not None]

    def add(self, index: object, item: dict[str, Any], deltas: list[Delta]) -> OutputItem:
        """An item begins."""
        if len(self._all) >= MAX_ITEMS:
            raise malformed(f"it has more than {MAX_ITEMS} items", who=self.who)
        number = self._next_number() if is_call(item) else None
        begun = OutputItem(text_in(item, "type"), text_in(item, "id"), self, number)
        self._all.append(begun)
        if type(index) is int:
            self._by_index[index] = begun
        if begun.id:
            self._by_id[begun.id] = begun
        self._latest[begun.kind] = begun
        begun.identify(item, deltas, final=False)
        return begun

    def at(self, index: object, id_: object, kind: str, deltas: list[Delta]) -> OutputItem:
        """The item of this kind that an event is about; one whose beginning was not seen begins here."""
        found = self._find(index, id_, kind)
        if found is None or found.kind != kind:
            found = self.add(index, {"type": kind, "id": id_}, deltas)
        return found

    def close(self, index: object, item: dict[str, Any], deltas: list[Delta]) -> None:
        """An item ends; it may not have begun, and it may end twice."""
        kind = text_in(item, "type")
        found = self._find(index, item.get("id"), kind)
        if found is None or found.kind != kind or (found.final is not None and not _repeats(found.final, item)):
            found = self.add(index, item, deltas)
        found.close(item, deltas)

    def settle(self, output: list[dict[str, Any]], deltas: list[Delta]) -> None:
        """The reply is whole and `output` lists its items: take those that no event has ended."""
        if not self._all:
            for index, item in enumerate(output):
                self.close(index, item, deltas)
        for index, begun in list(self._by_index.items()):
            if begun.final is None and 0 <= index < len(output) and output[index].get("type") == begun.kind:
                begun.close(output[index], deltas)

    def _find(self, index: object, id_: object, kind: str) -> OutputItem | None:
        if type(index) is int:
            return self._by_index.get(index)
        found = self._by_id.get(id_) if type(id_) is str else None
        return found or self._latest.get(kind)

    def _next_number(self) -> int:
        if self.calls >= MAX_CALLS:
            raise malformed(f"it asks for more than {MAX_CALLS} tool calls", who=self.who)
        self.calls += 1
        return self.calls - 1


def _repeats(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the second end of an item is about the same one; ids that rotate do not tell."""
    names = {"type", "call_id", "name", "arguments", "input", "content", "summary"}
    return all(first.get(name) == second.get(name) for name in names)


def _same(left: str, right: str) -> bool:
    try:
        return json.loads(left) == json.loads(right)
    except (ValueError, RecursionError):
        return False
