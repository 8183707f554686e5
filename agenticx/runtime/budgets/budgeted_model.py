"""Models whose calls are made within a budget."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from agenticx.llms.base import Attempt, ChatModel, Delta, ModelRequest, Usage, UsageDelta
from agenticx.llms.call_limits import output_limit
from agenticx.llms.sampling import Sampling, sampling_problems
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.compactor import estimate_tokens, message_count_size
from agenticx.threads import run_sized

__all__ = ["BudgetedModel"]

_TOKEN_CHARS = 4
_MESSAGE_TOKENS = 4


class BudgetedModel:
    """A model whose calls are made within a budget; one that does not fit raises `BudgetExceeded`.

    All else, such as `takes_output_schema`, is the inner model's.
    """

    def __init__(self, model: ChatModel, budget: Budget) -> None:
        self._model = model
        self._budget = budget
        self.name = model.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield the deltas of the reply."""
        input_tokens = await _input_tokens(request)
        own = request.sampling.max_output_tokens
        limit = output_limit(self._model) if own is None else own
        reservation = self._budget.reserve(self._model, input_tokens, limit)
        granted, used = reservation.usage.output_tokens, None
        limited = Sampling(max_output_tokens=granted)
        if granted != limit and not sampling_problems(self._model, limited):
            request = replace(request, sampling=request.sampling.updated(limited))
        source = self._model.stream(request)
        try:
            async for batch in source:
                for delta in batch:
                    if isinstance(delta, UsageDelta):
                        used = (used or Usage()).updated(delta.usage)
                    elif not isinstance(delta, Attempt):
                        used = used or Usage()
                yield batch
        finally:
            reservation.settle(used)
            close: Any = getattr(source, "aclose", None)
            if close is not None:
                await close()


async def _input_tokens(request: ModelRequest) -> int:
    """Return an estimate of the tokens of a request: its messages, with their roles, and its tools."""
    messages = request.messages
    tokens = await run_sized(estimate_tokens, messages, size=message_count_size(messages), name="agx budget")
    tools = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return tokens + _MESSAGE_TOKENS * len(messages) + tools // _TOKEN_CHARS
