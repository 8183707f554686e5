"""Adapter for duck-typed models with a method `stream_with_tools`, `stream` or `invoke`.

Such a model may be blocking or async and may raise anything; every exception becomes a `ModelError`. A blocking method
runs in a daemon thread of its own. A thread cannot be killed, so if the reader is closed early it runs on in the
background.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from agenticx import user_code
from agenticx.errors import ModelError, UserCodeError
from agenticx.llms.base import ChatModel, Delta, InlineForm, ModelRequest, inline_forms
from agenticx.llms.downgrades import Downgrade, find_downgrade
from agenticx.llms.duck_typed.chunks import chat_event
from agenticx.llms.duck_typed.threaded_iterator import ThreadedIterator
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.json_values import cleaned
from agenticx.llms.sampling import Sampling, SamplingField, check_sampling
from agenticx.llms.transport.errors import ErrorReport, status_error
from agenticx.llms.transport.overflow import exceeded_limit
from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.llms.wires.openai_chat._reply import ChatReplyParser
from agenticx.llms.wires.openai_chat._request import TOOL_NAMES, encode_messages
from agenticx.llms.wires.openai_chat._roles import ROLE_REFUSALS
from agenticx.llms.wires.request_body import encode_tools
from agenticx.logs import get_logger

__all__ = ["DuckTypedModel", "adapt"]

_log = get_logger(__name__)


def _with_changes(changes: Mapping[str, bool]) -> Callable[[ChatDialect], ChatDialect]:
    return lambda dialect: replace(dialect, **changes)


_DOWNGRADES = [
    Downgrade(refusal.words, _with_changes(refusal.changes), refusal.log_message) for refusal in ROLE_REFUSALS
]


def adapt(model: object) -> ChatModel:
    """Return `model` itself if it is a `ChatModel`, else an adapter; raises `TypeError` for anything else."""
    stream = getattr(model, "stream", None)
    if callable(stream) and isinstance(getattr(model, "name", None), str) and hasattr(model, "context_window"):
        return cast("ChatModel", model)
    if any(callable(getattr(model, name, None)) for name in ("stream_with_tools", "stream", "invoke")):
        return DuckTypedModel(model)
    if isinstance(model, str):
        raise TypeError(f"{model!r} is the name of a model, not a model; use agenticx.llms.resolve_model({model!r})")
    raise TypeError(f"{model!r} is not a model: it has none of the methods stream_with_tools, stream and invoke")


class DuckTypedModel:
    """A `ChatModel` around a duck-typed model.

    The first of `stream_with_tools`, `stream` (only without tools) and `invoke` that the model has is called with
    OpenAI-style messages. If a stream fails before its first delta, `invoke` is called instead; after it, the call
    fails.
    """

    def __init__(self, model: object) -> None:
        self._model = model
        model_name = getattr(model, "model", None)
        kind = type(model).__name__
        self.name = f"{kind}:{model_name}" if isinstance(model_name, str) and model_name else kind
        self._dialect = ChatDialect()

    @property
    def context_window(self) -> int | None:
        window = getattr(self._model, "context_window", None)
        return window if isinstance(window, int) else None

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        return inline_forms(cast("ChatModel", self._model))

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return all parameters: the methods of such models have no common names for them."""
        return {name: f"takes no `{name}` (set it on the model object itself)" for name, _ in sampling.items()}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Yield the reply in the pieces that the model returns; a refused order of roles is changed from then on."""
        check_sampling(self, request.sampling)
        methods = self._methods_to_try(request)
        while True:
            dialect, last = self._dialect, len(methods) == 1
            reply = _DuckTypedReply(methods[0], request, dialect, label=self.name, may_be_empty=last)
            started = False
            try:
                while (batch := await reply.next_batch()) is not None:
                    if batch:
                        started = True
                        yield batch
                return
            except ModelError as error:
                if not started and self._try_downgrade(dialect, error):
                    continue
                if started or last:
                    raise
                _log.warning("a model's stream failed; calling invoke instead", model=self.name, reason=str(error))
                methods = methods[1:]
            finally:
                await reply.aclose()

    def _try_downgrade(self, dialect: ChatDialect, error: ModelError) -> bool:
        """Switch to the dialect that the error calls for, from now on; return False if there is none."""
        downgrade = find_downgrade(dialect, error, _DOWNGRADES)
        if downgrade is not None and self._dialect == dialect:  # else a concurrent call has already switched
            self._dialect = downgrade.apply(dialect)
            _log.info(downgrade.log_message, model=self.name, reason=str(error))
        return downgrade is not None

    def _methods_to_try(self, request: ModelRequest) -> list[Callable[..., Any]]:
        names = ["stream_with_tools", "stream", "invoke"]
        if request.tools and (self._has_method("stream_with_tools") or self._has_method("invoke")):
            names.remove("stream")
        methods = [getattr(self._model, name) for name in names if self._has_method(name)]
        return [methods[0], *[method for method in methods[1:] if method == getattr(self._model, "invoke", None)]]

    def _has_method(self, name: str) -> bool:
        return callable(getattr(self._model, name, None))


class _DuckTypedReply:
    """One call of one method of a duck-typed model."""

    def __init__(
        self,
        method: Callable[..., Any],
        request: ModelRequest,
        dialect: ChatDialect,
        *,
        label: str,
        may_be_empty: bool,
    ) -> None:
        self._may_be_empty = may_be_empty
        self._method_name = f"{label}.{getattr(method, '__name__', 'call')}"
        names = ToolNames(TOOL_NAMES, request)
        self._parser = ChatReplyParser(label=label, model=label, original_names=names.originals)
        self._method = method
        self._rows = encode_messages(request.messages, model=label, dialect=dialect, names=names)
        self._options = _accepted_options(method, request, names)
        self._pump: ThreadedIterator | None = None
        self._source: AsyncIterator[object] | None = None
        self._ended = False
        self._failure: ModelError | None = None

    async def next_batch(self) -> list[Delta] | None:
        """Return the next deltas, perhaps none, or None at the end; raises `ModelError` after all deltas before it."""
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return None
        with _translating_errors(self._method_name):
            items = await self._next_items()
        if items is None:
            self._ended = True
            return self._end()
        deltas: list[Delta] = []
        try:
            with _translating_errors(self._method_name):
                for chunk in items:
                    deltas += self._parser.feed_chunk(cleaned(chat_event(chunk)))
        except ModelError as error:
            self._failure = error
        self._may_be_empty = self._may_be_empty or bool(deltas)
        return deltas

    async def aclose(self) -> None:
        if self._pump is not None:
            self._pump.close()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            with _translating_errors(self._method_name):
                await close()

    def _end(self) -> list[Delta]:
        if not (self._may_be_empty or self._parser.finishing):
            raise ModelError(f"{self._method_name} returned nothing", code="provider.bad_reply")
        return self._parser.finish()

    async def _next_items(self) -> list[object] | None:
        if self._source is None and self._pump is None:
            await self._start()
        if self._source is None and self._pump is not None:
            items = await self._pump.next_batch()
            if not items or not _is_async(items[0]):
                return items
            self._source = await _open_iterator(items[0])
        try:
            return [await anext(cast("AsyncIterator[object]", self._source))]
        except StopAsyncIteration:
            return None

    async def _start(self) -> None:
        if inspect.iscoroutinefunction(self._method) or inspect.isasyncgenfunction(self._method):
            self._source = await _open_iterator(self._method(self._rows, **self._options))
        else:
            self._pump = ThreadedIterator(lambda: self._method(self._rows, **self._options), name=self._method_name)


async def _open_iterator(result: Any) -> AsyncIterator[object]:
    if inspect.isawaitable(result):
        result = await result
    return aiter(cast("AsyncIterable[object]", result)) if hasattr(result, "__aiter__") else _iterate(result)


async def _iterate(item: object) -> AsyncIterator[object]:
    items = item if inspect.isgenerator(item) else [item]
    for item in cast("Iterator[object]", items):
        yield item


def _is_async(result: object) -> bool:
    return inspect.isawaitable(result) or hasattr(result, "__aiter__")


def _accepted_options(method: Callable[..., Any], request: ModelRequest, names: ToolNames) -> dict[str, Any]:
    """Return the options of the request that the signature of `method` accepts."""
    options: dict[str, Any] = {}
    if request.tools:
        options = {"tools": encode_tools(request.tools, names), "tool_choice": request.tool_choice}
    if request.timeout is not None:
        options["timeout"] = request.timeout
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return {name: value for name, value in options.items() if name == "tools"}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return options
    accepted = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in options.items() if name in accepted}


@contextmanager
def _translating_errors(method_name: str) -> Generator[None]:
    """Translate every exception of user code in the block to `ModelError`."""
    try:
        with user_code.translated_errors(method_name):
            yield
    except UserCodeError as exc:
        raise _model_error(exc) from exc


def _model_error(failure: UserCodeError) -> ModelError:
    cause = failure.__cause__
    status = getattr(cause, "status_code", None)
    if isinstance(status, int) and 400 <= status < 600:  # the exceptions of provider SDKs
        return status_error(status, {}, ErrorReport(message=str(failure), type=_error_type(cause)), label=failure.what)
    kind = _error_type(cause)
    limit = exceeded_limit(f"{type(cause).__name__} {kind or ''}", str(failure), provider="", status=None)
    code = "context_overflow" if limit == "context_overflow" else "provider.transport"
    return ModelError(str(failure), code=code, provider_type=kind)


def _error_type(cause: BaseException | None) -> str | None:
    types = (getattr(cause, name, None) for name in ("type", "code"))
    return next((kind for kind in types if isinstance(kind, str) and kind), None)
