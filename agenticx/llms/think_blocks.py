"""A wrapper for models that write their reasoning into their text: a leading `<think>…</think>` becomes thinking.

An unclosed block stays reasoning to the end. White space between the last block and the answer belongs to neither.
Known differences to models that lift what they think themselves:

1. Only blocks at the very beginning of a reply count (several may follow one another, with white space between): a
   model that writes the tag further down is talking about it, in code or in words.
2. A `</think>` that was never opened ends an empty block at the beginning, where templates put it that switch thinking
   off. Further down it stays text: what came before it was shown as the answer and cannot be taken back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from agenticx.llms.wrapping import Wrapper, sorted_anew

__all__ = ["ThinkBlockModel", "ThinkBlocks"]

_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_LONGEST_TAG = len("</thinking>")
_BLANKS = re.compile(r"\s*+")


class ThinkBlocks:
    """Splits the text of one reply, however it is cut into pieces.

    >>> blocks = ThinkBlocks()
    >>> [*blocks.feed("<thi"), *blocks.feed("nk>hm</think>\\n\\nyes")]
    [ThinkingDelta(text='hm'), TextDelta(text='yes')]
    """

    def __init__(self) -> None:
        self._held = ""
        self._at = 0  # what is held begins here
        self._blanks: list[str] = []  # before it
        self._closing: str | None = None  # the tag that ends the block we are in
        self._seen_block = False
        self._over = False

    def feed(self, text: str) -> list[Delta]:
        """What `text` makes certain; a piece that may be part of a tag is held back."""
        if self._over:
            return [TextDelta(text)] if text else []
        self._held += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        self._held, self._at = self._held[self._at :], 0
        return deltas

    def end(self) -> list[Delta]:
        """What was held back and is no tag after all."""
        held, self._held, self._over = "".join([*self._blanks, self._held]), "", True
        if not held:
            return []
        return [ThinkingDelta(held) if self._closing else TextDelta(held)]

    def _step(self, deltas: list[Delta]) -> bool:
        """Take one thing off what is held; whether something else may follow."""
        return self._in_block(deltas, self._closing) if self._closing else self._before_answer(deltas)

    def _in_block(self, deltas: list[Delta], closing: str) -> bool:
        end = self._held.find(closing, self._at)
        stop = len(self._held) - _tail_that_may_begin(self._held, closing) if end < 0 else end
        if thought := self._held[self._at : stop]:
            deltas.append(ThinkingDelta(thought))
        if end < 0:
            self._at = stop
            return False
        self._at, self._closing, self._seen_block = end + len(closing), None, True
        return True

    def _before_answer(self, deltas: list[Delta]) -> bool:
        self._skip_blanks()
        for opening, closing in _TAGS:
            if self._held.startswith(opening, self._at):
                self._at, self._closing = self._at + len(opening), closing
                self._blanks.clear()
                return True
            if self._held.startswith(closing, self._at) and not self._seen_block:
                self._at, self._seen_block = self._at + len(closing), True
                self._blanks.clear()
                return True
        begun = self._held[self._at : self._at + _LONGEST_TAG + 1]
        if any(tag.startswith(begun) for tags in _TAGS for tag in tags):
            return False  # white space, or the beginning of a tag
        text = self._held[self._at :] if self._seen_block else "".join([*self._blanks, self._held[self._at :]])
        self._at, self._over = len(self._held), True
        self._blanks.clear()
        deltas.append(TextDelta(text))
        return False

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._held, self._at)
        if blanks and blanks[0]:
            self._blanks.append(blanks[0])
            self._at = blanks.end()


def _tail_that_may_begin(text: str, tag: str) -> int:
    """The length of the longest end of `text` that `tag` begins with."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


class ThinkBlockModel(Wrapper):
    """`model`, its leading think blocks turned into thinking deltas."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches, each with its text sorted; batches that hold everything back are not passed on."""
        blocks = ThinkBlocks()
        return sorted_anew(self._model, request, lambda batch: _sorted(blocks, batch), blocks.end)


def _sorted(blocks: ThinkBlocks, batch: Sequence[Delta]) -> list[Delta]:
    deltas: list[Delta] = []
    for delta in batch:
        if isinstance(delta, TextDelta):
            deltas.extend(blocks.feed(delta.text))
            continue
        if isinstance(delta, Finished):
            deltas.extend(blocks.end())
        deltas.append(delta)
    return deltas
