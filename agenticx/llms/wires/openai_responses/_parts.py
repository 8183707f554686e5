"""The texts of an output item: the kind of each, and its streamed part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from agenticx.llms.json_values import items_in, text_in

__all__ = ["TextKind", "TextPart", "item_texts", "part_text"]

TextKind = Literal["text", "refusal", "summary", "reasoning", "arguments", "input"]
"""The kind of a text; a custom tool's `input` is any text, `arguments` is JSON."""

_PART_TYPES: dict[str, tuple[TextKind, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("summary", "text"),
    "reasoning_text": ("reasoning", "text"),
}


class TextPart:
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
