"""Agents that work as more than one: actors, their messages, and conditions for the end of a run.

The names below are imported from their modules on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agenticx.teams.actors.base_agent import BaseAgent
    from agenticx.teams.actors.cancellation import CancellationToken
    from agenticx.teams.actors.context import MessageContext
    from agenticx.teams.actors.errors import (
        AgentInstanceMissing,
        CantHandleException,
        MessageDroppedException,
        SubscriptionExists,
        UndeliverableException,
        UnknownAgentType,
    )
    from agenticx.teams.actors.handling import AgentInstantiationContext, DefaultTopicId
    from agenticx.teams.actors.ids import AgentId, AgentMetadata, AgentType, TopicId
    from agenticx.teams.actors.interception import DefaultInterventionHandler, DropMessage, InterventionHandler
    from agenticx.teams.actors.protocols import MessageRuntime
    from agenticx.teams.actors.routed_agent import RoutedAgent, event, message_handler, rpc
    from agenticx.teams.actors.runtime import SingleThreadedAgentRuntime
    from agenticx.teams.actors.subscriptions import (
        DefaultSubscription,
        Subscription,
        TypeSubscription,
        default_subscription,
        type_subscription,
    )
    from agenticx.teams.messages import (
        AgentEvent,
        BaseAgentEvent,
        BaseChatMessage,
        BaseTextChatMessage,
        ChatMessage,
        FunctionCall,
        FunctionExecutionResult,
        HandoffMessage,
        ModelClientStreamingChunkEvent,
        MultiModalMessage,
        RequestUsage,
        Response,
        SelectorEvent,
        SelectSpeakerEvent,
        StopMessage,
        StructuredMessage,
        TaskResult,
        TextMessage,
        ThoughtEvent,
        ToolCallExecutionEvent,
        ToolCallRequestEvent,
        ToolCallSummaryMessage,
        UserInputRequestedEvent,
    )
    from agenticx.teams.termination.base import (
        AndTerminationCondition,
        OrTerminationCondition,
        Run,
        TerminatedException,
        TerminationCondition,
    )
    from agenticx.teams.termination.conditions import (
        CostTermination,
        ExternalTermination,
        FunctionalTermination,
        FunctionCallTermination,
        HandoffTermination,
        MaxMessageTermination,
        SourceMatchTermination,
        StopMessageTermination,
        StuckTermination,
        TextMentionTermination,
        TextMessageTermination,
        TimeoutTermination,
        TokenUsageTermination,
    )

__all__ = [
    "AgentEvent",
    "AgentId",
    "AgentInstanceMissing",
    "AgentInstantiationContext",
    "AgentMetadata",
    "AgentType",
    "AndTerminationCondition",
    "BaseAgent",
    "BaseAgentEvent",
    "BaseChatMessage",
    "BaseTextChatMessage",
    "CancellationToken",
    "CantHandleException",
    "ChatMessage",
    "CostTermination",
    "DefaultInterventionHandler",
    "DefaultSubscription",
    "DefaultTopicId",
    "DropMessage",
    "ExternalTermination",
    "FunctionCall",
    "FunctionCallTermination",
    "FunctionExecutionResult",
    "FunctionalTermination",
    "HandoffMessage",
    "HandoffTermination",
    "InterventionHandler",
    "MaxMessageTermination",
    "MessageContext",
    "MessageDroppedException",
    "MessageRuntime",
    "ModelClientStreamingChunkEvent",
    "MultiModalMessage",
    "OrTerminationCondition",
    "RequestUsage",
    "Response",
    "RoutedAgent",
    "Run",
    "SelectSpeakerEvent",
    "SelectorEvent",
    "SingleThreadedAgentRuntime",
    "SourceMatchTermination",
    "StopMessage",
    "StopMessageTermination",
    "StructuredMessage",
    "StuckTermination",
    "Subscription",
    "SubscriptionExists",
    "TaskResult",
    "TerminatedException",
    "TerminationCondition",
    "TextMentionTermination",
    "TextMessage",
    "TextMessageTermination",
    "ThoughtEvent",
    "TimeoutTermination",
    "TokenUsageTermination",
    "ToolCallExecutionEvent",
    "ToolCallRequestEvent",
    "ToolCallSummaryMessage",
    "TopicId",
    "TypeSubscription",
    "UndeliverableException",
    "UnknownAgentType",
    "UserInputRequestedEvent",
    "default_subscription",
    "event",
    "message_handler",
    "rpc",
    "type_subscription",
]

_MODULES = (
    "agenticx.teams.actors.base_agent",
    "agenticx.teams.actors.cancellation",
    "agenticx.teams.actors.context",
    "agenticx.teams.actors.errors",
    "agenticx.teams.actors.handling",
    "agenticx.teams.actors.ids",
    "agenticx.teams.actors.interception",
    "agenticx.teams.actors.protocols",
    "agenticx.teams.actors.routed_agent",
    "agenticx.teams.actors.runtime",
    "agenticx.teams.actors.subscriptions",
    "agenticx.teams.messages",
    "agenticx.teams.termination.base",
    "agenticx.teams.termination.conditions",
)


def __getattr__(name: str) -> Any:
    """Import a public name from the module that has it; the modules before it are imported as well."""
    from importlib import import_module

    if name in __all__:
        for module in map(import_module, _MODULES):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
