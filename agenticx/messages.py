"""What was said: frozen messages of a conversation, in the order a model reads them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agenticx.attachments import Attachment

__all__ = [
    "AssistantMessage",
    "Attachment",
    "Message",
    "ProviderState",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "ToolOutcome",
    "UserMessage",
    "clean_text",
    "message_adapter",
    "new_id",
]

ToolOutcome = Literal[
    "ok", "error", "denied", "blocked", "unknown_tool", "invalid_arguments", "cancelled", "timed_out", "unknown"
]


def new_id(prefix: str) -> str:
    """A fresh unguessable id, `prefix_` + 20 hex digits."""
    return f"{prefix}_{secrets.token_hex(10)}"


_PIECE_CHARS = 64 * 1024
_LONE_SURROGATE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD, so that it can always be encoded as UTF-8.

    Two surrogates that are a pair become the character that they stand for.
    """
    if text.isascii():
        return text
    if len(text) <= _PIECE_CHARS:
        return _cleaned(text)
    return "".join(map(_cleaned, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Yield `text` in pieces, none of which ends within a pair of surrogates."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARS
        end += "\udc00" <= text[end : end + 1] <= "\udfff"
        yield text[start:end]
        start = end


def _cleaned(text: str) -> str:
    data = text.encode("utf-16", "surrogatepass")
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError:  # its handler for errors costs ten times as much for each
        return _LONE_SURROGATE.sub("\ufffd", text).encode("utf-16", "surrogatepass").decode("utf-16")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """One call a model asked for. `arguments` is the model's JSON text, byte for byte."""

    id: str
    name: str
    arguments: str = "{}"


class ProviderState(_Frozen):
    """What a provider wants back verbatim on the next call; opaque to everything but its own wire."""

    wire: str
    model: str
    payload: dict[str, Any]


class SystemMessage(_Frozen):
    """An instruction that is not the user's; compaction summaries are system messages tagged `[compacted]`."""

    role: Literal["system"] = "system"
    content: str
    message_id: str = Field(default_factory=lambda: new_id("msg"))


class UserMessage(_Frozen):
    """What the person said and attached; `injected` marks a reminder the engine speaks in the user's role."""

    role: Literal["user"] = "user"
    content: str
    attachments: tuple[Attachment, ...] = ()
    message_id: str = Field(default_factory=lambda: new_id("msg"))
    injected: bool = False


class AssistantMessage(_Frozen):
    """What the model said and asked for; `partial` marks a reply that was cut before its end marker."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    partial: bool = False
    provider_state: ProviderState | None = None
    message_id: str = Field(default_factory=lambda: new_id("msg"))


class ToolMessage(_Frozen):
    """The one answer to a `ToolCall`."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    name: str
    content: str
    outcome: ToolOutcome = "ok"
    message_id: str = Field(default_factory=lambda: new_id("msg"))


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


@cache
def message_adapter() -> TypeAdapter[Message]:
    """Validates a message that is read back; raises `pydantic.ValidationError`."""
    return TypeAdapter(Message)
