"""The parts of the turn above that a sub-agent gets: tools, and a conversation in the same workspace."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.errors import InvalidArguments
from agenticx.messages import Message
from agenticx.runtime import Budget, Session
from agenticx.runtime.turn import Turn
from agenticx.subagents.tree import Subagent
from agenticx.tools.registry import Toolbox

__all__ = ["given_tools", "may_begin_below", "new_session", "tools_left", "top_budget", "top_turn"]


def may_begin_below(turn: Turn) -> bool:
    """Return True if the turn is not stopped, and runs or can be outlived."""
    return not turn.stopped and (turn.accepts_children or turn.child_turns.is_durable)


_NOT_GIVEN = frozenset({"memory_save", "memory_search", "run_variants"})
"""Tools that a sub-agent has only if they are named: those for the user's memory, and that for options."""


def given_tools(known: Toolbox, names: Sequence[str] | None) -> Toolbox:
    """Return those of the tools that are named, or all but those in `_NOT_GIVEN`.

    Raises `InvalidArguments` for others and for a list of none.
    """
    if names is None:
        return known.only(name for name in known.names if name not in _NOT_GIVEN)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        problem = f"unknown tools {', '.join(unknown)}" if unknown else "tools must name at least one"
        raise InvalidArguments(f"{problem}; those that can be given are: {', '.join(known.names) or 'none'}")
    return known.only(names)


def top_turn(turn: Turn) -> Turn:
    """Return the turn above which there is none."""
    while turn.context.parent is not None:
        turn = turn.context.parent
    return turn


def top_budget(turn: Turn | None) -> Budget | None:
    """Return the budget of the turn at the top, which those below it share; None if it has none."""
    return None if turn is None else top_turn(turn).context.budget


def tools_left(agent: Subagent, above: Turn | None) -> Toolbox | None:
    """Return the tools of the turn above that the agent was given when it was started."""
    if above is None or agent.run.tools is None:
        return agent.tools
    return above.tools.only(name for name in agent.run.tools if name in above.tools)


def new_session(near: Session, messages: Sequence[Message] = ()) -> Session:
    """Return a conversation with these messages in the workspace of another one."""
    return Session(
        workspace=near.workspace,
        permission_mode=near.permission_mode,
        snapshots=near.snapshots,
        artifacts=near.artifacts,
        messages=messages,
    )
