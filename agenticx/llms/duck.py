"""Models that are not ours, used through what they have: `stream_with_tools`, `stream` or `invoke`.

Such a model may be anything: blocking or async, raising whatever it likes. Blocking ones run in a daemon thread of
their own, which nothing can end and which is left behind when its reader goes. All they raise becomes `ModelError`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from agenticx import foreign
from agenticx.errors import ForeignError, ModelError
from agenticx.llms._duck_chunks import chat_event
from agenticx.llms._failures import ErrorReport, status_error
from agenticx.llms._identifiers import ToolNames
from agenticx.llms._pump import ThreadedIterator
from agenticx.llms._values import cleaned
from agenticx.llms.base import ChatModel, Delta, InlineForm, ModelRequest, inline_forms
from agenticx.llms.chat_dialect import ChatDialect
from agenticx.llms.openai_chat._reply import ChatReplyParser
from agenticx.llms.openai_chat.rows import message_rows, sent_tool_names, tool_rows
from agenticx.logs import get_logger

__all__ = ["DuckModel", "adapt"]

_log = get_logger(__name__)


def adapt(model: object) -> ChatModel:
    """`model` itself if it is a `ChatModel`, else one that drives it; raises `TypeError` for what is no model."""
    stream = getattr(model, "stream", None)
    if callable(stream) and isinstance(getattr(model, "name", None), str) and hasattr(model, "context_window"):
        return cast("ChatModel", model)
    if any(callable(getattr(model, name, None)) for name in ("stream_with_tools", "stream", "invoke")):
        return DuckModel(model)
    if isinstance(model, str):
        raise TypeError(f"{model!r} is the name of a model, not one: use resolve_model({model!r}) of agenticx.llms")
    raise TypeError(f"{model!r} is no model: it has none of stream_with_tools, stream and invoke")


class DuckModel:
    """A `ChatModel` around a duck-typed one.

    The first of `stream_with_tools`, `stream` (when there are no tools) and `invoke` that the model has is called with
    OpenAI-style rows. When a stream fails before its first delta, `invoke` is asked instead; after it, the call fails.
    """

    def __init__(self, model: object) -> None:
        self._model = model
        wanted = getattr(model, "model", None)
        kind = type(model).__name__
        self._name = f"{kind}:{wanted}" if isinstance(wanted, str) and wanted else kind

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        window = getattr(self._model, "context_window", None)
        return window if isinstance(window, int) else None

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        return inline_forms(cast("ChatModel", self._model))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The reply, in whatever pieces the model gives it out."""
        ways = self._ways(request)
        for number, way in enumerate(ways):
            last = number + 1 == len(ways)
            reply = _DuckReply(way, request, who=self._name, may_be_empty=last)
            started = False
            try:
                while (batch := await reply.batch()) is not None:
                    if batch:
                        started = True
                        yield batch
                return
            except ModelError as error:
                if started or last:
                    raise
                _log.warning("a model's stream failed; asking invoke instead", model=self._name, reason=str(error))
            finally:
                await reply.aclose()

    def _ways(self, request: ModelRequest) -> list[Callable[..., Any]]:
        names = ["stream_with_tools", "stream", "invoke"]
        if request.tools and (self._has("stream_with_tools") or self._has("invoke")):
            names.remove("stream")
        ways = [getattr(self._model, name) for name in names if self._has(name)]
        return [ways[0], *[way for way in ways[1:] if way == getattr(self._model, "invoke", None)]]

    def _has(self, name: str) -> bool:
        return callable(getattr(self._model, name, None))


