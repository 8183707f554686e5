"""The texts of a session that a search can find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx.messages import AssistantMessage, Message, UserMessage, clean_text

__all__ = ["Role", "SearchableText", "searchable_texts"]

Role = Literal["name", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class SearchableText:
    """A text that a search can find: a message of the user or of the model, or the session's name, which has no id."""

    message_id: str | None
    role: Role
    text: str


def searchable_texts(messages: Sequence[Message]) -> list[SearchableText]:
    """Return the texts of the messages that a search can find: not tool results, nor messages that the engine added."""
    texts: list[SearchableText] = []
    for message in messages:
        if isinstance(message, UserMessage) and not message.injected and message.content:
            texts.append(SearchableText(message.message_id, "user", clean_text(message.content)))
        elif isinstance(message, AssistantMessage) and message.content:
            texts.append(SearchableText(message.message_id, "assistant", clean_text(message.content)))
    return texts
