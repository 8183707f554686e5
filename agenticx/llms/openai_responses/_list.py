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
from agenticx.llms.openai_responses._parts import texts_of

__all__ = ["settle"]


def settle(items: OutputItems, output: list[dict[str, Any]], deltas: list[Delta]) -> None:
    """The reply is whole and `output` lists its items: take what no event has told of."""
    told = _Told(items, output)
    for index, listed in enumerate(output):
        item = told.match(index, listed)
        if item is None and told.is_news(listed):
            item = items.begin(None, listed, deltas)
        if item is not None:
            if item.final is None or told.is_same_call(item, listed):
                items.settle(item, listed, deltas)
            told.met(item, listed)
    items.give_up(deltas)


class _Told:
    """The items that events told of, while those of the list are compared with them."""

    def __init__(self, items: OutputItems, output: list[dict[str, Any]]) -> None:
        self._items = items
        self._called = Counter(item.call_id for item in items.all if item.call_id)
        self._by_call_id = {item.call_id: item for item in items.all if item.call_id}
        self._by_id = {item.id: item for item in items.all if item.id}
        listed = {text_in(item, "call_id") for item in output}
        self._calls_known = all(item.call_id in listed for item in items.all if item.call is not None)
        kinds = {item.kind for item in items.all}
        self._in_order = {kind: self._unmet([one for one in items.all if one.kind == kind]) for kind in kinds}
        self._met: set[int] = set()
        self._doubted: set[str] = set()

    def match(self, index: int, listed: dict[str, Any]) -> OutputItem | None:
        """The item that events told of: the one of that id, else of that place, else the next that has no other id."""
        kind, call_id = text_in(listed, "type"), text_in(listed, "call_id")
        places = (self._by_call_id.get(call_id), self._by_id.get(text_in(listed, "id")), self._items.at_index(index))
        for item in places:
            if item is not None and item.kind == kind and id(item) not in self._met:
                return item
        if call_id in self._by_call_id or (call_id and self._calls_known):
            return None
        return next(self._in_order.get(kind, iter(())), None)

    def is_news(self, listed: dict[str, Any]) -> bool:
        """Whether an item that matches none was never told of."""
        if is_call(listed):
            return self._calls_known and text_in(listed, "call_id") not in self._by_call_id
        return text_in(listed, "type") not in self._doubted

    def is_same_call(self, item: OutputItem, listed: dict[str, Any]) -> bool:
        """Whether `listed` is for certain that call, so that both have to say the same."""
        call_id = text_in(listed, "call_id")
        return item.call is not None and item.call_id == call_id and self._called[call_id] == 1

    def met(self, item: OutputItem, listed: dict[str, Any]) -> None:
        """`item` is that one; a text told otherwise may have had in it what the list has as another item."""
        self._met.add(id(item))
        if not is_call(listed) and item.said != "".join(text for _, _, text in texts_of(listed)):
            self._doubted.add(item.kind)

    def _unmet(self, alike: list[OutputItem]) -> Iterator[OutputItem]:
        return (item for item in alike if id(item) not in self._met)
