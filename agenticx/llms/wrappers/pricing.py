"""A wrapper that adds the cost of a call if the provider does not report it.

A call that was cut short has no cost, because its last counts are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from agenticx.clocks import Clock
from agenticx.llms.base import ChatModel, Delta, Finished, ModelRequest, Usage, UsageDelta
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.prices import Price
from agenticx.llms.wrappers.base import ModelWrapper

__all__ = ["PricedModel"]


class PricedModel(ModelWrapper):
    """A wrapper that adds the cost to the usage of a whole reply."""

    def __init__(self, model: ChatModel, price: Price, clock: Clock) -> None:
        super().__init__(model)
        self._price = price
        self._clock = clock

    def largest_cost(self, usage: Usage) -> Decimal | None:
        return self._price.cost(usage, self._clock.now().date())

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; the cost is added before the end marker, when the counts are final."""
        usage = Usage()

        def add_cost(batch: Sequence[Delta]) -> Sequence[Delta]:
            nonlocal usage
            for delta in batch:
                if isinstance(delta, UsageDelta):
                    usage = usage.updated(delta.usage)
            return self._with_cost(batch, usage) if isinstance(batch[-1], Finished) else batch

        return await (await open_reply(self._model, request)).transform(add_cost)

    def _with_cost(self, batch: Sequence[Delta], usage: Usage) -> Sequence[Delta]:
        cost = None if usage.cost_usd is not None else self._price.cost(usage, self._clock.now().date())
        return batch if cost is None else [*batch[:-1], UsageDelta(replace(usage, cost_usd=cost)), batch[-1]]
