"""Chat Completions: the wire of OpenAI and of the many servers that are compatible with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from agenticx.errors import ModelError
from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._openai_chat_reply import WIRE, ChatReplyParser
from agenticx.llms._openai_chat_request import Dialect, request_body
from agenticx.llms._reading import read_reply
from agenticx.llms._strict_schema import strict_schema
from agenticx.llms.base import Delta, ModelRequest, OutputSchema
from agenticx.logs import get_logger
from agenticx.settings import provider_key, provider_setting

__all__ = ["OPENAI_BASE_URL", "Dialect", "OpenAIChatModel", "OpenAIProvider"]

OPENAI_BASE_URL = "https://api.openai.com/v1"

_TAIL_SECONDS = 5.0
"""How long usage and `[DONE]` may lag behind the finish reason; the reply is whole without them."""

_REFUSES_STREAMING = re.compile(
    r"stream\w*\W.{0,40}(not|n't|un)\W?.{0,12}support|(not|n't|un)\W?.{0,12}support.{0,40}\bstream"
    r"|stream\w* (is|are) (disabled|unavailable)|cannot use tools with stream|verified to stream"
    r"|'stream' does not support|stream must be (set to )?false",
    re.IGNORECASE,
)

_REFUSES_SCHEMAS = re.compile(r"response_format|json_schema|structured output", re.IGNORECASE)

log = get_logger(__name__)


class OpenAIChatModel:
    """A model behind a Chat Completions server.

    `base_url` is the URL that `/chat/completions` is appended to, usually ending in `/v1`. `name` is what the person
    calls the model (default: `openai-chat:MODEL`), `model` what the server calls it. Connections are kept between
    calls; `aclose` ends those of the running event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"{WIRE}:{model}"
        self._context_window = context_window
        hint = "usually ending in /v1"
        self._http = ProviderHttp(base_url, who=self._name, key=api_key, headers=headers, base_hint=hint)
        self._dialect = dialect or _usual_dialect(self._http.host)
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
        parser = ChatReplyParser(who=self._name, model=self._model)
        return read_reply(
            lambda: self._ask(request),
            parser,
            who=f"{self._name} at {self._http.host}",
            next_bytes=lambda answer: _next_bytes(answer, parser),
        )

    async def _ask(self, request: ModelRequest) -> Answer:
        """Send the request, in the way this server takes it; what it refuses is remembered."""
        while True:
            try:
                return await self._post(request)
            except ModelError as error:
                if not self._adapt(error):
                    raise

    async def _post(self, request: ModelRequest) -> Answer:
        body = request_body(request, model=self._model, dialect=self._dialect, stream=self._streams)
        accept = "text/event-stream" if self._streams else "application/json"
        return await self._http.post("/chat/completions", body, accept=accept, timeout=request.timeout)

    def _adapt(self, error: ModelError) -> bool:
        """Whether the server refused only the way it was asked, and there is another one."""
        if error.code not in ("provider.bad_request", "provider.overloaded") or error.status is None:
            return False
        text = str(error)
        if self._dialect.stream_options and "stream_options" in text:
            self._dialect = replace(self._dialect, stream_options=False)
        elif self._dialect.output_limit == "max_tokens" and "max_completion_tokens" in text:
            self._dialect = replace(self._dialect, output_limit="max_completion_tokens")
        elif self._dialect.output_schemas and _REFUSES_SCHEMAS.search(text):
            self._dialect = replace(self._dialect, output_schemas=False)
        elif self._streams and _REFUSES_STREAMING.search(text):
            self._streams = False
            log.warning("the server refuses to stream; asking for whole replies", model=self._name, reason=text)
            return True
        else:
            return False
        log.info("the server refuses a field; asking without it", model=self._name, reason=text)
        return True


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


async def _next_bytes(answer: Answer, parser: ChatReplyParser) -> bytes | None:
    """The next read; once the reply is whole, silence or a broken connection counts as its end."""
    if not parser.finishing:
        return await answer.next_bytes()
    try:
        async with asyncio.timeout(_TAIL_SECONDS):
            return await answer.next_bytes()
    except (TimeoutError, ModelError):
        return None


def _usual_dialect(host: str) -> Dialect:
    if host == "api.openai.com" or host.endswith(".openai.azure.com"):
        return Dialect(output_limit="max_completion_tokens", files=True, output_schemas=True)
    return Dialect()
