"""The termination conditions: limits, texts, sources, calls, and a stop from outside.

Their constructors raise TypeError for arguments of other types, ValueError for a limit that is not a number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence

from agenticx import user_code
from agenticx.argument_types import check_callable, check_int, check_number, check_sequence, check_str
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StopMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
)
from agenticx.teams.termination.base import MessageCondition, Run, TerminationCondition
from agenticx.teams.termination.repetition import repeated_speeches

__all__ = [
    "CostTermination",
    "ExternalTermination",
    "FunctionCallTermination",
    "FunctionalTermination",
    "HandoffTermination",
    "MaxMessageTermination",
    "SourceMatchTermination",
    "StopMessageTermination",
    "StuckTermination",
    "TextMentionTermination",
    "TextMessageTermination",
    "TimeoutTermination",
    "TokenUsageTermination",
]


class MaxMessageTermination(TerminationCondition):
    """A limit on chat messages, the task included; `include_agent_event` counts events too."""

    def __init__(self, max_messages: int, include_agent_event: bool = False) -> None:
        check_int("max_messages", max_messages)
        self._max = max_messages
        self._events = include_agent_event

    def check(self, run: Run) -> StopMessage | None:
        count = sum(self._events or isinstance(message, BaseChatMessage) for message in run.messages)
        text = f"Maximum number of messages {self._max} reached, current message count: {count}"
        return self._stop(text) if count >= self._max else None


class TextMentionTermination(MessageCondition):
    """A text in a chat message, or beside the calls of a reply, of one of `sources` if given.

    Without `sources` the messages of the run's task do not count.
    """

    def __init__(self, text: str, sources: Sequence[str] | None = None) -> None:
        check_str("text", text)
        if sources is not None:
            check_sequence("sources", sources, "names")
        self._text = text
        self._sources = sources
        self.skips_task = sources is None

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if self._sources is not None and message.source not in self._sources:
            return None
        is_said = isinstance(message, BaseChatMessage) or (isinstance(message, ThoughtEvent) and message.beside_calls)
        return f"Text '{self._text}' mentioned" if is_said and self._text in message.to_text() else None


class StopMessageTermination(MessageCondition):
    """A `StopMessage`."""

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        return "Stop message received" if isinstance(message, StopMessage) else None


class TextMessageTermination(MessageCondition):
    """A `TextMessage`, of `source` if given."""

    def __init__(self, source: str | None = None) -> None:
        if source is not None:
            check_str("source", source)
        self._source = source

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, TextMessage) and self._source in {None, message.source}
        return f"Text message received from '{message.source}'" if fits else None


class SourceMatchTermination(MessageCondition):
    """A chat message of one of `sources`, which are names in a list."""

    def __init__(self, sources: Sequence[str]) -> None:
        check_sequence("sources", sources, "names")
        self._sources = sources

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, BaseChatMessage) and message.source in self._sources
        return f"'{message.source}' answered" if fits else None


class HandoffTermination(MessageCondition):
    """A `HandoffMessage` to `target`."""

    def __init__(self, target: str) -> None:
        check_str("target", target)
        self._target = target

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, HandoffMessage) and message.target == self._target
        return f"Handoff to {self._target} from {message.source} detected." if fits else None


class FunctionCallTermination(MessageCondition):
    """A result of the tool `function_name`."""

    def __init__(self, function_name: str) -> None:
        check_str("function_name", function_name)
        self._name = function_name

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        results = message.content if isinstance(message, ToolCallExecutionEvent) else []
        called = any(result.name == self._name for result in results)
        return f"Function '{self._name}' was executed." if called else None


class TokenUsageTermination(TerminationCondition):
    """A limit on the tokens of the run; ValueError without any."""

    def __init__(
        self,
        max_total_token: int | None = None,
        max_prompt_token: int | None = None,
        max_completion_token: int | None = None,
    ) -> None:
        names = ("max_total_token", "max_prompt_token", "max_completion_token")
        self._limits = (max_total_token, max_prompt_token, max_completion_token)
        for name, limit in zip(names, self._limits, strict=True):
            if limit is not None:
                check_int(name, limit)
        if self._limits == (None, None, None):
            raise ValueError("one of max_total_token, max_prompt_token and max_completion_token must be given")

    def check(self, run: Run) -> StopMessage | None:
        prompt, completion = run.usage.prompt_tokens, run.usage.completion_tokens
        counts = (prompt + completion, prompt, completion)
        if not any(limit is not None and n >= limit for n, limit in zip(counts, self._limits, strict=True)):
            return None
        total, prompt, completion = counts
        return self._stop(
            f"Token usage limit reached, total token count: {total}, prompt token count: {prompt}, "
            f"completion token count: {completion}."
        )


class CostTermination(TerminationCondition):
    """A limit on the cost of the run in USD; a run whose cost is unknown is stopped at once."""

    def __init__(self, max_cost_usd: float) -> None:
        check_number("max_cost_usd", max_cost_usd)
        if math.isnan(max_cost_usd):
            raise ValueError("max_cost_usd must be a number, not nan")
        self._max = max_cost_usd

    def check(self, run: Run) -> StopMessage | None:
        if run.cost_usd is None:
            return self._stop(f"Cost unknown: a model has no price, so the limit of {self._max:g} USD cannot be kept")
        text = f"Cost limit of {self._max:g} USD reached, cost: {run.cost_usd:g} USD"
        return self._stop(text) if run.cost_usd >= self._max else None


class TimeoutTermination(TerminationCondition):
    """A limit on the nominal seconds since the beginning of the run, without the time that it waited for a person."""

    def __init__(self, timeout_seconds: float) -> None:
        check_number("timeout_seconds", timeout_seconds)
        if math.isnan(timeout_seconds):
            raise ValueError("timeout_seconds must be a number, not nan")
        self._seconds = timeout_seconds

    def check(self, run: Run) -> StopMessage | None:
        text = f"Timeout of {self._seconds:g} seconds reached"
        return self._stop(text) if run.seconds >= self._seconds else None


class ExternalTermination(TerminationCondition):
    """A stop from outside, by `set`; a run obeys only one that was made after it began."""

    def __init__(self) -> None:
        self._set_at: int | None = None

    def set(self) -> None:
        """Stop the runs of this condition that have begun."""
        self._set_at = time.perf_counter_ns()

    def check(self, run: Run) -> StopMessage | None:
        is_set = self._set_at is not None and self._set_at >= run.began
        return self._stop("External termination requested") if is_set else None


class FunctionalTermination(TerminationCondition):
    """A plain or async function of the run's messages that returns true when it is over."""

    def __init__(self, func: Callable[[Sequence[BaseAgentEvent | BaseChatMessage]], bool | Awaitable[bool]]) -> None:
        check_callable("func", func, "a function of the messages")
        self._function = func

    async def check(self, run: Run) -> StopMessage | None:
        over = await user_code.call_in_place(self._function, run.messages, what="termination function")
        return self._stop("Functional termination condition met") if over else None


class StuckTermination(TerminationCondition):
    """Participants that only repeat themselves: the loop detector over their speeches (`repeated_speeches`)."""

    def __init__(self, repeats: int = 3) -> None:
        check_int("repeats", repeats)
        if repeats < 2:
            raise ValueError(f"repeats must be at least 2, not {repeats}")
        self._repeats = repeats

    def check(self, run: Run) -> StopMessage | None:
        count = repeated_speeches(run.messages, self._repeats)
        return self._stop(f"Conversation stuck: the last {count} speeches only repeat what was said") if count else None
