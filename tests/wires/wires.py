"""The five wires side by side: how each parses a reply, asks for one, and what its server has against a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import (
    AnthropicModel,
    ChatModel,
    GeminiModel,
    ModelRequest,
    OllamaModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
    _anthropic_request,
    _gemini_request,
    _ollama_request,
    _openai_chat_request,
    _openai_responses_request,
)
from agenticx.llms._anthropic_reply import AnthropicReplyParser
from agenticx.llms._gemini_reply import GeminiReplyParser
from agenticx.llms._ollama_reply import OllamaReplyParser
from agenticx.llms._openai_chat_reply import ChatReplyParser
from agenticx.llms._openai_responses_reply import ResponsesReplyParser
from agenticx.llms._reading import ReplyParser
from agenticx.llms.base import Reply, ReplyBuilder, ToolSchema
from agenticx.messages import Message
from tests.llms import rules_anthropic, rules_gemini, rules_ollama, rules_responses
from tests.wires import rules_chat

__all__ = ["WIRES", "Wire", "read", "refusals"]


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One wire. `streams` is the folder of its recorded streams, `path` where its requests go below the base URL."""

    name: str
    parser: Callable[[str], ReplyParser]
    model: Callable[[str], ChatModel]
    body: Callable[[ModelRequest, str], bytes]
    violations: Callable[[dict[str, Any]], list[str]]
    streams: str | None
    ending: str = "sse"
    content_type: str = "text/event-stream"

    def request(
        self, messages: Sequence[Message], *, model: str = "m", tools: Sequence[ToolSchema] = ()
    ) -> dict[str, Any]:
        """What would be sent."""
        return json.loads(self.body(ModelRequest(messages=messages, tools=tools), model))

    def refusals(self, messages: Sequence[Message], *, model: str = "m", tools: Sequence[ToolSchema] = ()) -> list[str]:
        """What a strict server has against what would be sent; empty if it takes it."""
        return self.violations(self.request(messages, model=model, tools=tools))


WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            name="openai_chat",
            parser=lambda model: ChatReplyParser(who="test", model=model),
            model=lambda url: OpenAIChatModel("m", base_url=f"{url}/v1"),
            body=lambda request, model: _openai_chat_request.request_body(
                request, model=model, dialect=_openai_chat_request.Dialect(returns_reasoning=True), stream=True
            ),
            violations=rules_chat.violations,
            streams="chat",
        ),
        Wire(
            name="openai_responses",
            parser=lambda model: ResponsesReplyParser(who="test", model=model),
            model=lambda url: OpenAIResponsesModel("m", base_url=f"{url}/v1"),
            body=lambda request, model: _openai_responses_request.request_body(
                request, model=model, dialect=_openai_responses_request.Dialect(), stream=True
            ),
            violations=rules_responses.violations,
            streams="responses",
        ),
        Wire(
            name="anthropic",
            parser=lambda model: AnthropicReplyParser(who="test", model=model),
            model=lambda url: AnthropicModel("m", base_url=url),
            body=lambda request, model: _anthropic_request.request_body(
                request, model=model, max_tokens=4096, thinking={"type": "enabled", "budget_tokens": 1024}
            ),
            violations=rules_anthropic.violations,
            streams="anthropic",
        ),
        Wire(
            name="gemini",
            parser=lambda model: GeminiReplyParser(who="test", model=model),
            model=lambda url: GeminiModel("m", base_url=url),
            body=lambda request, model: _gemini_request.request_body(
                request, model=model, dialect=_gemini_request.Dialect()
            ),
            violations=lambda body: rules_gemini.violations(body, signed=True),
            streams="gemini",
        ),
        Wire(
            name="ollama",
            parser=lambda model: OllamaReplyParser(who="test", model=model),
            model=lambda url: OllamaModel("m", base_url=url),
            body=lambda request, model: _ollama_request.request_body(request, model=model, context_window=None),
            violations=rules_ollama.violations,
            streams=None,
            ending="ndjson",
            content_type="application/x-ndjson",
        ),
    )
}


def read(parser: ReplyParser, chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """The reply in a body that comes in these pieces and ends cleanly."""
    builder = ReplyBuilder()

    def take(deltas: Iterable[Any]) -> None:
        for delta in deltas:
            builder.add(delta)

    for chunk in chunks:
        take(parser.feed(chunk))
        if parser.done or parser.error:
            break
    else:
        take(parser.end())
    return builder.reply(), parser.error


def refusals(messages: Sequence[Message], *, tools: Sequence[ToolSchema] = ()) -> dict[str, list[str]]:
    """What the wires whose servers would refuse this conversation have against it; empty if all take it."""
    found = {wire.name: wire.refusals(messages, tools=tools) for wire in WIRES.values()}
    return {name: complaints for name, complaints in found.items() if complaints}
