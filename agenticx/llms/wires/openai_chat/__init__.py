"""Chat Completions: the wire of OpenAI and of the many servers that are compatible with it.

The model class is imported on first use: other modules use this wire's message encoder and parser without an HTTP
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agenticx.llms.wires.chat_dialect import ChatDialect

if TYPE_CHECKING:
    from agenticx.llms.wires.openai_chat.model import OPENAI_BASE_URL, OpenAIChatModel

__all__ = ["OPENAI_BASE_URL", "ChatDialect", "OpenAIChatModel"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agenticx.llms.wires.openai_chat import model

    return getattr(model, name)
