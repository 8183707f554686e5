"""A wrapper for models that may lack function calling: a server that refuses tools is told of them in the prompt."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, Delta, ModelRequest, OutputSchema
from agenticx.llms.wrapping import Wrapper
from agenticx.llms.xml_tools import XmlToolModel
from agenticx.logs import get_logger

__all__ = ["ToolFallbackModel"]

_REFUSES_TOOLS = re.compile(
    r"not support (tools|function)|support tool use|tool (calling|choice)\W+(is|are) not supported"
    r"|requires --enable-auto-tool-choice|tools? param\w* requires --jinja",
    re.IGNORECASE,
)
"""Ollama; OpenRouter; Groq; vLLM and llama.cpp that were started without their options for tools."""

_log = get_logger(__name__)


class ToolFallbackModel(Wrapper):
    """`model`, from its first refusal on called with tools in its prompt."""

    def __init__(self, model: ChatModel) -> None:
        super().__init__(model)
        self._in_prompt = XmlToolModel(model)
        self._refused = False

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        if self._refused:
            return self._in_prompt.takes_output_schema(output, with_tools=with_tools)
        return super().takes_output_schema(output, with_tools=with_tools)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches; a refusal comes before the first of them."""
        while True:
            model = self._in_prompt if self._refused else self._model
            source = cast("AsyncGenerator[Sequence[Delta]]", model.stream(request))
            try:
                async for batch in source:
                    yield batch
                return
            except ModelError as error:
                if not self._adapt(request, error):
                    raise
            finally:
                await source.aclose()

    def _adapt(self, request: ModelRequest, error: ModelError) -> bool:
        """Whether it was the tools that the server refused, for the first time."""
        if self._refused or not request.tools or error.status is None or not _REFUSES_TOOLS.search(str(error)):
            return False
        self._refused = True
        _log.warning("the model takes no tools; they are in its prompt from now on", model=self.name, reason=str(error))
        return True
