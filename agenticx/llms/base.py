"""What a model is: one async protocol, the deltas it streams and the reply they fold into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from agenticx.errors import ModelError
from agenticx.llms._limits import (
    MAX_ARGUMENT_CHARS,
    MAX_CALLS,
    MAX_DELTAS,
    MAX_KEPT_BYTES,
    MAX_NAME_CHARS,
    MAX_PARSED_BYTES,
    MAX_REPLY_BYTES,
)
from agenticx.llms._weight import MAX_CHAR_BYTES, estimate_fragment_bytes, measure_bytes
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
    "gave_up",
    "inline_forms",
    "takes_output_schema",
]

StopKind = Literal["end", "tool_calls", "length", "content_filter", "broken", "failed"]
"""Why a model stopped, in our words; the provider's own word is `Reply.finish_reason`.

A reply is `broken` where something in it says that it did not come to its own end: a word for that or one that nobody
knows, a call that was never closed or came behind the end, a connection that was cut. It `failed` where the
provider says that it gave up: with such a reply a turn fails as with an error.
"""

InlineForm = Literal["hermes", "mistral"]
"""A form in which some models write calls into their text, where their server does not read it (`inline_calls`)."""

_INLINE_FORMS: tuple[InlineForm, ...] = ("hermes", "mistral")

_GOOD_STOPS = frozenset[StopKind](("end", "tool_calls"))


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What an answer is to be: an object of this JSON Schema. `name` is made of letters, digits, `_` and `-`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    An `output_schema` is for models that `takes_output_schema` says yes of; what comes is checked all the same.
    `timeout` is the provider's request time-out in seconds, past all our clocks; `attempt_seconds` is what an attempt
    may take to its first delta where there is a fallback to go to. Without `parallel_calls` the model is told to make
    one call at a time, where its wire has a word for that; it may make several all the same.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    max_output_tokens: int | None = None
    output_schema: OutputSchema | None = None
    timeout: float | None = None
    attempt_seconds: float | None = None
    parallel_calls: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several model calls; None means the provider did not say.

    `input_tokens` is the provider's own number. Most count in it what their cache held; where `input_excludes_cached`,
    what was read from the cache and written to it comes on top. `output_tokens` likewise: where
    `output_excludes_reasoning`, what the model thought comes on top. The totals have all of it everywhere.
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
        """All tokens that went in."""
        if self.input_tokens is None or not self.input_excludes_cached:
            return self.input_tokens
        return self.input_tokens + (self.cached_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def total_output_tokens(self) -> int | None:
        """All tokens that came out."""
        if self.output_tokens is None or not self.output_excludes_reasoning:
            return self.output_tokens
        return self.output_tokens + (self.reasoning_tokens or 0)

    def updated(self, later: Usage) -> Usage:
        """What is known once the same call has said `later`: its counts, and these where it has none."""

        def pick(name: str) -> Any:
            value = getattr(later, name)
            return getattr(self, name) if value is None else value

        return Usage(*(pick(name) for name in Usage.__slots__))

    def __add__(self, other: Usage) -> Usage:
        """Both calls together; the cost is unknown unless both are known, so that a sum is never too low."""
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
    """A piece of a tool call.

    `index` numbers the calls of this reply from 0 in order of first appearance and is assigned by the wire,
    which has already sorted out missing, repeated and rotating provider indexes. `id` and `name` are set on
    the first delta of a call (and may be empty when the provider sent none), `arguments` is appended. A later
    name takes the place of an earlier one: some providers send it in pieces.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """The latest counts of this call; replaces earlier ones field by field where not None."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """The provider's end marker. Without one a reply is truncated, whatever it says.

    Where it says why it stops apart from the marker, and the marker is missing, the reason is not `complete`.
    """

    stop: StopKind
    finish_reason: str | None
    provider_state: ProviderState | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """The call is made once more, or of another model, because nothing of it was seen yet; no part of the reply.

    The attempt begins `wait_seconds` from now. `reason` says why there is another one (None for a first). Where
    `bounded`, whoever sends this ends the attempt after `ModelRequest.attempt_seconds` without a delta, because there
    is a fallback; the receiver's own clock for the first delta does not run then.
    """

    model: str
    wait_seconds: float = 0.0
    reason: str | None = None
    bounded: bool = False


Delta = TextDelta | ThinkingDelta | ToolCallDelta | UsageDelta | Attempt | Finished


class ChatModel(Protocol):
    """A model that can be asked.

    `stream` yields *batches*: all deltas that one read of the socket completed, never an empty batch. It raises
    `ModelError` and nothing else; closing the iterator early closes the provider's socket. A stream that ends
    without a `Finished` was truncated (the caller decides what that means). Pings and comments yield nothing.

    A model may also have a method `takes_output_schema` and an attribute `inline_calls`; see the functions
    `takes_output_schema` and `inline_forms`.
    """

    @property
    def name(self) -> str:
        """`wire-or-provider:model`, as the person wrote it."""
        ...

    @property
    def context_window(self) -> int | None:
        """Input tokens the model takes, None when unknown."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]: ...


