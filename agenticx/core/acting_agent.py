"""An agent as a turn uses it: its tools and the tools of its handoffs, its model, prompt and hooks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.core.context_variables import bind_variables, copied_variables
from agenticx.core.handoff_tools import handoff_tools
from agenticx.core.handoffs import handoff_name
from agenticx.core.run_agents import Models
from agenticx.errors import AgenticXError, HookFailed
from agenticx.llms.sampling import NO_SAMPLING, check_sampling
from agenticx.runtime.agent_runtime import AgentRuntime
from agenticx.runtime.gates.base import checked_gate
from agenticx.runtime.turn_agent import SystemPrompt, TurnAgent, TurnAgents
from agenticx.settings import Settings, load_settings
from agenticx.tools.context import ToolContext
from agenticx.tools.registry import FunctionTool, Toolbox, as_tool, tool

if TYPE_CHECKING:
    from agenticx.core.agent import Agent

__all__ = ["acting_agent", "agent_runtime", "agent_tool", "system_prompt"]

_TOOL_SECONDS = 24 * 3_600.0  # of a call that runs an agent, which has limits of its own


def acting_agent(agent: Agent[Any, Any], agents: TurnAgents) -> TurnAgent:
    """Return the agent as a turn of `agents` uses it; raises as `Agent.turn_agent` does."""
    tools = Toolbox([*(as_tool(each) for each in agent.tools), *handoff_tools(agent, agents)])
    choice = agent.tool_choice
    if choice not in (None, "auto", "none", "required") and choice not in tools:
        known = ", ".join(tools.names) or "none"
        raise ValueError(f"tool_choice of agent {agent.name!r} names no tool of it: {choice!r}; its tools: {known}")
    model = agents.model_of(agent)
    if agent.sampling is not None:
        check_sampling(model, agent.sampling)
    return TurnAgent(
        name=agent.name,
        model=model,
        tools=Toolbox(()) if choice == "none" else tools,
        hooks=agents.hooks.with_hooks(agent.hooks),
        system_prompt=_prompt_for_task(agent, agents.task_prompt),
        sampling=agent.sampling or NO_SAMPLING,
        required_tool={None: None, "auto": None, "none": None, "required": ""}.get(choice, choice),
        parallel_calls=agent.parallel_tool_calls,
        shares_history=True,
        organization_id=agent.organization_id,
        endings_by_text=agents.endings_by_text,
        on_handoff=partial(agents.took_over, agent),
        confirm_gate=checked_gate(agent.confirm_gate),
        max_rounds=agent.max_iterations,
        output_type=agent.output_type,
    )


def _prompt_for_task(agent: Agent[Any, Any], task_prompt: str) -> SystemPrompt:
    async def prompt(variables: Mapping[str, Any]) -> str:
        return "\n\n".join(filter(None, [await agent.system_prompt(variables), task_prompt]))

    return prompt


async def system_prompt(agent: Agent[Any, Any], context_variables: Mapping[str, Any]) -> str:
    """Return the text of `Agent.system_prompt`."""
    about = [agent.role and f"You are {agent.name}, {agent.role}.", agent.goal and f"Your goal: {agent.goal}"]
    parts = [*about, agent.backstory, await _instructions(agent, context_variables)]
    parts.append(agent.context_variables_description)
    return "\n\n".join(part for part in parts if part)


async def _instructions(agent: Agent[Any, Any], context_variables: Mapping[str, Any]) -> str:
    if isinstance(agent.instructions, str):
        return agent.instructions
    what = f"the instructions of agent {agent.name!r}"
    function = bind_variables(agent.instructions, copied_variables(context_variables))
    try:
        text = await user_code.call(function, what=what)
    except AgenticXError as exc:
        raise HookFailed(str(exc)) from exc
    if not isinstance(text, str):
        raise HookFailed(f"{what} must be text, not {type(text).__name__}")
    return text


def agent_tool(agent: Agent[Any, Any], name: str | None, description: str | None) -> FunctionTool:
    """Return the tool of `Agent.as_tool`."""

    async def run_agent(task: str, context: ToolContext[Any]) -> Any:
        variables = context.state.context_variables
        result = await agent.run(task, context_variables=variables, deps=context.deps)
        return result.output

    about = " ".join(filter(None, [agent.role and f"{agent.role}.", agent.goal])) or "Give it a task in words."
    return tool(
        run_agent,
        name=name or handoff_name(agent.name).removeprefix("handoff_to_"),
        description=f"Ask the agent {agent.name}. {about}" if description is None else description,
        risk="read",
        read_only=False,
        idempotent=False,
        parallel=True,
        timeout=_TOOL_SECONDS,
    )


def agent_runtime(agent: Agent[Any, Any], settings: Settings | None, clock: Clock | None) -> AgentRuntime:
    """Return the runtime of `Agent.runtime`."""
    settings = settings or load_settings()
    models = Models(None, settings)
    runtime = AgentRuntime(models.of(agent), settings=settings, clock=clock)
    agents = TurnAgents(lambda other: models.of(agent if other.model is None else other), runtime.agent.hooks)
    runtime.agent = agent.turn_agent(agents)
    return runtime
