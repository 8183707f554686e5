"""Replies that are opened: the first batch has arrived, the rest is iterated.

Downgrades, retries and fallbacks act while a reply is being opened: they are plain functions around `open_reply`, in
`opening_policy`. Once it is open, one iterator reads the model's stream and passes each batch through the transforms of
all wrappers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from agenticx.errors import ModelError
from agenticx.llms.base import Attempt, ChatModel, Delta, ModelRequest, TextDelta
from agenticx.threads import LARGE, run_in_thread

__all__ = ["OpenReply", "OpenableModel", "OpeningStream", "open_reply"]


class OpenableModel(ABC):
    """The base class of models that open a reply themselves; `stream` iterates over what `open` returns."""

    @abstractmethod
    async def open(self, request: ModelRequest) -> OpenReply:
        """Return the reply once its first batch has arrived; raise `ModelError` if it fails before."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Return the batches of the reply that `open` returns; it is opened when the first one is read."""
        return OpeningStream(lambda: self.open(request))


async def open_reply(model: ChatModel, request: ModelRequest) -> OpenReply:
    """Return the model's reply once its first batch has arrived; raise `ModelError` if it fails before.

    The caller closes the reply.
    """
    if isinstance(model, OpenableModel):
        return await model.open(request)
    opened = OpenReply(model.stream(request))
    opened.first = await anext(opened, None)
    return opened


@dataclass(frozen=True, slots=True)
class _Transform:
    """A change of each batch, and the function that returns the deltas that were held back."""

    change: Callable[[Sequence[Delta]], Sequence[Delta]]
    flush: Callable[[], Sequence[Delta]]


class OpenReply:
    """A reply that was opened: `first` is its first batch, None if there is none; iterating returns all after it.

    The model's stream is closed once: when it ends or fails, when the reader is cancelled, or by `aclose`.
    """

    __slots__ = ("_failure", "_flush_from", "_is_source_open", "_source", "_transforms", "first")

    def __init__(self, source: AsyncIterator[Sequence[Delta]]) -> None:
        self.first: Sequence[Delta] | None = None
        self._source = source
        self._is_source_open = True
        self._transforms: list[_Transform] = []
        self._flush_from: int | None = None  # the transform to flush next; None while the source is read
        self._failure: ModelError | None = None  # raised after all transforms were flushed

    async def transform(
        self,
        change: Callable[[Sequence[Delta]], Sequence[Delta]],
        flush: Callable[[], Sequence[Delta]] = tuple,
    ) -> Self:
        """Change all batches by `change`, drop empty ones and append the rest that `flush` returns.

        `first` is then the first non-empty batch; more of the reply may be read for that. A batch with a long
        text is changed in a thread; batches are changed one after the other.

        If the source, an earlier transform or `change` raises a `ModelError`, the rest from `flush` is returned before
        the error is raised.
        """
        self._transforms.append(_Transform(change, flush))
        try:
            if self.first is not None:
                self.first = await self._transformed(self.first, len(self._transforms) - 1)
        except BaseException:
            await self.aclose()
            raise
        if not self.first:
            self.first = await anext(self, None)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Delta]:
        try:
            while self._flush_from is None:
                try:
                    batch = await anext(self._source)
                except StopAsyncIteration:
                    await self._end_source(0, None)
                except ModelError as exc:
                    await self._end_source(0, exc)
                else:
                    if not self._transforms or (batch := await self._transformed(batch, 0)):
                        return batch
            return await self._next_flushed(self._flush_from)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the model's stream and end the iteration."""
        self._flush_from, self._failure = len(self._transforms), None
        await self._close_source()

    async def _transformed(self, batch: Sequence[Delta], start: int) -> Sequence[Delta]:
        """Return the batch after the transforms from `start` on; empty if one of them failed."""
        for position in range(start, len(self._transforms)):
            if not batch:
                break
            change = self._transforms[position].change
            try:
                if _text_size(batch) < LARGE:
                    batch = change(batch)
                else:
                    batch = await run_in_thread(change, batch, name="agx sorting")
            except ModelError as exc:
                await self._end_source(position, exc)
                return ()
        return batch

    async def _next_flushed(self, position: int) -> Sequence[Delta]:
        """Return the deltas held back by the transforms from `position` on; then raise the failure, or end."""
        while position < len(self._transforms):
            self._flush_from = position + 1
            if rest := await self._transformed(self._transforms[position].flush(), position + 1):
                return rest
            position = self._flush_from
        failure, self._failure = self._failure, None
        raise StopAsyncIteration if failure is None else failure

    async def _end_source(self, flush_from: int, failure: ModelError | None) -> None:
        self._flush_from, self._failure = flush_from, failure
        await self._close_source()

    async def _close_source(self) -> None:
        if self._is_source_open:
            self._is_source_open = False
            close: Any = getattr(self._source, "aclose", None)
            if close is not None:
                await close()


def _text_size(batch: Sequence[Delta]) -> int:
    size = 0
    for delta in batch:
        if isinstance(delta, TextDelta):
            size += len(delta.text)
    return size


class OpeningStream(AsyncIterator[Sequence[Delta]]):
    """The batches of a reply that is opened when the first one is read.

    `open_next` is called until it returns the reply; each `Attempt` that it returns before is a batch of its own. Once
    the reply is open, this iterator returns the reply's own awaitables.
    """

    def __init__(self, open_next: Callable[[], Awaitable[OpenReply | Attempt]]) -> None:
        self._open_next = open_next
        self._reply: OpenReply | None = None
        self._has_ended = False

    def __anext__(self) -> Awaitable[Sequence[Delta]]:
        return self._open() if self._reply is None else self._reply.__anext__()

    async def aclose(self) -> None:
        """Close the model's stream and end the iteration."""
        self._has_ended = True
        if self._reply is not None:
            await self._reply.aclose()

    async def _open(self) -> Sequence[Delta]:
        if self._has_ended:
            raise StopAsyncIteration
        try:
            reply = await self._open_next()
        except BaseException:
            self._has_ended = True
            raise
        if isinstance(reply, Attempt):
            return [reply]
        self._reply, first, reply.first = reply, reply.first, None
        return await anext(reply) if first is None else first
