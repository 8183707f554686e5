"""The model protocol, the built-in models and their resolution by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names

if TYPE_CHECKING:
    from agenticx.llms.arguments import preview_arguments
    from agenticx.llms.assembly import OpenAIProvider, resolve_model
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
    from agenticx.llms.catalog.resolve import default_model_spec, list_models, resolve_wire
    from agenticx.llms.demo import DemoModel
    from agenticx.llms.duck_typed.model import adapt
    from agenticx.llms.growing_arguments import GrowingArguments
    from agenticx.llms.sampling import Sampling, UnsupportedSampling
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agenticx.llms.arguments": ["preview_arguments"],
        "agenticx.llms.assembly": ["OpenAIProvider", "resolve_model"],
        "agenticx.llms.base": [
            "ChatModel",
            "Delta",
            "Finished",
            "ModelRequest",
            "Reply",
            "ReplyBuilder",
            "TextDelta",
            "ThinkingDelta",
            "ToolCallDelta",
            "ToolSchema",
            "Usage",
            "UsageDelta",
            "complete",
        ],
        "agenticx.llms.catalog.resolve": ["default_model_spec", "list_models", "resolve_wire"],
        "agenticx.llms.demo": ["DemoModel"],
        "agenticx.llms.duck_typed.model": ["adapt"],
        "agenticx.llms.growing_arguments": ["GrowingArguments"],
        "agenticx.llms.sampling": ["Sampling", "UnsupportedSampling"],
        "agenticx.llms.scripted": ["ScriptedModel"],
        "agenticx.llms.wires.anthropic": ["AnthropicModel"],
        "agenticx.llms.wires.gemini": ["GeminiModel"],
        "agenticx.llms.wires.ollama": ["OllamaModel"],
        "agenticx.llms.wires.openai_chat": ["OpenAIChatModel"],
        "agenticx.llms.wires.openai_responses": ["OpenAIResponsesModel"],
    },
)
