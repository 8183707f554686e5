"""Keeps a conversation within the model's window: old rows become one summary, the recent tail stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from agenticx import foreign
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, ModelError
from agenticx.llms.base import ChatModel, ModelRequest, ReplyBuilder, Usage, complete
from agenticx.llms.duck import adapt
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolMessage, UserMessage, clean_text
from agenticx.runtime.turn_log import LlmCallLine
from agenticx.settings import prompt

__all__ = ["TAG", "Compacted", "ContextCompactor", "Spent", "estimate_tokens"]

Spent = Callable[[Usage], None]
"""Is told what a summary cost, whatever became of it."""

TAG = "[compacted]"
WINDOW_SHARE = 0.8
"""The part of a known context window that may be used before history is compacted."""

GROWTH = 1.5
"""How many times its characters a history must have before a summary that gained nothing is asked for again."""

_SUMMARY_CHARS = 1_000
"""What a summary of short rows may well take: the four points that its prompt asks for, in a few sentences each."""

_WORTH_CHARS = 2_000
_SNIPPET_CHARS = 200
_REQUEST_CHARS = 4_000
_INPUT_CHARS = 400_000

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compacted(Sequence[Message]):
    """A shorter history: it reads as the list of its messages, as the AgentRuntime page has it.

    `summary` is "" where pruning old tool results was enough; tokens are estimates; `usage` is what the summary cost.
    """

    messages: list[Message]
    compacted_count: int
    summary: str
    tokens_before: int
    tokens_after: int
    usage: Usage | None

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.messages[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCompactor:
    """Compacts when history is longer than `threshold_messages` rows or `threshold_chars` characters, or when the
    model's window is known and nearly full.

    `timeout` bounds the summary call, in seconds of `clock`. Minimums are those of the AgentRuntime page: thresholds
    below 8 rows and a tail below 4 are raised to them.
    """

    threshold_messages: int = 20
    threshold_chars: int = 48_000
    retain_recent_messages: int = 8
    timeout: float = 60.0
    prune_tool_result_chars: int = 4_000
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold_messages", max(8, self.threshold_messages))
        object.__setattr__(self, "retain_recent_messages", max(4, self.retain_recent_messages))

    async def maybe_compact(
        self,
        messages: Sequence[Message],
        llm: object,
        *,
        input_tokens: int | None = None,
        spent: Spent | None = None,
    ) -> Compacted | None:
        """The compacted history, or None when nothing needs to be or can be gained.

        `input_tokens` is what the provider counted for the last call; `spent` also hears of a summary that failed, took
        too long or gained nothing. The result's `messages` are one system row
        tagged `[compacted]` and the retained tail, at whose head the current request stands if files came with it;
        where shortening old tool results already brings the history under its limits, it is the same rows with those
        results cut to head and tail.
        """
        model = adapt(llm)
        if not self.is_due(messages, model, input_tokens=input_tokens):
            return None
        pruned = self._pruned(messages)
        if pruned != list(messages) and not self.is_due(pruned, model):
            before = max(estimate_tokens(messages), input_tokens or 0)
            return Compacted(pruned, 0, "", before, estimate_tokens(pruned), None)
        if not self.worth_asking(messages):
            return None
        return await self.compact(messages, model, input_tokens=input_tokens, spent=spent)

    async def compact(
        self,
        messages: Sequence[Message],
        llm: object,
        *,
        input_tokens: int | None = None,
        spent: Spent | None = None,
    ) -> Compacted | None:
        """As `maybe_compact`, due or not: for a history that a provider found too long. None if it gains nothing."""
        model = adapt(llm)
        before = max(estimate_tokens(messages), input_tokens or 0)
        if self._cut(messages) == 0:
            return None
        prefix, tail = self._parts(messages)
        summary, usage = await self._summarise(prefix, model, spent)
        text = f"{TAG} Summary of {len(prefix)} earlier messages:\n{summary}{_current_request(prefix, tail)}"
        result: list[Message] = [SystemMessage(content=text), *tail]
        if _characters(result) >= _characters(messages):
            _log.info("compaction would not make the history smaller; it stays as it is", messages=len(messages))
            return None
        return Compacted(result, len(prefix), summary, before, estimate_tokens(result), usage)

    def is_due(self, messages: Sequence[Message], llm: object, *, input_tokens: int | None = None) -> bool:
        """Whether the history is over one of the limits; asked in every round, so it counts no more than it must."""
        if len(messages) > self.threshold_messages or _characters(messages) > self.threshold_chars:
            return True
        window = adapt(llm).context_window
        return window is not None and max(estimate_tokens(messages), input_tokens or 0) > window * WINDOW_SHARE

    def worth_asking(self, messages: Sequence[Message]) -> bool:
        """Whether a summary can gain enough to be paid for: decided before the model is asked.

        What it replaces must be longer than what takes its place, and a large tail must not have a few small rows
        summarised in every round.
        """
        prefix, tail = self._parts(messages)
        new = [message for message in prefix if not _is_summary(message)]
        gain = _characters(new) - len(_current_request(new, tail))
        if gain < _SUMMARY_CHARS:
            return False
        if len(new) >= self.retain_recent_messages:
            return True
        if len(new) == len(prefix):
            return gain >= _WORTH_CHARS
        return _characters(new) * 4 > _characters(messages)

    def measure(self, messages: Sequence[Message]) -> tuple[int, int]:
        """The rows and characters of a history, to be handed to `has_changed` later."""
        return len(messages), _characters(messages)

    def has_changed(self, messages: Sequence[Message], before: tuple[int, int]) -> bool:
        """Whether a history is another one than when a summary of it gained nothing.

        It has grown by `retain_recent_messages` rows or to `GROWTH` times its characters, or was taken back.
        """
        rows, characters = before
        if not rows <= len(messages) < rows + self.retain_recent_messages:
            return True
        return _characters(messages) >= characters * GROWTH

    def _parts(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """What a summary replaces, and what stays as it is behind it."""
        cut, pruned = self._cut(messages), self._pruned(messages)
        carried = _request_with_files(pruned[:cut], pruned[cut:])
        return [message for message in pruned[:cut] if message not in carried], [*carried, *pruned[cut:]]

    def _pruned(self, messages: Sequence[Message]) -> list[Message]:
        """The same rows, the long tool results of those before the tail cut to head and tail."""
        cut = self._cut(messages)
        return [self._prune(message) for message in messages[:cut]] + list(messages[cut:])

    def _cut(self, messages: Sequence[Message]) -> int:
        """Where the tail begins: never between a call and its result."""
        cut = max(0, len(messages) - self.retain_recent_messages)
        while cut > 0 and isinstance(messages[cut], ToolMessage):
            cut -= 1
        return cut

    def _prune(self, message: Message) -> Message:
        limit = self.prune_tool_result_chars
        if not isinstance(message, ToolMessage) or len(message.content) <= limit + 100:
            return message
        head, tail = message.content[: limit // 2], message.content[-(limit // 2) :]
        left_out = len(message.content) - len(head) - len(tail)
        text = f"{head}\n[… {left_out} characters of this old result were left out …]\n{tail}"
        return message.model_copy(update={"content": text})

    async def _summarise(
        self, prefix: Sequence[Message], model: ChatModel, spent: Spent | None
    ) -> tuple[str, Usage | None]:
        """A summary, or snippets where none comes; and what the call cost, None if the provider did not say."""
        request = ModelRequest(
            messages=[SystemMessage(content=prompt("compaction")), UserMessage(content=_render(prefix))],
            tool_choice="none",
            timeout=self.timeout,
        )
        builder, summary = ReplyBuilder(), None
        try:
            summary = await self._asked(model, request, builder)
        except AgenticXError as exc:
            _log.warning("the compaction summary failed; truncated snippets take its place", reason=str(exc))
        finally:
            told = builder.reply().usage
            usage = None if summary is None and told == Usage() else told
            if spent is not None and usage is not None:
                spent(usage)
        return _snippets(prefix) if summary is None else summary, usage

    async def _asked(self, model: ChatModel, request: ModelRequest, builder: ReplyBuilder) -> str:
        """What the model answers; raises for anything but a whole answer in time."""
        limit, what = self.clock.real(self.timeout), "the compaction summary"
        with LlmCallLine(self.clock, lambda: (model.name, builder.usage), purpose="compaction"):
            reply, error = await foreign.call(complete, model, request, builder, what=what, limit=limit)
            if error is not None:
                raise error
            if not (reply.complete and reply.stop == "end" and reply.text.strip()):
                raise ModelError("the summary came back empty or cut short", code="provider.bad_reply")
        return clean_text(reply.text.strip())


def estimate_tokens(messages: Sequence[Message]) -> int:
    """A rough count: one token per four bytes of UTF-8, the usual rule of thumb for English and code."""
    texts = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in _texts(messages))
    return (texts + _weight_of_files(messages)) // 4


def _characters(messages: Sequence[Message]) -> int:
    return sum(map(len, _texts(messages))) + _weight_of_files(messages)


def _weight_of_files(messages: Sequence[Message]) -> int:
    return sum(
        attachment.weight
        for message in messages
        if isinstance(message, UserMessage)
        for attachment in message.attachments
    )


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield message.content
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                yield call.arguments


def _is_summary(message: Message) -> bool:
    return isinstance(message, SystemMessage) and message.content.startswith(TAG)


def _render(messages: Sequence[Message]) -> str:
    """The rows as a transcript, head and tail of it if it is very long."""
    text = "\n\n".join(_render_row(message) for message in messages)
    if len(text) <= _INPUT_CHARS:
        return text
    half = _INPUT_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _render_row(message: Message) -> str:
    match message:
        case AssistantMessage():
            calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
            return f"assistant: {message.content}{calls}"
        case ToolMessage():
            return f"result of {message.name} ({message.outcome}): {message.content}"
        case UserMessage():
            return f"user: {message.content}{''.join(map(_render_file, message.attachments))}"
        case SystemMessage():
            return f"system: {message.content}"


def _render_file(attachment: Attachment) -> str:
    what = f"\n[attached {attachment.name}, {attachment.media_type}]"
    return f"{what}\n{attachment.text}" if attachment.kind == "text" else what


def _snippets(messages: Sequence[Message]) -> str:
    """The fallback of the AgentRuntime page: the beginning of each row."""
    rows = (_render_row(message) for message in messages)
    return "\n".join(row if len(row) <= _SNIPPET_CHARS else f"{row[:_SNIPPET_CHARS]}…" for row in rows)


def _request_with_files(prefix: Sequence[Message], tail: Sequence[Message]) -> list[Message]:
    """The request being worked on if files came with it and the tail no longer has it: no summary could hold them."""
    if any(_is_request(message) for message in tail):
        return []
    request = next((message for message in reversed(prefix) if _is_request(message)), None)
    return [request] if isinstance(request, UserMessage) and request.attachments else []


def _current_request(prefix: Sequence[Message], tail: Sequence[Message]) -> str:
    """The request being worked on, word for word, if the tail no longer has it."""
    if any(_is_request(message) for message in tail):
        return ""
    request = next((message for message in reversed(prefix) if _is_request(message)), None)
    if request is None:
        return _carried_request(prefix)
    text = request.content
    if len(text) > _REQUEST_CHARS:
        text = f"{text[: _REQUEST_CHARS // 2]} […] {text[-_REQUEST_CHARS // 2 :]}"
    return f"{_REQUEST_MARK}{text}"


_REQUEST_MARK = "\n\nThe user's current request, word for word: "


def _carried_request(prefix: Sequence[Message]) -> str:
    """The request that an earlier compaction of the same turn already carried over."""
    summary = next((message for message in reversed(prefix) if _is_summary(message)), None)
    if summary is None or _REQUEST_MARK not in summary.content:
        return ""
    return _REQUEST_MARK + summary.content.split(_REQUEST_MARK, 1)[1]


def _is_request(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected
