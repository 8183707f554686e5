"""The executor: agents that do tasks, and chats among agents that hand over, as turns of the runtime."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from agenticx.argument_types import check_mapping
from agenticx.clocks import Clock, SystemClock
from agenticx.core.agent import Agent
from agenticx.core.chat import chat_response, run_chat
from agenticx.core.execution import Execution
from agenticx.core.guide_rails import GuideRail
from agenticx.core.results import ChatResponse, ExecutionResult
from agenticx.core.task import Task
from agenticx.core.turn_agents import Models, TurnAgents
from agenticx.llms.base import close_model
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Budget, ConfirmGate, Session
from agenticx.runtime.budgets.budget import checked_budget
from agenticx.runtime.events import RuntimeEvent
from agenticx.runtime.hooks import AgentHook, HookRegistry
from agenticx.runtime.session import checked_session
from agenticx.settings import Settings, load_settings
from agenticx.threads import has_running_loop, start_thread

__all__ = ["AgentExecutor"]

P = ParamSpec("P")
T = TypeVar("T")

_REMEMBERED_RESULTS = 256


def _blocking(
    method: Callable[Concatenate[AgentExecutor, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AgentExecutor, P], T]:
    """Return a method that runs `method` on an event loop of its own and then closes the connections of that loop."""

    @wraps(method, assigned=("__doc__",))
    def run(self: AgentExecutor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            try:
                return await method(self, *args, **kwargs)
            finally:
                await self.aclose()

        return _run(work())

    return run


class AgentExecutor:
    """An executor of tasks and chats; one may serve many runs at once.

    `llm_provider` is the model of agents that name none: a name such as `"openai:gpt-4o"`, a model, or a duck-typed
    model; without it the default model is used, as `agx run` does. A run makes at most `max_iterations` model calls, or
    the agent's own `max_iterations` if that is smaller. The default gate approves every call. `guide_rails` check each
    result of a task. `hooks` join those of each agent. All model calls of all runs are made within `budget`. With a
    `session` all runs continue that conversation, one at a time; without one each is a conversation of its own. With
    `resolve_on_text` an answer that mentions `case_resolved` or `case_not_resolved` counts as if the tool had been
    called.
    """

    def __init__(
        self,
        llm_provider: Any = None,
        *,
        max_iterations: int = 50,
        confirm_gate: ConfirmGate | None = None,
        guide_rails: Sequence[GuideRail] = (),
        hooks: Sequence[AgentHook] = (),
        budget: Budget | None = None,
        session: Session | None = None,
        resolve_on_text: bool = False,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        self._clock = clock or SystemClock()
        self._models = Models(llm_provider, self._settings)
        self._max_iterations = _positive(max_iterations, "max_iterations")
        self._gate = AutoApproveConfirmGate() if confirm_gate is None else confirm_gate
        self._guide_rails = tuple(guide_rails)
        limit = self._clock.real(self._settings.hook_timeout_seconds)
        self._hooks = HookRegistry(tuple(hooks), limit=limit)
        self._budget = checked_budget(budget)
        self._session = None if session is None else checked_session(session)
        self._resolve_on_text = resolve_on_text
        self._results: dict[str, str] = {}

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def arun(
        self,
        agent: Agent | None = None,
        task: Task | None = None,
        *,
        context_variables: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        execute_tools: bool = True,
    ) -> ExecutionResult:
        """Do a task and return its result.

        A run that fails is a result without `success`; `TypeError` and `ValueError` are raised for wrong arguments,
        `SettingsError` for a model that cannot be used. `context_variables` are injected into tools and instructions
        that take them, and copied first. `max_turns` is the largest number of model calls. With `execute_tools` False
        the first reply with calls ends the run, and they are not run.
        """
        execution = await self._execution(agent, task, context_variables, max_turns, execute_tools)
        async for _ in execution.events():
            pass
        return self._remember(execution)

    run = _blocking(arun)
    """`arun` for code with or without a running event loop, which waits for the result."""

    async def stream(
        self,
        agent: Agent | None = None,
        task: Task | None = None,
        *,
        context_variables: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        execute_tools: bool = True,
    ) -> AsyncGenerator[RuntimeEvent, None]:
        """Do a task as `arun` does and yield the events of its turns, one turn for each attempt."""
        execution = await self._execution(agent, task, context_variables, max_turns, execute_tools)
        async for event in execution.events():
            yield event
        self._remember(execution)

    # --- chats --------------------------------------------------------------------------------------------------------

    async def achat(
        self,
        agent: Agent,
        messages: Sequence[Mapping[str, Any]],
        *,
        context_variables: Mapping[str, Any] | None = None,
        max_turns: int = 30,
        execute_tools: bool = True,
        model: Any = None,
    ) -> ChatResponse:
        """Continue the conversation `messages`, rows of Chat Completions, and return what was added.

        A reply without calls ends it, and so do `max_turns` model calls. `model` takes the place of the agents' models.
        Neither `messages` nor `context_variables` are changed. Raises `TurnError` if a turn fails, and what `arun`
        raises.
        """
        _checked_agent(agent)
        override = None if model is None else self._models.resolve(model)
        agents = self._agents(override=override)
        variables = _copied_variables(context_variables)
        acting = await agents.taking_over(agent)
        session = Session(messages=list(messages))
        session.state.context_variables.update(variables)
        before = {message.message_id for message in session.messages}
        runtime = self._runtime(acting.model)
        rounds = _positive(max_turns, "max_turns")
        await run_chat(runtime, session, acting, max_rounds=rounds, execute=execute_tools, budget=self._budget)
        return chat_response(session, before, agents.named(session.active_agent or agent.name))

    chat = _blocking(achat)
    """`achat` for code with or without a running event loop, which waits for the response."""

    async def aclose(self) -> None:
        """Close the connections that models made from names keep on the running event loop."""
        for model in self._models:
            await close_model(model)

    # --- parts of a run -----------------------------------------------------------------------------------------------

    async def _execution(
        self,
        agent: Agent | None,
        task: Task | None,
        context_variables: Mapping[str, Any] | None,
        max_turns: int | None,
        execute_tools: bool,
    ) -> Execution:
        if not isinstance(task, Task):
            raise TypeError(f"task must be a Task, not {type(task).__name__}")
        agent = _checked_agent(task.agent if agent is None else agent)
        limits = [self._max_iterations, agent.max_iterations]
        if max_turns is not None:
            limits.append(_positive(max_turns, "max_turns"))
        variables = _copied_variables(context_variables)
        agents = self._agents(task)
        acting = await agents.taking_over(agent)
        return Execution(
            agent=agent,
            task=task,
            prompt=_prompt(task, self._results),
            agents=agents,
            acting=acting,
            runtime=self._runtime(acting.model),
            session=self._session,
            context_variables=variables,
            max_rounds=min(limits),
            execute_tools=execute_tools,
            guide_rails=self._guide_rails,
            resolve_on_text=self._resolve_on_text,
            budget=self._budget,
            clock=self._clock,
        )

    def _agents(self, task: Task | None = None, override: Any = None) -> TurnAgents:
        prompt = f"The answer is expected to be: {task.expected_output}" if task and task.expected_output else ""
        return TurnAgents(lambda agent: override or self._models.of(agent), self._hooks, task_prompt=prompt)

    def _runtime(self, model: Any) -> AgentRuntime:
        return AgentRuntime(model, self._gate, settings=self._settings, clock=self._clock)

    def _remember(self, execution: Execution) -> ExecutionResult:
        """Return the result and keep its text for tasks that have this one as `context`."""
        result = execution.result()
        if result.success:
            self._results[execution.task.id] = result.result
            while len(self._results) > _REMEMBERED_RESULTS:
                del self._results[next(iter(self._results))]
        return result


def _prompt(task: Task, results: Mapping[str, str]) -> str:
    """Return the user message: the description, behind the task's context if it has any."""
    return "\n\n".join([*(_context_text(item, results) for item in task.context), task.description])


def _context_text(item: Task | str, results: Mapping[str, str]) -> str:
    if isinstance(item, str):
        return item
    return f"{item.description}\nResult: {results[item.id]}" if item.id in results else item.description


def _checked_agent(agent: object) -> Agent:
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be an Agent, given here or with the task, not {type(agent).__name__}")
    return agent


def _copied_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    if variables is None:
        return {}
    check_mapping("context_variables", variables)
    return dict(variables)


def _positive(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return value


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, run on an event loop of its own: in a thread if the caller's has a running one."""
    if not has_running_loop():
        return asyncio.run(work)
    outcome: list[T] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as exc:  # noqa: BLE001 - raised in the caller's thread
            failure.append(exc)
        finally:
            ended.set()

    start_thread(run, name="agx executor")
    ended.wait()
    if failure:
        raise failure[0]
    return outcome[0]
