"""Ollama: the native wire of the local model server, `/api/chat` as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from agenticx.llms._http import Answer, ProviderHttp
from agenticx.llms._ollama_host import OLLAMA_BASE_URL, ollama_url
from agenticx.llms._ollama_reply import OllamaReplyParser
from agenticx.llms._ollama_request import request_body
from agenticx.llms._reading import read_reply
from agenticx.llms.base import Delta, ModelRequest, OutputSchema

__all__ = ["OLLAMA_BASE_URL", "OllamaModel", "ollama_url"]


class OllamaModel:
    """A model behind an Ollama server.

    `base_url` is the server's address, as OLLAMA_HOST has it; an ending `/api` or `/v1` is taken off. `name` is what
    the person calls the model (default: `ollama:MODEL`), `model` what the server calls it. A `context_window` is asked
    for with each call. Connections are kept between calls; `aclose` ends those of the running event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OLLAMA_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"ollama:{model}"
        self._context_window = context_window
        self._http = ProviderHttp(ollama_url(base_url), who=self._name, key=api_key, headers=headers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, host={self._http.host!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Only without tools: a model that is held to a schema cannot write a call."""
        return not with_tools

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The reply, read by read. Closing the iterator closes the socket."""
        parser = OllamaReplyParser(who=self._name, model=self._model)
        return read_reply(lambda: self._ask(request), parser, who=self._name)

    async def _ask(self, request: ModelRequest) -> Answer:
        body = request_body(request, model=self._model, context_window=self._context_window)
        return await self._http.post("/api/chat", body, accept="application/x-ndjson", timeout=request.timeout)
