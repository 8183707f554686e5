"""Dated list prices of models.

A cost is never too low: tokens written to or read from a cache are priced as plain input if they have no price of their
own.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agenticx.llms.base import Usage

__all__ = ["ImagePrice", "LongInputRates", "Price", "Rates"]

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
        cached, cache_written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, tokens_in - cached - cache_written)
        dollars = (
            plain * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + cache_written * (self.input if self.cache_write is None else self.cache_write)
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


class ImagePrice(BaseModel):
    """The list price of an image model as of the day `read`; after the day `until` it is unknown.

    `per_image` is the most that one image costs, in US dollars. A model that is priced by tokens has the rates `input`
    and `output` as well, in dollars per million, and `per_image` is the price of a square image in the best quality.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_image: _Dollars
    input: _Dollars | None = None
    output: _Dollars | None = None
    read: date
    source: str = ""
    until: date | None = None

    def cost(self, usage: Usage, today: date) -> Decimal | None:
        """Return the cost in US dollars of one image that was made on `today` with that usage, None if unknown."""
        if self.until is not None and today > self.until:
            return None
        if self.input is None or self.output is None:
            return self.per_image
        return Rates(input=self.input, output=self.output).dollars_for(usage) or self.per_image

    def largest_cost(self, today: date) -> Decimal | None:
        """Return the most that one image costs on `today`, in US dollars, None if unknown."""
        return self.cost(Usage(), today)
