"""Anthropic Messages: the wire of Claude and of the servers that are compatible with it."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._anthropic_reply import WIRE, AnthropicReplyParser
from agenticx.llms._anthropic_request import held_schema, request_body, tool_name
from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._reading import read_reply
from agenticx.llms.base import Delta, ModelRequest, OutputSchema
from agenticx.logs import get_logger

__all__ = ["ANTHROPIC_BASE_URL", "AnthropicModel"]

ANTHROPIC_BASE_URL = "https://api.anthropic.com"

_VERSION = "2023-06-01"
_CONTEXT_WINDOW = 200_000
"""What every Claude since 2.1 takes at least."""

_OUTPUT_TOKENS = 8192
_OUTPUT_TOKENS_OF = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)"), 4096),
    (re.compile(r"claude-(3-7|[a-z]+-([4-9]|[1-9]\d)\b)"), 32_000),
)
"""Output limits where none is asked for; the API wants one. Opus 4 takes no more than 32,000, the others do."""

_TAKES_SCHEMAS = re.compile(r"claude-(opus-4-[1-9]\b|[a-z]+-4-[5-9]\b|[a-z]+-([5-9]|[1-9]\d)\b)")
"""Models since Opus 4.1 and the 4.5 ones hold an answer to a schema; those before refuse."""

_REFUSES_SCHEMAS = re.compile(r"output_config|output_format|structured output", re.IGNORECASE)
_TOO_MANY = re.compile(r"max_tokens: \d+ > (\d+)")

log = get_logger(__name__)


class AnthropicModel:
    """A model behind the Messages API.

    `base_url` is what the provider's own SDK takes: `/v1/messages` is appended, and a base that already ends in `/v1`
    is taken as well. `name` is what the person calls the model (default: `anthropic:MODEL`). `max_output_tokens` holds
    for requests that name no limit. `thinking` is the API's own field, such as `{"type": "adaptive"}` or
    `{"type": "enabled", "budget_tokens": 4096}`. `output_schemas` says whether the model holds an answer to a schema
    (default: what its name says). Connections are kept between calls; `aclose` ends those of the
    running event loop.
    """

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
        self._model = model
        self._name = name or f"{WIRE}:{model}"
        self._context_window = context_window or (_CONTEXT_WINDOW if model.startswith("claude") else None)
        self._max_output_tokens = max_output_tokens or _usual_output_tokens(model)
        self._most_output_tokens: int | None = None
        self._thinking = thinking
        self._output_schemas = bool(_TAKES_SCHEMAS.search(model)) if output_schemas is None else output_schemas
        self._http = ProviderHttp(
            base_url.strip().rstrip("/").removesuffix("/v1"),
            who=self._name,
            key=api_key,
            key_header="x-api-key",
            headers={"anthropic-version": _VERSION, **(headers or {})},
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, host={self._http.host!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return self._output_schemas and held_schema(output) is not None

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """The reply, read by read. Closing the iterator closes the socket."""
        names = {tool_name(tool.name): tool.name for tool in request.tools}
        parser = AnthropicReplyParser(who=self._name, model=self._model, tool_names=names)
        return read_reply(lambda: self._ask(request), parser, who=f"{self._name} at {self._http.host}")

    async def _ask(self, request: ModelRequest) -> Answer:
        """Send the request, in the way this model takes it; what it refuses in general is remembered."""
        while True:
            try:
                return await self._post(request)
            except ModelError as error:
                if error.code != "provider.bad_request" or not self._adapt(str(error)):
                    raise

    def _adapt(self, complaint: str) -> bool:
        """Whether there is another way to ask than the one that was refused."""
        limit = _TOO_MANY.search(complaint)
        if limit is not None and 0 < int(limit[1]) < (self._most_output_tokens or sys.maxsize):
            self._most_output_tokens = int(limit[1])
            log.info("the model's output limit is lower than asked for", model=self._name, limit=limit[1])
            return True
        if self._output_schemas and _REFUSES_SCHEMAS.search(complaint):
            self._output_schemas = False
            log.info("the model cannot be held to a schema; asking without it", model=self._name)
            return True
        return False

    async def _post(self, request: ModelRequest) -> Answer:
        max_tokens = request.max_output_tokens or self._max_output_tokens
        body = request_body(
            request,
            model=self._model,
            max_tokens=min(max_tokens, self._most_output_tokens or max_tokens),
            thinking=self._thinking,
            output_schemas=self._output_schemas,
        )
        return await self._http.post("/v1/messages", body, accept="text/event-stream", timeout=request.timeout)


def _usual_output_tokens(model: str) -> int:
    return next((tokens for models, tokens in _OUTPUT_TOKENS_OF if models.search(model)), _OUTPUT_TOKENS)
