"""The model protocol, the built-in models and their resolution by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agenticx.llms.arguments import preview_arguments
from agenticx.llms.base import (
    ChatModel,
    Delta,
    Finished,
    ModelRequest,
    Reply,
    ReplyBuilder,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageDelta,
    complete,
)
from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.llms.sampling import Sampling, UnsupportedSampling

if TYPE_CHECKING:
    from agenticx.llms.assembly import OpenAIProvider, resolve_model
    from agenticx.llms.catalog.resolve import default_model_spec, list_models, resolve_wire
    from agenticx.llms.demo import DemoModel
    from agenticx.llms.duck_typed.model import adapt
    from agenticx.llms.scripted import ScriptedModel
    from agenticx.llms.wires.anthropic import AnthropicModel
    from agenticx.llms.wires.gemini import GeminiModel
    from agenticx.llms.wires.ollama import OllamaModel
    from agenticx.llms.wires.openai_chat import OpenAIChatModel
    from agenticx.llms.wires.openai_responses import OpenAIResponsesModel

__all__ = [
    "AnthropicModel",
    "ChatModel",
    "Delta",
    "DemoModel",
    "Finished",
    "GeminiModel",
    "GrowingArguments",
    "ModelRequest",
    "OllamaModel",
    "OpenAIChatModel",
    "OpenAIProvider",
    "OpenAIResponsesModel",
    "Reply",
    "ReplyBuilder",
    "Sampling",
    "ScriptedModel",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolSchema",
    "UnsupportedSampling",
    "Usage",
    "UsageDelta",
    "adapt",
    "complete",
    "default_model_spec",
    "list_models",
    "preview_arguments",
    "resolve_model",
    "resolve_wire",
]

_LAZY_IMPORTS = {
    "AnthropicModel": "agenticx.llms.wires.anthropic",
    "DemoModel": "agenticx.llms.demo",
    "GeminiModel": "agenticx.llms.wires.gemini",
    "OllamaModel": "agenticx.llms.wires.ollama",
    "OpenAIChatModel": "agenticx.llms.wires.openai_chat",
    "OpenAIProvider": "agenticx.llms.assembly",
    "OpenAIResponsesModel": "agenticx.llms.wires.openai_responses",
    "ScriptedModel": "agenticx.llms.scripted",
    "adapt": "agenticx.llms.duck_typed.model",
    "default_model_spec": "agenticx.llms.catalog.resolve",
    "list_models": "agenticx.llms.catalog.resolve",
    "resolve_model": "agenticx.llms.assembly",
    "resolve_wire": "agenticx.llms.catalog.resolve",
}


def __getattr__(name: str) -> Any:
    """Import a heavy module (the HTTP client takes 0.15 s) on the first access to one of its names."""
    from importlib import import_module

    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY_IMPORTS[name]), name)
