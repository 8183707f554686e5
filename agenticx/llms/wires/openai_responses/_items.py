"""The output items of a streaming Responses reply, the assignment of events to them, and their final list.

The final list may contain items and texts that no event had. It may also lack items, its ids may differ from the
events', and one item of the events may be several in the list. So only certain additions are used: a new call if the
list has all other calls by their ids, and a text after others that were streamed as they are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agenticx.llms.base import Delta, ReplySize, ThinkingDelta, ToolCallDelta
from agenticx.llms.json_values import text_in
from agenticx.llms.reply_limits import MAX_ITEMS
from agenticx.llms.wires.json_events import malformed_reply
from agenticx.llms.wires.openai_responses._item import THOUGHT_SEPARATOR, OutputItem, TextKind, is_call, item_texts

__all__ = ["OutputItems", "reconcile_output"]

_ITEM_KINDS: dict[TextKind, str] = {
    "text": "message",
    "refusal": "message",
    "summary": "reasoning",
    "reasoning": "reasoning",
    "arguments": "function_call",
    "input": "custom_tool_call",
}


class OutputItems:
    """The items of one reply, `ordered` by their beginning. `size` counts the memory they take.

    `original_names` maps the sent names of tools to the original ones, where they differ.

    An event belongs to the item of its id, else of its call id, else of its index, else to the latest of its kind. If
    several items have the same id, the index decides; an item without a start begins with its first event.
    """

    def __init__(self, *, label: str, size: ReplySize, original_names: Mapping[str, str]) -> None:
        self.ordered: list[OutputItem] = []
        self._label = label
        self._size = size
        self._original_names = original_names
        self._has_thinking = False
        self._by_id: dict[str, OutputItem] = {}
        self._by_call_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}
        self._latest: dict[str, OutputItem] = {}

    @property
    def has_open_calls(self) -> bool:
        """True if a call was never ended, or ended as incomplete."""
        return any(item.call is not None and not item.is_runnable for item in self.ordered)

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The finished items."""
        return [item.final for item in self.ordered if item.final is not None]

    # --- events

    def begin(self, index: object, head: dict[str, Any], deltas: list[Delta]) -> OutputItem:
        """Begin an item and return it."""
        if len(self.ordered) >= MAX_ITEMS:
            raise malformed_reply(f"it has more than {MAX_ITEMS} items", label=self._label)
        self._size.add_kept_json(head)
        call = self._size.allocate_call() if is_call(head) else None
        item = OutputItem(head, index=index, call=call, label=self._label, size=self._size)
        self.ordered.append(item)
        self._latest[item.kind] = item
        if item.index is not None:
            self._by_index[item.index] = item
        self._register(item)
        self._emit(item.begin(), deltas)
        return item

    def extend(self, event: dict[str, Any], kind: TextKind, part: int, text: str, deltas: list[Delta]) -> None:
        """Append the next fragment of a part."""
        item = self.find_or_begin(event, kind, deltas)
        if item.final is not None and item.call is not None and item.id != event.get("item_id"):
            item = self._begin_implied(event, kind, deltas)
        self._emit(item.extend(kind, part, text), deltas)

    def complete(self, event: dict[str, Any], kind: TextKind, part: int, full_text: str, deltas: list[Delta]) -> None:
        """Complete a part with its whole text."""
        item = self.find_or_begin(event, kind, deltas)
        self._emit(item.complete(kind, part, full_text), deltas)

    def close(self, index: object, final: dict[str, Any], deltas: list[Delta]) -> None:
        """End an item, even if it has not begun or has ended before."""
        item = self._find(index, text_in(final, "id"), text_in(final, "call_id"), text_in(final, "type"))
        if item is None or (item.final is not None and not item.repeats(index, final)):
            item = self.begin(index, final, deltas)
        self._count_size(item, final)
        self._emit(item.close(final), deltas)
        self._register(item)

    # --- the end of the reply

    def at_index(self, index: int) -> OutputItem | None:
        """Return the item that began at that index, the last one if there are several."""
        return self._by_index.get(index)

    def reconcile(self, item: OutputItem, listed: dict[str, Any], deltas: list[Delta]) -> None:
        """Reconcile an item with its entry in the final list."""
        if item.final is None:
            self._count_size(item, listed)
        self._emit(item.reconcile(listed), deltas)

    def flush(self, deltas: list[Delta]) -> None:
        """Add the remaining deltas of items that never ended."""
        for item in self.ordered:
            self._emit(item.flush(), deltas)

    # --- assignment of events to items

    def find_or_begin(self, event: dict[str, Any], kind: TextKind, deltas: list[Delta]) -> OutputItem:
        """Return the item of an event; begin it if there is none yet."""
        item = self._find(event.get("output_index"), text_in(event, "item_id"), "", _ITEM_KINDS[kind])
        return self._begin_implied(event, kind, deltas) if item is None else item

    def _begin_implied(self, event: dict[str, Any], kind: TextKind, deltas: list[Delta]) -> OutputItem:
        head = {"type": _ITEM_KINDS[kind], "id": text_in(event, "item_id")}
        return self.begin(event.get("output_index"), head, deltas)

    def _find(self, index: object, id_: str, call_id: str, kind: str) -> OutputItem | None:
        candidate = self._by_index.get(index) if type(index) is int else self._latest.get(kind)
        if candidate is not None and ((id_ and candidate.id == id_) or (call_id and candidate.call_id == call_id)):
            return candidate if candidate.kind == kind else None
        candidates = (self._by_id.get(id_), self._by_call_id.get(call_id), candidate)
        return next((item for item in candidates if item is not None and item.kind == kind), None)

    def _register(self, item: OutputItem) -> None:
        if item.id:
            self._by_id[item.id] = item
        if item.call_id:
            self._by_call_id[item.call_id] = item

    def _count_size(self, item: OutputItem, final: dict[str, Any]) -> None:
        if final is not item.head:
            self._size.add_kept_json(final)

    def _emit(self, emitted: Iterable[Delta], deltas: list[Delta]) -> None:
        for delta in emitted:
            if isinstance(delta, ToolCallDelta) and delta.name in self._original_names:
                deltas.append(replace(delta, name=self._original_names[delta.name]))
            elif self._has_thinking or delta is not THOUGHT_SEPARATOR:
                deltas.append(delta)
            self._has_thinking = self._has_thinking or isinstance(delta, ThinkingDelta)


