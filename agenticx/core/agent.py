"""Agents: a name and a purpose, instructions, a model and tools, and the ways to run them.

    from dataclasses import dataclass

    from agenticx import Agent, ToolContext, tool


    @dataclass
    class Stock:
        apples: int


    @tool(risk="read")
    def count_apples(context: ToolContext[Stock]) -> int:
        "Return the number of apples."
        return context.deps.apples  # no model sees the deps


    billing = Agent(name="billing", instructions="Answer questions about invoices.")
    shop = Agent(name="shop", model="demo", tools=[count_apples], handoffs=[billing])
    print(shop.run_sync("say hello", deps=Stock(3)).output)

`handoffs=[billing]` gives the agent the tool `handoff_to_billing`. Two agents that hand over to each other name one
another, or use a function: `handoffs=[lambda: shop]`.

An agent can be made without the engine, which takes longer to import than all of this: the first method that runs an
agent imports it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, Generic, TypedDict, Unpack, overload
from uuid import uuid4

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import TypeVar

from agenticx.argument_types import check_sequence, check_type
from agenticx.call_errors import ExplainedModel, explain_calls
from agenticx.core.context_variables import bind_variables
from agenticx.core.handoffs import AnyAgent, check_handoff, handoff_name
from agenticx.llms.sampling import Sampling
from agenticx.runtime.hooks.base import AgentHook
from agenticx.runtime.turn_agent import AgentDefinition, OutputT
from agenticx.tools.base import DepsT, Tool
from agenticx.tools.visible import is_one_line

if TYPE_CHECKING:
    from agenticx.clocks import Clock
    from agenticx.core.agent_turn import AgentTurn
    from agenticx.runtime.agent_runtime import AgentRuntime
    from agenticx.runtime.gates.base import ConfirmGate, GateFunction
    from agenticx.runtime.interrupts import StopSignal
    from agenticx.runtime.run_results import RunResult, UserInput
    from agenticx.runtime.session import Session
    from agenticx.runtime.turn_agent import TurnAgent, TurnAgents
    from agenticx.sessions.log.session_record import SessionRecord
    from agenticx.settings import Settings
    from agenticx.tools.context import ToolContext
    from agenticx.tools.registry import FunctionTool

__all__ = ["Agent"]

T = TypeVar("T", default=Any)
D = TypeVar("D", default=Any)


class _Signature:
    """The constructor's signature, as `help` shows it: pydantic makes it with the validator, on the first use."""

    def __get__(self, instance: object, owner: type[BaseModel]) -> inspect.Signature:
        owner.model_rebuild()
        return inspect.signature(owner)


class AgentFields(TypedDict, Generic[DepsT], total=False):
    """The fields of an agent apart from `output_type`, as arguments of its class."""

    id: str
    name: str
    role: str
    goal: str
    backstory: str | None
    organization_id: str
    instructions: str | Callable[..., Any]
    context_variables_description: str
    model: Any
    sampling: Sampling | None
    tools: Sequence[Callable[Concatenate[ToolContext[DepsT], ...], Any] | Tool | Callable[..., Any]]
    functions: Sequence[Callable[Concatenate[ToolContext[DepsT], ...], Any] | Tool | Callable[..., Any]]
    tool_choice: str | None
    parallel_tool_calls: bool
    handoffs: Sequence[AnyAgent | str | Callable[[], AnyAgent]]
    deps_type: type[DepsT] | None
    confirm_gate: ConfirmGate | GateFunction | None
    hooks: Sequence[AgentHook]
    llm_hooks: Sequence[AgentHook]
    max_iterations: int
    max_retry_limit: int


class AgentRunOptions(TypedDict, Generic[DepsT], total=False):
    """Keyword arguments of `Agent.run`, `run_sync` and `stream`."""

    session: Session | SessionRecord | str | None
    context_variables: Mapping[str, Any] | None
    deps: DepsT | None
    model: Any
    sampling: Sampling | None
    should_stop: StopSignal | Callable[[], bool] | None


