"""Agents as the runtime uses them, and their tools, whose results may hand over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

from agenticx.core.agent import Agent
from agenticx.core.case_tools import ENDINGS_BY_NAME
from agenticx.core.results import Result
from agenticx.llms.base import ChatModel, ToolSchema
from agenticx.llms.duck_typed.model import adapt
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.turn_agent import EndReason, SystemPrompt, ToolResult, TurnAgent
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, Tool, ToolContext, is_idempotent, is_parallel, runs_in_thread
from agenticx.tools.registry import Toolbox, as_tool

__all__ = ["Models", "TurnAgents"]


class Models:
    """The models of an executor, by name. `default` is used for agents that have none.

    Raises `SettingsError` for a `default` that is no model's name, `TypeError` for one that is no model.
    """

    def __init__(self, default: Any, settings: Settings) -> None:
        if isinstance(default, str):
            from agenticx.llms.catalog.resolve import find_model_facts  # on first use, as below

            find_model_facts(default)
        elif default is not None:
            adapt(default)
        self._settings = settings
        self._default = default
        self._resolved: dict[str, ChatModel] = {}

    def of(self, agent: Agent) -> ChatModel:
        """Return the model of `agent`; raises `SettingsError` for an unknown name."""
        chosen = self._default if agent.model is None else agent.model
        if chosen is None:
            from agenticx.llms.catalog.resolve import default_model_spec  # on first use: it looks for local servers

            chosen, _ = default_model_spec(self._settings)
        return self.resolve(chosen)

    def resolve(self, model: Any) -> ChatModel:
        """Return a model, also one given by name or duck-typed."""
        return self._named(model) if isinstance(model, str) else adapt(model)

    def __iter__(self) -> Iterator[ChatModel]:
        """Iterate over the models that were made from names."""
        return iter(tuple(self._resolved.values()))

    def _named(self, name: str) -> ChatModel:
        from agenticx.llms.assembly import resolve_model  # on first use: it imports the HTTP client

        if name not in self._resolved:
            self._resolved[name] = resolve_model(name, settings=self._settings)
        return self._resolved[name]


class TurnAgents:
    """The agents of one run, each as the runtime uses it.

    `model_of` returns the model of an agent. `hooks` run while any of them acts, before its own. An agent to which a
    handoff is made is the last of `taken_over` from then on, and added to `by_name`. With `resolve_on_text` an answer
    that names one of the tools `case_*` ends the turn as that does.
    """

    def __init__(
        self,
        model_of: Callable[[Agent], ChatModel],
        hooks: HookRegistry,
        *,
        by_name: dict[str, Agent] | None = None,
        task_prompt: str = "",
        resolve_on_text: bool = False,
    ) -> None:
        self._model_of = model_of
        self._hooks = hooks
        self._task_prompt = task_prompt
        self._endings: Mapping[str, EndReason] = ENDINGS_BY_NAME if resolve_on_text else {}
        self._made: dict[int, tuple[Agent, TurnAgent]] = {}
        self._by_name: dict[str, Agent] = {} if by_name is None else by_name
        self.taken_over: list[Agent] = []

    @property
    def active(self) -> Agent | None:
        """The agent that took over last, if one did."""
        return self.taken_over[-1] if self.taken_over else None

    def of(self, agent: Agent) -> TurnAgent:
        """Return `agent` as the runtime uses it.

        Raises `ValueError` for a `tool_choice` that names none of its tools, `TypeError` for what is no tool or hook,
        and `SettingsError` for an unknown model.
        """
        if id(agent) not in self._made:
            self._made[id(agent)] = (agent, self._make(agent))
        return self._made[id(agent)][1]

    async def taking_over(self, agent: Agent) -> TurnAgent:
        """Return the agent of a handoff as `of` does; its model is found in a thread, as that may send requests."""
        return await run_in_thread(self.of, agent, name="agx models")

    def handing_over(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return the tools as ones that hand over to an agent which they return."""
        return [_AgentTool(tool, self) for tool in tools]

    def _make(self, agent: Agent) -> TurnAgent:
        tools = Toolbox(self.handing_over([as_tool(tool) for tool in agent.tools]))
        choice = agent.tool_choice
        if choice not in (None, "auto", "none", "required") and choice not in tools:
            known = ", ".join(tools.names) or "none"
            raise ValueError(f"tool_choice of agent {agent.name!r} names no tool of it: {choice!r}; its tools: {known}")
        return TurnAgent(
            name=agent.name,
            model=self._model_of(agent),
            tools=Toolbox(()) if choice == "none" else tools,
            hooks=self._hooks.with_hooks(agent.llm_hooks),
            system_prompt=self._system_prompt(agent),
            required_tool={None: None, "auto": None, "none": None, "required": ""}.get(choice, choice),
            parallel_calls=agent.parallel_tool_calls,
            shares_history=True,
            organization_id=agent.organization_id,
            endings_by_text=self._endings,
            on_handover=partial(self._hand_over_to, agent),
        )

    def _hand_over_to(self, agent: Agent) -> None:
        self._by_name[agent.name] = agent
        self.taken_over.append(agent)

    def _system_prompt(self, agent: Agent) -> SystemPrompt:
        async def prompt(variables: Mapping[str, Any]) -> str:
            return "\n\n".join(filter(None, [await agent.system_prompt(variables), self._task_prompt]))

        return prompt


class _AgentTool:
    """A tool of an agent; a `Result` or an `Agent` that it returns becomes a change of the turn."""

    def __init__(self, tool: Tool, agents: TurnAgents) -> None:
        self._tool = tool
        self._agents = agents
        self.idempotent = is_idempotent(tool)
        self.parallel = is_parallel(tool)
        self.runs_in_thread = runs_in_thread(tool)

    @property
    def schema(self) -> ToolSchema:
        return self._tool.schema

    @property
    def read_only(self) -> bool:
        return self._tool.read_only

    @property
    def timeout(self) -> float | None:
        return self._tool.timeout

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        return self._tool.assess(arguments, context)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._tool.validate(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Run the tool; a `Result` or an `Agent` that it returns becomes a `ToolResult`."""
        returned: Any = self._tool.run(arguments, context)
        value: object = await returned if isawaitable(returned) else returned
        match value:
            case Agent():
                handover = await self._agents.taking_over(value)
                return ToolResult(text=json.dumps({"assistant": value.name}), handover=handover)
            case Result():
                handover = None if value.agent is None else await self._agents.taking_over(value.agent)
                return ToolResult(text=value.value, variables=value.context_variables, handover=handover)
            case _:
                return value
