"""A model that reserves each call at a budget."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agenticx.llms.base import Attempt, ChatModel, Delta, ModelRequest, Usage, UsageDelta, output_limit
from agenticx.llms.sampling import Sampling, sampling_problems
from agenticx.runtime.budgets.budget import Budget, Reservation, Spent
from agenticx.runtime.history_sizes import TOKEN_CHARS, estimate_tokens, message_count_size
from agenticx.threads import run_sized

__all__ = ["BudgetedModel", "estimate_input"]

_MESSAGE_TOKENS = 4


class BudgetedModel:
    """A model that reserves each call at a budget; a call that does not fit raises `BudgetExceeded`.

    Another attempt raises it too if the failed one used too much. `on_unreported` is called after a call with what the
    budget counts beyond the provider's report. All other attributes are the inner model's.
    """

    def __init__(self, model: ChatModel, budget: Budget, on_unreported: Callable[[Spent], None]) -> None:
        self._model = model
        self._budget = budget
        self._on_unreported = on_unreported
        self.name = model.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def unbudgeted(self) -> ChatModel:
        """The model itself, for a child turn that has the same budget."""
        return self._model

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield the deltas of the reply."""
        input_tokens = await estimate_input(request)
        own = request.sampling.max_output_tokens
        limit = output_limit(self._model) if own is None else own
        reservation = self._budget.reserve(self._model, input_tokens, limit)
        granted, call = reservation.usage.output_tokens, _Call(reservation)
        limited = Sampling(max_output_tokens=granted)
        if granted != limit and not sampling_problems(self._model, limited):
            request = replace(request, sampling=request.sampling.updated(limited))
        source = self._model.stream(request)
        try:
            async for batch in source:
                has_failed = call.count(batch)
                yield batch
                if has_failed:
                    reservation.check()
        finally:
            if (unreported := reservation.settle(call.used)) != Spent():
                self._on_unreported(unreported)
            close: Any = getattr(source, "aclose", None)
            if close is not None:
                await close()


@dataclass(slots=True)
class _Call:
    """The usage of a running call; `has_reply` is true once a part of its reply has arrived."""

    reservation: Reservation
    usage: Usage | None = None
    has_reply: bool = False

    def count(self, batch: Sequence[Delta]) -> bool:
        """Count a batch; return True if it reports a failed attempt with its usage."""
        has_failed = False
        for delta in batch:
            if isinstance(delta, UsageDelta):
                self.usage = delta.usage if self.usage is None else self.usage.updated(delta.usage)
            elif not isinstance(delta, Attempt):
                self.has_reply = True
            elif delta.spent is not None:
                self.reservation.add_failed(delta.spent)
                has_failed = True
        return has_failed

    @property
    def used(self) -> Usage | None:
        """The usage of the call, None if unknown; without a reply a missing count is 0."""
        usage = self.usage
        if self.has_reply:
            return usage or Usage()
        if usage is None:
            return None
        return replace(usage, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0)


async def estimate_input(request: ModelRequest) -> int:
    """Return an estimate of the tokens of a request: its messages, with their roles, and its tools."""
    messages = request.messages
    tokens = await run_sized(estimate_tokens, messages, size=message_count_size(messages), name="agx budget")
    tools = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return tokens + _MESSAGE_TOKENS * len(messages) + tools // TOKEN_CHARS