class Agent(ExplainedModel, BaseModel, AgentDefinition[DepsT, OutputT], Generic[DepsT, OutputT]):
    """An agent: a name and a purpose, instructions, a model, tools, and the methods that run it.

        agent = Agent(model="openai:gpt-4o", instructions="Be brief.", tools=[add])
        print(agent.run_sync("What is 2 + 3?").output)

    It is frozen, every field has a default, and two agents are equal if all of their fields are.

    - `name` is the agent's id in events. `role`, `goal`, `backstory` and `instructions` become the system prompt.
      `instructions` may be a function, plain or async, that takes nothing or `context_variables`; it is called before
      each model call. `context_variables_description` ends the prompt: it tells the model what its tools find in the
      context variables, which the model never sees.
    - `model` is a name such as `"openai:gpt-4o"`, or a model; without one the model of the run's first agent is used,
      else the default model. `sampling` sets temperature, seed and the like.
    - `tools`, also accepted as `functions`, are tools or plain functions, see `agenticx.tool`. `tool_choice` is the
      name of the tool to be called first, `"required"` for any tool, `"none"` for no calls, None to leave it to the
      model, as it is after the first call. Calls of a round run one after the other; neighbouring calls run at once if
      their tools only read (`risk="read"`) or are declared `@tool(parallel=True)`. Without `parallel_tool_calls` the
      model is asked for one call at a time.
    - `deps_type` is the type of the `deps` of a run, for type checkers, which find it in the first parameter of the
      tools where it is missing: `agent.run_sync("…", deps=Shop(3))` gives a tool `context.deps`, see `ToolContext`.
    - `output_type`, anything that pydantic can validate, such as a BaseModel class or `list[int]`, is the type of
      `result.output`; without one the output is text.
    - `handoffs=[billing]` makes a tool `handoff_to_billing`, by which the model gives the other agent the rest of the
      turn. Handoffs are agents, names of agents that the turn knows, or functions that return an agent
      (`handoffs=[lambda: billing]`, for two agents that hand over to each other). `tools=[billing.as_tool()]` calls
      the other agent instead, and goes on with its answer.
    - `confirm_gate` is asked before calls that write or execute, or whose risk is not declared. It is a gate, or a
      function of the `ConfirmRequest` that returns True, False or a `ConfirmAnswer`:
      `confirm_gate=lambda request: request.tool == "mail"`. It is asked in every permission mode, whatever a rule
      allows, and also for agents without a gate to which this one hands over or which are its tools. Without one, the
      loop over `agent.stream(…)` may answer, else whoever is at the terminal. What a mode or a rule denies is denied
      first; the rules in AGX_HOME that ask or deny hold in every run. What is asked about in every mode, such as
      protected paths, is put to the gate of a hub where there is one.
    - `hooks`, also accepted as `llm_hooks`, join the turn's hooks while this agent acts, see `AgentHook`.
    - `max_iterations` limits the model calls of a run that begins with this agent. `max_retry_limit` is how often an
      `AgentExecutor` runs a task again if its result was refused. `organization_id` is on log lines and in `usage`
      events.

    To bound a run's time and cost, use the settings AGX_TURN_TIMEOUT_SECONDS, AGX_TURN_BUDGET_TOKENS and
    AGX_TURN_BUDGET_USD, whose limits include the agents that the run calls; `asyncio.timeout` around a run ends it too.
    Several runs share a `Budget` (of `agenticx.runtime`) in `AgentExecutor(budget=Budget(cost_usd=0.5, seconds=60))`.

    To stop a run, pass `should_stop=signal` and call `signal.set()` (see `StopSignal`), call `turn.stop()` of a stream,
    or cancel the task that awaits the run.
    """

    if not TYPE_CHECKING:
        __signature__ = _Signature()

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)
    by_position: ClassVar[str] = "model"

    id: str = Field(default_factory=lambda: str(uuid4()))
    name: str = Field(default="Agent", min_length=1)
    role: str = ""
    goal: str = ""
    backstory: str | None = None
    organization_id: str = "default-org"
    instructions: str | Callable[..., Any] = "You are a helpful agent."
    context_variables_description: str = ""
    model: Any = None
    sampling: Sampling | None = None
    tools: Annotated[Sequence[Tool | Callable[..., Any]], AfterValidator(tuple)] = Field(
        default=(), validation_alias=AliasChoices("tools", "functions")
    )
    tool_choice: str | None = None
    parallel_tool_calls: bool = True
    handoffs: Annotated[Sequence[Any], AfterValidator(tuple)] = ()
    output_type: Any = None
    deps_type: Any = None
    confirm_gate: Any = None
    hooks: Annotated[Sequence[AgentHook], AfterValidator(tuple)] = Field(
        default=(), validation_alias=AliasChoices("hooks", "llm_hooks")
    )
    max_iterations: int = Field(default=25, ge=1, strict=True)
    max_retry_limit: int = Field(default=2, ge=0, strict=True)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, *, output_type: type[OutputT] | None = None, **fields: Unpack[AgentFields[DepsT]]
        ) -> None: ...
        @overload
        def __init__(self: Agent[D, Any], *, output_type: Any, **fields: Unpack[AgentFields[D]]) -> None: ...
        def __init__(self, **fields: Any) -> None: ...

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not is_one_line(name):
            raise ValueError("a name must be one line without control characters")
        return name

    @field_validator("tools", mode="before")
    @classmethod
    def _check_tools(cls, tools: Sequence[Tool | Callable[..., Any]]) -> Sequence[Tool | Callable[..., Any]]:
        """Refuse anything but tools and functions that can be tools, as `@tool` does."""
        from agenticx.tools.registry import as_tool, check_tools

        check_tools(tools)
        for each in tools:
            as_tool(each)
        return tools

    @field_validator("hooks", mode="before")
    @classmethod
    def _check_hooks(cls, hooks: Sequence[AgentHook]) -> Sequence[AgentHook]:
        check_sequence("hooks", hooks, "hooks")
        for index, hook in enumerate(hooks):
            check_type(f"hooks[{index}]", hook, AgentHook, "an object of a class that derives from AgentHook")
        return hooks

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: Any) -> Any:
        if model is not None and not isinstance(model, str):
            from agenticx.llms.duck_typed.model import adapt

            adapt(model)
        return model

    @field_validator("instructions")
    @classmethod
    def _check_parameters(cls, instructions: str | Callable[..., Any]) -> str | Callable[..., Any]:
        if callable(instructions):
            bind_variables(instructions, {})
        return instructions

    @field_validator("handoffs", mode="before")
    @classmethod
    def _check_handoffs(cls, handoffs: Sequence[Any]) -> Sequence[Any]:
        check_sequence("handoffs", handoffs, "agents, names of agents, or functions that return an agent")
        for handoff in handoffs:
            check_handoff(handoff)
        return handoffs

    @field_validator("output_type")
    @classmethod
    def _check_output_type(cls, output_type: Any) -> Any:
        if output_type is not None:
            from agenticx.runtime.structured_output import OutputType

            OutputType(output_type)
        return output_type

    @field_validator("confirm_gate")
    @classmethod
    def _check_gate(cls, gate: Any) -> Any:
        if gate is not None:
            from agenticx.runtime.gates.base import checked_gate

            checked_gate(gate)
        return gate

    @model_validator(mode="after")
    def _check_names(self) -> Agent[DepsT, OutputT]:
        """Refuse a handoff with the name of another one or of a tool; the agent of a function is known later."""
        targets = [target if isinstance(target, str) else target.name for target in self.handoffs if _has_name(target)]
        names = [handoff_name(target) for target in targets]
        names += [each.schema.name for each in self.tools if isinstance(each, Tool)]
        if doubled := sorted({name for name in names if names.count(name) > 1 and name.startswith("handoff_to_")}):
            raise ValueError(f"agent {self.name!r} has two tools or handoffs called {doubled[0]!r}")
        return self

    @property
    def functions(self) -> Sequence[Tool | Callable[..., Any]]:
        """The same as `tools`."""
        return self.tools

    @property
    def llm_hooks(self) -> Sequence[AgentHook]:
        """The same as `hooks`."""
        return self.hooks

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what `repr` and `str` show: the name, as either may become a text that a model reads."""
        return [("name", self.name)]

    # --- runs ---------------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self, user_input: UserInput, *, output_type: None = None, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    @overload
    async def run(
        self, user_input: UserInput, *, output_type: type[T], **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self, user_input: UserInput, *, output_type: Any, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @explain_calls
    async def run(
        self,
        user_input: UserInput,
        *,
        session: Session | SessionRecord | str | None = None,
        context_variables: Mapping[str, Any] | None = None,
        deps: Any = None,
        model: Any = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
    ) -> RunResult[Any]:
        """Run one turn and return its result.

        - `user_input` is text, a `UserMessage` or a dict row with role `user`.
        - `session` is a `Session`, whose conversation goes on, or a stored session of an open hub, or its id; without
          one the turn is a new conversation.
        - `context_variables` are added to the session's, for tools and instructions that take them.
        - `deps` is any object that tools read as `ToolContext.deps`; no model sees it and no store keeps it.
        - `model` replaces the models of all agents, `output_type` the agent's; `sampling` replaces single parameters.
        - `should_stop` is a `StopSignal`, or a function that returns True when the turn is to end: it ends with a
          `TurnError` whose `code` is `stopped`. A cancellation of the caller ends it too.

        Inside another turn, for example in a tool, this is a child turn of that turn.

        Raises `TurnError` if the turn fails; `TypeError` or `ValueError` for arguments that cannot be used,
        `SettingsError` for an unknown model, `SessionBusy` while the session runs another turn, `SessionNotFound` for
        one that no hub of this event loop has, `UnsupportedSampling` and `AttachmentRefused`, all before it begins.
        `max_iterations` of the agent, and the limits that `help(Agent)` names, bound a run: it ends with a `TurnError`
        whose `code` is `max_rounds`, `timeout.turn` or `budget_exceeded`.
        """
        async with self.stream(
            user_input,
            session=session,
            context_variables=context_variables,
            deps=deps,
            model=model,
            output_type=output_type,
            sampling=sampling,
            should_stop=should_stop,
        ) as turn:
            async for _ in turn:
                pass
        return turn.result

    @overload
    def run_sync(
        self, user_input: UserInput, *, output_type: None = None, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    @overload
    def run_sync(
        self, user_input: UserInput, *, output_type: type[T], **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[T]: ...
    @overload
    def run_sync(
        self, user_input: UserInput, *, output_type: Any, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @explain_calls
    def run_sync(
        self,
        user_input: UserInput,
        *,
        session: Session | SessionRecord | str | None = None,
        context_variables: Mapping[str, Any] | None = None,
        deps: Any = None,
        model: Any = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
    ) -> RunResult[Any]:
        """Run one turn from code without an event loop, as `run` does.

        In the thread of a tool it runs on the event loop of the tool's turn, as a child turn. Raises `RuntimeError` in
        a thread with a running event loop.
        """
        from agenticx.core.agent_turn import run_to_end
        from agenticx.threads import has_running_loop

        if has_running_loop():
            raise RuntimeError("run_sync cannot be called while an event loop is running; use `await agent.run(...)`")
        work = self.run(
            user_input,
            session=session,
            context_variables=context_variables,
            deps=deps,
            model=model,
            output_type=output_type,
            sampling=sampling,
            should_stop=should_stop,
        )
        return run_to_end(work)

    @overload
    def stream(
        self, user_input: UserInput, *, output_type: None = None, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> AgentTurn[OutputT]: ...
    @overload
    def stream(
        self, user_input: UserInput, *, output_type: type[T], **options: Unpack[AgentRunOptions[DepsT]]
    ) -> AgentTurn[T]: ...
    @overload
    def stream(
        self, user_input: UserInput, *, output_type: Any, **options: Unpack[AgentRunOptions[DepsT]]
    ) -> AgentTurn[Any]: ...
    @explain_calls
    def stream(
        self,
        user_input: UserInput,
        *,
        session: Session | SessionRecord | str | None = None,
        context_variables: Mapping[str, Any] | None = None,
        deps: Any = None,
        model: Any = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
    ) -> AgentTurn[Any]:
        """Return a turn whose events and text can be read while it runs; arguments and errors are as for `run`.

            async with agent.stream("Write a poem to poem.txt") as turn:
                async for event in turn:  # or: async for text in turn.text()
                    if event.type == "confirm_required":
                        event.approve()  # or: event.deny("Not there.")
                    elif event.type == "question_asked":  # by the tool ask_user
                        event.answer("About the sea.")
            print(turn.result.output)

        `turn.stop()` ends it, as leaving the block does. `help(agenticx.Event)` lists the events and their keys.
        """
        from agenticx.core.agent_turn import agent_turn

        return agent_turn(
            self,
            user_input,
            session=session,
            context_variables=context_variables,
            deps=deps,
            model=model,
            output_type=self.output_type if output_type is None else output_type,
            sampling=sampling,
            should_stop=should_stop,
        )

    @explain_calls
    def as_tool(self, name: str | None = None, description: str | None = None) -> FunctionTool:
        """Return a tool that runs this agent on a `task` and returns its output, for the `tools` of another agent.

        The run is a child turn of the caller's: it has the caller's deps and a copy of its context variables, and asks
        the caller's gate unless the agent has one. The default name and description are made of the agent's.
        """
        from agenticx.core.acting_agent import agent_tool

        return agent_tool(self, name, description)

    def runtime(self, *, settings: Settings | None = None, clock: Clock | None = None) -> AgentRuntime:
        """Return a runtime whose turns begin with this agent, for code that takes a runtime.

        Without a model it has the default one. Raises as `turn_agent` does.
        """
        from agenticx.core.acting_agent import agent_runtime

        return agent_runtime(self, settings, clock)

    # --- turns --------------------------------------------------------------------------------------------------------

    def turn_agent(self, agents: TurnAgents) -> TurnAgent:
        """Return the agent as a turn uses it.

        Raises `ValueError` for a `tool_choice` that names none of its tools and a handoff to an unknown name,
        `TypeError` for what is no tool or hook, `SettingsError` for an unknown model, and `UnsupportedSampling`.
        """
        from agenticx.core.acting_agent import acting_agent

        return acting_agent(self, agents)

    async def system_prompt(self, context_variables: Mapping[str, Any]) -> str:
        """Return role, goal, backstory and instructions as one text; raise `HookFailed` if a function of them fails.

        A function gets a copy of the context variables; changes of it have no effect.
        """
        from agenticx.core.acting_agent import system_prompt

        return await system_prompt(self, context_variables)


def _has_name(handoff: object) -> bool:
    return isinstance(handoff, str | AgentDefinition)
