"""The five wires with the responses of their servers: a text event, an end, a refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import (
    AnthropicModel,
    Finished,
    GeminiModel,
    ModelRequest,
    OllamaModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
    Reply,
    complete,
)
from agenticx.llms.wires.provider_model import ProviderModel
from agenticx.testing import FakeOpenAIServer, RawReply, status
from tests.support.timeouts import PATIENCE
from tests.support.wires.chunk_server import ChunkServer, chunk_server
from tests.support.wires.replies import sse

__all__ = ["ANTHROPIC", "CHAT", "GEMINI", "HELLO", "KEY", "OLLAMA", "RESPONSES", "SERVED_WIRES", "ServedWire"]

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
KEY = "sk-canary-1234567890"


@dataclass(frozen=True, kw_only=True)
class ServedWire:
    """One wire: its model and the bytes of its server.

    `hi` is an event with the text "hi", `end` everything after the text, `finished` the delta parsed from it. `path` is
    the URL path of requests for the model `m` if the base URL ends in `/v1`, `streams` the folder of recorded streams.
    `base_hint` is the hint on base URLs in the error for a 404.
    """

    name: str
    model: Callable[..., ProviderModel]
    path: str
    hi: bytes
    end: bytes
    finished: Finished
    refusal: Callable[[int, str], RawReply]
    key_header: Callable[[str], tuple[str, str]] = lambda key: ("authorization", f"Bearer {key}")
    content_type: str = "text/event-stream"
    base_hint: str = ""
    streams: str | None = None

    @asynccontextmanager
    async def open_model(self, base_url: str, model: str = "m", **options: Any) -> AsyncIterator[Any]:
        """Open a model at `base_url` for the block; raise `TimeoutError` if the block hangs."""
        opened = self.model(model, base_url=base_url, **options)
        try:
            async with asyncio.timeout(PATIENCE):
                yield opened
        finally:
            await opened.aclose()

    async def ask(
        self, *replies: Any, request: ModelRequest = HELLO, **options: Any
    ) -> tuple[Reply, ModelError | None]:
        """Make one call to a server that sends these replies."""
        async with FakeOpenAIServer(replies) as server, self.open_model(server.base_url, **options) as model:
            return await complete(model, request)

    async def failure(self, *replies: Any, **options: Any) -> ModelError:
        """Return the error of such a call."""
        _, error = await self.ask(*replies, **options)
        assert error is not None
        return error

    def serve_chunks(self, *pieces: bytes, **how: Any) -> AbstractAsyncContextManager[ChunkServer]:
        """Return a server that sends these pieces to every request."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.content_type}\r\n".encode()
        return chunk_server(lambda: pieces, **{"head": head, **how})

    def event(self, fields: dict[str, Any]) -> bytes:
        """Return an object as this wire sends it within a reply."""
        return json.dumps(fields).encode() + b"\n" if self.content_type.endswith("ndjson") else sse(fields)

    def body(self, *parts: bytes) -> RawReply:
        """Return a complete response body."""
        return RawReply(b"".join(parts), 200, self.content_type)


def _line(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", "content": ""}, **fields}).encode() + b"\n"


def _plain_refusal(code: int, message: str) -> RawReply:
    return status(code, message, error_type="api_error")


# --- Chat Completions and Responses ---------------------------------------------------------------------------------

CHAT = ServedWire(
    name="openai-chat",
    model=OpenAIChatModel,
    path="/v1/chat/completions",
    hi=sse({"choices": [{"index": 0, "delta": {"content": "hi"}}]}),
    end=sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"),
    finished=Finished("end", "stop"),
    refusal=_plain_refusal,
    base_hint=" (usually ending in /v1)",
    streams="chat",
)

RESPONSES = ServedWire(
    name="openai",
    model=OpenAIResponsesModel,
    path="/v1/responses",
    hi=sse({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"}),
    end=sse({"type": "response.completed", "response": {"status": "completed"}}),
    finished=Finished("end", "completed"),
    refusal=_plain_refusal,
    base_hint=" (usually ending in /v1)",
    streams="responses",
)

# --- Anthropic ------------------------------------------------------------------------------------------------------

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def _anthropic_refusal(code: int, message: str) -> RawReply:
    error = {"type": _ANTHROPIC_TYPES.get(code, "api_error"), "message": message}
    return RawReply(json.dumps({"type": "error", "error": error}).encode(), code, "application/json")


ANTHROPIC = ServedWire(
    name="anthropic",
    model=AnthropicModel,
    path="/v1/messages",
    hi=sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
    end=sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}),
    finished=Finished("end", "end_turn"),
    refusal=_anthropic_refusal,
    key_header=lambda key: ("x-api-key", key),
    streams="anthropic",
)

# --- Gemini ---------------------------------------------------------------------------------------------------------

_GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def _gemini_refusal(code: int, message: str) -> RawReply:
    error = {"code": code, "message": message, "status": _GEMINI_STATUSES.get(code, "UNKNOWN")}
    return RawReply(json.dumps({"error": error}).encode(), code, "application/json")


def _gemini_event(text: str, **fields: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, **fields}
    return sse({"candidates": [candidate]}, end="\r\n\r\n")


GEMINI = ServedWire(
    name="gemini",
    model=GeminiModel,
    path="/v1/models/m:streamGenerateContent?alt=sse",
    hi=_gemini_event("hi"),
    end=_gemini_event("", finishReason="STOP"),
    finished=Finished("end", "STOP"),
    refusal=_gemini_refusal,
    key_header=lambda key: ("x-goog-api-key", key),
    streams="gemini",
)

# --- Ollama ---------------------------------------------------------------------------------------------------------

OLLAMA = ServedWire(
    name="ollama",
    model=OllamaModel,
    path="/api/chat",
    hi=_line(message={"role": "assistant", "content": "hi"}, done=False),
    end=_line(done=True, done_reason="stop"),
    finished=Finished("end", "stop"),
    refusal=lambda code, message: RawReply(json.dumps({"error": message}).encode(), code, "application/json"),
    content_type="application/x-ndjson",
)

SERVED_WIRES = (CHAT, RESPONSES, ANTHROPIC, GEMINI, OLLAMA)
