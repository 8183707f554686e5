"""Chat Completions: the wire of OpenAI and of the many servers that are compatible with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agenticx.errors import ModelError
from agenticx.llms._concessions import Concession
from agenticx.llms._http import ProviderHttp
from agenticx.llms._provider import (
    WITHOUT_IT,
    WITHOUT_STREAMING,
    Call,
    ProviderModel,
    differently,
    for_whole_replies,
)
from agenticx.llms._strict_schema import strict_schema
from agenticx.llms.base import InlineForm, ModelRequest, OutputSchema
from agenticx.llms.chat_dialect import ChatDialect
from agenticx.llms.openai_chat._reply import WIRE, ChatReplyParser
from agenticx.llms.openai_chat._request import request_body
from agenticx.llms.openai_chat.rows import sent_names
from agenticx.settings import provider_key, provider_setting

__all__ = ["OPENAI_BASE_URL", "ChatDialect", "OpenAIChatModel", "OpenAIProvider"]

OPENAI_BASE_URL = "https://api.openai.com/v1"

_REFUSES_STREAMING = re.compile(
    r"stream\w*\W.{0,40}(not|n't|un)\W?.{0,12}support|(not|n't|un)\W?.{0,12}support.{0,40}\bstream"
    r"|stream\w* (is|are) (disabled|unavailable)|cannot use tools with stream|verified to stream"
    r"|'stream' does not support|stream must be (set to )?false",
    re.IGNORECASE,
)

_NEEDS_REASONING = re.compile(
    r"reasoning_content.{0,60}(must be passed back|missing)|missing .?reasoning_content", re.I
)
_REFUSES_REASONING = re.compile(
    r"reasoning_(content|details)|signature|(thinking|redacted).{0,20} block", re.IGNORECASE
)
_REFUSES_SCHEMAS = re.compile(r"response_format|json_schema|structured output", re.IGNORECASE)

_CONCESSIONS = (
    Concession(
        _NEEDS_REASONING,
        differently(returns_reasoning=True, needs_reasoning=True),
        "the server wants reasoning back; sending it from now on",
    ),
    Concession(re.compile("stream_options"), differently(stream_options=False), WITHOUT_IT),
    Concession(
        re.compile("max_completion_tokens"),
        differently(output_limit="max_completion_tokens"),
        "the server has another name for the output limit; asking by that",
    ),
    Concession(_REFUSES_SCHEMAS, differently(output_schemas=False), WITHOUT_IT),
    Concession(re.compile("parallel_tool_calls"), differently(one_call=False), WITHOUT_IT),
    Concession(_REFUSES_STREAMING, for_whole_replies, WITHOUT_STREAMING),
)


class OpenAIChatModel(ProviderModel[ChatDialect]):
    """A model behind a Chat Completions server.

    `base_url` is the URL that `/chat/completions` is appended to, usually ending in `/v1`. `name` is what the person
    calls the model (default: `openai-chat:MODEL`), `model` what the server calls it. `inline_calls` are the forms in
    which it writes calls that its server leaves in the text. Connections are kept between calls; `aclose` ends those
    of the running event loop.
    """

    _concessions = _CONCESSIONS
    _refusals = frozenset({"provider.bad_request", "provider.overloaded"})
    _tail_seconds = 2.0  # for usage and `[DONE]`, behind the finish reason

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: ChatDialect | None = None,
        inline_calls: Sequence[InlineForm] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        name = name or f"{WIRE}:{model}"
        http = ProviderHttp(base_url, who=name, key=api_key, headers=headers, base_hint="usually ending in /v1")
        dialect = dialect or _usual_dialect(http.host)
        super().__init__(model, http, name=name, context_window=context_window, dialect=dialect)
        self._inline_calls = tuple(inline_calls)

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        return self._inline_calls

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        held = self._way.dialect.output_schemas
        return bool(held) and not (with_tools and held == "without_tools") and strict_schema(output.schema) is not None

    def _call(self, request: ModelRequest, native: bool) -> Call:
        body = request_body(
            request, model=self._model, dialect=self._way.dialect, stream=self._way.streams, native=native
        )
        accept = "text/event-stream" if self._way.streams else "application/json"
        return Call(path="/chat/completions", body=body, accept=accept)

    def _parser(self, request: ModelRequest) -> ChatReplyParser:
        return ChatReplyParser(who=self._name, model=self._model, tool_names=sent_names(request).originals)

    def _refuses_state(self, error: ModelError) -> bool:
        if error.status is None or not self._way.dialect.returns_reasoning:
            return False
        text = str(error)
        return bool(_REFUSES_REASONING.search(text)) and not _NEEDS_REASONING.search(text)


class OpenAIProvider(OpenAIChatModel):
    """OpenAI, or what OPENAI_BASE_URL names, always over Chat Completions.

    >>> OpenAIProvider(model="gpt-4o", api_key="sk-example").name
    'openai-chat:gpt-4o'

    The key comes from OPENAI_API_KEY unless it is given.
    """

    def __init__(self, model: str = "gpt-4o", api_key: str | None = None, base_url: str | None = None) -> None:
        super().__init__(
            model,
            api_key=api_key or provider_key("OPENAI_API_KEY"),
            base_url=base_url or provider_setting("OPENAI_BASE_URL") or OPENAI_BASE_URL,
        )


def _usual_dialect(host: str) -> ChatDialect:
    if host == "api.openai.com" or host.endswith(".openai.azure.com"):
        return ChatDialect(output_limit="max_completion_tokens", files=True, output_schemas=True)
    return ChatDialect()
