"""Chat Completions: the wire of OpenAI and of the many servers that are compatible with it.

The model class is imported on first use: other modules use this wire's message encoder and parser without an HTTP
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.llms.wires.chat_dialect import ChatDialect
    from agenticx.llms.wires.openai_chat.model import OPENAI_BASE_URL, OpenAIChatModel

__all__ = ["OPENAI_BASE_URL", "ChatDialect", "OpenAIChatModel"]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.llms.wires.chat_dialect": ["ChatDialect"],
        "agenticx.llms.wires.openai_chat.model": ["OPENAI_BASE_URL", "OpenAIChatModel"],
    },
)
