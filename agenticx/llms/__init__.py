"""The model protocol, the built-in models and their resolution by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.llms.arguments import preview_arguments
    from agenticx.llms.assembly import OpenAIProvider, resolve_model
    from agenticx.llms.base import (
        Attempt,
        ChatModel,
        Delta,
        Finished,
        ModelRequest,
        OutputSchema,
        Reply,
        ReplyBuilder,
        TextDelta,
        ThinkingDelta,
        ToolCallDelta,
        ToolSchema,
        Usage,
        UsageDelta,
        close_model,
        complete,
        takes_output_schema,
    )
    from agenticx.llms.demo import DemoModel
    from agenticx.llms.duck_typed.model import adapt
    from agenticx.llms.growing_arguments import GrowingArguments
    from agenticx.llms.images.base import Image, ImageProvider, ImageResult
    from agenticx.llms.model_cache import NamedModels
    from agenticx.llms.prices import LongInputRates, Price
    from agenticx.llms.providers.resolve import (
        ModelInfo,
        default_model_spec,
        list_models,
        resolve_image_model,
        resolve_wire,
    )
    from agenticx.llms.sampling import Sampling, UnsupportedSampling
    from agenticx.llms.scripted import ScriptedModel
    from agenticx.llms.wires.anthropic import AnthropicModel
    from agenticx.llms.wires.chat_dialect import ChatDialect
    from agenticx.llms.wires.gemini import GeminiDialect, GeminiModel
    from agenticx.llms.wires.ollama import OllamaModel
    from agenticx.llms.wires.openai_chat import OpenAIChatModel
    from agenticx.llms.wires.openai_responses import OpenAIResponsesModel, ResponsesDialect
    from agenticx.llms.wrappers.pricing import PricedModel
    from agenticx.llms.wrappers.retrying import RetryingModel, RetryPolicy
    from agenticx.llms.wrappers.think_blocks import ThinkBlockModel
    from agenticx.llms.wrappers.tool_fallback import ToolFallbackModel
    from agenticx.llms.wrappers.xml_tools import XmlToolModel

__all__ = [
    "AnthropicModel",
    "Attempt",
    "ChatDialect",
    "ChatModel",
    "Delta",
    "DemoModel",
    "Finished",
    "GeminiDialect",
    "GeminiModel",
    "GrowingArguments",
    "Image",
    "ImageProvider",
    "ImageResult",
    "LongInputRates",
    "ModelInfo",
    "ModelRequest",
    "NamedModels",
    "OllamaModel",
    "OpenAIChatModel",
    "OpenAIProvider",
    "OpenAIResponsesModel",
    "OutputSchema",
    "Price",
    "PricedModel",
    "Reply",
    "ReplyBuilder",
    "ResponsesDialect",
    "RetryPolicy",
    "RetryingModel",
    "Sampling",
    "ScriptedModel",
    "TextDelta",
    "ThinkBlockModel",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolFallbackModel",
    "ToolSchema",
    "UnsupportedSampling",
    "Usage",
    "UsageDelta",
    "XmlToolModel",
    "adapt",
    "close_model",
    "complete",
    "default_model_spec",
    "list_models",
    "preview_arguments",
    "resolve_image_model",
    "resolve_model",
    "resolve_wire",
    "takes_output_schema",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.llms.arguments": ["preview_arguments"],
        "agenticx.llms.assembly": ["OpenAIProvider", "resolve_model"],
        "agenticx.llms.base": [
            "Attempt",
            "ChatModel",
            "Delta",
            "Finished",
            "ModelRequest",
            "OutputSchema",
            "Reply",
            "ReplyBuilder",
            "TextDelta",
            "ThinkingDelta",
            "ToolCallDelta",
            "ToolSchema",
            "Usage",
            "UsageDelta",
            "close_model",
            "complete",
            "takes_output_schema",
        ],
        "agenticx.llms.demo": ["DemoModel"],
        "agenticx.llms.duck_typed.model": ["adapt"],
        "agenticx.llms.growing_arguments": ["GrowingArguments"],
        "agenticx.llms.images.base": ["Image", "ImageProvider", "ImageResult"],
        "agenticx.llms.model_cache": ["NamedModels"],
        "agenticx.llms.prices": ["LongInputRates", "Price"],
        "agenticx.llms.providers.resolve": [
            "ModelInfo",
            "default_model_spec",
            "list_models",
            "resolve_image_model",
            "resolve_wire",
        ],
        "agenticx.llms.sampling": ["Sampling", "UnsupportedSampling"],
        "agenticx.llms.scripted": ["ScriptedModel"],
        "agenticx.llms.wires.anthropic": ["AnthropicModel"],
        "agenticx.llms.wires.chat_dialect": ["ChatDialect"],
        "agenticx.llms.wires.gemini": ["GeminiDialect", "GeminiModel"],
        "agenticx.llms.wires.ollama": ["OllamaModel"],
        "agenticx.llms.wires.openai_chat": ["OpenAIChatModel"],
        "agenticx.llms.wires.openai_responses": ["OpenAIResponsesModel", "ResponsesDialect"],
        "agenticx.llms.wrappers.pricing": ["PricedModel"],
        "agenticx.llms.wrappers.retrying": ["RetryPolicy", "RetryingModel"],
        "agenticx.llms.wrappers.think_blocks": ["ThinkBlockModel"],
        "agenticx.llms.wrappers.tool_fallback": ["ToolFallbackModel"],
        "agenticx.llms.wrappers.xml_tools": ["XmlToolModel"],
    },
)
