"""The model classes of the wires by name, with their arguments from the catalogue, and of the offline models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from agenticx.llms.base import ChatModel
from agenticx.llms.model_catalog import ModelFacts, Provider, WireName

__all__ = ["OFFLINE_MODELS", "WIRES", "WireClass", "load_offline_model"]


@dataclass(frozen=True, slots=True)
class WireClass:
    """A model class, imported on first use, and the additional arguments that it takes."""

    package: str
    class_name: str
    catalog_arguments: Callable[[Provider, ModelFacts], dict[str, Any]]

    def load(self) -> Callable[..., ChatModel]:
        """Return the model class; its first import may take a tenth of a second."""
        return getattr(import_module(f"agenticx.llms.wires.{self.package}"), self.class_name)

    def build(self, model: str, provider: Provider, facts: ModelFacts, **connection: str | None) -> ChatModel:
        """Build the model that `provider` calls `model`; `connection` is `name`, `base_url` and `api_key`."""
        return self.load()(
            model, context_window=facts.input_window, **connection, **self.catalog_arguments(provider, facts)
        )


def _chat_arguments(provider: Provider, facts: ModelFacts) -> dict[str, Any]:
    return {"dialect": facts.dialect or provider.dialect, **_inline_call_arguments(provider, facts)}


def _reasoning_arguments(_: Provider, facts: ModelFacts) -> dict[str, Any]:
    return {"reasons": None if facts.capabilities is None else facts.supports("reasoning")}


def _output_arguments(_: Provider, facts: ModelFacts) -> dict[str, Any]:
    return {
        "max_output_tokens": facts.output and min(facts.output, (facts.window or facts.output * 4) // 4),
        "output_schemas": None if facts.capabilities is None else facts.supports("structured_output"),
    }  # a quarter of the window at most: room for the input


def _inline_call_arguments(_: Provider, facts: ModelFacts) -> dict[str, Any]:
    return {"inline_calls": facts.inline_calls or ()}


WIRES: Mapping[WireName, WireClass] = {
    "responses": WireClass("openai_responses", "OpenAIResponsesModel", _reasoning_arguments),
    "anthropic": WireClass("anthropic", "AnthropicModel", _output_arguments),
    "gemini": WireClass("gemini", "GeminiModel", _reasoning_arguments),
    "ollama": WireClass("ollama", "OllamaModel", _inline_call_arguments),
    "chat": WireClass("openai_chat", "OpenAIChatModel", _chat_arguments),
}


OFFLINE_MODELS: Mapping[str, tuple[str, str]] = {
    "demo": ("agenticx.llms.demo", "DemoModel"),
    "test": ("agenticx.llms.tool_caller", "TestModel"),
}
"""The module and class of each model without a provider: the demo, and a model that calls every tool once."""


def load_offline_model(name: str) -> Callable[[], ChatModel]:
    """Return the class of an offline model, imported on first use."""
    module, class_name = OFFLINE_MODELS[name]
    return getattr(import_module(module), class_name)
