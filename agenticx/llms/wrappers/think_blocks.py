"""A wrapper that turns leading `<think>…</think>` blocks of a reply's text into thinking deltas.

An unclosed block is reasoning to the end of the reply. White space between the last block and the answer is dropped.
Known differences to servers that separate the reasoning themselves:

1. Only blocks at the very beginning of a reply count (several may follow one another, with white space between): a
   model that writes the tag further down is writing about it, in code or in prose.
2. A `</think>` without an opening tag at the beginning ends an empty block; chat templates that switch thinking off
   write it there. Further down it stays text: the text before it was already shown as the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.wrappers.base import ModelWrapper

__all__ = ["ThinkBlockModel", "ThinkBlockParser"]

_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_LONGEST_TAG = len("</thinking>")
_WHITESPACE = re.compile(r"\s*+")


class ThinkBlockParser:
    """An incremental parser of one reply's text; how the text is split into pieces makes no difference.

    >>> parser = ThinkBlockParser()
    >>> [*parser.feed("<thi"), *parser.feed("nk>hm</think>\\n\\nyes")]
    [ThinkingDelta(text='hm'), TextDelta(text='yes')]
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._position = 0  # of the first unread character in the buffer
        self._whitespace: list[str] = []  # read directly before it
        self._closing: str | None = None  # the tag that ends the current block
        self._seen_block = False
        self._in_answer = False

    @property
    def is_in_answer(self) -> bool:
        """True if all further text is visible: the answer has begun, or the reply has ended."""
        return self._in_answer

    def feed(self, text: str) -> list[Delta]:
        """Return the deltas that are certain after `text`; an end that may be part of a tag is held back."""
        if self._in_answer:
            return [TextDelta(text)] if text else []
        self._buffer += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        self._buffer, self._position = self._buffer[self._position :], 0
        return deltas

    def end(self) -> list[Delta]:
        """Return the text that was held back, as the reply has ended."""
        rest, self._buffer, self._in_answer = "".join([*self._whitespace, self._buffer]), "", True
        if not rest:
            return []
        return [ThinkingDelta(rest) if self._closing else TextDelta(rest)]

    def _step(self, deltas: list[Delta]) -> bool:
        """Read one tag or text from the buffer; return whether more can be read."""
        return self._read_block(deltas, self._closing) if self._closing else self._read_before_answer(deltas)

    def _read_block(self, deltas: list[Delta], closing: str) -> bool:
        end = self._buffer.find(closing, self._position)
        stop = len(self._buffer) - _partial_tag_length(self._buffer, closing) if end < 0 else end
        if thought := self._buffer[self._position : stop]:
            deltas.append(ThinkingDelta(thought))
        if end < 0:
            self._position = stop
            return False
        self._position, self._closing, self._seen_block = end + len(closing), None, True
        return True

    def _read_before_answer(self, deltas: list[Delta]) -> bool:
        self._read_whitespace()
        for opening, closing in _TAGS:
            if self._buffer.startswith(opening, self._position):
                self._position, self._closing = self._position + len(opening), closing
                self._whitespace.clear()
                return True
            if self._buffer.startswith(closing, self._position) and not self._seen_block:
                self._position, self._seen_block = self._position + len(closing), True
                self._whitespace.clear()
                return True
        start = self._buffer[self._position : self._position + _LONGEST_TAG + 1]
        if any(tag.startswith(start) for tags in _TAGS for tag in tags):
            return False  # white space, or the beginning of a tag
        text = (
            self._buffer[self._position :]
            if self._seen_block
            else "".join([*self._whitespace, self._buffer[self._position :]])
        )
        self._position, self._in_answer = len(self._buffer), True
        self._whitespace.clear()
        deltas.append(TextDelta(text))
        return False

    def _read_whitespace(self) -> None:
        found = _WHITESPACE.match(self._buffer, self._position)
        if found and found[0]:
            self._whitespace.append(found[0])
            self._position = found.end()


def _partial_tag_length(text: str, tag: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


class ThinkBlockModel(ModelWrapper):
    """A wrapper that turns the leading think blocks of a model into thinking deltas."""

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply with its text split; batches that become empty are left out."""
        parser = ThinkBlockParser()
        reply = await open_reply(self._model, request)
        return await reply.transform(lambda batch: _split_thinking(parser, batch), parser.end)


def _split_thinking(parser: ThinkBlockParser, batch: Sequence[Delta]) -> Sequence[Delta]:
    if parser.is_in_answer:
        return batch
    deltas: list[Delta] = []
    for delta in batch:
        if isinstance(delta, TextDelta):
            deltas.extend(parser.feed(delta.text))
            continue
        if isinstance(delta, Finished):
            deltas.extend(parser.end())
        deltas.append(delta)
    return deltas
