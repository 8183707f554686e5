"""The model protocol, the deltas that a model streams and the reply built from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, Protocol

from agenticx.errors import ModelError, ModelErrorCode
from agenticx.llms.memory_estimate import MAX_CHAR_BYTES, estimate_fragment_bytes, measure_bytes
from agenticx.llms.reply_limits import (
    MAX_ARGUMENT_CHARS,
    MAX_CALLS,
    MAX_DELTAS,
    MAX_KEPT_BYTES,
    MAX_NAME_CHARS,
    MAX_PARSED_BYTES,
    MAX_REPLY_BYTES,
)
from agenticx.llms.sampling import NO_SAMPLING, Sampling
from agenticx.messages import Message, ProviderState, ToolCall

__all__ = [
    "Attempt",
    "ChatModel",
    "Delta",
    "Finished",
    "InlineForm",
    "ModelRequest",
    "OutputSchema",
    "Reply",
    "ReplyBuilder",
    "ReplySize",
    "StopKind",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolSchema",
    "Usage",
    "UsageDelta",
    "close_model",
    "complete",
    "failed_reply_error",
    "inline_forms",
    "largest_cost",
    "output_limit",
    "receive_reply",
    "takes_output_schema",
]

StopKind = Literal["end", "tool_calls", "length", "content_filter", "broken", "failed"]
"""Why a model stopped, the same for all providers; the provider's own value is `Reply.finish_reason`.

