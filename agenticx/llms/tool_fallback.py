"""A wrapper for models that may lack function calling: a server that refuses tools is told of them in the prompt."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from agenticx.errors import ModelError
from agenticx.llms._concessions import Downgrade, find_downgrade
from agenticx.llms.base import ChatModel, Delta, ModelRequest
from agenticx.llms.wrapping import Wrapper, asked_until_taken
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


def _in_prompt(model: ChatModel) -> ChatModel:
    return model if isinstance(model, XmlToolModel) else XmlToolModel(model)


_IN_PROMPT = Downgrade(_REFUSES_TOOLS, _in_prompt, "the model takes no tools; they are in its prompt from now on")


class ToolFallbackModel(Wrapper):
    """`model`, from its first refusal on called with tools in its prompt."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches; a refusal comes before the first of them."""
        return asked_until_taken(lambda: (self._model, request), self._concede)

    def _concede(self, asked: ChatModel, request: ModelRequest, error: ModelError) -> bool:
        """Whether it was the tools that the server refused, of one that was not told of them in the prompt."""
        if not request.tools or find_downgrade(asked, error, [_IN_PROMPT]) is None:
            return False
        if self._model is asked:
            self._model = _IN_PROMPT.apply(asked)
            _log.warning(_IN_PROMPT.log_message, model=self.name, reason=str(error))
        return True
