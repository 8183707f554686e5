"""A model that retries a call, or calls a fallback model, until the first delta of a reply.

No other layer retries. An `Attempt` is returned before each wait and each change of model, and cancelling the reader
ends a wait at once. After the first delta of the reply an error ends the call. Token counts are not part of the
reply: some providers send them before they know whether they can answer, so they are held back until its first delta.
The counts of a failed attempt are returned with the next `Attempt`, or before the error if there is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import (
    ChatModel,
    Delta,
    InlineForm,
    ModelRequest,
    OutputSchema,
    Usage,
    close_model,
    inline_forms,
    largest_cost,
    output_limit,
    takes_output_schema,
)
from agenticx.llms.opening import OpeningStream
from agenticx.llms.opening_policy import AttemptPlan, RetryPolicy, open_next_attempt
from agenticx.llms.sampling import Sampling, SamplingField, sampling_problems

__all__ = ["RetryPolicy", "RetryingModel"]


@dataclass(frozen=True)
class RetryingModel:
    """A model that is retried by `policy`, as each of `fallbacks` is after it; its name is the name of `model`."""

    model: ChatModel
    fallbacks: Sequence[ChatModel] = ()
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context_window(self) -> int | None:
        """The smallest known window of all models, so that every fallback can take over."""
        windows = [model.context_window for model in (self.model, *self.fallbacks)]
        return min((window for window in windows if window is not None), default=None)

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        """The forms of the first model; `model_named` returns the others."""
        return inline_forms(self.model)

    def model_named(self, name: str) -> ChatModel:
        """Return the one of these models that is called `name`, else the first."""
        return next((model for model in (self.model, *self.fallbacks) if model.name == name), self.model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Return `Attempt`s, then the reply of the first attempt that sends a delta."""
        plan = AttemptPlan((self.model, *self.fallbacks), self.policy)
        return OpeningStream(lambda: open_next_attempt(plan, request, self.clock))

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Return whether all of these models can be constrained to the schema, so that every fallback can take over."""
        models = (self.model, *self.fallbacks)
        return all(takes_output_schema(model, output, with_tools=with_tools) for model in models)

    @property
    def output_limit(self) -> int | None:
        """The limit of the first model."""
        return output_limit(self.model)

    def largest_cost(self, usage: Usage) -> Decimal | None:
        """Return the highest cost of these models, None if one is unknown."""
        costs = [largest_cost(model, usage) for model in (self.model, *self.fallbacks)]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return the parameters that the first model does not take; a `FallbackSamplingModel` drops its own."""
        return sampling_problems(self.model, sampling)

    async def aclose(self) -> None:
        for model in (self.model, *self.fallbacks):
            await close_model(model)