`broken`: the reply is incomplete. Its finish reason says so or is unknown, a call was never closed or arrived after the
end marker, or the connection was cut. `failed`: the provider could not finish the reply; the turn fails.
"""

InlineForm = Literal["hermes", "mistral", "function"]
"""A syntax of calls that some models write into their text, if their server does not parse it (`inline_calls`)."""

_INLINE_FORMS: tuple[InlineForm, ...] = ("hermes", "mistral", "function")
_WHOLE_STOPS = frozenset[StopKind](("end", "tool_calls"))


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A JSON Schema that the answer must match, and its name of letters, digits, `_` and `-`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    - `sampling` takes precedence over the model's own.
    - `output_schema` may only be set if `takes_output_schema` is true for the model; the answer is validated anyway.
    - `timeout` is the provider's request timeout in seconds, longer than our own limits. `attempt_seconds` limits the
      time to the first delta of an attempt that has a fallback.
    - `parallel_calls=False` asks for one call at a time, and `tool_choice="required"` for a call of `required_tool`,
      if the wire supports it.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    sampling: Sampling = NO_SAMPLING
    output_schema: OutputSchema | None = None
    timeout: float | None = None
    attempt_seconds: float | None = None
    parallel_calls: bool = True
    required_tool: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several model calls; None means that the provider did not report the number.

    `input_tokens` is the provider's own number. Most providers include cached tokens in it; with
    `input_excludes_cached`, tokens read from the cache and written to it are extra. Likewise for `output_tokens`: with
    `output_excludes_reasoning`, reasoning tokens are extra. The two totals include everything for all providers.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    cache_write_tokens: int | None = None
    input_excludes_cached: bool = False
    output_excludes_reasoning: bool = False

    @property
    def total_input_tokens(self) -> int | None:
        """All input tokens, cached ones included."""
        if self.input_tokens is None or not self.input_excludes_cached:
            return self.input_tokens
        return self.input_tokens + (self.cached_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def total_output_tokens(self) -> int | None:
        """All output tokens, reasoning included."""
        if self.output_tokens is None or not self.output_excludes_reasoning:
            return self.output_tokens
        return self.output_tokens + (self.reasoning_tokens or 0)

    def updated(self, later: Usage) -> Usage:
        """Return the counts of a call after a `later` report; a None in it leaves the earlier count."""
        return replace(self, **{key: value for key in Usage.__slots__ if (value := getattr(later, key)) is not None})

    def __add__(self, other: Usage) -> Usage:
        """Return the usage of both calls; the cost is None unless both are known, so that a sum is never too low."""
        return Usage(
            _add(self.total_input_tokens, other.total_input_tokens),
            _add(self.total_output_tokens, other.total_output_tokens),
            _add(self.cached_tokens, other.cached_tokens),
            _add(self.reasoning_tokens, other.reasoning_tokens),
            None if self.cost_usd is None or other.cost_usd is None else self.cost_usd + other.cost_usd,
            _add(self.cache_write_tokens, other.cache_write_tokens),
        )


def _add(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Reasoning text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A fragment of a tool call.

    `index` numbers the calls of this reply from 0 in order of first appearance; the wire assigns it, whatever
    indexes the provider sends. `id` and `name` are set on
    the first delta of a call (and may be empty if the provider sent none), `arguments` is appended. A later
    name replaces an earlier one: some providers send it in pieces.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """The latest counts of this call; each field that is not None replaces the earlier value."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """The provider's end marker; a reply without one is truncated, even if it seems whole.

    Some providers send the finish reason separately from the end marker. If the marker itself is missing then,
    `complete` is False.
    """

    stop: StopKind
    finish_reason: str | None
    provider_state: ProviderState | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """A notice that the call starts, or is retried, with `model`; it is no part of the reply.

    A call is only retried before its first delta. The attempt begins `wait_seconds` from now. `reason` says why there
    is another attempt (None for a first one), with the error `code` of the failure, and `spent` is the usage of the
    failed attempt before it, if known; no `UsageDelta` has that. If `bounded`, there is a fallback and the sender ends
    the attempt after `ModelRequest.attempt_seconds` without a delta; the receiver's own limit for the first delta does
    not apply then.
    """

    model: str
    wait_seconds: float = 0.0
    reason: str | None = None
    bounded: bool = False
    spent: Usage | None = None
    code: ModelErrorCode | None = None


Delta = TextDelta | ThinkingDelta | ToolCallDelta | UsageDelta | Attempt | Finished


class ChatModel(Protocol):
    """A language model that streams its replies.

    `stream` yields *batches*: all deltas that one read of the socket completed, never an empty batch. It raises
    no other exception than `ModelError`; closing the iterator early closes the provider's socket. A stream that ends
    without a `Finished` was truncated (the caller decides how to treat it). Pings and comments yield nothing.

    A model may also have methods `takes_output_schema`, `sampling_problems` and `largest_cost`, and attributes
    `inline_calls` and `output_limit`; see the functions of these names, and `inline_forms`.
    """

    @property
    def name(self) -> str:
        """`wire-or-provider:model`, as the user wrote it."""
        ...

    @property
    def context_window(self) -> int | None:
        """The number of input tokens that the model accepts, None if unknown."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]: ...


def takes_output_schema(model: ChatModel, output: OutputSchema, *, with_tools: bool) -> bool:
    """Return whether `model` can be constrained to the schema `output`, in requests with tools or without.

    Calls the model's method of the same name; False for a model that has none.
    """
    supports: Callable[..., bool] | None = getattr(model, "takes_output_schema", None)
    return supports is not None and supports(output, with_tools=with_tools)


def inline_forms(model: ChatModel, answered_by: str | None = None) -> Sequence[InlineForm]:
    """Return the forms of calls that `model` may write into its text: its attribute `inline_calls`, by default none.

    If `model` has fallbacks (it then has a method `model_named`), `answered_by` is the name of the model that answered.
    """
    named: Callable[[str], ChatModel] | None = getattr(model, "model_named", None)
    if named is not None and answered_by is not None:
        model = named(answered_by)
    supported: object = getattr(model, "inline_calls", ())
    return tuple(form for form in _INLINE_FORMS if form in supported) if isinstance(supported, tuple | list) else ()


def output_limit(model: ChatModel) -> int | None:
    """Return the largest number of tokens of a reply of `model`, None if unknown.

    It is the model's attribute `output_limit`; without it the limit is unknown.
    """
    limit: object = getattr(model, "output_limit", None)
    return limit if isinstance(limit, int) else None


