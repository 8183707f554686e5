"""Compaction: old messages of a history are replaced by summaries, the recent tail stays as it is.

Differences from the originally specified compactor:

1. A summary covers the messages since the last one and stays a message of its own. The specification has a single
   system message, so that each compaction would summarise the summary before it, and lose a part of it each time. Here
   the result begins with one system message tagged `[compacted]` for each compaction. Once these hold more than
   `SUMMARIES_CHARS` characters together, or half of the usable part of a small window, they are summarised into one.
   Towards `threshold_messages` they count as one message.
2. With a known context window the compactor of an `AgentRuntime` counts tokens only, unless a threshold is set: 20
   messages are few in a window of 200,000 tokens.
3. If leaving out the text of notes in old turns already brings a history well under its limits, nothing else changes;
   if shortening old tool results too does, nothing is summarised.
4. System messages with which a history begins are instructions of the caller: they follow the summaries word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import is_not
from typing import Any, TypeVar, overload

from agenticx import user_code
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, ModelError
from agenticx.foreign_text import one_line
from agenticx.llms.base import ChatModel, ModelRequest, ReplyBuilder, Usage, complete
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.openai_rows import in_given_shape, messages_from_rows
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, clean_text, sources_of
from agenticx.runtime.history_text import (
    INPUT_CHARS,
    count_attachment_characters,
    count_characters,
    message_texts,
    render_transcript,
    snippets,
)
from agenticx.runtime.turn_log import LlmCallLine
from agenticx.settings import prompt_text
from agenticx.threads import run_sized

__all__ = [
    "SUMMARIES_CHARS",
    "TAG",
    "WINDOW_SHARE",
    "CompactionResult",
    "ContextCompactor",
    "UsageCallback",
    "estimate_tokens",
    "is_summary",
    "message_count_size",
    "without_notes",
]

HistoryT = TypeVar("HistoryT")
Row = Mapping[str, Any]
History = Sequence[Message] | Sequence[Row]

UsageCallback = Callable[[Usage], object]
"""Called with the usage of each summary, also of an attempt that failed."""

TAG = "[compacted]"
WINDOW_SHARE = 0.7
"""The part of a known context window that may be used before history is compacted; the rest is for the answer."""

PRUNED_SHARE = 0.8
"""The part of a limit that a history with shortened tool results must stay under, or the next round shortens again."""

THRESHOLD_MESSAGES, THRESHOLD_CHARS = 20, 48_000
"""The default thresholds, as originally specified."""

SUMMARIES_CHARS = 8_000
"""The most characters of all summaries together, the current request not counted; with more they become one."""

GROWTH = 1.5
"""The factor by which a history must grow before a summary that gained nothing is requested again."""

_SUMMARY_CHARS = 1_000
"""The usual length of a summary of short messages: a few sentences for each of the four points in its prompt."""

_NOTE_CHARS = 1_000
"""The size from which on text of notes in old turns is left out."""
_MAX_SOURCES = 10

_TOKEN_CHARS = 4
_MESSAGE_CHARS = 32
_THREAD = "agx compaction"
_MIN_GAIN_CHARS = 2_000
_SHORT_TEXT_CHARS = 1_000
"""The size to which each long text of the last messages is cut if a provider refuses also a compacted history."""
_REQUEST_CHARS = 4_000

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionResult(Sequence[HistoryT]):
    """A shorter history; it can be used as the list of its messages, as in the published `AgentRuntime`.

    Of a history of dict rows the messages are rows: those that stay, and new ones of the same form.
    Its first `replacement_count` messages replace the first `replaced_count` of the original ones. `summary` is "" if
    shortening old tool results was enough. Tokens are estimates; `usage` is the cost of the summaries as the provider
    counted it.
    """

    messages: list[HistoryT]
    compacted_count: int
    summary: str
    tokens_before: int
    tokens_after: int
    usage: Usage | None
    replacement_count: int = 0
    replaced_count: int = 0

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> HistoryT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[HistoryT]: ...
    def __getitem__(self, index: int | slice) -> HistoryT | Sequence[HistoryT]:
        return self.messages[index]

    @property
    def tokens_spent(self) -> int | None:
        """The input and output tokens of the summaries; None if the provider did not count both."""
        if self.usage is None:
            return None
        input_tokens, output_tokens = self.usage.total_input_tokens, self.usage.total_output_tokens
        return None if input_tokens is None or output_tokens is None else input_tokens + output_tokens


@dataclass(frozen=True, slots=True)
class _Parts:
    """A history divided into parts.

    `summaries` and `new` messages come before `cut`; `carried` and `tail` stay as they are. Of what comes before `cut`,
    the caller's leading system messages are carried, and a current request with attachments.
    """

    cut: int
    summaries: list[Message]
    new: list[Message]
    carried: list[Message]
    tail: list[Message]

    @property
    def kept(self) -> list[Message]:
        """The messages after the summaries."""
        return [*self.carried, *self.tail]


@dataclass(frozen=True, slots=True)
class _SummaryPlan:
    """A history to be summarised, with its present size."""

    parts: _Parts
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCompactor:
    """A compactor for histories of more than `threshold_messages` messages or `threshold_chars` characters.

    A history that fills more than `WINDOW_SHARE` of a known context window is compacted too. A threshold that is None
    is the default of the published `AgentRuntime` if the window is unknown, and no limit if it is known. The compactor
    that an `AgentRuntime` makes by itself has None for each threshold that no argument, variable or settings file sets:
    if only one is set, that one counts in every window.

    `timeout` limits each model call, in seconds of `clock`. Thresholds below 8 messages and a tail below 4 are raised
    to these minimums, which are those of the published `AgentRuntime`.
    """

    threshold_messages: int | None = THRESHOLD_MESSAGES
    threshold_chars: int | None = THRESHOLD_CHARS
    retain_recent_messages: int = 8
    timeout: float = 60.0
    prune_tool_result_chars: int = 4_000
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.threshold_messages is not None:
            object.__setattr__(self, "threshold_messages", max(8, self.threshold_messages))
        object.__setattr__(self, "retain_recent_messages", max(4, self.retain_recent_messages))

    @overload
    async def maybe_compact(
        self,
        messages: Sequence[Message],
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Message] | None: ...
    @overload
    async def maybe_compact(
        self,
        messages: Sequence[Row],
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Row] | None: ...
    async def maybe_compact(
        self,
        messages: History,
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Any] | None:
        """Return the compacted history, or None if it is within its limits or compaction gains nothing.

        `input_tokens` is the provider's count for the last call; `on_usage` is also called for a summary that failed,
        took too long or gained nothing. The result begins with the earlier summaries, unchanged, and the new one:
        system messages tagged `[compacted]`. Other system messages with which the history began follow them, word for
        word, and then the retained tail; if the current request has attachments, it is at the head of the tail. If
        shortening old tool results already brings the history under `PRUNED_SHARE` of its limits, the result is the
        same messages with those results cut to head and tail.

        `messages` may be dict rows of Chat Completions too; those of the result are rows then. Raises `TypeError` for
        what is neither.
        """
        model, history = adapt(llm), await _read(messages)
        plan = await run_sized(
            self._choose_step,
            history,
            model.context_window,
            input_tokens or 0,
            size=message_count_size(history),
            name=_THREAD,
        )
        if isinstance(plan, _SummaryPlan):
            plan = await self._compact(plan, _Summarizer(self, model, on_usage))
        return _in_shape_of(messages, history, plan)

    def _choose_step(
        self, messages: Sequence[Message], window: int | None, input_tokens: int
    ) -> _SummaryPlan | CompactionResult[Message] | None:
        """Return the next step of `maybe_compact`: a plan to summarise, a result with only pruned messages, or None."""
        if not self._is_over(messages, window, input_tokens):
            return None
        plan = self._plan(messages, input_tokens)
        cut, start = self._tail_start(messages), _turn_start(messages)
        lighter = without_notes(messages, start)
        for shorter in (without_notes(messages, min(cut, start)), lighter, self._pruned(lighter, cut)):
            if any(map(is_not, shorter, messages)) and not self._is_over(shorter, window, 0, PRUNED_SHARE):
                return _shortened_only(messages, shorter, plan.tokens)
        if self._is_worth_asking(plan.parts, plan.characters):
            return plan
        gains_enough = plan.characters - count_characters(lighter) >= _MIN_GAIN_CHARS
        return _shortened_only(messages, lighter, plan.tokens) if gains_enough else None

    def _plan(self, messages: Sequence[Message], input_tokens: int) -> _SummaryPlan:
        tokens = max(estimate_tokens(messages), input_tokens)
        return _SummaryPlan(self._parts(messages), count_characters(messages), tokens)

    @overload
    async def compact(
        self,
        messages: Sequence[Message],
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Message] | None: ...
    @overload
    async def compact(
        self,
        messages: Sequence[Row],
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Row] | None: ...
    async def compact(
        self,
        messages: History,
        llm: object,
        *,
        input_tokens: int | None = None,
        on_usage: UsageCallback | None = None,
    ) -> CompactionResult[Any] | None:
        """Compact also a history within its limits, which a provider found too long; else like `maybe_compact`.

        If no summary makes it smaller, the long tool results of the tail are shortened too. Returns None if that gains
        nothing either.
        """
        model, history = adapt(llm), await _read(messages)
        plan = await run_sized(self._plan, history, input_tokens or 0, size=message_count_size(history), name=_THREAD)
        result = await self._compact(plan, _Summarizer(self, model, on_usage)) if plan.parts.new else None
        if result is None:
            result = self._with_short_results(history, plan.tokens)
        return _in_shape_of(messages, history, result)

    async def compact_to_request(
        self, messages: Sequence[Message], llm: object, *, on_usage: UsageCallback | None = None
    ) -> CompactionResult[Message] | None:
        """Compact all before the current request, for a provider that finds even a compacted history too long.

        If the turn of that request fills most of the history, only its last calls and results stay. Long texts of what
        stays are cut to head and tail, but not the request itself. Returns None if that gains nothing.
        """
        plan = await run_sized(self._minimal_plan, messages, size=message_count_size(messages), name=_THREAD)
        result = None
        if _gain(plan.parts) >= _SUMMARY_CHARS:
            # A transcript of the size of the history would be refused like the history.
            limit = min(plan.characters // 2, INPUT_CHARS)
            result = await self._compact(plan, _Summarizer(self, adapt(llm), on_usage, limit))
        if result is None:
            result = CompactionResult(list(messages), 0, "", plan.tokens, plan.tokens, None)
        return await run_sized(_with_short_texts, result, size=message_count_size(result.messages), name=_THREAD)

    def _minimal_plan(self, messages: Sequence[Message]) -> _SummaryPlan:
        parts = self._parts(messages, _minimal_tail_start(messages))
        return _SummaryPlan(parts, count_characters(messages), estimate_tokens(messages))

    def _with_short_results(self, messages: Sequence[Message], tokens: int) -> CompactionResult[Message] | None:
        """Return the same messages with all long tool results cut to head and tail; None if there are none."""
        pruned = [self._prune(message) for message in messages]
        shortened = [index for index, message in enumerate(messages) if pruned[index] is not message]
        if not shortened:
            return None
        count = shortened[-1] + 1
        return CompactionResult(pruned, 0, "", tokens, estimate_tokens(pruned), None, count, count)

    async def _compact(self, plan: _SummaryPlan, summarizer: _Summarizer) -> CompactionResult[Message] | None:
        """Return the history with its new messages summarised, None if that makes it no smaller."""
        parts = plan.parts
        summaries, summary = await _summarize(parts, summarizer)
        named = [*parts.summaries, *parts.new]
        if sources := await run_sized(sources_of, named, size=message_count_size(named), name=_THREAD):
            summaries = [message.model_copy(update={"sources": sources}) for message in summaries]
        result = [*summaries, *parts.kept]
        if count_characters(result) >= plan.characters:
            _log.info("compaction would not make the history smaller; it stays as it is", summarised=len(parts.new))
            return None
        after, replacement_count = estimate_tokens(result), len(summaries) + len(parts.carried)
        return CompactionResult(
            result, len(parts.new), summary, plan.tokens, after, summarizer.usage, replacement_count, parts.cut
        )

    def is_due(self, messages: History, llm: object, *, input_tokens: int | None = None) -> bool:
        """Return whether the history is over one of the limits.

        It is called in every round, so it counts no more than needed.
        """
        history = messages_from_rows(messages)
        window = getattr(llm, "context_window", None)
        return self._is_over(history, window if isinstance(window, int) else None, input_tokens or 0)

    def _is_over(self, messages: Sequence[Message], window: int | None, input_tokens: int, share: float = 1.0) -> bool:
        """Return whether the history has too many messages, or is over that share of the limits of its size."""
        max_messages, max_chars = self.threshold_messages, self.threshold_chars
        if window is None:
            max_messages, max_chars = max_messages or THRESHOLD_MESSAGES, max_chars or THRESHOLD_CHARS
        if max_messages is not None and len(messages) > max_messages and _message_count(messages) > max_messages:
            return True
        if max_chars is not None and count_characters(messages) > max_chars * share:
            return True
        if window is None:
            return False
        limit = window * WINDOW_SHARE * share
        return input_tokens > limit or estimate_tokens(messages) > limit

    def worth_asking(self, messages: History) -> bool:
        """Return whether a summary can gain enough to justify its cost; decided before the model is asked.

        The messages that it replaces must be longer than their replacement, and a large tail must not cause a few
        small messages to be summarised in every round.
        """
        history = messages_from_rows(messages)
        return self._is_worth_asking(self._parts(history), count_characters(history))

    def _is_worth_asking(self, parts: _Parts, total_size: int) -> bool:
        gain = _gain(parts)
        if gain < _SUMMARY_CHARS:
            return False
        if len(parts.new) >= self.retain_recent_messages:
            return True
        if not parts.summaries:
            return gain >= _MIN_GAIN_CHARS
        return count_characters(parts.new) * 4 > total_size

    def measure(self, messages: History) -> tuple[int, int]:
        """Return the numbers of messages and characters of a history, to be passed to `has_changed` later."""
        history = messages_from_rows(messages)
        return len(history), count_characters(history)

    def has_changed(self, messages: History, before: tuple[int, int]) -> bool:
        """Return whether a history has changed since it was measured as `before`, when a summary of it gained nothing.

        It has if it has grown by `retain_recent_messages` messages or to `GROWTH` times its characters, or was rewound.
        """
        history = messages_from_rows(messages)
        count, characters = before
        if not count <= len(history) < count + self.retain_recent_messages:
            return True
        return count_characters(history) >= characters * GROWTH

    def _parts(self, messages: Sequence[Message], cut: int | None = None) -> _Parts:
        """Return the history divided at `cut`, by default where the tail begins."""
        cut = self._tail_start(messages) if cut is None else cut
        pruned = self._pruned(messages, cut)
        leading = list(takewhile(lambda message: isinstance(message, SystemMessage), pruned[:cut]))
        summaries = [message for message in leading if is_summary(message)]
        instructions = [message for message in leading if not is_summary(message)]
        carried = [*instructions, *_request_with_files(pruned[:cut], pruned[cut:])]
        kept_ids = {id(message) for message in (*summaries, *carried)}
        new = [message for message in pruned[:cut] if id(message) not in kept_ids]
        return _Parts(cut, summaries, new, carried, pruned[cut:])

    def _pruned(self, messages: Sequence[Message], cut: int) -> list[Message]:
        """Return the same messages, without notes of old turns and with long tool results shortened before `cut`."""
        shorter = without_notes(messages, min(cut, _turn_start(messages)))
        return [self._prune(message) for message in shorter[:cut]] + shorter[cut:]

    def _tail_start(self, messages: Sequence[Message]) -> int:
        """Return the index at which the tail begins: never between a call and its result."""
        cut = max(0, len(messages) - self.retain_recent_messages)
        while cut > 0 and isinstance(messages[cut], ToolMessage):
            cut -= 1
        return cut

    def _prune(self, message: Message) -> Message:
        return _shortened(message, self.prune_tool_result_chars) if isinstance(message, ToolMessage) else message


def without_notes(messages: Sequence[Message], end: int) -> list[Message]:
    """Return the same messages, without the text of notes in those before `end`."""
    return [*map(_without_notes, messages[:end]), *messages[end:]]


def _shortened_only(messages: Sequence[Message], shorter: list[Message], tokens: int) -> CompactionResult[Message]:
    """Return a history with the same messages, some of which are shorter, as the result of a compaction."""
    end = 1 + max(index for index, message in enumerate(shorter) if message is not messages[index])
    return CompactionResult(shorter, 0, "", tokens, estimate_tokens(shorter), None, end, end)


def _shortened(message: Message, limit: int) -> Message:
    """Return the message with a text of more than `limit` characters cut to head and tail."""
    text = _cut_middle(message.content, limit, "this old result" if isinstance(message, ToolMessage) else "this text")
    return message if text == message.content else message.model_copy(update={"content": text})


def _cut_middle(text: str, limit: int, what: str) -> str:
    if len(text) <= limit + 100:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters of {what} were left out …]\n{tail}"


def _with_short_texts(result: CompactionResult[Message]) -> CompactionResult[Message] | None:
    """Return the result with the long texts of the messages after its replacements cut; None if it changes nothing."""
    messages, count = list(result.messages), result.replacement_count
    for index in range(count, len(messages)):
        message = messages[index]
        if _is_request(message) or isinstance(message, SystemMessage):
            continue
        if isinstance(message, AssistantMessage) and message.provider_state is not None:
            continue  # the text must remain that which the state of the provider belongs to
        messages[index] = _shortened(message, _SHORT_TEXT_CHARS)
        if messages[index] is not message:
            count = index + 1
    if count == 0:
        return None
    replaced = result.replaced_count + count - result.replacement_count
    after = estimate_tokens(messages)
    return replace(result, messages=messages, tokens_after=after, replacement_count=count, replaced_count=replaced)


def _minimal_tail_start(messages: Sequence[Message]) -> int:
    """Return the index of the current request, or of the last calls if its turn is most of the history."""
    start = _turn_start(messages)
    if count_characters(messages[start:]) * 2 < count_characters(messages):
        return start
    last = len(messages) - 1
    while last > start and isinstance(messages[last], ToolMessage):
        last -= 1
    return max(start, last)


def _gain(parts: _Parts) -> int:
    """Return the number of characters that a summary can replace; the current request in it is repeated."""
    return count_characters(parts.new) - len(_current_request(parts.new, parts.kept))


def _turn_start(messages: Sequence[Message]) -> int:
    """Return the index of the current request, or of what was injected just before it."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if _is_request(messages[at])), 0)
    while start and isinstance(before := messages[start - 1], UserMessage) and before.injected:
        start -= 1
    return start


