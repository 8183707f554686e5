"""Responses: OpenAI's own wire, also of Azure, xAI, OpenRouter and others; used without server state."""

from __future__ import annotations

from agenticx.llms.wires.openai_responses.model import OpenAIResponsesModel, ResponsesDialect

__all__ = ["OpenAIResponsesModel", "ResponsesDialect"]
