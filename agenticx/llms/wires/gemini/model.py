"""Gemini: Google's own wire, `streamGenerateContent` as server-sent events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from agenticx.errors import ModelError
from agenticx.llms.base import ModelRequest, OutputSchema
from agenticx.llms.downgrades import Downgrade
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wires.gemini._reply import GeminiReplyParser
from agenticx.llms.wires.gemini._request import TOOL_NAMES, GeminiDialect, request_body, sampling_rules
from agenticx.llms.wires.provider_model import FIELD_REFUSED, PostRequest, ProviderModel, RequestMode, with_dialect
from agenticx.llms.wires.sampling_rules import SamplingRules

__all__ = ["GEMINI_BASE_URL", "GeminiDialect", "GeminiModel"]

GEMINI_BASE_URL = "https://generativelanguage.googleapis.com"

_VERSION = re.compile(r"/v\d+((alpha|beta)\d*)?(/|$)")
_DOES_NOT_THINK = re.compile(r"(^|/)(gemini-1|gemini-2\.0|gemma|learnlm)|-image|-tts")

_REFUSES_STATE = re.compile(r"thought.?signature", re.IGNORECASE)
_REFUSES_THOUGHTS = re.compile(r"thinking|include.?thoughts", re.IGNORECASE)
_GEMINI_3 = re.compile(r"(^|/)gemini-([3-9]|\d\d)")
"""Gemini 3 and later: output schemas together with tools, and levels of thinking."""
_NO_SCHEMAS = re.compile(r"(^|/)(gemma|learnlm|gemini-1\.0)|-image|-tts")

_REFUSES_SCHEMAS = re.compile(r"response mime type|json mode|response_?(json_?)?schema", re.IGNORECASE)
_REFUSES_SYSTEM = re.compile(r"developer instruction|system.?instruction", re.IGNORECASE)

_DOWNGRADES = (
    Downgrade(_REFUSES_THOUGHTS, with_dialect(include_thoughts=False), FIELD_REFUSED),
    Downgrade(_REFUSES_SYSTEM, with_dialect(system_instruction=False), FIELD_REFUSED),
    Downgrade(_REFUSES_SCHEMAS, with_dialect(output_schemas="never"), FIELD_REFUSED),
)


class GeminiModel(ProviderModel[GeminiDialect]):
    """A model of the Gemini API or of a compatible server.

    `base_url` is the one of the provider's own SDK: `/v1beta/models/…` is appended, or only `/models/…` if it has a
    version already (as Vertex AI's, down to `/publishers/google`). `name` is the user's name for the model (default:
    `gemini:MODEL`), `model` its name at the server. `reasons` is true if it thinks (default: by its name). The key is
    sent in a header, never in a URL. Connections are kept between calls; `aclose` closes the running event loop's.
    """

    _downgrades = _DOWNGRADES
    _tool_name_rule = TOOL_NAMES

    def __init__(
        self,
        model: str,
        *,
        base_url: str = GEMINI_BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        context_window: int | None = None,
        dialect: GeminiDialect | None = None,
        reasons: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        name = name or f"gemini:{model}"
        http = ProviderHttp(base_url, label=name, key=api_key, key_header="x-goog-api-key", headers=headers)
        dialect = dialect or _default_dialect(model, reasons)
        super().__init__(model, http, name=name, context_window=context_window, dialect=dialect)
        self._path = _path(base_url, model)

    @property
    def _sampling_rules(self) -> SamplingRules:
        return sampling_rules(self._mode.dialect)

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        support = self._mode.dialect.output_schemas
        return support == "always" or (support == "without_tools" and not with_tools)

    def _build_request(self, request: ModelRequest, names: ToolNames, replay_state: bool) -> PostRequest:
        body = request_body(
            request, model=self._model, dialect=self._mode.dialect, replay_state=replay_state, names=names
        )
        return PostRequest(path=self._path, body=body, query={"alt": "sse"})

    def _parser(self, original_names: Mapping[str, str]) -> GeminiReplyParser:
        return GeminiReplyParser(label=self.name, model=self._model, original_names=original_names)

    def _refuses_state(self, error: ModelError) -> bool:
        return error.status == 400 and bool(_REFUSES_STATE.search(str(error)))

    def _try_downgrade(self, error: ModelError, mode: RequestMode[GeminiDialect]) -> bool:
        return error.status == 400 and super()._try_downgrade(error, mode)


def _default_dialect(model: str, reasons: bool | None) -> GeminiDialect:
    include_thoughts = not _DOES_NOT_THINK.search(model) if reasons is None else reasons
    is_gemini_3 = bool(_GEMINI_3.search(model))
    with_tools = "always" if is_gemini_3 else "without_tools"
    return GeminiDialect(
        include_thoughts=include_thoughts,
        output_schemas="never" if _NO_SCHEMAS.search(model) else with_tools,
        result_files=is_gemini_3,
        thinking_levels=is_gemini_3,
    )


def _path(base_url: str, model: str) -> str:
    """Return the path to append to the base URL; `model` may be a resource like `tunedModels/x`."""
    resource = quote(model if "/" in model else f"models/{model}", safe="/:@")
    version = "" if _VERSION.search(base_url.partition("://")[2].partition("?")[0]) else "/v1beta"
    return f"{version}/{resource}:streamGenerateContent"
