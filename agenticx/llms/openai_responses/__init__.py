"""Responses: OpenAI's own wire, which Azure, xAI, OpenRouter and others speak as well; stateless throughout."""

from __future__ import annotations

from agenticx.llms.openai_responses.model import OpenAIResponsesModel, ResponsesDialect

__all__ = ["OpenAIResponsesModel", "ResponsesDialect"]
