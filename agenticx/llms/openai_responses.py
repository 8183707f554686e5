"""Responses: OpenAI's own wire, which Azure, xAI, OpenRouter and others speak as well; stateless throughout."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from agenticx.errors import ModelError
from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._openai_responses_reply import ResponsesReplyParser
from agenticx.llms._openai_responses_request import Dialect, request_body
from agenticx.llms._reading import read_reply
from agenticx.llms._strict_schema import strict_schema
from agenticx.llms.base import Delta, ModelRequest, OutputSchema
from agenticx.logs import get_logger

__all__ = ["Dialect", "OpenAIResponsesModel"]

_BASE_URL = "https://api.openai.com/v1"

_DOES_NOT_REASON = re.compile(r"(^|/)(chatgpt|gpt-3|gpt-4|gpt-5[^/]*-chat)")
_REASONS = re.compile(r"(^|/)(o[1-9]\b|gpt-[5-9]|codex)")

_REFUSES_STATE = re.compile(
    r"encrypted.content.*(verified|decrypt|not issued|invalid)|invalid.encrypted.content"
    r"|required (following|reasoning) item|item with id .* not found",
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

log = get_logger(__name__)


class OpenAIResponsesModel:
    """A model behind a Responses server.

    `base_url` is the URL that `/responses` is appended to, usually ending in `/v1`. `name` is what the person calls the
    model (default: `openai:MODEL`), `model` what the server calls it. Connections are kept between calls; `aclose` ends
    those of the running event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = _BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"openai:{model}"
        self._context_window = context_window
        hint = "usually ending in /v1"
        self._http = ProviderHttp(base_url, who=self._name, key=api_key, headers=headers, base_hint=hint)
        self._dialect = dialect or _usual_dialect(model)
        self._streams = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, host={self._http.host!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return self._dialect.output_schemas and strict_schema(output.schema) is not None

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The reply, read by read. Closing the iterator closes the socket."""
        parser = ResponsesReplyParser(who=self._name, model=self._model)
        return read_reply(lambda: self._ask(request), parser, who=self._name)

    async def _ask(self, request: ModelRequest) -> Answer:
        """Send the request, in the way this server takes it; what it refuses in general is remembered."""
        native = True
        while True:
            try:
                return await self._post(request, native)
            except ModelError as error:
                if native and error.status is not None and _REFUSES_STATE.search(str(error)):
                    log.warning("the server refuses its own earlier output; sending it as text", model=self._name)
                    native = False
                elif not self._adapt(error):
                    raise

    async def _post(self, request: ModelRequest, native: bool) -> Answer:
        body = request_body(request, model=self._model, dialect=self._dialect, stream=self._streams, native=native)
        accept = "text/event-stream" if self._streams else "application/json"
        return await self._http.post("/responses", body, accept=accept, timeout=request.timeout)

    def _adapt(self, error: ModelError) -> bool:
        """Whether the server refused only the way it was asked, and there is another one."""
        if error.code != "provider.bad_request" or error.status is None:
            return False
        text = str(error)
        if self._dialect.reasoning_summary and _REFUSES_SUMMARY.search(text):
            self._dialect = replace(self._dialect, reasoning_summary=False)
        elif self._dialect.encrypted_reasoning and _REFUSES_ENCRYPTED.search(text):
            self._dialect = replace(self._dialect, encrypted_reasoning=False)
        elif self._dialect.output_schemas and _REFUSES_SCHEMAS.search(text):
            self._dialect = replace(self._dialect, output_schemas=False)
        elif self._streams and _REFUSES_STREAMING.search(text):
            self._streams = False
        else:
            return False
        log.info("the server refuses a field; asking without it", model=self._name, reason=text)
        return True


def _usual_dialect(model: str) -> Dialect:
    reasons = not _DOES_NOT_REASON.search(model)
    return Dialect(encrypted_reasoning=reasons, reasoning_summary=reasons and bool(_REASONS.search(model)))
