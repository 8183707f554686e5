"""The base class of wrappers around a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from agenticx.llms.base import (
    ChatModel,
    InlineForm,
    OutputSchema,
    Usage,
    close_model,
    inline_forms,
    largest_cost,
    output_limit,
    takes_output_schema,
)
from agenticx.llms.opening import OpenableModel
from agenticx.llms.sampling import Sampling, SamplingField, sampling_problems

__all__ = ["ModelWrapper"]


class ModelWrapper(OpenableModel):
    """The base class of a model that wraps another one; subclasses add `open`."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        return inline_forms(self._model)

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return takes_output_schema(self._model, output, with_tools=with_tools)

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        return sampling_problems(self._model, sampling)

    @property
    def output_limit(self) -> int | None:
        return output_limit(self._model)

    def largest_cost(self, usage: Usage) -> Decimal | None:
        return largest_cost(self._model, usage)

    async def aclose(self) -> None:
        await close_model(self._model)
