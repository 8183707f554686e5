"""The termination conditions: limits, texts, sources, calls, and a stop from outside.

Those that a file can configure are pydantic models: their fields are the keys of its table, with `type` for the class.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from agenticx import user_code
from agenticx.argument_types import check_callable
from agenticx.call_errors import explain_calls
from agenticx.config_files.table import check_keys
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
    "ConfiguredCondition",
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

_KEYS = ConfigDict(extra="forbid")


class _Configurable(TerminationCondition):
    """A condition that a table of a file can describe."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: object) -> object:
        return check_keys(cls, given)


@explain_calls
@dataclass(config=_KEYS, eq=False)
class MaxMessageTermination(_Configurable):
    """A limit on chat messages, the task included; `include_agent_event` counts events too."""

    max_messages: int = Field(ge=1, strict=True)
    include_agent_event: bool = Field(default=False, strict=True)
    type: Literal["max_messages"] = field(default="max_messages", kw_only=True)

    def check(self, run: Run) -> StopMessage | None:
        count = sum(self.include_agent_event or isinstance(message, BaseChatMessage) for message in run.messages)
        text = f"Maximum number of messages {self.max_messages} reached, current message count: {count}"
        return self._stop(text) if count >= self.max_messages else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class TextMentionTermination(_Configurable, MessageCondition):
    """A text in a chat message, or beside the calls of a reply, of one of `sources` if given.

    Without `sources` the messages of the run's task do not count.
    """

    text: str = Field(min_length=1)
    sources: Sequence[str] | None = Field(default=None, min_length=1)
    type: Literal["text_mention"] = field(default="text_mention", kw_only=True)

    def __post_init__(self) -> None:
        self.skips_task = self.sources is None

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if self.sources is not None and message.source not in self.sources:
            return None
        is_said = isinstance(message, BaseChatMessage) or (isinstance(message, ThoughtEvent) and message.beside_calls)
        return f"Text '{self.text}' mentioned" if is_said and self.text in message.to_text() else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class StopMessageTermination(_Configurable, MessageCondition):
    """A `StopMessage`."""

    type: Literal["stop_message"] = field(default="stop_message", kw_only=True)

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        return "Stop message received" if isinstance(message, StopMessage) else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class TextMessageTermination(_Configurable, MessageCondition):
    """A `TextMessage`, of `source` if given."""

    source: str | None = Field(default=None, min_length=1)
    type: Literal["text_message"] = field(default="text_message", kw_only=True)

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, TextMessage) and self.source in {None, message.source}
        return f"Text message received from '{message.source}'" if fits else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class SourceMatchTermination(_Configurable, MessageCondition):
    """A chat message of one of `sources`, which are names in a list."""

    sources: Sequence[str] = Field(min_length=1)
    type: Literal["source_match"] = field(default="source_match", kw_only=True)

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, BaseChatMessage) and message.source in self.sources
        return f"'{message.source}' answered" if fits else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class HandoffTermination(_Configurable, MessageCondition):
    """A `HandoffMessage` to `target`, who may be nobody in the team, such as a person who gives the next task."""

    target: str = Field(min_length=1)
    type: Literal["handoff"] = field(default="handoff", kw_only=True)

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        fits = isinstance(message, HandoffMessage) and message.target == self.target
        return f"Handoff to {self.target} from {message.source} detected." if fits else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class FunctionCallTermination(_Configurable, MessageCondition):
    """A result of the tool `function_name`."""

    function_name: str = Field(min_length=1)
    type: Literal["function_call"] = field(default="function_call", kw_only=True)

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        results = message.content if isinstance(message, ToolCallExecutionEvent) else []
        called = any(result.name == self.function_name for result in results)
        return f"Function '{self.function_name}' was executed." if called else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class TokenUsageTermination(_Configurable):
    """A limit on the tokens of the run, or several; ValueError without any."""

    max_total_token: int | None = Field(default=None, ge=1, strict=True)
    max_prompt_token: int | None = Field(default=None, ge=1, strict=True)
    max_completion_token: int | None = Field(default=None, ge=1, strict=True)
    type: Literal["token_usage"] = field(default="token_usage", kw_only=True)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_total_token is self.max_prompt_token is self.max_completion_token is None:
            raise ValueError("needs one of max_total_token, max_prompt_token and max_completion_token")
        return self

    def check(self, run: Run) -> StopMessage | None:
        prompt, completion = run.usage.prompt_tokens, run.usage.completion_tokens
        total, limits = prompt + completion, (self.max_total_token, self.max_prompt_token, self.max_completion_token)
        counts = (total, prompt, completion)
        if not any(limit is not None and n >= limit for n, limit in zip(counts, limits, strict=True)):
            return None
        return self._stop(
            f"Token usage limit reached, total token count: {total}, prompt token count: {prompt}, "
            f"completion token count: {completion}."
        )


@explain_calls
@dataclass(config=_KEYS, eq=False)
class CostTermination(_Configurable):
    """A limit on the cost of the run in USD; a run whose cost is unknown is stopped at once."""

    max_cost_usd: float = Field(gt=0, allow_inf_nan=False)
    type: Literal["cost"] = field(default="cost", kw_only=True)

    def check(self, run: Run) -> StopMessage | None:
        limit = f"{self.max_cost_usd:g} USD"
        if run.cost_usd is None:
            return self._stop(f"Cost unknown: a model has no price, so the limit of {limit} cannot be kept")
        text = f"Cost limit of {limit} reached, cost: {run.cost_usd:g} USD"
        return self._stop(text) if run.cost_usd >= self.max_cost_usd else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class TimeoutTermination(_Configurable):
    """A limit on the nominal seconds since the beginning of the run, without the time that it waited for a person."""

    timeout_seconds: float = Field(gt=0, allow_inf_nan=False)
    type: Literal["timeout"] = field(default="timeout", kw_only=True)

    def check(self, run: Run) -> StopMessage | None:
        text = f"Timeout of {self.timeout_seconds:g} seconds reached"
        return self._stop(text) if run.seconds >= self.timeout_seconds else None


@explain_calls
@dataclass(config=_KEYS, eq=False)
class StuckTermination(_Configurable):
    """Participants that only repeat themselves: the loop detector over their speeches (`repeated_speeches`)."""

    repeats: int = Field(default=3, ge=2, strict=True)
    type: Literal["stuck"] = field(default="stuck", kw_only=True)

    def check(self, run: Run) -> StopMessage | None:
        count = repeated_speeches(run.messages, self.repeats)
        return self._stop(f"Conversation stuck: the last {count} speeches only repeat what was said") if count else None


ConfiguredCondition = Annotated[
    MaxMessageTermination
    | TextMentionTermination
    | StopMessageTermination
    | TextMessageTermination
    | SourceMatchTermination
    | HandoffTermination
    | FunctionCallTermination
    | TokenUsageTermination
    | CostTermination
    | TimeoutTermination
    | StuckTermination,
    Field(discriminator="type"),
]
"""A condition as a table of a file describes it."""


class ExternalTermination(TerminationCondition):
    """A stop from outside, by `set`; it stops only runs that have begun before."""

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
