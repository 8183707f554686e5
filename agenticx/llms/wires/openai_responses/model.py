"""Responses: OpenAI's own wire, also of Azure, xAI, OpenRouter and others; used without server state."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agenticx.errors import ModelError
from agenticx.llms.base import ModelRequest, OutputSchema
from agenticx.llms.downgrades import Downgrade
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wires.openai_responses._reply import ResponsesReplyParser
from agenticx.llms.wires.openai_responses._request import SAMPLING, TOOL_NAMES, ResponsesDialect, request_body
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

__all__ = ["OpenAIResponsesModel", "ResponsesDialect"]

_BASE_URL = "https://api.openai.com/v1"

_DOES_NOT_REASON = re.compile(r"(^|/)(chatgpt|gpt-3|gpt-4|gpt-5[^/]*-chat)")
_REASONS = re.compile(r"(^|/)(o[1-9]\b|gpt-[5-9]|codex)")

_REFUSES_STATE = re.compile(
    r"encrypted.content.*(verified|decrypt|not issued|invalid)|invalid.encrypted.content"
    r"|required (following|reasoning) item|item with id .* not found|input\[\d+\]\.id\W.{0,20}too long",
    re.IGNORECASE | re.DOTALL,
)
_REFUSES_SUMMARY = re.compile(r"reasoning[._ ]summar|parameter:? '?reasoning\b", re.IGNORECASE)
_REFUSES_SCHEMAS = re.compile(r"text\.format|json_schema|structured output", re.IGNORECASE)
_REFUSES_ENCRYPTED = re.compile(r"encrypted.content|\binclude\b", re.IGNORECASE)
_REFUSES_STREAMING = re.compile(
    r"verified to stream"
    r"|\bstream\w*\W.{0,40}(not|n't|un)\W?.{0,12}support|(not|n't|un)\W?.{0,12}support.{0,40}\bstream",
    re.IGNORECASE,
)

_DOWNGRADES = (
    Downgrade(_REFUSES_SUMMARY, with_dialect(reasoning_summary=False), FIELD_REFUSED),
    Downgrade(_REFUSES_ENCRYPTED, with_dialect(encrypted_reasoning=False), FIELD_REFUSED),
    Downgrade(_REFUSES_SCHEMAS, with_dialect(output_schemas=False), FIELD_REFUSED),
    Downgrade(_REFUSES_STREAMING, without_streaming, STREAMING_REFUSED),
)


class OpenAIResponsesModel(ProviderModel[ResponsesDialect]):
    """A model on a Responses server.

    `base_url` is the URL that `/responses` is appended to, usually ending in `/v1`. `name` is the user's name for the
    model (default: `openai:MODEL`), `model` its name at the server. `reasons` is true if it reasons (default: by its
    name). Connections are kept between calls; `aclose` closes the running event loop's.
    """

    _downgrades = _DOWNGRADES
    _tool_name_rule = TOOL_NAMES

    def __init__(
        self,
        model: str,
        *,
        base_url: str = _BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: ResponsesDialect | None = None,
        reasons: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        name = name or f"openai:{model}"
        http = ProviderHttp(base_url, label=name, key=api_key, headers=headers, base_url_hint="usually ending in /v1")
        dialect = dialect or _default_dialect(model, reasons)
        super().__init__(model, http, name=name, context_window=context_window, dialect=dialect)

    @property
    def _sampling_rules(self) -> SamplingRules:
        return SAMPLING

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return self._mode.dialect.output_schemas and strict_schema(output.schema) is not None

    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        body = request_body(
            request,
            model=self._model,
            dialect=self._mode.dialect,
            stream=self._mode.streaming,
            replay_state=replay_state,
            names=names,
        )
        return PostRequest(path="/responses", body=body, accept=self._mode.accept)

    def _parser(self, original_names: Mapping[str, str]) -> ResponsesReplyParser:
        return ResponsesReplyParser(label=self.name, model=self._model, original_names=original_names)

    def _refuses_state(self, error: ModelError) -> bool:
        return error.status is not None and bool(_REFUSES_STATE.search(str(error)))


def _default_dialect(model: str, reasons: bool | None) -> ResponsesDialect:
    if reasons is not None:
        return ResponsesDialect(encrypted_reasoning=reasons, reasoning_summary=reasons)
    can_reason = not _DOES_NOT_REASON.search(model)
    return ResponsesDialect(
        encrypted_reasoning=can_reason, reasoning_summary=can_reason and bool(_REASONS.search(model))
    )
