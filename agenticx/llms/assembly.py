"""Composition of a model with the wrappers that turns need.

From the inside out: the wire, the real window of a local model (`LocalModel`), limits for files (`FileLimitModel`),
capabilities (`CapabilityModel`), think blocks (`ThinkBlockModel`), tools in the prompt (`XmlToolModel` or
`ToolFallbackModel`), prices (`PricedModel`), the model's own sampling (`SampledModel`), and around all models retries
and fallbacks (`RetryingModel`). Most of them act only while a reply is being opened; the path of a token has the
transforms of `ThinkBlockModel`, `XmlToolModel` and `PricedModel`, run by one iterator.
"""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.argument_types import check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import ChatModel
from agenticx.llms.providers.addresses import check_allowed, split_address
from agenticx.llms.providers.local_servers import LocalModel
from agenticx.llms.providers.resolve import (
    check_names,
    find_file_limits,
    find_model_facts,
    is_offline,
    local_window_query,
    resolve_wire,
)
from agenticx.llms.sampling import Sampling
from agenticx.llms.wrappers.capabilities import CapabilityModel
from agenticx.llms.wrappers.file_limits import FileLimitModel
from agenticx.llms.wrappers.pricing import PricedModel
from agenticx.llms.wrappers.retrying import RetryingModel, RetryPolicy
from agenticx.llms.wrappers.sampling import FallbackSamplingModel, SampledModel
from agenticx.llms.wrappers.think_blocks import ThinkBlockModel
from agenticx.llms.wrappers.tool_fallback import ToolFallbackModel
from agenticx.llms.wrappers.xml_tools import XmlToolModel
from agenticx.settings import Settings, load_settings

__all__ = ["OpenAIProvider", "resolve_model"]


@explain_calls
def resolve_model(
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    settings: Settings | None = None,
    sampling: Sampling | None = None,
    clock: Clock | None = None,
) -> ChatModel:
    """Return the model named `name`, as in `openai:gpt-4o` or `demo`, with the retries and fallbacks of `settings`.

    `api_key` and `base_url` replace the provider's key in the environment and its usual address; they do not apply to
    fallbacks. Without `settings` they are read from the environment and the settings files. Each call has `sampling`,
    unless a runtime or turn has another; parameters that a fallback does not take, and any extra body, are left out for
    it, with a line in the log. Raises `SettingsError` for an unknown name, also of a fallback, for a missing key and
    for an address of `demo`, `UnsupportedSampling` for sampling that the model named does not take, and `TypeError` for
    an argument of another type.
    """
    return _assemble(name, api_key, base_url, settings=settings, sampling=sampling, clock=clock)


class OpenAIProvider(RetryingModel):
    """A model of OpenAI, or of the server at OPENAI_BASE_URL, always over Chat Completions.

    >>> OpenAIProvider(model="gpt-4o", api_key="sk-example").name
    'openai-chat:gpt-4o'

    The same model as `resolve_model` returns, with retries, fallbacks, prices and all that turns need; the bare wire is
    `OpenAIChatModel`. By default the key is OPENAI_API_KEY, else the stored one, and the address OPENAI_BASE_URL.
    Raises `SettingsError` if a key is missing, and `TypeError` for an argument that is no str.
    """

    def __init__(self, model: str = "gpt-4o", api_key: str | None = None, base_url: str | None = None) -> None:
        check_str("the name of a model", model)
        assembled = _assemble(f"openai-chat:{model}", api_key, base_url)
        super().__init__(assembled.model, assembled.fallbacks, assembled.policy, assembled.clock)


def _assemble(
    name: str,
    api_key: str | None,
    base_url: str | None,
    *,
    settings: Settings | None = None,
    sampling: Sampling | None = None,
    clock: Clock | None = None,
) -> RetryingModel:
    check_names(name, api_key, base_url)
    if settings is not None:
        check_type("settings", settings, Settings, "Settings, as load_settings returns them")
    if sampling is not None:
        check_type("sampling", sampling, Sampling, "a Sampling")
    settings = settings or load_settings()
    if base_url is None and (address := split_address(name)[1]) is not None:
        check_allowed(settings.home, address)
    clock = clock or SystemClock()
    policy = RetryPolicy(attempts=settings.llm_attempts, longest_retry_after=settings.llm_retry_after_ceiling_seconds)
    model = _assemble_one(name, settings, clock, api_key=api_key, base_url=base_url)
    names = [fallback for fallback in settings.fallback_models if fallback != name]
    fallbacks: Sequence[ChatModel] = tuple(
        FallbackSamplingModel(_assemble_one(name, settings, clock)) for name in names
    )
    if sampling:
        model = SampledModel(model, sampling)
        fallbacks = tuple(SampledModel(fallback, sampling) for fallback in fallbacks)
    return RetryingModel(model, fallbacks, policy, clock)


def _assemble_one(
    spec: str, settings: Settings, clock: Clock, *, api_key: str | None = None, base_url: str | None = None
) -> ChatModel:
    """Return one model in its wrappers."""
    if is_offline(spec):
        return resolve_wire(spec, base_url=base_url)
    facts, model = find_model_facts(spec), resolve_wire(spec, api_key=api_key, base_url=base_url)
    if (query_window := local_window_query(spec, base_url)) is not None:
        model = LocalModel(model, query_window)
    if (limits := find_file_limits(spec, base_url)) is not None:
        model = FileLimitModel(model, limits)
    model = ThinkBlockModel(CapabilityModel(model, facts))
    tools_in_prompt = settings.xml_tools == "always" or not facts.supports("tools")
    model = XmlToolModel(model) if tools_in_prompt else ToolFallbackModel(model)
    return model if facts.price is None else PricedModel(model, facts.price, clock)
