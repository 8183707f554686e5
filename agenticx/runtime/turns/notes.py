"""The protocol of the notes that a turn uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from agenticx.messages import UserMessage
from agenticx.runtime.session import Session

__all__ = ["TurnNotes"]


class TurnNotes(Protocol):
    """The notes of one turn; `mode` and `mode_reason` are said in its `turn_started` if there is a mode."""

    @property
    def mode(self) -> Literal["chat", "vault", "agent"] | None: ...
    @property
    def mode_reason(self) -> str: ...

    async def begin(self, session: Session, window: int | None) -> None:
        """Add to the conversation what the model, whose context window is given, is to have before its first call."""
        ...

    async def pin(self, session: Session, message: UserMessage, window: int | None) -> None:
        """Add to the conversation the notes that a message to the running turn names, before that message."""
        ...

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the payloads of the answer's citations, in order, without `message_id`."""
        ...