def takes_output_schema(model: ChatModel, output: OutputSchema, *, with_tools: bool) -> bool:
    """Whether `model` can be held to that schema, in requests with tools or without.

    Models say so by a method of the same name; one that has none cannot.
    """
    ask: Callable[..., bool] | None = getattr(model, "takes_output_schema", None)
    return ask is not None and ask(output, with_tools=with_tools)


def inline_forms(model: ChatModel, answered_by: str | None = None) -> Sequence[InlineForm]:
    """Return the forms in which `model` is known to write calls into its text.

    Models have them as `inline_calls`; one that has no such attribute has none. `answered_by` is the name of the model
    that answered, where `model` has fallbacks: those have a method `model_named`.
    """
    named: Callable[[str], ChatModel] | None = getattr(model, "model_named", None)
    if named is not None and answered_by is not None:
        model = named(answered_by)
    own: object = getattr(model, "inline_calls", ())
    return tuple(form for form in _INLINE_FORMS if form in own) if isinstance(own, tuple | list) else ()


@dataclass(frozen=True, slots=True)
class Reply:
    """All that a model said in one call."""

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
        """Whether the model came to its own end; the calls of any other reply are not run, its text is partial."""
        return self.complete and self.stop in _GOOD_STOPS


_WRITTEN = (TextDelta, ThinkingDelta)


class ReplySize:
    """How large a reply is already, by its deltas and by what a wire keeps of it; see `_limits` for what it may be.

    Whatever goes beyond a limit raises a `ModelError`, in which `who` names whose reply it is.
    """

    def __init__(self, *, who: str = "the model") -> None:
        self.calls = 0
        self._who = who
        self._deltas = 0
        self._characters = 0
        self._width = 1
        self._parsed = 0
        self._kept = 0
        self._arguments: dict[int, int] = {}

    def add(self, batch: Sequence[Delta]) -> None:
        """Count a batch in."""
        for delta in batch:
            self._add(delta)

    def cut(self, deltas: list[Delta]) -> ModelError | None:
        """Count in what a wire has read; from the first delta that is too much on, all go, and the error comes back."""
        counted = 0
        try:
            for delta in deltas:
                self._add(delta)
                counted += 1
        except ModelError as exc:
            del deltas[counted:]
            return exc
        return None

    def next_call(self) -> int:
        """The number of a call that begins."""
        if self.calls >= MAX_CALLS:
            raise self._over(f"asks for more than {MAX_CALLS} tool calls")
        self.calls += 1
        return self.calls - 1

    def keep(self, value: object) -> None:
        """Count in parsed JSON that is kept."""
        self.keep_bytes(measure_bytes(value))

    def keep_bytes(self, count: int) -> None:
        """Count in so many bytes that are kept."""
        self._kept += count
        if self._kept > MAX_KEPT_BYTES:
            raise self._over("holds more than any may")

    def _add(self, delta: Delta) -> None:
        if isinstance(delta, _WRITTEN):
            text = delta.text
        elif isinstance(delta, ToolCallDelta):
            text = self._checked(delta)
        else:
            return
        self._deltas += 1
        self._characters += len(text)
        if not text.isascii():  # the whole text is as wide as its widest character once it is joined
            self._width = MAX_CHAR_BYTES
        if self._characters * self._width > MAX_REPLY_BYTES or self._deltas > MAX_DELTAS:
            raise self._over("is longer than any may be")

    def _checked(self, delta: ToolCallDelta) -> str:
        """All that is written in a piece of a call."""
        if delta.index >= MAX_CALLS:
            raise self._over(f"asks for more than {MAX_CALLS} tool calls")
        if len(delta.name) > MAX_NAME_CHARS:
            raise self._over(f"names a tool with more than {MAX_NAME_CHARS} characters")
        size = self._arguments[delta.index] = self._arguments.get(delta.index, 0) + len(delta.arguments)
        if size > MAX_ARGUMENT_CHARS:
            raise self._over(f"calls a tool with more than {MAX_ARGUMENT_CHARS} characters")
        self._parsed += estimate_fragment_bytes(delta.arguments)
        if self._parsed > MAX_PARSED_BYTES:
            raise self._over("is longer than any may be")
        return delta.id + delta.name + delta.arguments

    def _over(self, what: str) -> ModelError:
        text = f"{self._who} sent a malformed reply: it {what}"
        return ModelError(text, code="provider.bad_reply", provider_type="protocol_error")


