"""Agents, tasks and the executor that runs them: each run is turns of `agenticx.runtime.AgentRuntime`.

A tool that returns an agent, or a `Result` with one, gives it the rest of the turn:

    from agenticx.core import Agent, AgentExecutor, Result, Task


    def transfer_to_billing(context_variables: dict) -> Result:
        "Hand over questions about invoices."
        return Result(value="Billing takes over.", agent=billing)


    billing = Agent(name="Billing", instructions="Answer questions about invoices.")
    triage = Agent(name="Triage", instructions="Find the right agent.", tools=[transfer_to_billing])
    result = AgentExecutor("demo").run(triage, Task(description="Hand over to billing and say that it is paid"))
    print(result.success, result.agent.name, result.result)

`functions` is another name for `tools`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.core.agent import Agent
    from agenticx.core.agent_executor import AgentExecutor
    from agenticx.core.agent_turn import AgentTurn
    from agenticx.core.case_tools import case_not_resolved, case_resolved
    from agenticx.core.chain_runner import AgentChainRunner, AgentInput, InvalidAgentInput
    from agenticx.core.guide_rails import GuideRail, GuideRailContext, GuideRailVerdict
    from agenticx.core.reasoning import Reasoning, reasoning_of
    from agenticx.core.results import ChatResponse, ExecutionResult, ExecutionStats, Response, Result
    from agenticx.core.session_memory import memory_tools
    from agenticx.core.task import Task

__all__ = [
    "Agent",
    "AgentChainRunner",
    "AgentExecutor",
    "AgentInput",
    "AgentTurn",
    "ChatResponse",
    "ExecutionResult",
    "ExecutionStats",
    "GuideRail",
    "GuideRailContext",
    "GuideRailVerdict",
    "InvalidAgentInput",
    "Reasoning",
    "Response",
    "Result",
    "Task",
    "case_not_resolved",
    "case_resolved",
    "memory_tools",
    "reasoning_of",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.core.agent": ["Agent"],
        "agenticx.core.agent_executor": ["AgentExecutor"],
        "agenticx.core.agent_turn": ["AgentTurn"],
        "agenticx.core.case_tools": ["case_not_resolved", "case_resolved"],
        "agenticx.core.chain_runner": ["AgentChainRunner", "AgentInput", "InvalidAgentInput"],
        "agenticx.core.guide_rails": ["GuideRail", "GuideRailContext", "GuideRailVerdict"],
        "agenticx.core.reasoning": ["Reasoning", "reasoning_of"],
        "agenticx.core.results": ["ChatResponse", "ExecutionResult", "ExecutionStats", "Response", "Result"],
        "agenticx.core.session_memory": ["memory_tools"],
        "agenticx.core.task": ["Task"],
    },
)
