"""Dated prices, and a wrapper that adds the cost of a call if the provider does not report it.

A cost is never too low: tokens written to or read from a cache are priced as plain input if they have no price of their
own, and a call that was cut short has no cost, because its last counts are missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agenticx.clocks import Clock
from agenticx.llms.base import ChatModel, Delta, Finished, ModelRequest, Usage, UsageDelta
from agenticx.llms.wrappers.base import ModelWrapper, transform_stream

__all__ = ["LongInputRates", "Price", "PricedModel", "Rates"]

_MILLION = Decimal(1_000_000)

_Dollars = Annotated[Decimal, Field(ge=0, lt=1_000_000, allow_inf_nan=False)]


class Rates(BaseModel):
    """US dollars per million tokens; `cached` is for input from the provider's cache, `cache_write` into it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None
    cache_write: _Dollars | None = None

    def dollars_for(self, usage: Usage) -> Decimal | None:
        """Return the cost of `usage` in US dollars, None if its input or output tokens are unknown."""
        tokens_in, tokens_out = usage.total_input_tokens, usage.total_output_tokens
        if tokens_in is None or tokens_out is None:
            return None
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, tokens_in - cached - written)
        dollars = (
            plain * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + tokens_out * self.output
        )
        return dollars / _MILLION


class LongInputRates(Rates):
    """Rates of a whole call whose input has more than `tokens` tokens."""

    tokens: int = Field(gt=0)


class Price(Rates):
    """The list price of a model as of the day `read`; after the day `until` it is unknown."""

    read: date
    source: str = ""
    until: date | None = None
    over: LongInputRates | None = None

    def cost(self, usage: Usage, today: date) -> Decimal | None:
        """Return the cost in US dollars of a call made on `today`, None if unknown."""
        if self.until is not None and today > self.until:
            return None
        is_long = self.over is not None and (usage.total_input_tokens or 0) > self.over.tokens
        return (self.over if is_long and self.over else self).dollars_for(usage)


class PricedModel(ModelWrapper):
    """A wrapper that adds the cost to the usage of a whole reply."""

    def __init__(self, model: ChatModel, price: Price, clock: Clock) -> None:
        super().__init__(model)
        self._price = price
        self._clock = clock

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Return the batches of the inner model; the cost is added before the end marker, when the counts are final."""
        usage = Usage()

        def add_cost(batch: Sequence[Delta]) -> Sequence[Delta]:
            nonlocal usage
            for delta in batch:
                if isinstance(delta, UsageDelta):
                    usage = usage.updated(delta.usage)
            return self._with_cost(batch, usage) if isinstance(batch[-1], Finished) else batch

        return transform_stream(self._model, request, add_cost)

    def _with_cost(self, batch: Sequence[Delta], usage: Usage) -> Sequence[Delta]:
        cost = None if usage.cost_usd is not None else self._price.cost(usage, self._clock.now().date())
        return batch if cost is None else [*batch[:-1], UsageDelta(replace(usage, cost_usd=cost)), batch[-1]]