class ReplyBuilder:
    """Folds deltas into a `Reply`; linear in the length of the stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._ids: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._usage = Usage()
        self._finished: Finished | None = None

    def add(self, delta: Delta) -> None:
        """Take one delta in.

        >>> builder = ReplyBuilder()
        >>> builder.add(TextDelta("hi"))
        >>> builder.reply().text
        'hi'
        """
        match delta:
            case TextDelta():
                self._text.append(delta.text)
            case ThinkingDelta():
                self._reasoning.append(delta.text)
            case ToolCallDelta():
                self._add_call(delta)
            case UsageDelta():
                self._usage = self._usage.updated(delta.usage)
            case Attempt():
                pass
            case Finished():
                self._finished = delta

    def _add_call(self, delta: ToolCallDelta) -> None:
        while len(self._ids) <= delta.index:
            self._ids.append("")
            self._names.append("")
            self._arguments.append([])
        self._ids[delta.index] = self._ids[delta.index] or delta.id
        self._names[delta.index] = delta.name or self._names[delta.index]
        if delta.arguments:
            self._arguments[delta.index].append(delta.arguments)

    def call_identity(self, index: int) -> tuple[str, str]:
        """(id, name) of call `index` as far as known."""
        return self._ids[index], self._names[index]

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(self._text)

    @property
    def usage(self) -> Usage:
        """The counts that came so far."""
        return self._usage

    def reply(self) -> Reply:
        """What was said so far; `complete` only if the end marker was seen."""
        finished = self._finished
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ToolCall(id=id_, name=name, arguments="".join(parts))
                for id_, name, parts in zip(self._ids, self._names, self._arguments, strict=True)
            ),
            stop=finished.stop if finished else "end",
            finish_reason=finished.finish_reason if finished else None,
            usage=self._usage,
            complete=finished is not None and finished.complete,
            provider_state=finished.provider_state if finished else None,
        )


def gave_up(model_name: str, finish_reason: str | None) -> ModelError:
    """The error for a reply that `failed`, by the provider's own word."""
    return ModelError(
        f"{model_name} gave up in the middle of its reply (finish reason {finish_reason!r})",
        code="provider.overloaded",
        provider_type=finish_reason,
        retryable=True,
    )


async def close_model(model: ChatModel) -> None:
    """End the connections that a model keeps on the running loop, if it keeps any."""
    aclose = getattr(model, "aclose", None)
    if aclose is not None:
        await aclose()


async def complete(
    model: ChatModel, request: ModelRequest, builder: ReplyBuilder | None = None
) -> tuple[Reply, ModelError | None]:
    """One call without streaming it anywhere: the reply as far as it came, and the error that ended it, if any.

    A `builder` of the caller's own has what came also when the call is cancelled.
    """
    builder, size = builder or ReplyBuilder(), ReplySize()
    try:
        async for batch in model.stream(request):
            size.add(batch)
            for delta in batch:
                builder.add(delta)
    except ModelError as exc:
        return builder.reply(), exc
    return builder.reply(), None
