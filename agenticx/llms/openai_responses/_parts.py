"""The texts of an output item: what each of them is, and how far it was said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from agenticx.llms._values import items_in, text_in

__all__ = ["Channel", "Part", "part_text", "texts_of"]

Channel = Literal["text", "refusal", "summary", "reasoning", "arguments", "input"]
"""What a text is; a custom tool's `input` is any text where `arguments` is JSON."""

_PARTS: dict[str, tuple[Channel, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("summary", "text"),
    "reasoning_text": ("reasoning", "text"),
}


class Part:
    """One text as far as it was said, `size` characters. `ended` says that an event has told the whole of it."""

    __slots__ = ("_pieces", "ended", "size")

    def __init__(self) -> None:
        self.ended = False
        self._pieces: list[str] = []
        self.size = 0

    @property
    def said(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, text: str) -> None:
        """Say the next piece."""
        self._pieces.append(text)
        self.size += len(text)

    def rest_of(self, whole: str) -> str | None:
        """What is left to say of `whole`, None where something else was said; linear in `whole`."""
        if len(whole) < self.size:
            return None
        at = 0
        for piece in self._pieces:
            if not whole.startswith(piece, at):
                return None
            at += len(piece)
        return whole[at:]


def texts_of(item: dict[str, Any]) -> Iterator[tuple[Channel, int, str]]:
    """The texts in a whole item that is no call: what each is, which of its kind, and what it says."""
    for name in ("summary", "content"):
        for index, part in enumerate(items_in(item, name)):
            if found := part_text(part):
                yield found[0], index, found[1]


def part_text(part: dict[str, Any]) -> tuple[Channel, str] | None:
    """What a part of an item is, and what it says; None if that is no text."""
    found = _PARTS.get(text_in(part, "type"))
    return None if found is None else (found[0], text_in(part, found[1]))
