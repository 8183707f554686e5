"""Reconciliation of a Responses reply's final list of items with its events.

The list may contain items and texts that no event had. It may also lack items, ids may differ from those of the events,
and one item of the events may be several in the list. So only certain additions are used: a call beside calls that are
all listed by their ids, and a text after others that were streamed as they are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agenticx.llms.base import Delta
from agenticx.llms.json_values import text_in
from agenticx.llms.wires.openai_responses._item import OutputItem, is_call
from agenticx.llms.wires.openai_responses._items import OutputItems
from agenticx.llms.wires.openai_responses._parts import item_texts

__all__ = ["reconcile_output"]


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
        """Return whether a listed item without a match is certainly one that no event had."""
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
