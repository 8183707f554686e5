"""The wires by name: whose class speaks each, and what it takes of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from agenticx.llms.base import ChatModel
from agenticx.llms.facts import ModelFacts, Provider, WireName

__all__ = ["WIRES", "Wire"]


@dataclass(frozen=True, slots=True)
class Wire:
    """A model class, loaded once it is needed, and the arguments that it takes beside those that all take."""

    package: str
    kind: str
    takes: Callable[[Provider, ModelFacts], dict[str, Any]]

    def load(self) -> Callable[..., ChatModel]:
        """Return the model class; the first call imports what it needs, which takes up to a tenth of a second."""
        return getattr(import_module(f"agenticx.llms.{self.package}"), self.kind)

    def model(self, model: str, provider: Provider, known: ModelFacts, **where: str | None) -> ChatModel:
        """The model that `provider` calls `model`; `where` is its `name`, its `base_url` and its `api_key`."""
        return self.load()(model, context_window=known.input_window, **where, **self.takes(provider, known))


def _dialect(provider: Provider, known: ModelFacts) -> dict[str, Any]:
    return {"dialect": known.dialect or provider.dialect, **_inline(provider, known)}


def _reasons(_: Provider, known: ModelFacts) -> dict[str, Any]:
    return {"reasons": None if known.abilities is None else known.supports("reasoning")}


def _output(_: Provider, known: ModelFacts) -> dict[str, Any]:
    return {
        "max_output_tokens": known.output and min(known.output, (known.window or known.output * 4) // 4),
        "output_schemas": None if known.abilities is None else known.supports("structured_output"),
    }  # a quarter of the window at most: room for the input


def _inline(_: Provider, known: ModelFacts) -> dict[str, Any]:
    return {"inline_calls": known.inline_calls or ()}


WIRES: Mapping[WireName, Wire] = {
    "responses": Wire("openai_responses", "OpenAIResponsesModel", _reasons),
    "anthropic": Wire("anthropic", "AnthropicModel", _output),
    "gemini": Wire("gemini", "GeminiModel", _reasons),
    "ollama": Wire("ollama", "OllamaModel", _inline),
    "chat": Wire("openai_chat", "OpenAIChatModel", _dialect),
}
