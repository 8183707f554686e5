"""What the list of items at the end of a Responses reply adds to what its events told: items and texts never told of.

A list may lack items, ids may differ from those of the events, and one item of the events may be several in the list.
So only what certainly was not told is taken: a call beside calls that are all known by their ids, and a text behind
others that were told as they are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agenticx.llms._values import text_in
from agenticx.llms.base import Delta
from agenticx.llms.openai_responses._item import OutputItem, is_call
from agenticx.llms.openai_responses._items import OutputItems
from agenticx.llms.openai_responses._parts import iter_texts

__all__ = ["reconcile_output"]


def reconcile_output(items: OutputItems, output: list[dict[str, Any]], deltas: list[Delta]) -> None:
    """The reply is whole and `output` lists its items: take what no event has told of."""
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
    """The items that events told of, while those of the list are compared with them."""

    def __init__(self, items: OutputItems, output: list[dict[str, Any]]) -> None:
        self._items = items
        self._call_id_counts = Counter(item.call_id for item in items.ordered if item.call_id)
        self._by_call_id = {item.call_id: item for item in items.ordered if item.call_id}
        self._by_id = {item.id: item for item in items.ordered if item.id}
        listed = {text_in(item, "call_id") for item in output}
        self._all_calls_listed = all(item.call_id in listed for item in items.ordered if item.call is not None)
        kinds = {item.kind for item in items.ordered}
        self._unmatched_by_kind = {
            kind: self._unmatched([one for one in items.ordered if one.kind == kind]) for kind in kinds
        }
        self._matched: set[int] = set()
        self._uncertain_kinds: set[str] = set()

    def match(self, index: int, listed: dict[str, Any]) -> OutputItem | None:
        """The item that events told of: the one of that id, else of that place, else the next that has no other id."""
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
        """Whether an item that matches none was never told of."""
        if is_call(listed):
            return self._all_calls_listed and text_in(listed, "call_id") not in self._by_call_id
        return text_in(listed, "type") not in self._uncertain_kinds

    def is_same_call(self, item: OutputItem, listed: dict[str, Any]) -> bool:
        """Whether `listed` is for certain that call, so that both have to say the same."""
        call_id = text_in(listed, "call_id")
        return item.call is not None and item.call_id == call_id and self._call_id_counts[call_id] == 1

    def mark_matched(self, item: OutputItem, listed: dict[str, Any]) -> None:
        """`item` is that one; a text told otherwise may have had in it what the list has as another item."""
        self._matched.add(id(item))
        if not is_call(listed) and item.streamed_text != "".join(text for _, _, text in iter_texts(listed)):
            self._uncertain_kinds.add(item.kind)

    def _unmatched(self, items: list[OutputItem]) -> Iterator[OutputItem]:
        return (item for item in items if id(item) not in self._matched)
