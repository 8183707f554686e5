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
4. System messages at the beginning of a history are the caller's instructions: they follow the summaries word for word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import is_not
from typing import Any, TypeVar, overload

from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import ChatModel, Usage
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.openai_rows import in_given_shape, messages_from_rows
from agenticx.logs import get_logger
from agenticx.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    is_from_user,
    sources_of,
)
from agenticx.runtime.history_sizes import count_characters, estimate_tokens, message_count_size
from agenticx.runtime.summaries import (
    INPUT_CHARS,
    THREAD,
    WINDOW_SHARE,
    HistoryParts,
    Summarizer,
    UsageCallback,
    current_request,
    cut_middle,
    is_summary,
    summarize,
)
from agenticx.threads import run_sized
from agenticx.untrusted_text import one_line

__all__ = ["CompactionResult", "ContextCompactor", "without_notes"]

HistoryT = TypeVar("HistoryT")
Row = Mapping[str, Any]
History = Sequence[Message] | Sequence[Row]

PRUNED_SHARE = 0.8
"""The part of a limit that a history with shortened tool results must stay under, or the next round shortens again."""

THRESHOLD_MESSAGES, THRESHOLD_CHARS = 20, 48_000
"""The default thresholds, as originally specified."""

GROWTH = 1.5
"""The factor by which a history must grow before a summary that gained nothing is requested again."""

_SUMMARY_CHARS = 1_000
"""The usual length of a summary of short messages: a few sentences for each of the four points in its prompt."""

_NOTE_CHARS = 1_000
"""A message of an old turn with a longer text of notes loses that text."""

