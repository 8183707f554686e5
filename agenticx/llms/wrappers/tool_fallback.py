"""A wrapper that puts tools into the prompt once the server has refused them."""

from __future__ import annotations

import re

from agenticx.errors import ModelError
from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.llms.downgrades import Downgrade, find_downgrade
from agenticx.llms.opening import OpenReply
from agenticx.llms.opening_policy import open_with_downgrades
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.llms.wrappers.xml_tools import XmlToolModel
from agenticx.logs import get_logger

__all__ = ["ToolFallbackModel"]

_REFUSES_TOOLS = re.compile(
    r"not support (tools|function)|support tool use|tool (calling|choice)\W+(is|are) not supported"
    r"|requires --enable-auto-tool-choice|tools? param\w* requires --jinja",
    re.IGNORECASE,
)
"""Refusals of Ollama; OpenRouter; Groq; vLLM and llama.cpp started without their options for tools."""

_log = get_logger(__name__)


def _with_tools_in_prompt(model: ChatModel) -> ChatModel:
    return model if isinstance(model, XmlToolModel) else XmlToolModel(model)


_TOOLS_IN_PROMPT = Downgrade(
    _REFUSES_TOOLS, _with_tools_in_prompt, "the model takes no tools; they are in its prompt from now on"
)


class ToolFallbackModel(ModelWrapper):
    """A wrapper that calls the model with tools in its prompt from its first refusal of tools on."""

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; a refused request is sent again before the first batch."""
        return await open_with_downgrades(lambda: (self._model, request), self._try_downgrade)

    def _try_downgrade(self, model: ChatModel, request: ModelRequest, error: ModelError) -> bool:
        """Switch to tools in the prompt if the server refused tools of the request; return whether it did."""
        if not request.tools or find_downgrade(model, error, [_TOOLS_IN_PROMPT]) is None:
            return False
        if self._model is model:  # another call may have switched already
            self._model = _TOOLS_IN_PROMPT.apply(model)
            _log.warning(_TOOLS_IN_PROMPT.log_message, model=self.name, reason=str(error))
        return True
