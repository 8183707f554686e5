"""The model of a turn without model calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from agenticx.errors import AgenticXError
from agenticx.llms.base import Delta, ModelRequest

__all__ = ["NoModel"]


class NoModel:
    """A model that answers nothing, for a turn with `work`; it has the name of the team or participant."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context_window = None

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        raise AgenticXError(f"{self.name!r} has a turn without a model")
