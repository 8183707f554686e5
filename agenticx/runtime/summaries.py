"""Summaries of old messages: asked of the model, merged when they are long, with the current request word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, ModelError
from agenticx.llms.base import ChatModel, ModelRequest, ReplyBuilder, Usage, complete
from agenticx.logs import get_logger
from agenticx.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    clean_text,
    is_from_user,
)
from agenticx.runtime.history_sizes import TOKEN_CHARS, count_characters, message_count_size
from agenticx.runtime.turn_log import LlmCallLine
from agenticx.settings import prompt_text
from agenticx.threads import run_sized

__all__ = [
    "INPUT_CHARS",
    "SUMMARIES_CHARS",
    "TAG",
    "THREAD",
    "WINDOW_SHARE",
    "HistoryParts",
    "Summarizer",
    "UsageCallback",
    "current_request",
    "cut_middle",
    "is_summary",
    "summarize",
]

UsageCallback = Callable[[Usage], object]
"""Called with the usage of each summary, also of an attempt that failed."""

TAG = "[compacted]"
WINDOW_SHARE = 0.7
"""The part of a known context window that may be used before history is compacted; the rest is for the answer."""

SUMMARIES_CHARS = 8_000
"""The most characters of all summaries together, the current request not counted; with more they become one."""

INPUT_CHARS = 400_000
"""The most characters of a transcript that is summarised."""

THREAD = "agx compaction"
_SNIPPET_CHARS = 200
_REQUEST_CHARS = 4_000
_REQUEST_MARK = "\n\nThe user's current request, word for word: "

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryParts:
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


def is_summary(message: Message) -> bool:
    """Return whether a message is a summary made by a compaction."""
    return isinstance(message, SystemMessage) and message.content.startswith(TAG)


@dataclass(slots=True)
class Summarizer:
    """The model calls of one compaction, each limited to `timeout` seconds; `usage` is None until one was counted."""

    model: ChatModel
    timeout: float
    clock: Clock
    on_usage: UsageCallback | None
    max_chars: int = INPUT_CHARS
    usage: Usage | None = None

    async def summary(self, messages: Sequence[Message]) -> str | None:
        """Return the model's summary of `messages`, or None if it fails or takes too long."""
        size = message_count_size(messages)
        text = await run_sized(render_transcript, messages, self.max_chars, size=size, name=THREAD)
        request = ModelRequest(
            messages=[SystemMessage(content=prompt_text("compaction")), UserMessage(content=text)],
            tool_choice="none",
            timeout=self.timeout,
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
        what, limit = "the compaction summary", self.clock.real(self.timeout)
        with LlmCallLine(self.clock, lambda: (self.model.name, builder.usage), purpose="compaction"):
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


async def summarize(parts: HistoryParts, summarizer: Summarizer) -> tuple[list[Message], str]:
    """Return the summary messages that replace `parts.summaries` and `parts.new`, and the text of the newest.

    The current request is added to them, word for word, if no other message has it.
    """
    request = current_request(parts.new, parts.kept)
    carried = _carried_request(parts.summaries) if not any(map(is_from_user, (*parts.new, *parts.kept))) else ""
    earlier = parts.summaries if carried else [_without_request(message) for message in parts.summaries]
    answer = await summarizer.summary(parts.new)
    summary = answer
    if summary is None:
        texts = await run_sized(snippets, parts.new, size=message_count_size(parts.new), name=THREAD)
        summary = cut_middle(texts, SUMMARIES_CHARS, "these messages")
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
    return SUMMARIES_CHARS if window is None else min(SUMMARIES_CHARS, int(window * WINDOW_SHARE / 2) * TOKEN_CHARS)


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


# --- the current request ----------------------------------------------------------------------------------------------


def current_request(new: Sequence[Message], kept: Sequence[Message]) -> str:
    """Return the current request, word for word, if it is in `new` and no message of `kept` is a newer one."""
    if any(is_from_user(message) for message in kept):
        return ""
    request = next((message for message in reversed(new) if is_from_user(message)), None)
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


# --- transcripts ------------------------------------------------------------------------------------------------------


def render_transcript(messages: Sequence[Message], limit: int = INPUT_CHARS) -> str:
    """Return the messages as a transcript; of one of more than `limit` characters only head and tail are rendered."""
    text = "\n\n".join(_first_messages(messages, limit + 1))
    if len(text) <= limit:
        return text
    half = limit // 2
    tail = "\n\n".join(reversed(list(_first_messages(reversed(messages), half))))
    return f"{text[:half]}\n[… the middle was left out …]\n{tail[-half:]}"


def _first_messages(messages: Iterable[Message], characters: int) -> Iterator[str]:
    """Yield the first messages as text, until they hold that many characters."""
    for message in messages:
        if characters <= 0:
            return
        text = _render_message(message)
        characters -= len(text)
        yield text


def _render_message(message: Message) -> str:
    match message:
        case AssistantMessage():
            calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
            return f"assistant: {message.content}{calls}"
        case ToolMessage():
            files = "".join(map(_render_file, message.attachments))
            return f"result of {message.name} ({message.outcome}): {message.content}{files}"
        case UserMessage():
            return f"user: {message.content}{''.join(map(_render_file, message.attachments))}"
        case SystemMessage():
            return f"system: {message.content}"


def _render_file(attachment: Attachment) -> str:
    return f"\n{attachment.framed_text if attachment.kind == 'text' else f'[attached {attachment.description}]'}"


def snippets(messages: Sequence[Message]) -> str:
    """Return the beginning of each message, the fallback for a summary that failed."""
    texts = (_render_message(message) for message in messages)
    return "\n".join(text if len(text) <= _SNIPPET_CHARS else f"{text[:_SNIPPET_CHARS]}…" for text in texts)


def cut_middle(text: str, limit: int, what: str) -> str:
    if len(text) <= limit + 100:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters of {what} were left out …]\n{tail}"
