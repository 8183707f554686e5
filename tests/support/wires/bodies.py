"""The bodies that each wire makes of a request, with the options of its dialect."""

from __future__ import annotations

from typing import Any

from agenticx.llms import ChatDialect, GeminiDialect, ModelRequest, ResponsesDialect
from agenticx.llms.wires.anthropic import _request as anthropic_request
from agenticx.llms.wires.gemini import _request as gemini_request
from agenticx.llms.wires.ollama import _request as ollama_request
from agenticx.llms.wires.openai_chat import _request as openai_chat_request
from agenticx.llms.wires.openai_responses import _request as openai_responses_request

__all__ = ["anthropic_body", "chat_body", "gemini_body", "ollama_body", "responses_body"]


def chat_body(request: ModelRequest, model: str = "m", *, replay_state: bool = True, **dialect: Any) -> bytes:
    return openai_chat_request.request_body(
        request, model=model, dialect=ChatDialect(**dialect), stream=True, replay_state=replay_state
    )


def responses_body(request: ModelRequest, model: str = "m", *, replay_state: bool = True) -> bytes:
    return openai_responses_request.request_body(
        request, model=model, dialect=ResponsesDialect(), stream=True, replay_state=replay_state
    )


def anthropic_body(request: ModelRequest, model: str = "m", *, max_tokens: int = 4096, **options: Any) -> bytes:
    return anthropic_request.request_body(request, model=model, max_tokens=max_tokens, **options)


def gemini_body(request: ModelRequest, model: str = "m", *, replay_state: bool = True, **dialect: Any) -> bytes:
    return gemini_request.request_body(
        request, model=model, dialect=GeminiDialect(**dialect), replay_state=replay_state
    )


def ollama_body(request: ModelRequest, model: str = "m") -> bytes:
    return ollama_request.request_body(request, model=model, context_window=None)
