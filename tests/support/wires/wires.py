"""The five wires side by side: their parsers, request bodies and request rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from agenticx.llms import (
    AnthropicModel,
    ChatDialect,
    ChatModel,
    GeminiModel,
    ModelRequest,
    OllamaModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolSchema,
)
from agenticx.llms.model_catalog import load_model_catalog
from agenticx.llms.wires.anthropic._reply import AnthropicReplyParser
from agenticx.llms.wires.gemini._reply import GeminiReplyParser
from agenticx.llms.wires.ollama._reply import OllamaReplyParser
from agenticx.llms.wires.openai_chat._reply import ChatReplyParser
from agenticx.llms.wires.openai_responses._reply import ResponsesReplyParser
from agenticx.llms.wires.reply_reader import ReplyParser
from agenticx.messages import Message
from tests.support.wires import rules_anthropic, rules_chat, rules_gemini, rules_ollama, rules_responses, sdk_types
from tests.support.wires.bodies import anthropic_body, chat_body, gemini_body, ollama_body, responses_body
from tests.support.wires.replies import parse_reply as read

__all__ = ["WIRES", "WireUnderTest", "read", "refusals"]


@dataclass(frozen=True, kw_only=True)
class WireUnderTest:
    """A wire. `streams` is the folder of its recorded streams, None if it has none; `ending` their file suffix.

    `stricter` are bodies of other dialects, each with the rules of their servers.
    """

    name: str
    parser: Callable[[str], ReplyParser]
    model: Callable[[str], ChatModel]
    body: Callable[[ModelRequest, str], bytes]
    rules: Callable[[dict[str, Any]], list[str]]
    streams: str | None
    ending: str = "sse"
    content_type: str = "text/event-stream"
    stricter: Sequence[tuple[Callable[[ModelRequest, str], bytes], Callable[[dict[str, Any]], list[str]]]] = ()

    def request(
        self, messages: Sequence[Message], *, model: str = "m", tools: Sequence[ToolSchema] = ()
    ) -> dict[str, Any]:
        """Return the body that would be sent."""
        return json.loads(self.body(ModelRequest(messages=messages, tools=tools), model))

    def violations(self, body: dict[str, Any]) -> list[str]:
        """Return the rules that a body breaks: a strict server's, and those of the SDK's types if installed."""
        return self.rules(body) + sdk_types.found_beside_rules(self.name, body)

    def refusals(self, messages: Sequence[Message], *, model: str = "m", tools: Sequence[ToolSchema] = ()) -> list[str]:
        """Return the violations of the bodies that would be sent; empty if all strict servers accept theirs."""
        found = self.violations(self.request(messages, model=model, tools=tools))
        request = ModelRequest(messages=messages, tools=tools)
        return found + [fault for body, rules in self.stricter for fault in rules(json.loads(body(request, model)))]


_MISTRAL = load_model_catalog().providers["mistral"].dialect or ChatDialect()

WIRES = {
    wire.name: wire
    for wire in (
        WireUnderTest(
            name="openai_chat",
            parser=lambda model: ChatReplyParser(label="test", model=model),
            model=lambda url: OpenAIChatModel("m", base_url=f"{url}/v1"),
            body=partial(chat_body, returns_reasoning=True),
            rules=rules_chat.violations,
            streams="chat",
            stricter=[
                (partial(chat_body, **asdict(_MISTRAL)), rules_chat.mistral_violations),
                (partial(chat_body, returns_reasoning=True, alternating_roles=True), rules_chat.template_violations),
                (partial(chat_body, needs_reasoning=True, system_rows=False), rules_chat.template_violations),
            ],
        ),
        WireUnderTest(
            name="openai_responses",
            parser=lambda model: ResponsesReplyParser(label="test", model=model),
            model=lambda url: OpenAIResponsesModel("m", base_url=f"{url}/v1"),
            body=responses_body,
            rules=rules_responses.violations,
            streams="responses",
        ),
        WireUnderTest(
            name="anthropic",
            parser=lambda model: AnthropicReplyParser(label="test", model=model),
            model=lambda url: AnthropicModel("m", base_url=url),
            body=partial(anthropic_body, thinking={"type": "enabled", "budget_tokens": 1024}),
            rules=rules_anthropic.violations,
            streams="anthropic",
        ),
        WireUnderTest(
            name="gemini",
            parser=lambda model: GeminiReplyParser(label="test", model=model),
            model=lambda url: GeminiModel("m", base_url=url),
            body=gemini_body,
            rules=lambda body: rules_gemini.violations(body, signed=True),
            streams="gemini",
        ),
        WireUnderTest(
            name="ollama",
            parser=lambda model: OllamaReplyParser(label="test", model=model),
            model=lambda url: OllamaModel("m", base_url=url),
            body=ollama_body,
            rules=rules_ollama.violations,
            streams=None,
            ending="ndjson",
            content_type="application/x-ndjson",
        ),
    )
}


def refusals(messages: Sequence[Message], *, tools: Sequence[ToolSchema] = ()) -> dict[str, list[str]]:
    """Return the violations of each wire whose server would refuse this conversation; empty if all accept it."""
    found = {wire.name: wire.refusals(messages, tools=tools) for wire in WIRES.values()}
    return {name: complaints for name, complaints in found.items() if complaints}
