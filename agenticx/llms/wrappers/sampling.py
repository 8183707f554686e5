"""Wrappers for sampling: a model's own, and what is left of it for a fallback model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agenticx.llms.base import ChatModel, ModelRequest, output_limit
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.sampling import Sampling, SamplingField, check_sampling, sampling_problems
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.logs import get_logger

__all__ = ["FallbackSamplingModel", "SampledModel"]

_log = get_logger(__name__)


class SampledModel(ModelWrapper):
    """A wrapper that adds a model's own sampling to each request, whose sampling takes precedence.

    Raises `UnsupportedSampling` if the model does not take it.
    """

    def __init__(self, model: ChatModel, sampling: Sampling) -> None:
        super().__init__(model)
        check_sampling(model, sampling)
        self._sampling = sampling

    @property
    def output_limit(self) -> int | None:
        own = self._sampling.max_output_tokens
        return output_limit(self._model) if own is None else own

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply."""
        return await open_reply(self._model, replace(request, sampling=self._sampling.updated(request.sampling)))


class FallbackSamplingModel(ModelWrapper):
    """A wrapper for a fallback model: parameters that it does not take are left out, with a line in the log.

    An application writes its sampling for the first model, and a fallback must not fail because of it. An extra body is
    never sent to it: its keys belong to the first model's provider.
    """

    def __init__(self, model: ChatModel) -> None:
        super().__init__(model)
        self._logged = set[SamplingField]()

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return nothing: any sampling is accepted."""
        return {}

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply to the request without the parameters that it does not take."""
        sampling = request.sampling.without(["extra_body"])
        left_out: list[SamplingField] = [*sampling_problems(self._model, sampling)]
        sampling = sampling.without(left_out)
        if request.sampling.extra_body is not None:
            left_out.append("extra_body")
        if not self._logged.issuperset(left_out):
            self._logged.update(left_out)
            _log.warning("a fallback model does not take all of the sampling", model=self.name, left_out=left_out)
        return await open_reply(self._model, replace(request, sampling=sampling))