def largest_cost(model: ChatModel, usage: Usage) -> Decimal | None:
    """Return the cost in US dollars of a call with this usage, None if a price is unknown.

    Calls the model's method of the same name; without one the price is unknown. For a model with fallbacks it is the
    highest of their costs.
    """
    find: Any = getattr(model, "largest_cost", None)
    return None if find is None else find(usage)


@dataclass(frozen=True, slots=True)
class Reply:
    """The complete output of one model call."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: StopKind = "end"
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    complete: bool = False
    provider_state: ProviderState | None = None

    @property
    def is_whole(self) -> bool:
        """True if the model finished by itself; else its calls are not run and its text is partial."""
        return self.complete and self.stop in _WHOLE_STOPS


_TEXT_DELTAS = (TextDelta, ThinkingDelta)


class ReplySize:
    """The running size of a reply: its deltas, and the JSON that a wire keeps of it; the limits are in `reply_limits`.

    Exceeding a limit raises `ModelError`; `label` is the subject of its message, for example the model's name.
    """

    def __init__(self, *, label: str = "the model") -> None:
        self.calls = 0
        self._label = label
        self._deltas = 0
        self._characters = 0
        self._width = 1
        self._parsed = 0
        self._kept_bytes = 0
        self._arguments: dict[int, int] = {}

    def add(self, batch: Sequence[Delta]) -> None:
        """Add the deltas of a batch."""
        if (error := self._count(batch)[1]) is not None:
            raise error

    def truncate(self, deltas: list[Delta]) -> ModelError | None:
        """Add `deltas`; return the error of the first one over a limit and remove it and all after it, else None."""
        counted, error = self._count(deltas)
        del deltas[counted:]
        return error

    def allocate_call(self) -> int:
        """Return the index of a new call."""
        if self.calls >= MAX_CALLS:
            raise self._too_large(f"asks for more than {MAX_CALLS} tool calls")
        self.calls += 1
        return self.calls - 1

    def add_kept_json(self, value: object) -> None:
        """Add the bytes of a parsed JSON value that is kept; raise `ModelError` over the limit."""
        self.add_kept_bytes(measure_bytes(value))

    def add_kept_bytes(self, count: int) -> None:
        """Add `count` bytes that are kept; raise `ModelError` over the limit."""
        self._kept_bytes += count
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self._too_large("holds more data than the limit")

    def _count(self, deltas: Sequence[Delta]) -> tuple[int, ModelError | None]:
        """Count deltas up to the first one over a limit; return how many are within the limits, and its error."""
        for position, delta in enumerate(deltas):
            if isinstance(delta, _TEXT_DELTAS):
                text = delta.text
            elif isinstance(delta, ToolCallDelta):
                try:
                    text = self._count_call(delta)
                except ModelError as exc:
                    return position, exc
            else:
                continue
            self._deltas += 1
            self._characters += len(text)
            if not text.isascii():  # the whole text is as wide as its widest character once it is joined
                self._width = MAX_CHAR_BYTES
            if self._characters * self._width > MAX_REPLY_BYTES or self._deltas > MAX_DELTAS:
                return position, self._too_large("is larger than the limit")
        return len(deltas), None

    def _count_call(self, delta: ToolCallDelta) -> str:
        """Check a piece of a call against the limits and return all its text: id, name and arguments."""
        if delta.index >= MAX_CALLS:
            raise self._too_large(f"asks for more than {MAX_CALLS} tool calls")
        if len(delta.name) > MAX_NAME_CHARS:
            raise self._too_large(f"names a tool with more than {MAX_NAME_CHARS} characters")
        size = self._arguments[delta.index] = self._arguments.get(delta.index, 0) + len(delta.arguments)
        if size > MAX_ARGUMENT_CHARS:
            raise self._too_large(f"calls a tool with more than {MAX_ARGUMENT_CHARS} characters")
        self._parsed += estimate_fragment_bytes(delta.arguments)
        if self._parsed > MAX_PARSED_BYTES:
            raise self._too_large("is larger than the limit")
        return delta.id + delta.name + delta.arguments

    def _too_large(self, what: str) -> ModelError:
        text = f"{self._label} sent a malformed reply: it {what}"
        return ModelError(text, code="provider.bad_reply", provider_type="protocol_error")


class ReplyBuilder:
    """A builder of a `Reply` from deltas; linear in the length of the stream.

    `usage` has the token counts received so far, `failed_usages` the counts of failed attempts; `complete` is true once
    the end marker was received.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._ids: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self.usage = Usage()
        self.failed_usages: tuple[Usage, ...] = ()
        self.complete = False
        self._finished: Finished | None = None

    def add(self, *deltas: Delta) -> None:
        """Add deltas in their order.

        >>> builder = ReplyBuilder()
        >>> builder.add(TextDelta("h"), TextDelta("i"))
        >>> builder.reply().text
        'hi'
        """
        for delta in deltas:
            match delta:
                case TextDelta():
                    self._text.append(delta.text)
                case ThinkingDelta():
                    self._reasoning.append(delta.text)
                case ToolCallDelta():
                    self._add_call(delta)
                case UsageDelta():
                    self.usage = self.usage.updated(delta.usage)
                case Attempt():
                    self.failed_usages += () if delta.spent is None else (delta.spent,)
                case Finished():
                    self._finished, self.complete = delta, delta.complete

    def _add_call(self, delta: ToolCallDelta) -> None:
        while len(self._ids) <= delta.index:
            self._ids.append("")
            self._names.append("")
            self._arguments.append([])
        self._ids[delta.index] = self._ids[delta.index] or delta.id
        self._names[delta.index] = delta.name or self._names[delta.index]
        if delta.arguments:
            self._arguments[delta.index].append(delta.arguments)

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(self._text)

    def reply(self) -> Reply:
        """Return the reply received so far."""
        finished = self._finished or Finished("end", None)
        calls = zip(self._ids, self._names, map("".join, self._arguments), strict=True)
        return Reply(
            text=self.text,
            reasoning="".join(self._reasoning),
            tool_calls=tuple(ToolCall(id=id_, name=name, arguments=arguments) for id_, name, arguments in calls),
            stop=finished.stop,
            finish_reason=finished.finish_reason,
            usage=self.usage,
            complete=self.complete,
            provider_state=finished.provider_state,
        )


