"""Agents that work as more than one: chat agents, teams, actors, messages, termination conditions."""

from __future__ import annotations

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
from agenticx.teams.agents.assistant_agent import AssistantAgent
from agenticx.teams.agents.base_chat_agent import BaseChatAgent
from agenticx.teams.agents.console import Console
from agenticx.teams.agents.handoff import Handoff
from agenticx.teams.agents.protocols import ChatAgent, Team
from agenticx.teams.agents.user_proxy import UserInputFailed, UserProxyAgent
from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.round_robin import RoundRobinGroupChat
from agenticx.teams.group_chats.selector import SelectorGroupChat
from agenticx.teams.group_chats.swarm import Swarm
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
    "AssistantAgent",
    "BaseAgent",
    "BaseAgentEvent",
    "BaseChatAgent",
    "BaseChatMessage",
    "BaseGroupChat",
    "BaseTextChatMessage",
    "CancellationToken",
    "CantHandleException",
    "ChatAgent",
    "ChatMessage",
    "Console",
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
    "Handoff",
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
    "RoundRobinGroupChat",
    "RoutedAgent",
    "Run",
    "SelectSpeakerEvent",
    "SelectorEvent",
    "SelectorGroupChat",
    "SingleThreadedAgentRuntime",
    "SourceMatchTermination",
    "StopMessage",
    "StopMessageTermination",
    "StructuredMessage",
    "StuckTermination",
    "Subscription",
    "SubscriptionExists",
    "Swarm",
    "TaskResult",
    "Team",
    "TeamError",
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
    "UserInputFailed",
    "UserInputRequestedEvent",
    "UserProxyAgent",
    "default_subscription",
    "event",
    "message_handler",
    "rpc",
    "type_subscription",
]