class _DuckReply:
    """One call of one method of a foreign model."""

    def __init__(self, way: Callable[..., Any], request: ModelRequest, *, who: str, may_be_empty: bool) -> None:
        self._may_be_empty = may_be_empty
        self._what = f"{who}.{getattr(way, '__name__', 'call')}"
        names = sent_tool_names(request)
        self._parser = ChatReplyParser(label=who, model=who, original_names=names.originals)
        self._way = way
        self._rows = message_rows(request.messages, model=who, dialect=ChatDialect(), names=names)
        self._options = _options(way, request, names)
        self._pump: ThreadedIterator | None = None
        self._source: AsyncIterator[object] | None = None
        self._ended = False
        self._failure: ModelError | None = None

    async def batch(self) -> list[Delta] | None:
        """The next deltas, perhaps none; None at the end. Raises `ModelError`, when all before it was given out."""
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return None
        with _contained(self._what):
            said = await self._next()
        if said is None:
            self._ended = True
            return self._end()
        deltas: list[Delta] = []
        try:
            with _contained(self._what):
                for piece in said:
                    deltas += self._parser.feed_chunk(cleaned(chat_event(piece)))
        except ModelError as error:
            self._failure = error
        self._may_be_empty = self._may_be_empty or bool(deltas)
        return deltas

    async def aclose(self) -> None:
        if self._pump is not None:
            self._pump.close()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            with _contained(self._what):
                await close()

    def _end(self) -> list[Delta]:
        if not (self._may_be_empty or self._parser.finishing):
            raise ModelError(f"{self._what} gave nothing", code="provider.bad_reply")
        return self._parser.finish()

    async def _next(self) -> list[object] | None:
        if self._source is None and self._pump is None:
            await self._start()
        if self._source is None and self._pump is not None:
            said = await self._pump.next_batch()
            if not said or not _is_async(said[0]):
                return said
            self._source = await _opened(said[0])
        try:
            return [await anext(cast("AsyncIterator[object]", self._source))]
        except StopAsyncIteration:
            return None

    async def _start(self) -> None:
        if inspect.iscoroutinefunction(self._way) or inspect.isasyncgenfunction(self._way):
            self._source = await _opened(self._way(self._rows, **self._options))
        else:
            self._pump = ThreadedIterator(lambda: self._way(self._rows, **self._options), name=self._what)


async def _opened(result: Any) -> AsyncIterator[object]:
    if inspect.isawaitable(result):
        result = await result
    return aiter(cast("AsyncIterable[object]", result)) if hasattr(result, "__aiter__") else _only(result)


async def _only(item: object) -> AsyncIterator[object]:
    items = item if inspect.isgenerator(item) else [item]
    for each in cast("Iterator[object]", items):
        yield each


def _is_async(result: object) -> bool:
    return inspect.isawaitable(result) or hasattr(result, "__aiter__")


def _options(way: Callable[..., Any], request: ModelRequest, names: ToolNames) -> dict[str, Any]:
    """Of what a model may want to know, what this method takes."""
    options: dict[str, Any] = {}
    if request.tools:
        options = {"tools": tool_rows(request.tools, names), "tool_choice": request.tool_choice}
    if request.timeout is not None:
        options["timeout"] = request.timeout
    if request.max_output_tokens is not None:
        options["max_tokens"] = request.max_output_tokens
    try:
        parameters = inspect.signature(way).parameters.values()
    except (TypeError, ValueError):
        return {name: value for name, value in options.items() if name == "tools"}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return options
    taken = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in options.items() if name in taken}


@contextmanager
def _contained(what: str) -> Generator[None]:
    """Whatever foreign code raises in here comes out as `ModelError`."""
    try:
        with foreign.containing(what):
            yield
    except ForeignError as exc:
        raise _error(exc) from exc


def _error(failure: ForeignError) -> ModelError:
    cause = failure.__cause__
    status = getattr(cause, "status_code", None)
    if isinstance(status, int) and 400 <= status < 600:  # the exceptions of provider SDKs
        return status_error(status, {}, ErrorReport(message=str(failure), type=_word(cause)), label=failure.what)
    return ModelError(str(failure), code="provider.transport", provider_type=_word(cause))


def _word(cause: BaseException | None) -> str | None:
    kinds = (getattr(cause, name, None) for name in ("type", "code"))
    return next((kind for kind in kinds if isinstance(kind, str) and kind), None)
