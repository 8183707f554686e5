"""The usage of a turn: reserved at its budgets, summed, and emitted."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from agenticx.llms.base import ChatModel, Usage
from agenticx.runtime.budgets.budget import Budget, Spent
from agenticx.runtime.budgets.budgeted_model import BudgetedModel
from agenticx.runtime.budgets.usage_payload import usage_data
from agenticx.tools.context import SettleCost

__all__ = ["TurnUsage"]


class TurnUsage:
    """The usage of a turn's model calls and paid services.

    `total` is the sum, None before the first call has ended. `emit` gets the payload of each call, and the name of its
    model or service.
    """

    def __init__(self, budget: Budget | None, emit: Callable[[dict[str, Any], str], None]) -> None:
        self.total: Usage | None = None
        self.budget = budget
        self.is_closed = False
        """True once no usage may be emitted any more."""
        self._emit = emit
        self._unreported = Spent()  # what budgets count of a call whose provider reported no usage, until it is emitted

    def reserving(self, model: ChatModel) -> ChatModel:
        """Return a model that reserves each call at the budget; without a budget the model itself."""
        return model if self.budget is None else BudgetedModel(model, self.budget, self.add_unreported)

    def reserve_cost(self, name: str, cost_usd: Decimal | None) -> SettleCost:
        """Reserve a call of the paid service `name`, such as an image model.

        `cost_usd` is its largest possible cost in US dollars, None if that is unknown. The returned function ends the
        reservation and adds what was used to the total. Raises `BudgetExceeded`.
        """
        reservation = None if self.budget is None else self.budget.reserve_cost(name, cost_usd)

        def settle(usage: Usage | None) -> None:
            unreported = Spent() if reservation is None else reservation.settle(usage)
            if usage is not None and not self.is_closed:
                self._add(usage, name, unreported)

        return settle

    def add_unreported(self, spent: Spent) -> None:
        """Add to what budgets count of a call whose provider reported no usage."""
        known = self._unreported
        self._unreported = Spent(known.tokens + spent.tokens, known.cost_usd + spent.cost_usd)

    def record(self, usage: Usage, model_name: str) -> int | None:
        """Add the usage of a model call, and what its provider did not report; return its input tokens."""
        unreported, self._unreported = self._unreported, Spent()
        return self._add(usage, model_name, unreported)

    def record_unreported(self, model_name: str) -> None:
        """Emit the usage of a failed call whose provider reported none, if budgets count any."""
        if self._unreported != Spent():
            self.record(Usage(), model_name)

    def _add(self, usage: Usage, name: str, unreported: Spent) -> int | None:
        self.total = usage if self.total is None else self.total + usage
        data = usage_data(usage, unreported)
        self._emit(data, name)
        return data["input_tokens"]
