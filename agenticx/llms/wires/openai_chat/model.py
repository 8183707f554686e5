"""Chat Completions: the wire of OpenAI and of the many servers that are compatible with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agenticx.errors import ModelError
from agenticx.llms.base import InlineForm, ModelRequest, OutputSchema
from agenticx.llms.downgrades import Downgrade
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.openai_rows import WIRE
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.llms.wires.openai_chat._reply import ChatReplyParser
from agenticx.llms.wires.openai_chat._request import TOOL_NAMES, request_body, sampling_rules
from agenticx.llms.wires.openai_chat._roles import ROLE_REFUSALS
from agenticx.llms.wires.provider_model import (
    FIELD_REFUSED,
    STREAMING_REFUSED,
    PostRequest,
    ProviderModel,
    with_dialect,
    without_streaming,
)
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.llms.wires.strict_schema import strict_schema

__all__ = ["OPENAI_BASE_URL", "ChatDialect", "OpenAIChatModel"]

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
_REFUSES_FIELDS = re.compile(
    r"extra_content|provider_specific_fields|thinking_blocks|reasoning_opaque|reasoning_details"
    r"|tool_calls.{0,120}(extra|unknown|unexpected|unrecogni|additional propert|not permitted)"
    r"|(extra|unknown|unexpected|unrecogni|additional propert|not permitted).{0,120}tool_calls",
    re.IGNORECASE,
)
"""Refusals of fields that the server sent itself, such as a gateway's before another provider."""
_LACKS_SIGNATURE = re.compile(r"missing (a|the|its) .?thought_?signature", re.IGNORECASE)
_REFUSES_REQUIRED_CALLS = re.compile(
    r"(not|n't|un)\W?.{0,12}support.{0,40}tool_choice|function calling mode"
    r"|(unsupported|unknown|unrecogni[sz]ed|unexpected|invalid|extra) (request )?(param|arg|field|key|name)"
    r".{0,40}tool_choice"
    r"|tool_choice.{0,60}(\bnot\b|n't|unsupported|\bonly\b|incompatible|must be|should be)",
    re.IGNORECASE,
)
"""DeepSeek and Alibaba, whose models cannot be made to call while they think; Moonshot; gateways."""
_REFUSES_SCHEMAS = re.compile(r"response_format|json_schema|structured output", re.IGNORECASE)

_DOWNGRADES = (
    *(Downgrade(refusal.words, with_dialect(**refusal.changes), refusal.log_message) for refusal in ROLE_REFUSALS),
    Downgrade(
        re.compile(
            r"\bids?\b.{0,80}length (of )?9\b", re.IGNORECASE
        ),  # Mistral and its templates, also of local servers
        with_dialect(short_call_ids=True),
        "the server requires call ids of nine letters or digits; sending such from now on",
    ),
    Downgrade(
        _NEEDS_REASONING,
        with_dialect(returns_reasoning=True, needs_reasoning=True),
        "the server requires earlier reasoning in requests; sending it from now on",
    ),
    Downgrade(
        _LACKS_SIGNATURE,
        with_dialect(call_signatures=True),
        "the server requires signatures; from now on calls of other models have its stand-in for one",
    ),
    Downgrade(
        _REFUSES_REQUIRED_CALLS,
        with_dialect(required_calls=False),
        "the server does not take `tool_choice`; from now on no call is required",
    ),
    Downgrade(
        _REFUSES_REQUIRED_CALLS,
        with_dialect(tool_choice=False),
        "the server does not take `tool_choice`; from now on a request without calls has no tools",
    ),
    Downgrade(re.compile("stream_options"), with_dialect(stream_options=False), FIELD_REFUSED),
    Downgrade(
        re.compile("max_completion_tokens"),
        with_dialect(output_limit="max_completion_tokens"),
        "the server has another name for the output limit; using that",
    ),
    Downgrade(_REFUSES_SCHEMAS, with_dialect(output_schemas=False), FIELD_REFUSED),
    Downgrade(re.compile("parallel_tool_calls"), with_dialect(one_call=False), FIELD_REFUSED),
    Downgrade(_REFUSES_STREAMING, without_streaming, STREAMING_REFUSED),
)


class OpenAIChatModel(ProviderModel[ChatDialect]):
    """A model on a Chat Completions server.

    `base_url` is the URL that `/chat/completions` is appended to, usually ending in `/v1`. `name` is the user's name
    for the model (default: `openai-chat:MODEL`), `model` its name at the server. `inline_calls` are the forms of
    its calls that the server leaves in the text. Connections are kept between calls; `aclose` closes the
    running event loop's.
    """

    _downgrades = _DOWNGRADES
    _downgrade_codes = frozenset({"provider.bad_request", "provider.overloaded", "provider.bad_reply"})
    _tail_seconds = 2.0  # for usage and `[DONE]`, after the finish reason
    _tool_name_rule = TOOL_NAMES

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
        http = ProviderHttp(base_url, label=name, key=api_key, headers=headers, base_url_hint="usually ending in /v1")
        dialect = dialect or _default_dialect(http.host)
        super().__init__(model, http, name=name, context_window=context_window, dialect=dialect)
        self.inline_calls = tuple(inline_calls)

    @property
    def _sampling_rules(self) -> SamplingRules:
        return sampling_rules(self._mode.dialect)

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        support = self._mode.dialect.output_schemas
        return (
            bool(support)
            and not (with_tools and support == "without_tools")
            and strict_schema(output.schema) is not None
        )

    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        body = request_body(
            request,
            model=self._model,
            dialect=self._mode.dialect,
            stream=self._mode.streaming,
            replay_state=replay_state,
            names=names,
        )
        return PostRequest(path="/chat/completions", body=body, accept=self._mode.accept)

    def _parser(self, original_names: Mapping[str, str]) -> ChatReplyParser:
        return ChatReplyParser(label=self.name, model=self._model, original_names=original_names)

    def _refuses_state(self, error: ModelError) -> bool:
        if error.status is None:
            return False
        text = str(error)
        if _REFUSES_FIELDS.search(text):
            return True
        refuses_reasoning = self._mode.dialect.returns_reasoning and _REFUSES_REASONING.search(text)
        return bool(refuses_reasoning) and not (_NEEDS_REASONING.search(text) or _LACKS_SIGNATURE.search(text))


def _default_dialect(host: str) -> ChatDialect:
    if host == "api.openai.com" or host.endswith(".openai.azure.com"):
        return ChatDialect(output_limit="max_completion_tokens", files=True, output_schemas=True)
    return ChatDialect()
