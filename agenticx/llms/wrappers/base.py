"""The base class of wrappers around a model, and the stream functions that they share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import cast

from agenticx.errors import ModelError
from agenticx.llms.base import (
    ChatModel,
    Delta,
    InlineForm,
    ModelRequest,
    OutputSchema,
    TextDelta,
    close_model,
    inline_forms,
    takes_output_schema,
)
from agenticx.threads import run_sized

__all__ = ["ModelWrapper", "open_stream", "stream_with_downgrades", "transform_stream"]


class ModelWrapper:
    """The base class of a model that wraps another one; subclasses add `stream`."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        return inline_forms(self._model)

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return takes_output_schema(self._model, output, with_tools=with_tools)

    async def aclose(self) -> None:
        await close_model(self._model)


def open_stream(model: ChatModel, request: ModelRequest) -> AsyncGenerator[Sequence[Delta]]:
    """Return the model's stream as a generator; the caller must close it."""
    return cast("AsyncGenerator[Sequence[Delta]]", model.stream(request))


async def transform_stream(
    model: ChatModel,
    request: ModelRequest,
    transform: Callable[[Sequence[Delta]], Sequence[Delta]],
    flush: Callable[[], Sequence[Delta]] = tuple,
) -> AsyncIterator[Sequence[Delta]]:
    """Yield the model's batches changed by `transform`, empty ones left out, then the rest that `flush` returns.

    A batch with a long text is transformed in a thread; batches are transformed one after the other.

    If the model or `transform` raises a `ModelError`, the rest from `flush` is yielded before the error is raised.
    """
    source = open_stream(model, request)
    failure: ModelError | None = None
    try:
        async for batch in source:
            if deltas := await run_sized(transform, batch, size=_text_size(batch), name="agx sorting"):
                yield deltas
    except ModelError as exc:
        failure = exc
    finally:
        await source.aclose()
    if rest := flush():
        yield rest
    if failure is not None:
        raise failure


def _text_size(batch: Sequence[Delta]) -> int:
    return sum(len(delta.text) for delta in batch if isinstance(delta, TextDelta))


async def stream_with_downgrades(
    next_request: Callable[[], tuple[ChatModel, ModelRequest]],
    try_downgrade: Callable[[ChatModel, ModelRequest, ModelError], bool],
) -> AsyncIterator[Sequence[Delta]]:
    """Yield the reply to `next_request()`; request again if it fails before its first batch and can be downgraded.

    `try_downgrade` gets the model, the request and the error; it changes what `next_request` returns, or returns False.
    """
    while True:
        model, request = next_request()
        source, begun = open_stream(model, request), False
        try:
            async for batch in source:
                begun = True
                yield batch
            return
        except ModelError as error:
            if begun or not try_downgrade(model, request, error):
                raise
        finally:
            await source.aclose()
