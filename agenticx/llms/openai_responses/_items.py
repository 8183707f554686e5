"""The output items of a Responses reply while it streams: which of them an event is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agenticx.llms._json_events import malformed
from agenticx.llms._limits import MAX_ITEMS
from agenticx.llms._values import text_in
from agenticx.llms.base import Delta, ReplySize, ThinkingDelta, ToolCallDelta
from agenticx.llms.openai_responses._item import GAP, OutputItem, is_call
from agenticx.llms.openai_responses._parts import Channel

__all__ = ["OutputItems"]

_KINDS: dict[Channel, str] = {
    "text": "message",
    "refusal": "message",
    "summary": "reasoning",
    "reasoning": "reasoning",
    "arguments": "function_call",
    "input": "custom_tool_call",
}


class OutputItems:
    """The items of one reply: `all` in the order in which they began. `size` counts what is kept of them.

    `tool_names` has our names of the tools that are sent under another one.

    An event is about the item of its id, else of its call id, else of its index, else the latest of its kind. Where
    several have the same id, its index tells; one that was never begun begins with the first event about it.
    """

    def __init__(self, *, who: str, size: ReplySize, tool_names: Mapping[str, str]) -> None:
        self.all: list[OutputItem] = []
        self._who = who
        self._size = size
        self._tool_names = tool_names
        self._thought = False
        self._by_id: dict[str, OutputItem] = {}
        self._by_call_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}
        self._latest: dict[str, OutputItem] = {}

    @property
    def has_open_calls(self) -> bool:
        """Whether a call was never said to be over, or to be incomplete."""
        return any(item.call is not None and not item.runs for item in self.all)

    @property
    def final(self) -> list[dict[str, Any]]:
        """The finished items."""
        return [item.final for item in self.all if item.final is not None]

    # --- what events say

    def begin(self, index: object, head: dict[str, Any], deltas: list[Delta]) -> OutputItem:
        """An item begins."""
        if len(self.all) >= MAX_ITEMS:
            raise malformed(f"it has more than {MAX_ITEMS} items", who=self._who)
        self._size.count_kept_json(head)
        call = self._size.allocate_call() if is_call(head) else None
        item = OutputItem(head, index=index, call=call, who=self._who, size=self._size)
        self.all.append(item)
        self._latest[item.kind] = item
        if item.index is not None:
            self._by_index[item.index] = item
        self._know(item)
        self._tell(item.begin(), deltas)
        return item

    def extend(self, event: dict[str, Any], channel: Channel, part: int, text: str, deltas: list[Delta]) -> None:
        """An event brings the next piece of a part."""
        item = self.about(event, channel, deltas)
        if item.final is not None and item.call is not None and item.id != event.get("item_id"):
            item = self._implied(event, channel, deltas)
        self._tell(item.extend(channel, part, text), deltas)

    def complete(self, event: dict[str, Any], channel: Channel, part: int, whole: str, deltas: list[Delta]) -> None:
        """An event brings a whole part."""
        item = self.about(event, channel, deltas)
        self._tell(item.complete(channel, part, whole), deltas)

    def close(self, index: object, final: dict[str, Any], deltas: list[Delta]) -> None:
        """An item ends; it may not have begun, and it may end twice."""
        item = self._find(index, text_in(final, "id"), text_in(final, "call_id"), text_in(final, "type"))
        if item is None or (item.final is not None and not item.is_again(index, final)):
            item = self.begin(index, final, deltas)
        self._keep(item, final)
        self._tell(item.close(final), deltas)
        self._know(item)

    # --- what the end of the reply says

    def at_index(self, index: int) -> OutputItem | None:
        """The item that began at that index, the last one if there are several."""
        return self._by_index.get(index)

    def settle(self, item: OutputItem, listed: dict[str, Any], deltas: list[Delta]) -> None:
        """The reply lists an item."""
        if item.final is None:
            self._keep(item, listed)
        self._tell(item.settle(listed), deltas)

    def give_up(self, deltas: list[Delta]) -> None:
        """The reply is over: say what is left of items that nothing has ended."""
        for item in self.all:
            self._tell(item.give_up(), deltas)

    # --- which item it is

    def about(self, event: dict[str, Any], channel: Channel, deltas: list[Delta]) -> OutputItem:
        """The item that an event is about, which begins here if nothing else was seen of it."""
        found = self._find(event.get("output_index"), text_in(event, "item_id"), "", _KINDS[channel])
        return self._implied(event, channel, deltas) if found is None else found

    def _implied(self, event: dict[str, Any], channel: Channel, deltas: list[Delta]) -> OutputItem:
        head = {"type": _KINDS[channel], "id": text_in(event, "item_id")}
        return self.begin(event.get("output_index"), head, deltas)

    def _find(self, index: object, id_: str, call_id: str, kind: str) -> OutputItem | None:
        here = self._by_index.get(index) if type(index) is int else self._latest.get(kind)
        if here is not None and ((id_ and here.id == id_) or (call_id and here.call_id == call_id)):
            return here if here.kind == kind else None
        known = (self._by_id.get(id_), self._by_call_id.get(call_id), here)
        return next((item for item in known if item is not None and item.kind == kind), None)

    def _know(self, item: OutputItem) -> None:
        if item.id:
            self._by_id[item.id] = item
        if item.call_id:
            self._by_call_id[item.call_id] = item

    def _keep(self, item: OutputItem, final: dict[str, Any]) -> None:
        if final is not item.head:
            self._size.count_kept_json(final)

    def _tell(self, said: Iterable[Delta], deltas: list[Delta]) -> None:
        for delta in said:
            if isinstance(delta, ToolCallDelta) and delta.name in self._tool_names:
                deltas.append(replace(delta, name=self._tool_names[delta.name]))
            elif self._thought or delta is not GAP:
                deltas.append(delta)
            self._thought = self._thought or isinstance(delta, ThinkingDelta)
