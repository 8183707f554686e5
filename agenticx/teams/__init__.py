"""Agents that work as more than one: teams and their conditions, actors, messages, sub-agents.

A team speaks until a condition or a limit ends its run:

    import asyncio
    from agenticx.teams import AssistantAgent, Console, RoundRobinGroupChat, TextMentionTermination

    writer = AssistantAgent("writer", "demo", system_message="Write what you are asked for.")
    critic = AssistantAgent("critic", "demo", system_message="Name the worst fault, or say APPROVE.")
    team = RoundRobinGroupChat([writer, critic], termination_condition=TextMentionTermination("APPROVE"), max_turns=2)
    asyncio.run(Console(team.run_stream(task="say hello")))

With `session=` the id of a session of an open hub (`agenticx.open_hub`) each run is a turn of that session. Its
requests to a person (of a `UserProxyAgent`, of `ask_user`, or confirmations, from any depth) outlive the process. Once
a hub is open over the store again, they are listed and can be answered, over HTTP too; until then the session is busy
with that turn, unless a stop ends it. To go on, make the team again on the same session and call `run()` without a
task: it continues that turn, with the answer or waiting for it, and nothing that ran before runs again. `run(task=…)`
first ends the turn as `interrupted`.

A sub-agent works while the agent that started it goes on; its ending is reported to that agent:

    import asyncio
    from agenticx import AgentRuntime, Session
    from agenticx.teams import AgentTeamManager

    async def main() -> None:
        runtime, session = AgentRuntime("demo"), Session()
        manager = AgentTeamManager(runtime, session=session)
        agent_id = await manager.spawn("say hello", name="greeter")  # as the tool spawn_subagent does
        await manager.wait([agent_id])
        result = await runtime.run("What did it say?", session, tools=manager.meta_tools())
        print(agent_id, result.text)
        await manager.aclose()

    asyncio.run(main())

All supported names of autogen-agentchat 0.7 and of the actors of autogen-core can be imported from here under the same
name. These names differ, including names of AutoAgent's MetaChain, the predecessor of `agenticx.core`:

    there                                   in agenticx
    MetaChain                               core.AgentExecutor
    MetaChain.run                           core.AgentExecutor.chat
    MetaChain.run_async                     core.AgentExecutor.achat
    Response of MetaChain                   core.ChatResponse
    Agent.functions                         core.Agent.tools
    function_to_json                        tools.tool
    MetaChain.get_chat_completion           runtime.AgentRuntime (its model calls, which are retried)
    MetaChain.handle_tool_calls             runtime.AgentRuntime (the calls of each reply)
    fn_call_converter                       the XML format for tools, put around models without function calling
    NOT_SUPPORT_FN_CALL                     models without `tools` in `capabilities` of config/models.toml
    LoggerManager                           logs.get_logger
    AgentExecutor.run(agent, task)          core.AgentExecutor.run
    BaseTool                                tools.Tool
    BaseLLMProvider                         llms.ChatModel
    ContextCompiler                         runtime.ContextCompactor
    autogen_core.AgentRuntime               teams.MessageRuntime
    ChatCompletionClient                    llms.ChatModel
    ChatCompletionContext                   runtime.ContextCompactor
    ReplayChatCompletionClient              testing.ScriptedModel
    OpenAIChatCompletionClient              llms.OpenAIProvider
    FunctionTool                            tools.FunctionTool
    Image                                   messages.Attachment
    LLMMessage                              messages.Message
    model_client                            teams.AssistantAgent (`model_client`, or `llm`)
    transfer_to_x                           teams.Handoff (`handoff_to_X`)
    TerminationCondition.__call__           teams.TerminationCondition.check
    RuntimeError of a run                   teams.TeamError

Differences from autogen-agentchat:

 1. Tools run until the model answers, unless `max_tool_iterations` limits their rounds; there the default is one round.
 2. Of several handoffs in a round the first wins, and the others get a blocked result.
 3. An error of an agent, a condition or a selector ends the run as `TeamError` from the original. A message that cannot
    be delivered raises an error at its sender.
 4. A condition sees the run so far and keeps nothing, so one object serves several teams, and no reset is needed.
 5. A team with neither condition nor `max_turns` ends after 100 speeches (`AGX_TEAM_MAX_TURNS`).
 6. A model without function calling gets its tools in an XML format; there it is a ValueError.
 7. An answer that is not the object asked for goes back to the model.
 8. A conversation is compacted by the runtime; there are no memory, workbench and model context objects.
 9. There is no component config, and no GraphFlow, Magentic-One or SocietyOfMindAgent.
10. A model reads who speaks: a message whose source is not `user` begins with the line `NAME said:`. There the OpenAI
    client sends the name in a field of its own, which other providers do not take.
11. After an answer that failed, messages that the model has been sent are not repeated. A task that is given again
    after an answer is a new message, with an id of its own.
12. An agent without new messages is sent `Continue.` as a message of the user when it is its turn to speak.
13. A team on a session of a hub refuses `load_state`: the session's log is its state.
14. `TextMentionTermination` without `sources` does not look at the messages given as the task of the run, which may
    name the text that they ask for; with `sources=["user"]` it does, as does `await condition(messages)`.

Differences from MetaChain:

 1. There is no `context_variables_description`, since variables are never shown to the model.
 2. A reply without calls ends the run.
 3. `case_resolved` and `case_not_resolved` are listed in the tools of an agent, not added to it. Their call ends the
    run; their mention in a text counts with `AgentExecutor(resolve_on_text=True)` only.
 4. The caller's `context_variables` and `messages` are not changed: the response has new ones.
 5. `max_turns` counts model calls; there it is the number of rows that a run may add.
 6. With `parallel_tool_calls`, adjacent calls of a round run at once if their tools are declared `@tool(parallel=True)`
    or only read (`risk="read"`); other calls run one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.runtime.budgets.budget import Budget
    from agenticx.subagents.limits import SubagentLimits
    from agenticx.subagents.manager import AgentTeamManager
    from agenticx.subagents.records import SubagentEnding
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
    from agenticx.teams.configured.errors import TeamConfigError, UnknownTeam
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
    "AgentTeamManager",
    "AgentType",
    "AndTerminationCondition",
    "AssistantAgent",
    "BaseAgent",
    "BaseAgentEvent",
    "BaseChatAgent",
    "BaseChatMessage",
    "BaseGroupChat",
    "BaseTextChatMessage",
    "Budget",
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
    "SubagentEnding",
    "SubagentLimits",
    "Subscription",
    "SubscriptionExists",
    "Swarm",
    "TaskResult",
    "Team",
    "TeamConfigError",
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
    "UnknownTeam",
    "UserInputFailed",
    "UserInputRequestedEvent",
    "UserProxyAgent",
    "default_subscription",
    "event",
    "message_handler",
    "rpc",
    "type_subscription",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.runtime.budgets.budget": ["Budget"],
        "agenticx.subagents.limits": ["SubagentLimits"],
        "agenticx.subagents.manager": ["AgentTeamManager"],
        "agenticx.subagents.records": ["SubagentEnding"],
        "agenticx.teams.actors.base_agent": ["BaseAgent"],
        "agenticx.teams.actors.cancellation": ["CancellationToken"],
        "agenticx.teams.actors.context": ["MessageContext"],
        "agenticx.teams.actors.errors": [
            "AgentInstanceMissing",
            "CantHandleException",
            "MessageDroppedException",
            "SubscriptionExists",
            "UndeliverableException",
            "UnknownAgentType",
        ],
        "agenticx.teams.actors.handling": ["AgentInstantiationContext", "DefaultTopicId"],
        "agenticx.teams.actors.ids": ["AgentId", "AgentMetadata", "AgentType", "TopicId"],
        "agenticx.teams.actors.interception": ["DefaultInterventionHandler", "DropMessage", "InterventionHandler"],
        "agenticx.teams.actors.protocols": ["MessageRuntime"],
        "agenticx.teams.actors.routed_agent": ["RoutedAgent", "event", "message_handler", "rpc"],
        "agenticx.teams.actors.runtime": ["SingleThreadedAgentRuntime"],
        "agenticx.teams.actors.subscriptions": [
            "DefaultSubscription",
            "Subscription",
            "TypeSubscription",
            "default_subscription",
            "type_subscription",
        ],
        "agenticx.teams.agents.assistant_agent": ["AssistantAgent"],
        "agenticx.teams.agents.base_chat_agent": ["BaseChatAgent"],
        "agenticx.teams.agents.console": ["Console"],
        "agenticx.teams.agents.handoff": ["Handoff"],
        "agenticx.teams.agents.protocols": ["ChatAgent", "Team"],
        "agenticx.teams.agents.user_proxy": ["UserInputFailed", "UserProxyAgent"],
        "agenticx.teams.configured.errors": ["TeamConfigError", "UnknownTeam"],
        "agenticx.teams.group_chats.base": ["BaseGroupChat"],
        "agenticx.teams.group_chats.errors": ["TeamError"],
        "agenticx.teams.group_chats.round_robin": ["RoundRobinGroupChat"],
        "agenticx.teams.group_chats.selector": ["SelectorGroupChat"],
        "agenticx.teams.group_chats.swarm": ["Swarm"],
        "agenticx.teams.messages": [
            "AgentEvent",
            "BaseAgentEvent",
            "BaseChatMessage",
            "BaseTextChatMessage",
            "ChatMessage",
            "FunctionCall",
            "FunctionExecutionResult",
            "HandoffMessage",
            "ModelClientStreamingChunkEvent",
            "MultiModalMessage",
            "RequestUsage",
            "Response",
            "SelectorEvent",
            "SelectSpeakerEvent",
            "StopMessage",
            "StructuredMessage",
            "TaskResult",
            "TextMessage",
            "ThoughtEvent",
            "ToolCallExecutionEvent",
            "ToolCallRequestEvent",
            "ToolCallSummaryMessage",
            "UserInputRequestedEvent",
        ],
        "agenticx.teams.termination.base": [
            "AndTerminationCondition",
            "OrTerminationCondition",
            "Run",
            "TerminatedException",
            "TerminationCondition",
        ],
        "agenticx.teams.termination.conditions": [
            "CostTermination",
            "ExternalTermination",
            "FunctionalTermination",
            "FunctionCallTermination",
            "HandoffTermination",
            "MaxMessageTermination",
            "SourceMatchTermination",
            "StopMessageTermination",
            "StuckTermination",
            "TextMentionTermination",
            "TextMessageTermination",
            "TimeoutTermination",
            "TokenUsageTermination",
        ],
    },
)