# --- the final list ---------------------------------------------------------------------------------------------------


def reconcile_output(items: OutputItems, output: list[dict[str, Any]], deltas: list[Delta]) -> None:
    """Add the deltas of everything in the final list `output` that no event had."""
    matcher = _ListMatcher(items, output)
    for index, listed in enumerate(output):
        item = matcher.match(index, listed)
        if item is None and matcher.is_new(listed):
            item = items.begin(None, listed, deltas)
        if item is not None:
            if item.final is None or matcher.is_same_call(item, listed):
                items.reconcile(item, listed, deltas)
            matcher.mark_matched(item, listed)
    items.flush(deltas)


class _ListMatcher:
    """A matcher of the listed items with the items of the events."""

    def __init__(self, items: OutputItems, output: list[dict[str, Any]]) -> None:
        self._items = items
        self._call_id_counts = Counter(item.call_id for item in items.ordered if item.call_id)
        self._by_call_id = {item.call_id: item for item in items.ordered if item.call_id}
        self._by_id = {item.id: item for item in items.ordered if item.id}
        listed = {text_in(item, "call_id") for item in output}
        self._all_calls_listed = all(item.call_id in listed for item in items.ordered if item.call is not None)
        kinds = {item.kind for item in items.ordered}
        self._unmatched_by_kind = {
            kind: self._unmatched([item for item in items.ordered if item.kind == kind]) for kind in kinds
        }
        self._matched: set[int] = set()
        self._uncertain_kinds: set[str] = set()

    def match(self, index: int, listed: dict[str, Any]) -> OutputItem | None:
        """Return the events' item for `listed`: by id, else by index, else the next unmatched one of its kind."""
        kind, call_id = text_in(listed, "type"), text_in(listed, "call_id")
        candidates = (
            self._by_call_id.get(call_id),
            self._by_id.get(text_in(listed, "id")),
            self._items.at_index(index),
        )
        for item in candidates:
            if item is not None and item.kind == kind and id(item) not in self._matched:
                return item
        if call_id in self._by_call_id or (call_id and self._all_calls_listed):
            return None
        return next(self._unmatched_by_kind.get(kind, iter(())), None)

    def is_new(self, listed: dict[str, Any]) -> bool:
        """Return whether a listed item without a match certainly appeared in no event."""
        if is_call(listed):
            return self._all_calls_listed and text_in(listed, "call_id") not in self._by_call_id
        return text_in(listed, "type") not in self._uncertain_kinds

    def is_same_call(self, item: OutputItem, listed: dict[str, Any]) -> bool:
        """Return whether `listed` is certainly the call `item`, so that both must agree."""
        call_id = text_in(listed, "call_id")
        return item.call is not None and item.call_id == call_id and self._call_id_counts[call_id] == 1

    def mark_matched(self, item: OutputItem, listed: dict[str, Any]) -> None:
        """Record a match; after a text that differs from the listed one, further texts of its kind are uncertain.

        The differing text may contain the text of another listed item.
        """
        self._matched.add(id(item))
        if not is_call(listed) and item.streamed_text != "".join(text for _, _, text in item_texts(listed)):
            self._uncertain_kinds.add(item.kind)

    def _unmatched(self, items: list[OutputItem]) -> Iterator[OutputItem]:
        return (item for item in items if id(item) not in self._matched)
