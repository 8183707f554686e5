"""Commands about sub-agents to the owner of a session, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DirectSubagent", "ListSubagents", "SubagentAction"]

SubagentAction = Literal["cancel", "retry", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSubagents:
    """List the sub-agents of the session; the result is a list of their states."""

    name: Literal["list_subagents"] = "list_subagents"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectSubagent:
    """Cancel a sub-agent, have it begin its task anew, or send it a message; the result is its state."""

    agent_id: str
    action: SubagentAction
    text: str = ""
    name: Literal["direct_subagent"] = "direct_subagent"