def failed_reply_error(model_name: str, finish_reason: str | None) -> ModelError:
    """Return the error for a reply whose `stop` is `failed`; `finish_reason` is the provider's own value."""
    return ModelError(
        f"{model_name} stopped before the end of its reply (finish reason {finish_reason!r})",
        code="provider.overloaded",
        provider_type=finish_reason,
        retryable=True,
    )


async def close_model(model: ChatModel) -> None:
    """Close the connections that a model keeps on the running loop, if any."""
    aclose = getattr(model, "aclose", None)
    if aclose is not None:
        await aclose()


async def complete(
    model: ChatModel, request: ModelRequest, builder: ReplyBuilder | None = None
) -> tuple[Reply, ModelError | None]:
    """Make one call and return the reply as far as it was received, and the error that ended it, else None.

    A `builder` passed by the caller has all deltas received so far, also if the call is cancelled.
    """
    builder = builder or ReplyBuilder()

    async def add(batch: Sequence[Delta]) -> None:
        builder.add(*batch)

    try:
        await receive_reply(model, request, add)
    except ModelError as exc:
        return builder.reply(), exc
    return builder.reply(), None


async def receive_reply(
    model: ChatModel, request: ModelRequest, take: Callable[[Sequence[Delta]], Awaitable[None]]
) -> None:
    """Make one call and await `take` with each batch of its reply; the model's stream is closed in every case.

    Raises `ModelError` also for a reply over the limits of `ReplySize`.
    """
    source = model.stream(request)
    async with AsyncExitStack() as stack:
        close: Any = getattr(source, "aclose", None)
        if close is not None:
            stack.push_async_callback(close)
        size = ReplySize()
        async for batch in source:
            size.add(batch)
            await take(batch)
