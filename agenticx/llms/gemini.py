"""Gemini: Google's own wire, `streamGenerateContent` as server-sent events."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from agenticx.errors import ModelError
from agenticx.llms._gemini_reply import GeminiReplyParser
from agenticx.llms._gemini_request import Dialect, request_body, tool_names
from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._reading import read_reply
from agenticx.llms.base import Delta, ModelRequest, OutputSchema
from agenticx.logs import get_logger

__all__ = ["GEMINI_BASE_URL", "Dialect", "GeminiModel"]

GEMINI_BASE_URL = "https://generativelanguage.googleapis.com"

_VERSION = re.compile(r"/v\d+((alpha|beta)\d*)?(/|$)")
_DOES_NOT_THINK = re.compile(r"(^|/)(gemini-1|gemini-2\.0|gemma|learnlm)|-image|-tts")

_REFUSES_STATE = re.compile(r"thought.?signature", re.IGNORECASE)
_REFUSES_THOUGHTS = re.compile(r"thinking|include.?thoughts", re.IGNORECASE)
_HOLDS_WITH_TOOLS = re.compile(r"(^|/)gemini-([3-9]|\d\d)")
_NEVER_HOLDS = re.compile(r"(^|/)(gemma|learnlm|gemini-1\.0)|-image|-tts")

_REFUSES_SCHEMAS = re.compile(r"response mime type|json mode|response_?(json_?)?schema", re.IGNORECASE)
_REFUSES_SYSTEM = re.compile(r"developer instruction|system.?instruction", re.IGNORECASE)

log = get_logger(__name__)


class GeminiModel:
    """A model behind the Gemini API or a server that speaks it.

    `base_url` is what the provider's own SDK takes: `/v1beta/models/…` is appended, or only `/models/…` where it has a
    version already (as Vertex AI's, down to `/publishers/google`). `name` is what the person calls the model (default:
    `gemini:MODEL`), `model` what the server calls it. The key goes into a header, never into a URL. Connections are
    kept between calls; `aclose` ends those of the running event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = GEMINI_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"gemini:{model}"
        self._context_window = context_window
        self._http = ProviderHttp(base_url, who=self._name, key=api_key, key_header="x-goog-api-key", headers=headers)
        self._path = _path(base_url, model)
        self._dialect = dialect or _usual_dialect(model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, host={self._http.host!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        held = self._dialect.output_schemas
        return held == "always" or (held == "without_tools" and not with_tools)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The reply, read by read. Closing the iterator closes the socket."""
        parser = GeminiReplyParser(who=self._name, model=self._model, tool_names=tool_names(request.tools))
        batches = read_reply(lambda: self._ask(request), parser, who=self._name)
        try:
            async for batch in batches:
                yield batch
        except ModelError:
            if not parser.finishing:
                raise
            yield parser.end()  # the connection broke behind the finish reason: the reply is whole
        finally:
            await batches.aclose()

    async def _ask(self, request: ModelRequest) -> Answer:
        """Send the request, in the way this model takes it; what it refuses in general is remembered."""
        native = True
        while True:
            try:
                return await self._post(request, native)
            except ModelError as error:
                if native and error.status == 400 and _REFUSES_STATE.search(str(error)):
                    log.warning("the server refuses its own earlier parts; sending them as text", model=self._name)
                    native = False
                elif not self._adapt(error):
                    raise

    async def _post(self, request: ModelRequest, native: bool) -> Answer:
        body = request_body(request, model=self._model, dialect=self._dialect, native=native)
        return await self._http.post(
            self._path, body, accept="text/event-stream", query={"alt": "sse"}, timeout=request.timeout
        )

    def _adapt(self, error: ModelError) -> bool:
        """Whether the model refused only the way it was asked, and there is another one."""
        if error.status != 400 or error.code != "provider.bad_request":
            return False
        text = str(error)
        if self._dialect.thoughts and _REFUSES_THOUGHTS.search(text):
            self._dialect = replace(self._dialect, thoughts=False)
        elif self._dialect.system and _REFUSES_SYSTEM.search(text):
            self._dialect = replace(self._dialect, system=False)
        elif self._dialect.output_schemas != "never" and _REFUSES_SCHEMAS.search(text):
            self._dialect = replace(self._dialect, output_schemas="never")
        else:
            return False
        log.info("the model refuses a field; asking without it", model=self._name, reason=text)
        return True


def _usual_dialect(model: str) -> Dialect:
    thoughts = not _DOES_NOT_THINK.search(model)
    if _NEVER_HOLDS.search(model):
        return Dialect(thoughts=thoughts, output_schemas="never")
    return Dialect(thoughts=thoughts, output_schemas="always" if _HOLDS_WITH_TOOLS.search(model) else "without_tools")


def _path(base_url: str, model: str) -> str:
    """What comes behind the base URL; `model` may be a resource such as `tunedModels/x`."""
    resource = quote(model if "/" in model else f"models/{model}", safe="/:@")
    version = "" if _VERSION.search(base_url.partition("://")[2].partition("?")[0]) else "/v1beta"
    return f"{version}/{resource}:streamGenerateContent"
