"""The largest possible cost of a model call, and the limit of its reply."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agenticx.llms.base import ChatModel, Usage

__all__ = ["largest_cost", "output_limit"]


def output_limit(model: ChatModel) -> int | None:
    """Return the largest number of tokens of a reply of `model`, None if unknown.

    It is the model's attribute `output_limit`; without it the limit is unknown.
    """
    limit: object = getattr(model, "output_limit", None)
    return limit if isinstance(limit, int) else None


def largest_cost(model: ChatModel, usage: Usage) -> Decimal | None:
    """Return the cost in US dollars of a call with this usage, None if a price is unknown.

    Calls the model's method of the same name; without one the price is unknown. For a model with fallbacks it is the
    highest of their costs.
    """
    find: Any = getattr(model, "largest_cost", None)
    return None if find is None else find(usage)
