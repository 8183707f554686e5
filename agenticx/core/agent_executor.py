"""The executor: agents that do tasks, and chats among agents that hand over, as turns of the runtime."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from agenticx.argument_types import check_iterable, check_mapping, check_sequence, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.core.agent import Agent
from agenticx.core.chat import chat_response, run_chat
from agenticx.core.context_variables import copied_variables
from agenticx.core.execution import Execution
from agenticx.core.guide_rails import GuideRail, checked_rails
from agenticx.core.results import ChatResponse, ExecutionResult
from agenticx.core.run_agents import Models, RunAgents, find_parent_turn
from agenticx.core.stored_runs import StoredRuns
from agenticx.core.task import Task
from agenticx.errors import ResourcesExhausted, SessionBusy
from agenticx.llms.base import close_model
from agenticx.runtime import AgentRuntime, Budget, ConfirmGate, Session
from agenticx.runtime.budgets.budget import checked_budget
from agenticx.runtime.events import Event
from agenticx.runtime.gates.base import GateFunction, checked_gate
from agenticx.runtime.gates.terminal import DefaultConfirmGate
from agenticx.runtime.hooks import AgentHook, HookRegistry
from agenticx.runtime.session import runnable_session
from agenticx.settings import Settings, load_settings
from agenticx.threads import has_running_loop, start_thread

if TYPE_CHECKING:
    from agenticx.sessions.store.base import Store

__all__ = ["AgentExecutor"]

P = ParamSpec("P")
T = TypeVar("T")

_REMEMBERED_RESULTS = 256


def _blocking(
    method: Callable[Concatenate[AgentExecutor, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AgentExecutor, P], T]:
    """Return a blocking method that runs the coroutine method.

    In the thread of a tool it runs on the event loop of the tool's turn, as part of that turn; else on a new loop,
    whose connections are closed at the end. On the event loop of a turn it raises `RuntimeError`, because the turn
    could not go on.
    """

    @wraps(method, assigned=("__doc__",))
    def run(self: AgentExecutor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        turn = find_parent_turn()  # None in code that an ended turn left running
        if turn is not None and has_running_loop():
            raise RuntimeError(
                f"{method.__name__[1:]} cannot be called on the event loop of a turn, such as in an async tool; "
                f"use `await executor.{method.__name__}(...)`"
            )
        if turn is not None and turn.event_loop is not None:
            return asyncio.run_coroutine_threadsafe(method(self, *args, **kwargs), turn.event_loop).result()

        async def work() -> T:
            try:
                return await method(self, *args, **kwargs)
            finally:
                await self.aclose()

        return _run(work())

    return run


@explain_calls
class AgentExecutor:
    """An executor of tasks and chats; one may serve many runs at once.

    `llm_provider` is the model of agents that name none: a name such as `"openai:gpt-4o"`, a model, or a duck-typed
    model; without it the default model is used, as `agx run` does. A run of a task makes at most `max_iterations` model
    calls, or the agent's own `max_iterations` if that is smaller, in all of its attempts together; the calls of guide
    rails do not count. `confirm_gate` is asked before calls that write or execute, or whose risk is not declared.
    Without one, a run in another turn asks the gate of that turn, a run in a session of an open hub asks the hub's, and
    any other run acts as an `AgentRuntime` without a gate. `guide_rails` check each result of a task. `hooks` join the
    hooks of each agent. All model calls of all runs are made within `budget`. With
    `resolve_on_text` an answer that mentions `case_resolved` or `case_not_resolved` counts as if the tool had been
    called.

    Without a `session` each task is a conversation of its own. With one, all tasks continue it, one at a time, and a
    task without an agent is done by the agent that acted last. A session is a `Session` in memory, in which a refused
    answer is followed by the reason, or the id of a stored one in an open hub.

    With a `store`, an open one or a URL as `open_hub` takes it, each task is a turn of a stored session, by default of
    a new one (`ExecutionResult.session_id`), and its attempts are child turns, as `agx sessions replay` shows. A later
    executor can continue that session, with the calls and results of the latest tasks. A run that waited for a person
    when its process ended waits on, and any hub over the store can answer it: the same task on the same `session` goes
    on in that turn, any other task ends it as interrupted. A store that is opened here belongs to one event loop until
    `aclose`. Chats are not stored: their rows are the application's. In a turn, such as in a tool, an executor with a
    store is refused, because a task is stored where that turn is.
    """

    def __init__(
        self,
        llm_provider: Any = None,
        *,
        max_iterations: int = 50,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        guide_rails: Sequence[GuideRail] = (),
        hooks: Sequence[AgentHook] = (),
        budget: Budget | None = None,
        session: Session | str | None = None,
        store: Store | str | None = None,
        resolve_on_text: bool = False,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        self._clock = clock or SystemClock()
        self._models = Models(llm_provider, self._settings)
        self._max_iterations = _positive(max_iterations, "max_iterations")
        self._own_gate = checked_gate(confirm_gate)
        self._gate = self._own_gate or DefaultConfirmGate()
        self._guide_rails = checked_rails(guide_rails)
        check_iterable("hooks", hooks, "hooks")
        limit = self._clock.real(self._settings.hook_timeout_seconds)
        self._hooks = HookRegistry(tuple(hooks), limit=limit)
        self._budget = checked_budget(budget)
        session_id = session if isinstance(session, str) else None
        self._session = None if session is None or session_id is not None else runnable_session(session)
        self._stored: StoredRuns | None = None
        if store is not None or session_id is not None:
            self._stored = StoredRuns(
                _checked_store(store, self._session),
                session_id,
                model_of=self._models.resolve,
                settings=self._settings,
                clock=self._clock,
            )
        self._resolve_on_text = resolve_on_text
        self._results: dict[str, str] = {}
        self._continues = session is not None
        self._active: Agent[Any, Any] | None = None

    # --- tasks --------------------------------------------------------------------------------------------------------

    @explain_calls
    async def arun(
        self,
        agent: Agent[Any, Any] | None = None,
        task: Task | str | None = None,
        *,
        context_variables: Mapping[str, Any] | None = None,
        deps: Any = None,
        max_turns: int | None = None,
        execute_tools: bool = True,
    ) -> ExecutionResult:
        """Do a task, or what a text says, and return its result.

        A run that fails is a result without `success`, also while the session runs another turn (`session_busy`);
        `TypeError` and `ValueError` are raised for wrong arguments, `SettingsError` for a model that cannot be used,
        `SessionNotFound` for a session that no hub of this event loop has, `RuntimeError` within a turn for an executor
        with a store. `context_variables` are injected into tools and instructions that take them; each attempt has a
        copy as they are at the beginning, in which dicts, lists, sets and tuples are copies at any depth. Tools read
        `deps` as `ToolContext.deps`. `max_turns` is the largest number of model calls of this run, where it is smaller
        than both `max_iterations`. With `execute_tools` False the first reply with calls ends the run: the calls are
        not run but returned, as `tool_calls` of the result. The object of an `output_type` is accepted nevertheless.
        """
        execution = await self._execution(agent, task, context_variables, deps, max_turns, execute_tools)
        try:
            async with aclosing(self._events(execution)) as events:
                async for _ in events:
                    pass
        except SessionBusy as exc:
            execution.fail("session_busy", str(exc))
            return execution.result()
        return self._remember(execution)

    run = _blocking(arun)
    """`arun` for code with or without a running event loop, which waits for the result."""

    @explain_calls
    async def stream(
        self,
        agent: Agent[Any, Any] | None = None,
        task: Task | str | None = None,
        *,
        context_variables: Mapping[str, Any] | None = None,
        deps: Any = None,
        max_turns: int | None = None,
        execute_tools: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Do a task as `arun` does and yield the events of its turns, one turn for each attempt.

        Raises `SessionBusy` while the session runs another turn.
        """
        execution = await self._execution(agent, task, context_variables, deps, max_turns, execute_tools)
        events = self._events(execution)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
        self._remember(execution)

    # --- chats --------------------------------------------------------------------------------------------------------

    @explain_calls
    async def achat(
        self,
        agent: Agent[Any, Any],
        messages: Sequence[Mapping[str, Any]],
        *,
        context_variables: Mapping[str, Any] | None = None,
        max_turns: int = 30,
        execute_tools: bool = True,
        model: Any = None,
    ) -> ChatResponse:
        """Continue the conversation `messages`, rows of Chat Completions, and return what was added.

        A reply without calls ends it, and so do `max_turns` model calls. `model` takes the place of the agents' models.
        Neither `messages` nor `context_variables`, copied as by `arun`, are changed. Raises `TurnError` if a turn
        fails, and what `arun` raises.
        """
        _checked_agent(agent)
        check_sequence("messages", messages, "dict rows of Chat Completions")
        override = None if model is None else self._models.resolve(model)
        agents = self._agents(override=override)
        variables = _checked_variables(context_variables)
        acting = await agents.prepare_handoff(agent)
        session = Session(messages=list(messages))
        session.state.context_variables.update(variables)
        before = {message.message_id for message in session.messages}
        runtime = self._runtime(acting.model)
        rounds = _positive(max_turns, "max_turns")
        await run_chat(
            runtime,
            session,
            acting,
            agents,
            max_rounds=rounds,
            execute=execute_tools,
            budget=self._budget,
            gate=self._own_gate,
        )
        return chat_response(session, before, agents.active or agent)

    chat = _blocking(achat)
    """`achat` for code with or without a running event loop, which waits for the response."""

    async def aclose(self) -> None:
        """Close the store that was opened here, and the connections of models made from names, on this event loop."""
        if self._stored is not None:
            await self._stored.aclose()
        for model in self._models:
            await close_model(model)

    # --- parts of a run -----------------------------------------------------------------------------------------------

    def _events(self, execution: Execution) -> AsyncGenerator[Event, None]:
        """Run a task and yield its events, from the store if it is stored."""
        return execution.events() if self._stored is None else self._stored.events(execution)

    async def _execution(
        self,
        agent: Agent[Any, Any] | None,
        task: Task | str | None,
        context_variables: Mapping[str, Any] | None,
        deps: Any,
        max_turns: int | None,
        execute_tools: bool,
    ) -> Execution:
        if agent is not None:
            _checked_agent(agent)
        if isinstance(task, str):
            task = Task(description=task)
        check_type("task", task, Task, "a Task or a text")
        assert task is not None
        agent = _checked_agent(agent or task.agent or self._active)
        self._check_place()
        limits = [self._max_iterations, agent.max_iterations]
        if max_turns is not None:
            limits.append(_positive(max_turns, "max_turns"))
        variables = _checked_variables(context_variables)
        agents = self._agents(task)
        acting = await agents.prepare_handoff(agent)
        return Execution(
            agent=agent,
            task=task,
            prompt=_prompt(task, self._results),
            agents=agents,
            acting=acting,
            runtime=self._runtime(acting.model),
            session=self._session,
            gate=self._child_gate(),
            context_variables=variables,
            deps=deps,
            max_rounds=min(limits),
            execute_tools=execute_tools,
            guide_rails=self._guide_rails,
            rail_seconds=self._settings.tool_timeout_seconds,
            budget=self._budget,
            clock=self._clock,
        )

    def _check_place(self) -> None:
        """Raise `RuntimeError` for a store inside a turn: the user of that turn would not see the run."""
        turn = find_parent_turn()
        if self._stored is not None and self._stored.is_own and turn is not None:
            raise RuntimeError(
                f"an executor with a store cannot be used within a turn, here of agent {turn.agent_id!r}: the task is "
                "part of that turn and stored where it is; use an executor without a store"
            )

    def _child_gate(self) -> ConfirmGate | None:
        """Return the gate of child turns, None for their parent's gate."""
        has_own_store = self._stored is not None and self._stored.is_own
        return self._gate if has_own_store else self._own_gate

    def _agents(self, task: Task | None = None, override: Any = None) -> RunAgents:
        prompt = f"The answer is expected to be: {task.expected_output}" if task and task.expected_output else ""
        return RunAgents(
            lambda agent: override or self._models.of(agent),
            self._hooks,
            task_prompt=prompt,
            resolve_on_text=self._resolve_on_text,
        )

    def _runtime(self, model: Any) -> AgentRuntime:
        return AgentRuntime(model, self._gate, settings=self._settings, clock=self._clock)

    def _remember(self, execution: Execution) -> ExecutionResult:
        """Return the result and keep its text for tasks that have this one as `context`."""
        result = execution.result()
        if self._continues:
            self._active = result.agent
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


def _checked_agent(agent: object) -> Agent[Any, Any]:
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be an Agent, given here or with the task, not {type(agent).__name__}")
    return cast("Agent[Any, Any]", agent)


def _checked_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the context variables; raise `TypeError` for what are none."""
    if variables is None:
        return {}
    check_mapping("context_variables", variables)
    return copied_variables(variables)


def _checked_store(store: Store | str | None, session: Session | None) -> Store | str | None:
    """Return the store; raise `TypeError` for anything else, `ValueError` for a store with a session in memory."""
    if store is not None and session is not None:
        raise ValueError("a session in memory is not stored; give the id of a stored one, or no session")
    if store is not None and not isinstance(store, str) and not hasattr(store, "ownership"):
        raise TypeError(f"store must be a Store or a URL such as 'sqlite:///runs.db', not {type(store).__name__}")
    return store


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

    try:
        start_thread(run, name="agx executor")
    except ResourcesExhausted:
        work.close()
        raise
    ended.wait()
    if failure:
        raise failure[0]
    return outcome[0]
