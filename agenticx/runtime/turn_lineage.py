"""The place of a turn among turns: its ancestors, and its title for the user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agenticx.runtime.turn import Turn

__all__ = ["TurnLineage"]


class TurnLineage:
    """A turn and its ancestors: an iterable that begins with the turn and its parent, and ends with the root turn.

    `root` is the turn at the top, in whose session the rules of the user are. `title` is that of the turn or of its
    nearest ancestor with a title.
    """

    def __init__(self, turn: Turn, parent: Turn | None, title: str | None) -> None:
        self.root = turn if parent is None else parent.lineage.root
        self.title = parent.lineage.title if title is None and parent is not None else title
        self._turn = turn
        self._parent = parent

    def __iter__(self) -> Iterator[Turn]:
        turn: Turn | None = self._turn
        while turn is not None:
            yield turn
            turn = turn.lineage._parent

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The ids of the agents from the root turn to this one."""
        return tuple(turn.agent_id for turn in self)[::-1]

    @property
    def asking_path(self) -> tuple[str, ...]:
        """The `agent_path` that a request to the user shows; empty for a root turn."""
        return () if self._parent is None else self.agent_path

    def with_title(self, text: str) -> str:
        """Return `text`, for the user, after the title."""
        return text if self.title is None else f"{self.title}: {text}"
