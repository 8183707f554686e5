"""The payload of `usage` events, and what budgets count of it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from agenticx.llms.base import Usage
from agenticx.runtime.budgets.budget import Spent

__all__ = ["spent_in_call", "usage_data", "usage_from_data"]


def usage_data(usage: Usage, unreported: Spent | None = None) -> dict[str, Any]:
    """Return the payload keys of a `Usage`: counts that the provider did not report are null or absent, never 0.

    Budgets count `unreported` instead of the missing counts.
    """
    data: dict[str, Any] = {"input_tokens": usage.total_input_tokens, "output_tokens": usage.total_output_tokens}
    if usage.cached_tokens is not None:
        data["cached_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens is not None:
        data["reasoning_tokens"] = usage.reasoning_tokens
    if usage.cost_usd is not None:
        data["cost_usd"] = _dollars(usage.cost_usd)
    if unreported is not None and unreported.tokens:
        data["reserved_tokens"] = unreported.tokens
    if unreported is not None and unreported.cost_usd:
        data["reserved_usd"] = _dollars(unreported.cost_usd)
    return data


def usage_from_data(data: Mapping[str, Any]) -> Usage:
    """Return the `Usage` of a payload that `usage_data` returned."""
    cost = data.get("cost_usd")
    return Usage(
        data["input_tokens"],
        data["output_tokens"],
        data.get("cached_tokens"),
        data.get("reasoning_tokens"),
        None if cost is None else Decimal(cost),
    )


def spent_in_call(data: Mapping[str, Any]) -> Spent:
    """Return what budgets count of the call that a payload reports.

    >>> spent_in_call({"input_tokens": 9, "output_tokens": None, "reserved_tokens": 256}).tokens
    265
    """
    tokens = (data["input_tokens"] or 0) + (data["output_tokens"] or 0) + data.get("reserved_tokens", 0)
    return Spent(tokens, Decimal(data.get("cost_usd", 0)) + Decimal(data.get("reserved_usd", 0)))


def _dollars(amount: Decimal) -> str:
    return format(amount.normalize(), "f")
