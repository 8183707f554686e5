"""The limits on starting sub-agents: their depth, and the number at once and for one main turn."""

from __future__ import annotations

from collections import Counter

from agenticx.runtime.turn import Turn
from agenticx.subagents.records import Subagent, SubagentLimitReached, SubagentLimits
from agenticx.subagents.tree import SubagentTree

__all__ = ["StartLimits"]


class StartLimits:
    """The limits of a tree, and the number of runs that each turn at its top has started, directly or through others.

    What a person starts, outside of turns, is not limited by that number.
    """

    def __init__(self, limits: SubagentLimits, tree: SubagentTree) -> None:
        self._limits = limits
        self._tree = tree
        self._runs = Counter[str]()

    def check(self, parent: Subagent | None, caller: Turn | None) -> None:
        """Raise `SubagentLimitReached` if `caller` may not start another sub-agent of `parent`."""
        limits = self._limits
        if parent is not None and parent.depth >= limits.depth:
            raise SubagentLimitReached(f"sub-agents may be {limits.depth} deep; do the work yourself")
        if (working := len(self._tree.working(parent))) >= limits.children:
            raise SubagentLimitReached(f"queue_full: {working} sub-agents have not ended; wait for one of them")
        if caller is not None and limits.total is not None and self._runs[_top_id(caller)] >= limits.total:
            raise SubagentLimitReached(
                f"queue_full: this turn of the main agent has started {limits.total} sub-agents, the most that it may;"
                " work with what they found"
            )

    def count(self, above: Turn | None) -> None:
        """Count a run that begins below a turn."""
        if above is not None:
            self._runs[_top_id(above)] += 1


def _top_id(turn: Turn) -> str:
    while turn.context.parent is not None:
        turn = turn.context.parent
    return turn.id
