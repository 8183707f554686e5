"""The engine of an agent desktop app: agents, turns, events, confirm gates, tools and models.

    from agenticx import Agent, tool


    @tool(risk="read")
    def add(left: int, right: int) -> int:
        "Add two numbers."
        return left + right


    agent = Agent(model="demo", instructions="Be brief.", tools=[add])
    print(agent.run_sync("say hello").output)

Where to look, in `help(agenticx.NAME)` or `python -m pydoc MODULE`:

    agents, their fields and handoffs         Agent
    deps: objects for tools, typed            ToolContext, and Agent
    tools of functions, their docstrings      tool; built-in ones: builtin_tools
    answers as objects of a type              Agent (output_type), RunResult
    events of a turn, and their keys          Event
    streams, approvals in a loop              Agent.stream, AgentTurn
    gates: who is asked before a risky call   ConfirmGate, AsyncConfirmGate, SyncConfirmGate
    stopping a turn                           StopSignal, AgentTurn.stop
    hooks around model and tool calls         AgentHook, agenticx.runtime.hooks
    conversations in memory, and stored ones  Session, open_hub, agenticx.sessions.Hub
    tests without a provider                  agenticx.testing
    several agents that speak in turn         agenticx.teams

`agx guide` shows pages with examples. The names are imported from their packages at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports
from agenticx.version import __version__

if TYPE_CHECKING:
    from agenticx.assembly import open_hub
    from agenticx.attachments import load_attachment
    from agenticx.core import Agent, AgentTurn
    from agenticx.errors import AgenticXError
    from agenticx.llms import Sampling, resolve_model
    from agenticx.messages import UserMessage
    from agenticx.runtime import (
        AgentHook,
        AgentRuntime,
        AsyncConfirmGate,
        AutoApproveConfirmGate,
        Block,
        ConfirmAnswer,
        ConfirmGate,
        ConfirmRequest,
        Event,
        EventType,
        HookContext,
        QuestionAnswer,
        RunResult,
        RuntimeEvent,
        Session,
        StopSignal,
        SyncConfirmGate,
        TurnError,
    )
    from agenticx.tools import Assessment, ToolContext, tool
    from agenticx.tools.builtin import builtin_tools

__all__ = [
    "Agent",
    "AgentHook",
    "AgentRuntime",
    "AgentTurn",
    "AgenticXError",
    "Assessment",
    "AsyncConfirmGate",
    "AutoApproveConfirmGate",
    "Block",
    "ConfirmAnswer",
    "ConfirmGate",
    "ConfirmRequest",
    "Event",
    "EventType",
    "HookContext",
    "QuestionAnswer",
    "RunResult",
    "RuntimeEvent",
    "Sampling",
    "Session",
    "StopSignal",
    "SyncConfirmGate",
    "ToolContext",
    "TurnError",
    "UserMessage",
    "__version__",
    "builtin_tools",
    "load_attachment",
    "open_hub",
    "resolve_model",
    "tool",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.assembly": ["open_hub"],
        "agenticx.attachments": ["load_attachment"],
        "agenticx.core": ["Agent", "AgentTurn"],
        "agenticx.errors": ["AgenticXError"],
        "agenticx.llms": ["Sampling", "resolve_model"],
        "agenticx.messages": ["UserMessage"],
        "agenticx.runtime": [
            "AgentHook",
            "AgentRuntime",
            "AsyncConfirmGate",
            "AutoApproveConfirmGate",
            "Block",
            "ConfirmAnswer",
            "ConfirmGate",
            "ConfirmRequest",
            "Event",
            "EventType",
            "HookContext",
            "QuestionAnswer",
            "RunResult",
            "RuntimeEvent",
            "Session",
            "StopSignal",
            "SyncConfirmGate",
            "TurnError",
        ],
        "agenticx.tools": ["Assessment", "ToolContext", "tool"],
        "agenticx.tools.builtin": ["builtin_tools"],
    },
)
