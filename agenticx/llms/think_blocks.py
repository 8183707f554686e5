"""A wrapper for models that write their reasoning into their text: a leading `<think>…</think>` becomes thinking.

Only blocks at the very beginning of a reply count (several may follow one another, with white space between): a model
that explains the tag further down is talking about it. An unclosed block stays reasoning to the end. White space
between the last block and the answer belongs to neither.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

from agenticx.errors import ModelError
from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from agenticx.llms.wrapping import Wrapper

__all__ = ["ThinkBlockModel", "ThinkBlocks"]

_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))


class ThinkBlocks:
    """Splits the text of one reply, however it is cut into pieces.

    >>> blocks = ThinkBlocks()
    >>> [*blocks.feed("<thi"), *blocks.feed("nk>hm</think>\\n\\nyes")]
    [ThinkingDelta(text='hm'), TextDelta(text='yes')]
    """

    def __init__(self) -> None:
        self._held = ""
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
        return deltas

    def end(self) -> list[Delta]:
        """What was held back and is no tag after all."""
        held, self._held, self._over = self._held, "", True
        if not held:
            return []
        return [ThinkingDelta(held) if self._closing else TextDelta(held)]

    def _step(self, deltas: list[Delta]) -> bool:
        """Take one thing off what is held; whether something else may follow."""
        return self._in_block(deltas, self._closing) if self._closing else self._before_answer(deltas)

    def _in_block(self, deltas: list[Delta], closing: str) -> bool:
        thought, tag, rest = self._held.partition(closing)
        if tag:
            self._held, self._closing, self._seen_block = rest, None, True
        else:
            keep = _tail_that_may_begin(thought, closing)
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        if thought:
            deltas.append(ThinkingDelta(thought))
        return bool(tag)

    def _before_answer(self, deltas: list[Delta]) -> bool:
        visible = self._held.lstrip()
        for opening, closing in _TAGS:
            if visible.startswith(opening):
                self._held, self._closing = visible[len(opening) :], closing
                return True
        if any(opening.startswith(visible) for opening, _ in _TAGS):
            return False  # white space, or the beginning of a tag
        text = visible if self._seen_block else self._held
        self._held, self._over = "", True
        deltas.append(TextDelta(text))
        return False


def _tail_that_may_begin(text: str, tag: str) -> int:
    """The length of the longest end of `text` that `tag` begins with."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


class ThinkBlockModel(Wrapper):
    """`model`, its leading think blocks turned into thinking deltas."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches, each with its text sorted; batches that hold everything back are not passed on."""
        blocks = ThinkBlocks()
        source = cast("AsyncGenerator[Sequence[Delta]]", self._model.stream(request))
        failure: ModelError | None = None
        try:
            async for batch in source:
                if deltas := _sorted(blocks, batch):
                    yield deltas
        except ModelError as exc:
            failure = exc
        finally:
            await source.aclose()
        if rest := blocks.end():  # the reply was cut, but what came of it is shown
            yield rest
        if failure is not None:
            raise failure


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
