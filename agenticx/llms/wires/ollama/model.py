"""Ollama: the native wire of the local model server, `/api/chat` as lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agenticx.llms.base import InlineForm, ModelRequest, OutputSchema
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.transport.hosts import OLLAMA_BASE_URL, ollama_url
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wires.ollama._reply import OllamaReplyParser
from agenticx.llms.wires.ollama._request import SAMPLING, TOOL_NAMES, request_body
from agenticx.llms.wires.provider_model import PostRequest, ProviderModel
from agenticx.llms.wires.sampling_rules import SamplingRules

__all__ = ["OLLAMA_BASE_URL", "OllamaModel", "ollama_url"]


class OllamaModel(ProviderModel[None]):
    """A model on an Ollama server.

    `base_url` is the server's address in the format of OLLAMA_HOST; a trailing `/api` or `/v1` is removed. `name` is
    the user's name for the model (default: `ollama:MODEL`), `model` its name at the server. A `context_window` is
    requested with each call. `inline_calls` are the forms of its calls that the server leaves in the text.
    Connections are kept between calls; `aclose` closes the running event loop's.
    """

    _tool_name_rule = TOOL_NAMES

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OLLAMA_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        inline_calls: Sequence[InlineForm] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        name = name or f"ollama:{model}"
        http = ProviderHttp(ollama_url(base_url), label=name, key=api_key, headers=headers)
        super().__init__(model, http, name=name, context_window=context_window, dialect=None)
        self.inline_calls = tuple(inline_calls)

    @property
    def _sampling_rules(self) -> SamplingRules:
        return SAMPLING

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Return True without tools only: a model that must follow a schema cannot write a call."""
        return not with_tools

    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        body = request_body(request, model=self._model, context_window=self.context_window, names=names)
        return PostRequest(path="/api/chat", body=body, accept="application/x-ndjson")

    def _parser(self, original_names: Mapping[str, str]) -> OllamaReplyParser:
        return OllamaReplyParser(label=self.name, model=self._model, original_names=original_names)
