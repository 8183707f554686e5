"""The termination conditions of a configured team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from agenticx.config_files.table import MAX_LISTED, ConfigTable, shortened
from agenticx.teams.termination import conditions
from agenticx.teams.termination.base import OrTerminationCondition, TerminationCondition

__all__ = ["ConditionConfig", "any_of"]

_Count = Annotated[int, Field(ge=1)]
_Amount = Annotated[float, Field(gt=0, strict=False)]  # an integer is an amount too
_Text = Annotated[str, Field(min_length=1)]


class _Condition(ConfigTable):
    """A condition."""

    def build(self) -> TerminationCondition:
        """Return the condition."""
        raise NotImplementedError


class MaxMessages(_Condition):
    """A limit on messages, the task included."""

    type: Literal["max_messages"]
    max_messages: _Count

    def build(self) -> TerminationCondition:
        return conditions.MaxMessageTermination(self.max_messages)


class TextMention(_Condition):
    """A text in a message of one of `sources`, by default in any but the task."""

    type: Literal["text_mention"]
    text: _Text
    sources: Annotated[list[_Text], Field(max_length=MAX_LISTED)] | None = None

    def build(self) -> TerminationCondition:
        return conditions.TextMentionTermination(self.text, self.sources or None)


class StopMessageSent(_Condition):
    """A `StopMessage`."""

    type: Literal["stop_message"]

    def build(self) -> TerminationCondition:
        return conditions.StopMessageTermination()


class TextMessageSent(_Condition):
    """A text, as opposed to a handoff, of `source`."""

    type: Literal["text_message"]
    source: _Text

    def build(self) -> TerminationCondition:
        return conditions.TextMessageTermination(self.source)


class SourceMatch(_Condition):
    """A message of one of `sources`."""

    type: Literal["source_match"]
    sources: Annotated[list[_Text], Field(min_length=1, max_length=MAX_LISTED)]

    def build(self) -> TerminationCondition:
        return conditions.SourceMatchTermination(self.sources)


class HandoffMade(_Condition):
    """A handoff to `target`, which may be nobody in the team, such as a person who then gives the next task."""

    type: Literal["handoff"]
    target: _Text

    @field_validator("target")
    @classmethod
    def _check_target(cls, target: str) -> str:
        if not target.isidentifier():  # it is part of a tool's name
            raise ValueError(f"is {shortened(target)}; right would be an identifier such as a participant's name")
        return target

    def build(self) -> TerminationCondition:
        return conditions.HandoffTermination(self.target)


class FunctionCalled(_Condition):
    """A result of the tool `function_name`."""

    type: Literal["function_call"]
    function_name: _Text

    def build(self) -> TerminationCondition:
        return conditions.FunctionCallTermination(self.function_name)


class TokenUsage(_Condition):
    """A limit on the tokens of all participants."""

    type: Literal["token_usage"]
    max_total_token: _Count | None = None
    max_prompt_token: _Count | None = None
    max_completion_token: _Count | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> TokenUsage:
        if self.max_total_token is self.max_prompt_token is self.max_completion_token is None:
            raise ValueError("needs one of max_total_token, max_prompt_token and max_completion_token")
        return self

    def build(self) -> TerminationCondition:
        return conditions.TokenUsageTermination(self.max_total_token, self.max_prompt_token, self.max_completion_token)


class Timeout(_Condition):
    """A limit on the seconds of a run, without those in which it waits for a person."""

    type: Literal["timeout"]
    timeout_seconds: _Amount

    def build(self) -> TerminationCondition:
        return conditions.TimeoutTermination(self.timeout_seconds)


class Cost(_Condition):
    """A limit on the cost of all participants in US dollars."""

    type: Literal["cost"]
    max_cost_usd: _Amount

    def build(self) -> TerminationCondition:
        return conditions.CostTermination(self.max_cost_usd)


class Stuck(_Condition):
    """Participants that only repeat themselves."""

    type: Literal["stuck"]
    repeats: Annotated[int, Field(ge=2)] = 3

    def build(self) -> TerminationCondition:
        return conditions.StuckTermination(self.repeats)


ConditionConfig = Annotated[
    MaxMessages
    | TextMention
    | StopMessageSent
    | TextMessageSent
    | SourceMatch
    | HandoffMade
    | FunctionCalled
    | TokenUsage
    | Timeout
    | Cost
    | Stuck,
    Field(discriminator="type"),
]


def any_of(configs: Sequence[ConditionConfig]) -> TerminationCondition | None:
    """Return the condition that any of these meets, None without any."""
    built = [config.build() for config in configs]
    return OrTerminationCondition(*built) if built else None