def _without_notes(message: Message) -> Message:
    """Return the message without the text of notes that it has; their numbers stay valid for citations."""
    if not isinstance(message, ToolMessage | UserMessage) or (
        isinstance(message, UserMessage) and not message.injected
    ):
        return message
    if not message.sources or len(message.content) <= _NOTE_CHARS:
        return message
    names = one_line(", ".join(message.sources[:_MAX_SOURCES]))[:_NOTE_CHARS]
    more = ", …" if len(message.sources) > _MAX_SOURCES else ""
    text = f"[The text of notes was left out here to save room; note_read has it: {names}{more}]"
    return message.model_copy(update={"content": text})


async def _read(messages: History) -> list[Message]:
    return await run_sized(messages_from_rows, messages, size=message_count_size(messages), name=_THREAD)


def _in_shape_of(
    given: History, read: Sequence[Message], result: CompactionResult[Message] | None
) -> CompactionResult[Any] | None:
    return None if result is None else replace(result, messages=in_given_shape(given, read, result.messages))


# --- asking for summaries ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Summarizer:
    """The model calls of one compaction and their cost; `usage` is None while the provider has counted nothing."""

    compactor: ContextCompactor
    model: ChatModel
    on_usage: UsageCallback | None
    max_chars: int = INPUT_CHARS
    usage: Usage | None = None

    async def summary(self, messages: Sequence[Message]) -> str | None:
        """Return the model's summary of `messages`, or None if it fails or takes too long."""
        size = message_count_size(messages)
        text = await run_sized(render_transcript, messages, self.max_chars, size=size, name=_THREAD)
        request = ModelRequest(
            messages=[SystemMessage(content=prompt_text("compaction")), UserMessage(content=text)],
            tool_choice="none",
            timeout=self.compactor.timeout,
        )
        builder, summary = ReplyBuilder(), None
        try:
            summary = await self._text(request, builder)
        except AgenticXError as exc:
            _log.warning(
                "a compaction summary failed; it is replaced by the beginnings of its messages", reason=str(exc)
            )
        finally:
            for usage in builder.failed_usages:
                self._record_usage(usage)
            if summary is not None or builder.usage != Usage():
                self._record_usage(builder.usage)
        return summary

    async def _text(self, request: ModelRequest, builder: ReplyBuilder) -> str:
        """Return the model's answer; raise `ModelError` for anything but a complete answer in time."""
        clock, what = self.compactor.clock, "the compaction summary"
        limit = clock.real(self.compactor.timeout)
        with LlmCallLine(clock, lambda: (self.model.name, builder.usage), purpose="compaction"):
            reply, error = await user_code.call(complete, self.model, request, builder, what=what, limit=limit)
            if error is not None:
                raise error
            if not (reply.complete and reply.stop == "end" and reply.text.strip()):
                raise ModelError("the summary is empty or incomplete", code="provider.bad_reply")
        return clean_text(reply.text.strip()).replace(_REQUEST_MARK, _REQUEST_MARK.replace("\n\n", "\n"))

    def _record_usage(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage + usage
        if self.on_usage is not None:
            self.on_usage(usage)


async def _summarize(parts: _Parts, summarizer: _Summarizer) -> tuple[list[Message], str]:
    """Return the summary messages that replace `parts.summaries` and `parts.new`, and the text of the newest.

    The current request is added to them, word for word, if no other message has it.
    """
    request = _current_request(parts.new, parts.kept)
    carried = _carried_request(parts.summaries) if not any(map(_is_request, (*parts.new, *parts.kept))) else ""
    earlier = parts.summaries if carried else [_without_request(message) for message in parts.summaries]
    answer = await summarizer.summary(parts.new)
    summary = answer
    if summary is None:
        texts = await run_sized(snippets, parts.new, size=message_count_size(parts.new), name=_THREAD)
        summary = _cut_middle(texts, SUMMARIES_CHARS, "these messages")
    text = f"{TAG} Summary of {len(parts.new)} earlier messages:\n{summary}"
    summaries = [*earlier, SystemMessage(content=text + request)]
    plain, limit = [_without_request(message) for message in summaries], _summaries_limit(summarizer.model)
    if not earlier or count_characters(plain) <= limit:
        return summaries, summary
    merged = None if answer is None else await summarizer.summary(plain)
    if merged is not None and len(merged) < count_characters(plain):
        text = f"{TAG} Summary of {len(plain)} earlier summaries:\n{merged}"
        return [SystemMessage(content=f"{text}{request or carried}")], merged
    return _truncate_summaries(summaries, plain, request or carried, limit), summary


def _summaries_limit(model: ChatModel) -> int:
    """Return the most characters of all summaries together: at most half of the usable part of the model's window."""
    window = model.context_window
    return SUMMARIES_CHARS if window is None else min(SUMMARIES_CHARS, int(window * WINDOW_SHARE / 2) * _TOKEN_CHARS)


def _truncate_summaries(summaries: list[Message], plain: Sequence[Message], request: str, limit: int) -> list[Message]:
    """Return the summaries that could not be merged, truncated only above twice the limit.

    Below that they are kept as they are, and the next compaction tries to merge them again.
    """
    if count_characters(plain) <= 2 * limit:
        return summaries
    max_chars = limit // len(plain)
    texts = (
        message.content if len(message.content) <= max_chars else f"{message.content[:max_chars]}…" for message in plain
    )
    return [SystemMessage(content="\n".join(texts) + request)]


# --- sizes ------------------------------------------------------------------------------------------------------------


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return a rough token count: one per four bytes of UTF-8, the usual rule of thumb for English and code."""
    texts = sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in message_texts(messages)
    )
    return (texts + count_attachment_characters(messages)) // _TOKEN_CHARS


def message_count_size(messages: Sequence[object]) -> int:
    """Return the size of a history for `run_sized`, for passes that look at each message and not at each character."""
    return _MESSAGE_CHARS * len(messages)


def _message_count(messages: Sequence[Message]) -> int:
    """Return the number of messages, all summaries counting as one."""
    summaries = sum(map(is_summary, messages))
    return len(messages) - max(0, summaries - 1)


def is_summary(message: Message) -> bool:
    """Return whether a message is a summary made by a compaction."""
    return isinstance(message, SystemMessage) and message.content.startswith(TAG)


# --- the current request ----------------------------------------------------------------------------------------------

_REQUEST_MARK = "\n\nThe user's current request, word for word: "


def _request_with_files(prefix: Sequence[Message], tail: Sequence[Message]) -> list[Message]:
    """Return the current request if it has attachments and the tail does not contain it: no summary can hold files."""
    if any(_is_request(message) for message in tail):
        return []
    request = next((message for message in reversed(prefix) if _is_request(message)), None)
    return [request] if isinstance(request, UserMessage) and request.attachments else []


def _current_request(new: Sequence[Message], kept: Sequence[Message]) -> str:
    """Return the current request, word for word, if it is in `new` and no message of `kept` is a newer one."""
    if any(_is_request(message) for message in kept):
        return ""
    request = next((message for message in reversed(new) if _is_request(message)), None)
    if request is None:
        return ""
    text = request.content
    if len(text) > _REQUEST_CHARS:
        text = f"{text[: _REQUEST_CHARS // 2]} […] {text[-_REQUEST_CHARS // 2 :]}"
    return f"{_REQUEST_MARK}{text}"


def _carried_request(summaries: Sequence[Message]) -> str:
    """Return the request carried by the last of the summaries that has one."""
    requests = (
        message.content.partition(_REQUEST_MARK)[2]
        for message in reversed(summaries)
        if _REQUEST_MARK in message.content
    )
    request = next(requests, None)
    return "" if request is None else _REQUEST_MARK + request


def _without_request(summary: Message) -> Message:
    """Return the summary without the request that it carries: there is a newer one, or another message carries it."""
    text = summary.content.partition(_REQUEST_MARK)[0]
    return summary if text == summary.content else summary.model_copy(update={"content": text})


def _is_request(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected
