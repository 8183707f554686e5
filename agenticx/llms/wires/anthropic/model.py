"""Anthropic Messages: the wire of Claude and of the servers that are compatible with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms.base import ModelRequest, OutputSchema
from agenticx.llms.downgrades import Downgrade
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wires.anthropic._reply import WIRE, AnthropicReplyParser
from agenticx.llms.wires.anthropic._request import (
    NEWER_SAMPLING,
    SAMPLING,
    TOOL_NAMES,
    accepted_output_schema,
    request_body,
)
from agenticx.llms.wires.provider_model import PostRequest, ProviderModel, RequestMode, with_dialect
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.logs import get_logger

__all__ = ["ANTHROPIC_BASE_URL", "AnthropicModel"]

ANTHROPIC_BASE_URL = "https://api.anthropic.com"

_VERSION = "2023-06-01"
_CONTEXT_WINDOW = 200_000
"""The smallest context window of all Claude models since 2.1."""

_OUTPUT_TOKENS = 8192
_OUTPUT_TOKENS_BY_MODEL = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)"), 4096),
    (re.compile(r"claude-(3-7|[a-z]+-([4-9]|[1-9]\d)\b)"), 32_000),
)
"""Output limits of requests without one, as the API requires a limit. Only Opus 4 accepts no more than 32,000."""

_TAKES_SCHEMAS = re.compile(r"claude-(opus-4-[1-9]\b|[a-z]+-4-[5-9]\b|[a-z]+-([5-9]|[1-9]\d)\b)")
"""Models that enforce an output schema: since Opus 4.1, and the 4.5 ones; earlier models refuse."""

_REFUSES_TEMPERATURE = re.compile(r"claude-(opus-4-[7-9]\b|[a-z]+-([5-9]|[1-9]\d)\b)")
"""Models without `temperature` and `top_p`: since Opus 4.7."""

_REFUSES_STATE = re.compile(
    r"signature|thinking.{0,40}(blocks?\b|but found)|tool_use\.\w+\W+(extra|additional) input",
    re.IGNORECASE | re.DOTALL,
)
"""Messages about thoughts that are not exactly this model's own, or not where the API expects them, and about fields
of calls that gateways pass on in one direction only (https://github.com/browserbase/stagehand-python/issues/249)."""

_REFUSES_SCHEMAS = re.compile(r"output_config|output_format|structured output", re.IGNORECASE)
_OUTPUT_LIMIT = re.compile(r"max_tokens: \d+ > (\d+)")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicDialect:
    """The features that only some models support."""

    output_schemas: bool
    """True if the model enforces an output schema."""

    output_token_limit: int | None = None
    """The output limit that the model reported when it refused a higher one."""


_DOWNGRADES = (
    Downgrade(
        _REFUSES_SCHEMAS,
        with_dialect(output_schemas=False),
        "the model does not support output schemas; retrying without one",
    ),
)


class AnthropicModel(ProviderModel[AnthropicDialect]):
    """A model of the Messages API.

    `base_url` is the one of the provider's own SDK: `/v1/messages` is appended; a base URL that already ends in `/v1`
    is accepted too. `name` is the user's name for the model (default: `anthropic:MODEL`). `max_output_tokens` applies
    to requests without a limit. `thinking` is the API's own field, for example `{"type": "adaptive"}` or
    `{"type": "enabled", "budget_tokens": 4096}`. `output_schemas` is true if the model enforces an output schema
    (default: by its name). Connections are kept between calls; `aclose` closes the running event loop's.
    """

    _downgrades = _DOWNGRADES
    _tool_name_rule = TOOL_NAMES

    def __init__(
        self,
        model: str,
        *,
        base_url: str = ANTHROPIC_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        thinking: Mapping[str, Any] | None = None,
        output_schemas: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        name = name or f"{WIRE}:{model}"
        http = ProviderHttp(
            base_url.strip().rstrip("/").removesuffix("/v1"),
            label=name,
            key=api_key,
            key_header="x-api-key",
            headers={"anthropic-version": _VERSION, **(headers or {})},
        )
        default_window = _CONTEXT_WINDOW if model.startswith("claude") else None
        takes_schemas = bool(_TAKES_SCHEMAS.search(model)) if output_schemas is None else output_schemas
        window, dialect = context_window or default_window, AnthropicDialect(output_schemas=takes_schemas)
        super().__init__(model, http, name=name, context_window=window, dialect=dialect)
        self._max_output_tokens = max_output_tokens or _default_output_tokens(model)
        self._thinking = thinking

    @property
    def output_limit(self) -> int:
        """The largest number of tokens of a reply to a request without a limit of its own."""
        return self._max_output_tokens

    @property
    def _sampling_rules(self) -> SamplingRules:
        return NEWER_SAMPLING if _REFUSES_TEMPERATURE.search(self._model) else SAMPLING

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return self._mode.dialect.output_schemas and accepted_output_schema(output) is not None

    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        max_tokens = self._max_output_tokens
        body = request_body(
            request,
            model=self._model,
            max_tokens=min(max_tokens, self._mode.dialect.output_token_limit or max_tokens),
            thinking=self._thinking,
            output_schemas=self._mode.dialect.output_schemas,
            replay_state=replay_state,
            names=names,
        )
        return PostRequest(path="/v1/messages", body=body)

    def _parser(self, original_names: Mapping[str, str]) -> AnthropicReplyParser:
        return AnthropicReplyParser(label=self.name, model=self._model, original_names=original_names)

    def _refuses_state(self, error: ModelError) -> bool:
        return error.status == 400 and bool(_REFUSES_STATE.search(str(error)))

    def _try_downgrade(self, error: ModelError, mode: RequestMode[AnthropicDialect]) -> bool:
        limit = _OUTPUT_LIMIT.search(str(error)) if error.code == "provider.bad_request" else None
        if limit is not None and 0 < int(limit[1]) < (mode.dialect.output_token_limit or sys.maxsize):
            self._mode = with_dialect(output_token_limit=int(limit[1]))(self._mode)
            _log.info("the model's output limit is lower than requested", model=self.name, limit=limit[1])
            return True
        return super()._try_downgrade(error, mode)


def _default_output_tokens(model: str) -> int:
    return next((tokens for models, tokens in _OUTPUT_TOKENS_BY_MODEL if models.search(model)), _OUTPUT_TOKENS)
