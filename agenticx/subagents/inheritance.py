"""The parts of its parent turn that a sub-agent gets: tools, and a conversation in the same workspace."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.errors import InvalidArguments
from agenticx.messages import Message
from agenticx.runtime import Session
from agenticx.runtime.turn import Turn
from agenticx.subagents.tree import Subagent
from agenticx.tools.registry import Toolbox

__all__ = ["can_start_child", "given_tools", "new_session", "remaining_tools"]


def can_start_child(turn: Turn) -> bool:
    """Return whether `turn` can start a child turn: it is not stopped, and it runs or its child turns are durable."""
    return not turn.stopped and (turn.children.is_open or turn.child_turns.is_durable)


_NOT_GIVEN = frozenset({"memory_save", "memory_search", "run_variants"})
"""Tools that a sub-agent has only if they are named: they change the user's memory, or make options for the user."""


def given_tools(known: Toolbox, names: Sequence[str] | None) -> Toolbox:
    """Return the named tools; without `names` all except `_NOT_GIVEN`.

    Raises `InvalidArguments` for an unknown name and for an empty list.
    """
    if names is None:
        return known.only(name for name in known.names if name not in _NOT_GIVEN)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        problem = f"unknown tools {', '.join(unknown)}" if unknown else "tools must name at least one"
        raise InvalidArguments(f"{problem}; those that can be given are: {', '.join(known.names) or 'none'}")
    return known.only(names)


def remaining_tools(agent: Subagent, parent_turn: Turn | None) -> Toolbox | None:
    """Return the tools that the agent was given at its start and that its parent turn still has."""
    if parent_turn is None or agent.run.tools is None:
        return agent.tools
    return parent_turn.agent.tools.only(name for name in agent.run.tools if name in parent_turn.agent.tools)


def new_session(parent: Session, messages: Sequence[Message] = ()) -> Session:
    """Return a conversation with these messages in the workspace of another one."""
    return Session(
        workspace=parent.workspace,
        permission_mode=parent.permission_mode,
        snapshots=parent.snapshots,
        artifacts=parent.artifacts,
        messages=messages,
    )
