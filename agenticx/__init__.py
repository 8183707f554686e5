"""The engine of an agent desktop app: turns, events, confirm gates, tools and models.

The names below are imported from their packages on first access, so that `import agenticx` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names
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

__getattr__, __dir__ = lazy_names(
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