_MAX_SOURCES = 10
_MIN_GAIN_CHARS = 2_000
_SHORT_TEXT_CHARS = 1_000
"""The size that long texts of the last messages are cut to if a provider refuses even a compacted history."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionResult(Sequence[HistoryT]):
    """A shorter history; it can be used as the list of its messages, as in the published `AgentRuntime`.

    If the history was dict rows, so are the messages. The first `replacement_count` messages replace the first
    `replaced_count` of the original ones. `summary` is "" if shortening old tool results was enough. Tokens are
    estimates; `usage` is the provider's count for the summaries.
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
class _SummaryPlan:
    """A history to be summarised, with its present size."""

    parts: HistoryParts
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCompactor:
    """A compactor for histories of more than `threshold_messages` messages or `threshold_chars` characters.

    A history that fills more than `WINDOW_SHARE` of a known context window is compacted too. A threshold that is None
    is the default of the published `AgentRuntime` if the window is unknown, and no limit if it is known. The compactor
    that an `AgentRuntime` makes by itself has None for each threshold that no argument, variable or settings file sets:
    if only one is set, that one counts in every window.

    `timeout` limits each model call, in seconds of `clock`. A threshold of less than 8 messages and a
    tail of less than 4 are raised to these minimums, as in the published `AgentRuntime`.
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
        system messages tagged `[compacted]`. The other leading system messages of the history follow them, word for
        word, and then the retained tail; if the current request has attachments, it is at the head of the tail. If
        shortening old tool results already brings the history under `PRUNED_SHARE` of its limits, the result is the
        same messages with these results cut to head and tail.

        `messages` may be dict rows of Chat Completions too; the result has rows then. Raises `TypeError` for anything
        else.
        """
        model, history = adapt(llm), await _read(messages)
        plan = await run_sized(
            self._choose_step,
            history,
            model.context_window,
            input_tokens or 0,
            size=message_count_size(history),
            name=THREAD,
        )
        if isinstance(plan, _SummaryPlan):
            plan = await self._compact(plan, self._summarizer(model, on_usage))
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
        """Compact as `maybe_compact` does, also a history within its limits, because a provider found it too long.

        If no summary makes it smaller, the long tool results of the tail are shortened too. Returns None if that gains
        nothing either.
        """
        model, history = adapt(llm), await _read(messages)
        plan = await run_sized(self._plan, history, input_tokens or 0, size=message_count_size(history), name=THREAD)
        result = await self._compact(plan, self._summarizer(model, on_usage)) if plan.parts.new else None
        if result is None:
            result = self._with_short_results(history, plan.tokens)
        return _in_shape_of(messages, history, result)

    async def compact_to_request(
        self, messages: Sequence[Message], llm: object, *, on_usage: UsageCallback | None = None
    ) -> CompactionResult[Message] | None:
        """Compact all before the current request, for a provider that finds even a compacted history too long.

        If the turn of that request fills most of the history, only its last calls and results stay. Long texts of the
        messages that stay are cut to head and tail, but not the request itself. Returns None if that gains nothing.
        """
        plan = await run_sized(self._minimal_plan, messages, size=message_count_size(messages), name=THREAD)
        result = None
        if _gain(plan.parts) >= _SUMMARY_CHARS:
            # A transcript of the size of the history would be refused like the history.
            limit = min(plan.characters // 2, INPUT_CHARS)
            result = await self._compact(plan, self._summarizer(adapt(llm), on_usage, limit))
        if result is None:
            result = CompactionResult(list(messages), 0, "", plan.tokens, plan.tokens, None)
        return await run_sized(_with_short_texts, result, size=message_count_size(result.messages), name=THREAD)

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

    async def _compact(self, plan: _SummaryPlan, summarizer: Summarizer) -> CompactionResult[Message] | None:
        """Return the history with its new messages summarised, None if it is no smaller then."""
        parts = plan.parts
        summaries, summary = await summarize(parts, summarizer)
        named = [*parts.summaries, *parts.new]
        if sources := await run_sized(sources_of, named, size=message_count_size(named), name=THREAD):
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

    def _is_worth_asking(self, parts: HistoryParts, total_size: int) -> bool:
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
        """Return whether a history has changed since `measure` returned `before` and a summary gained nothing.

        It has changed if it has grown by `retain_recent_messages` messages, or to `GROWTH` times its characters, or was
        rewound.
        """
        history = messages_from_rows(messages)
        count, characters = before
        if not count <= len(history) < count + self.retain_recent_messages:
            return True
        return count_characters(history) >= characters * GROWTH

    def _summarizer(self, model: ChatModel, on_usage: UsageCallback | None, max_chars: int = INPUT_CHARS) -> Summarizer:
        return Summarizer(model, self.timeout, self.clock, on_usage, max_chars)

    def _parts(self, messages: Sequence[Message], cut: int | None = None) -> HistoryParts:
        """Return the history divided at `cut`, by default where the tail begins."""
        cut = self._tail_start(messages) if cut is None else cut
        pruned = self._pruned(messages, cut)
        leading = list(takewhile(lambda message: isinstance(message, SystemMessage), pruned[:cut]))
        summaries = [message for message in leading if is_summary(message)]
        instructions = [message for message in leading if not is_summary(message)]
        carried = [*instructions, *_request_with_files(pruned[:cut], pruned[cut:])]
        kept_ids = {id(message) for message in (*summaries, *carried)}
        new = [message for message in pruned[:cut] if id(message) not in kept_ids]
        return HistoryParts(cut, summaries, new, carried, pruned[cut:])

    def _pruned(self, messages: Sequence[Message], cut: int) -> list[Message]:
        """Return the same messages, without notes of old turns and with long tool results shortened before `cut`."""
        shorter = without_notes(messages, min(cut, _turn_start(messages)))
        return [self._prune(message) for message in shorter[:cut]] + shorter[cut:]

    def _tail_start(self, messages: Sequence[Message]) -> int:
        """Return the index of the tail's first message, never one between a call and its result."""
        cut = max(0, len(messages) - self.retain_recent_messages)
        while cut > 0 and isinstance(messages[cut], ToolMessage):
            cut -= 1
        return cut

    def _prune(self, message: Message) -> Message:
        return _shortened(message, self.prune_tool_result_chars) if isinstance(message, ToolMessage) else message


def without_notes(messages: Sequence[Message], end: int) -> list[Message]:
    """Return the same messages; before `end` they are without the text of notes."""
    return [*map(_without_notes, messages[:end]), *messages[end:]]


def _shortened_only(messages: Sequence[Message], shorter: list[Message], tokens: int) -> CompactionResult[Message]:
    """Return the result of a compaction that only shortened messages."""
    end = 1 + max(index for index, message in enumerate(shorter) if message is not messages[index])
    return CompactionResult(shorter, 0, "", tokens, estimate_tokens(shorter), None, end, end)


def _shortened(message: Message, limit: int) -> Message:
    """Return the message with a text of more than `limit` characters cut to head and tail."""
    text = cut_middle(message.content, limit, "this old result" if isinstance(message, ToolMessage) else "this text")
    return message if text == message.content else message.model_copy(update={"content": text})


def _with_short_texts(result: CompactionResult[Message]) -> CompactionResult[Message] | None:
    """Return the result with the long texts of the messages after its replacements cut; None if it changes nothing."""
    messages, count = list(result.messages), result.replacement_count
    for index in range(count, len(messages)):
        message = messages[index]
        if is_from_user(message) or isinstance(message, SystemMessage):
            continue
        if isinstance(message, AssistantMessage) and message.provider_state is not None:
            continue  # the provider's state belongs to this very text
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


def _gain(parts: HistoryParts) -> int:
    """Return the number of characters that a summary can replace; the current request in it is repeated."""
    return count_characters(parts.new) - len(current_request(parts.new, parts.kept))


def _turn_start(messages: Sequence[Message]) -> int:
    """Return the index of the current request, or of the first message injected just before it."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if is_from_user(messages[at])), 0)
    while start and isinstance(before := messages[start - 1], UserMessage) and before.injected:
        start -= 1
    return start


def _without_notes(message: Message) -> Message:
    """Return the message without its text of notes; the numbers of passages stay valid for citations."""
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
    return await run_sized(messages_from_rows, messages, size=message_count_size(messages), name=THREAD)


def _in_shape_of(
    given: History, read: Sequence[Message], result: CompactionResult[Message] | None
) -> CompactionResult[Any] | None:
    return None if result is None else replace(result, messages=in_given_shape(given, read, result.messages))


def _message_count(messages: Sequence[Message]) -> int:
    """Return the number of messages, all summaries counting as one."""
    summaries = sum(map(is_summary, messages))
    return len(messages) - max(0, summaries - 1)


def _request_with_files(prefix: Sequence[Message], tail: Sequence[Message]) -> list[Message]:
    """Return the current request if it has attachments and the tail does not contain it: no summary can hold files."""
    if any(is_from_user(message) for message in tail):
        return []
    request = next((message for message in reversed(prefix) if is_from_user(message)), None)
    return [request] if isinstance(request, UserMessage) and request.attachments else []
