"""Agents: a name and a purpose, instructions, a model and tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, field_validator

from agenticx import user_code
from agenticx.core.context_variables import copied_variables
from agenticx.errors import AgenticXError, HookFailed
from agenticx.llms.duck_typed.model import adapt
from agenticx.runtime.hooks import AgentHook
from agenticx.runtime.turn_agent import AgentDefinition, SystemPrompt, TurnAgent, TurnAgents
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox, as_tool
from agenticx.tools.visible import is_one_line

__all__ = ["Agent"]

_VARIABLES = "context_variables"


class Agent(BaseModel, AgentDefinition):
    """An agent. It is frozen, every field has a default, and two agents are equal if all of their fields are.

    `name` is the agent's id in events. `role`, `goal`, `backstory` and `instructions` become the system prompt;
    `instructions` may be a function, plain or async, that takes nothing or `context_variables`, called before each
    model call. `model` is a name such as `"openai:gpt-4o"` or a model; without one the executor's is used. `tools`,
    also accepted as `functions`, are tools or functions. `tool_choice` is the name of the tool to be called first,
    `"required"` for any of them, `"none"` for no calls, None to leave it to the model, as it is after the first call.
    Calls of a round run one after the other, but neighbouring ones run at once of tools that are declared
    `@tool(parallel=True)` or only read (`risk="read"`); without `parallel_tool_calls` the model is to make one.
    `llm_hooks` join the executor's hooks while this agent acts. `max_iterations` is the largest number of model calls
    of a run that begins with this agent, `max_retry_limit` how often a task is run again, with the calls that are left,
    if its result was refused. `organization_id` is on log lines and in `usage` events.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str = Field(default_factory=lambda: str(uuid4()))
    name: str = Field(default="Agent", min_length=1)
    role: str = ""
    goal: str = ""
    backstory: str | None = None
    organization_id: str = "default-org"
    instructions: str | Callable[..., Any] = "You are a helpful agent."
    model: Any = None
    tools: Annotated[Sequence[Tool | Callable[..., Any]], AfterValidator(tuple)] = Field(
        default=(), validation_alias=AliasChoices("tools", "functions")
    )
    tool_choice: str | None = None
    parallel_tool_calls: bool = True
    llm_hooks: Annotated[Sequence[AgentHook], AfterValidator(tuple)] = ()
    max_iterations: int = Field(default=25, ge=1, strict=True)
    max_retry_limit: int = Field(default=2, ge=0, strict=True)

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not is_one_line(name):
            raise ValueError("a name must be one line without control characters")
        return name

    @field_validator("tools")
    @classmethod
    def _check_tools(cls, tools: Sequence[Tool | Callable[..., Any]]) -> Sequence[Tool | Callable[..., Any]]:
        for tool in tools:
            if not isinstance(tool, Tool):
                inspect.signature(tool)  # raises ValueError for what has none, such as `dict`
        return tools

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: Any) -> Any:
        if model is not None and not isinstance(model, str):
            adapt(model)
        return model

    @field_validator("instructions")
    @classmethod
    def _check_parameters(cls, instructions: str | Callable[..., Any]) -> str | Callable[..., Any]:
        if callable(instructions):
            _with_variables(instructions, {})
        return instructions

    @property
    def functions(self) -> Sequence[Tool | Callable[..., Any]]:
        """The same as `tools`."""
        return self.tools

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what `repr` and `str` show: the name, as either may become a text that a model reads."""
        return [("name", self.name)]

    def turn_agent(self, agents: TurnAgents) -> TurnAgent:
        """Return the agent as a turn uses it.

        Raises `ValueError` for a `tool_choice` that names none of its tools, `TypeError` for what is no tool or hook,
        and `SettingsError` for an unknown model.
        """
        tools = Toolbox([as_tool(tool) for tool in self.tools])
        choice = self.tool_choice
        if choice not in (None, "auto", "none", "required") and choice not in tools:
            known = ", ".join(tools.names) or "none"
            raise ValueError(f"tool_choice of agent {self.name!r} names no tool of it: {choice!r}; its tools: {known}")
        return TurnAgent(
            name=self.name,
            model=agents.model_of(self),
            tools=Toolbox(()) if choice == "none" else tools,
            hooks=agents.hooks.with_hooks(self.llm_hooks),
            system_prompt=self._system_prompt_with(agents.task_prompt),
            required_tool={None: None, "auto": None, "none": None, "required": ""}.get(choice, choice),
            parallel_calls=self.parallel_tool_calls,
            shares_history=True,
            organization_id=self.organization_id,
            endings_by_text=agents.endings_by_text,
            on_handover=partial(agents.took_over, self),
        )

    def _system_prompt_with(self, task_prompt: str) -> SystemPrompt:
        async def prompt(variables: Mapping[str, Any]) -> str:
            return "\n\n".join(filter(None, [await self.system_prompt(variables), task_prompt]))

        return prompt

    async def system_prompt(self, context_variables: Mapping[str, Any]) -> str:
        """Return role, goal, backstory and instructions as one text; raise `HookFailed` if a function of them fails.

        A function gets a copy of the context variables, which it cannot change.
        """
        about = [self.role and f"You are {self.name}, {self.role}.", self.goal and f"Your goal: {self.goal}"]
        parts = [*about, self.backstory, await self._instructions(context_variables)]
        return "\n\n".join(part for part in parts if part)

    async def _instructions(self, context_variables: Mapping[str, Any]) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        what = f"the instructions of agent {self.name!r}"
        function = _with_variables(self.instructions, copied_variables(context_variables))
        try:
            text = await user_code.call(function, what=what)
        except AgenticXError as exc:
            raise HookFailed(str(exc)) from exc
        if not isinstance(text, str):
            raise HookFailed(f"{what} must be text, not {type(text).__name__}")
        return text


def _with_variables(function: Callable[..., Any], variables: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of instructions with the variables as its argument, if it takes one.

    That is the parameter `context_variables`, else the first one. Raises `ValueError` for a function that needs more.
    """
    signature = inspect.signature(function)
    by_name = partial(function, **{_VARIABLES: variables})
    attempts = [partial(function, variables), by_name, partial(function)]
    if _VARIABLES in signature.parameters:
        attempts = [by_name, *attempts]
    for attempt in attempts:
        with suppress(TypeError):
            signature.bind(*attempt.args, **attempt.keywords)
            return attempt
    raise ValueError(f"a function of instructions takes no argument or {_VARIABLES}; others need defaults")
