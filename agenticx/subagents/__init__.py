"""Sub-agents: agents that work for a parent agent at the same time, and report back.

`manager` starts sub-agents, `reporter` reports on them, and `tools` are the tools by which a model directs them.
`host` is the session in which they run; it keeps their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.subagents.limits import SubagentLimits
    from agenticx.subagents.manager import AgentTeamManager
    from agenticx.subagents.records import ModelUnavailable, SubagentBusy, SubagentEnding, SubagentNotFound, SubagentRun
    from agenticx.subagents.tools import session_tools

__all__ = [
    "AgentTeamManager",
    "ModelUnavailable",
    "SubagentBusy",
    "SubagentEnding",
    "SubagentLimits",
    "SubagentNotFound",
    "SubagentRun",
    "session_tools",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.subagents.limits": ["SubagentLimits"],
        "agenticx.subagents.manager": ["AgentTeamManager"],
        "agenticx.subagents.records": [
            "ModelUnavailable",
            "SubagentBusy",
            "SubagentEnding",
            "SubagentNotFound",
            "SubagentRun",
        ],
        "agenticx.subagents.tools": ["session_tools"],
    },
)
