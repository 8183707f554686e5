"""One run of a task: its attempts, each a turn, and the checks between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.core.agent import Agent
from agenticx.core.context_variables import copied_variables
from agenticx.core.guide_rails import GuideRail, GuideRailContext, GuideRailVerdict, check_result
from agenticx.core.results import ExecutionResult
from agenticx.core.run_agents import RunAgents, find_parent_turn
from agenticx.core.run_stats import RunUsage, round_count
from agenticx.core.task import Task
from agenticx.errors import InvalidArguments, WorkFailed
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import AssistantMessage, Message, ToolCall, UserMessage, clean_text
from agenticx.runtime import (
    AgentRuntime,
    Budget,
    BudgetExceeded,
    ConfirmGate,
    Session,
    StopSignal,
    TurnContext,
)
from agenticx.runtime.budgets.budget import settings_budget
from agenticx.runtime.events import Event
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.run_results import own_events, turn_error
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import TurnAgent
from agenticx.runtime.turn_task import wait_for_abandoned_turn

__all__ = ["Execution"]

_log = get_logger(__name__)

_CASE_TOOLS = {"case_resolved": "result", "case_not_resolved": "reason"}


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One turn of a run, and its answer.

    - `problem` says why the answer cannot be returned, None if it can.
    - `code` is the code of the error that ended the turn, None without one.
    - `has_output`: the answer is an object of the task's `output_type`.
    - `is_resolved` is false if the answer says why the case could not be resolved.
    """

    text: str = ""
    has_output: bool = False
    is_resolved: bool = True
    problem: str | None = None
    code: str | None = None
    is_repeatable: bool = False
    verdicts: tuple[GuideRailVerdict, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def error(self) -> str | None:
        """The reason why the run failed, None if it succeeded."""
        return self.problem if self.is_resolved or self.problem else f"not_resolved: {self.text}".rstrip(": ")

    def refuse(self, reason: str) -> None:
        """Drop the answer, because the guide rails refuse it."""
        self.text, self.tool_calls = "", ()
        self.problem, self.code, self.is_repeatable = f"guide_rail: {reason}", "hook_failed", True


@dataclass(slots=True, kw_only=True)
class Execution:
    """A run of `task`. `result` returns its outcome once `events` is exhausted.

    Without a `session` each attempt is a new conversation that begins with the messages of `history`. In a session the
    next attempt follows the refused answer and the reason for the refusal. Inside a turn the attempts are child turns;
    they ask `gate`, or without one the gate of their parent. Each guide rail may take `rail_seconds`.
    """

    agent: Agent[Any, Any]
    task: Task
    prompt: str
    agents: RunAgents
    acting: TurnAgent
    runtime: AgentRuntime
    session: Session | None
    gate: ConfirmGate | None
    context_variables: dict[str, Any]
    deps: Any
    max_rounds: int
    execute_tools: bool
    guide_rails: Sequence[GuideRail]
    rail_seconds: float
    budget: Budget | None
    clock: Clock
    history: Sequence[Message] = ()
    session_id: str | None = None
    _usage: RunUsage = field(init=False)
    _events: list[Event] = field(default_factory=list[Event], init=False)
    _attempt: _Attempt = field(default_factory=lambda: _Attempt(problem="the run did not end"), init=False)
    _given: dict[str, Any] | None = field(default=None, init=False)
    _variables: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _rounds: int = field(default=0, init=False)
    _calls: int = field(default=0, init=False)
    _output: OutputType | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._usage = RunUsage(self.agent)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run the attempts, at most `max_retry_limit` after the first, and yield their events.

        Together they make at most `max_rounds` model calls.
        """
        self._started = self.clock.monotonic()
        output_type = self.agent.output_type if self.task.output_type is None else self.task.output_type
        self._output = None if output_type is None else OutputType(output_type)
        parent = find_parent_turn()
        for number in range(1, self.agent.max_retry_limit + 2):
            session = self._attempt_session(parent)
            if number > 1:
                self._log_retry(number - 1, session.id if parent is None else parent.session_id)
            turn, events = await self._begin_turn(session, parent), list[Event]()
            try:
                async for event in turn:
                    if not events:
                        self._usage.begin_attempt(event.turn_id, self.agents.taken_over)
                    events.append(event)
                    yield event
            finally:
                await turn.aclose()
            self._end_attempt(number, session, events)
            if self._attempt.problem is None:
                async for event in self._check(number, parent):
                    yield event
            if self._attempt.problem is None or not self._attempt.is_repeatable:
                break
            self._report_refusal()
            if self._calls >= self.max_rounds and number <= self.agent.max_retry_limit:
                self._attempt.problem += (
                    f"; not tried again: no model call of the run is left (limit {self.max_rounds})"
                )
                break
        self._seconds = self.clock.monotonic() - self._started

    def result(self) -> ExecutionResult:
        """Return the outcome of the run."""
        attempt = self._attempt
        output = self._output.value if self._output and attempt.has_output and attempt.problem is None else None
        return ExecutionResult(
            success=attempt.error is None,
            result=attempt.text,
            output=output,
            error=attempt.error,
            events=tuple(self._events),
            stats=self._usage.stats(self._events, rounds=self._rounds, seconds=self._seconds),
            agent=self.agents.active or self.agent,
            context_variables=self._variables,
            guide_rails=attempt.verdicts,
            tool_calls=attempt.tool_calls,
            session_id=self.session_id,
        )

    def fail(self, code: str, text: str, events: Sequence[Event] = ()) -> None:
        """Record the error that ended the run, with the `events` of its turns, unless the last attempt has its code."""
        if self._attempt.code == code:
            return
        self._attempt = replace(self._attempt, problem=f"{code}: {text}", code=code)
        if events:
            self._events, self._rounds = list(events), round_count(events)
            self._seconds = self.clock.monotonic() - self._started

    def check(self) -> None:
        """Raise `WorkFailed` with the code of the error that ended the run, if one did."""
        if self._attempt.code is not None:
            raise WorkFailed(self._attempt.problem or "", code=self._attempt.code)

    def _log_retry(self, attempt: int, session_id: str) -> None:
        agent = self.agent
        with bound_ids(session=session_id, agent=agent.name, organization=agent.organization_id):
            _log.warning("retry", attempt=attempt, error=self._attempt.problem)

    def _report_refusal(self) -> None:
        """Add a reminder to a session that goes on: why its last answer was refused."""
        if self.session is not None:
            text = f"[reminder] The answer to this task was refused: {self._attempt.problem}"
            self.session.messages.append(UserMessage(content=clean_text(text), injected=True))

    def _attempt_session(self, parent: Turn | None) -> Session:
        """Return the session of an attempt; a new one has workspace and mode of the parent turn."""
        if self.session is not None:
            return self.session
        session = Session(messages=self.history)
        if parent is not None:
            session.inherit(parent.session, parent.permissions.mode)
        return session

    async def _begin_turn(self, session: Session, parent: Turn | None) -> AsyncGenerator[Event, None]:
        await wait_for_abandoned_turn(session)
        session.check_free()  # before its state is changed, which a running turn uses
        if self._given is None:
            self._given = copied_variables({**session.state.context_variables, **self.context_variables})
        variables = session.state.context_variables  # changed in place: the application may hold this dict
        variables.clear()
        variables.update(copied_variables(self._given))
        session.active_agent, self.agents.taken_over = self.agent.name, []
        context = self._context(self.acting, parent)
        context = replace(context, max_rounds=self.max_rounds - self._calls, execute_tools=self.execute_tools)
        return self.runtime.run_turn(self.prompt, session, output_type=self._output, context=context)

    def _context(self, agent: TurnAgent, parent: Turn | None) -> TurnContext:
        return TurnContext(
            agent=agent,
            agents=self.agents,
            parent=parent,
            gate=self.gate,
            deps=self.deps,
            on_exhausted="error",
            budget=settings_budget(self.runtime.settings, self.budget) if parent is None else self.budget,
        )

    def _end_attempt(self, number: int, session: Session, events: Sequence[Event]) -> None:
        before = self._attempt.problem
        self._events += events
        self._rounds += round_count(events)
        events = own_events(events)
        self._calls += round_count(events)
        self._variables = copied_variables(session.state.context_variables)
        self._attempt = self._read(events)
        if self._attempt.problem is None and not self.execute_tools:
            self._attempt.tool_calls = _last_calls(session.messages)
        if number > 1 and self._attempt.code == "max_rounds":
            limit = f"max_rounds: no model call of the run is left (limit {self.max_rounds})"
            self._attempt.problem = f"{limit}; attempt {number - 1} ended with {before}"

    def _read(self, events: Sequence[Event]) -> _Attempt:
        """Return the answer of a turn, or its problem."""
        end = events[-1]
        if end.type == "error":
            is_refused = self._output is not None and end.data["code"] == "provider.bad_reply"
            code, text = end.data["code"], end.data["text"]
            return _Attempt(problem=f"{code}: {text}", code=code, is_repeatable=is_refused)
        assert end.type == "final"
        text, reason = end.data["text"], end.data["reason"]
        if "output" in end.data:
            text = json.dumps(end.data["output"], ensure_ascii=False)
        elif self._output is not None and reason == "partial":
            code = "provider.bad_reply"
            problem = f"{code}: the model gave no usable {self._output.name}: its reply was not finished"
            return _Attempt(problem=problem, code=code, is_repeatable=True)
        elif reason in ("resolved", "not_resolved"):
            text = _case_text(events) or text
        return _Attempt(text=text, has_output="output" in end.data, is_resolved=reason != "not_resolved")

    async def _check(self, number: int, parent: Turn | None) -> AsyncGenerator[Event, None]:
        """Pass the answer through the guide rails, and yield the events of the turns in which they ask a model."""
        attempt, asked = self._attempt, list[Event]()
        context = GuideRailContext(
            agent=self.agents.active or self.agent,
            task=self.task,
            context_variables=self._variables,
            attempt=number,
            _ask=partial(self._ask, asked, parent),
        )
        try:
            with self._at_work():
                attempt.text, attempt.verdicts = await check_result(
                    self.guide_rails, attempt.text, context, self._real_seconds_left
                )
        finally:
            self._events += asked
        if attempt.verdicts and (last := attempt.verdicts[-1]).action == "abort":
            attempt.refuse(last.reason or "the result was refused")
            self._read_budget()
        elif any(verdict.action == "modify" for verdict in attempt.verdicts):
            self._read_modified()
        for event in asked:
            yield event

    @contextmanager
    def _at_work(self) -> Generator[None]:
        """Count the time of the block in the budget."""
        if self.budget is not None:
            self.budget.start_work(self.clock)
        try:
            yield
        finally:
            if self.budget is not None:
                self.budget.end_work(self.clock)

    def _real_seconds_left(self) -> float:
        """Return the real seconds that a guide rail may take, within the time that is left of the budget."""
        left = self.rail_seconds if self.budget is None else min(self.rail_seconds, self.budget.seconds_left())
        return self.clock.real(left)

    def _read_budget(self) -> None:
        """Make a used-up budget the problem of the attempt, which then is not repeated."""
        if self.budget is None:
            return
        try:
            self.budget.check_seconds()
        except BudgetExceeded as exc:
            attempt = self._attempt
            attempt.problem, attempt.code, attempt.is_repeatable = f"{exc.code}: {exc}", exc.code, False

    def _read_modified(self) -> None:
        """Read the object again from an answer that guide rails modified, if an object was asked for."""
        attempt = self._attempt
        if self._output is None or not attempt.has_output:
            return
        try:
            self._output.read_answer(attempt.text)
        except InvalidArguments as exc:
            attempt.refuse(f"the modified result is no usable {self._output.name}: {exc}")

    async def _ask(self, asked: list[Event], parent: Turn | None, prompt: str, name: str, model: Any) -> str:
        """Return the answer of a model to a guide rail, given in a turn of its own by the agent `name`."""
        organization_id = (self.agents.active or self.agent).organization_id
        model = self.acting.model if model is None else model
        rail = Agent(name=name, instructions="", model=model, organization_id=organization_id)
        context = replace(self._context(await self.agents.prepare_handoff(rail), parent), max_rounds=1)
        stop, events = StopSignal(), list[Event]()

        async def run() -> None:
            async with aclosing(self.runtime.run_turn(prompt, None, stop, context=context)) as turn:
                async for event in turn:
                    events.append(event)

        running = asyncio.create_task(run(), name=f"agx rail {name}")
        try:
            await asyncio.shield(running)
        finally:
            if not running.done():  # the rail is cancelled: the turn still reports its usage
                stop.set()
                await asyncio.wait({running}, timeout=user_code.GRACE_SECONDS / 2)
                await cancel_and_wait(running)
            asked += events
        end = events[-1]
        if end.type != "final":
            raise turn_error(events)
        return end.data["text"]


def _last_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last message, if it is a reply."""
    return messages[-1].tool_calls if messages and isinstance(messages[-1], AssistantMessage) else ()


def _case_text(events: Sequence[Event]) -> str:
    """Return the argument of the call that ended the case, the first one that was not refused."""
    arguments = {event.data["tool_call_id"]: event.data["arguments"] for event in events if event.type == "tool_call"}
    for event in events:
        if event.type == "tool_result" and not event.data["is_error"] and event.data["name"] in _CASE_TOOLS:
            given = arguments[event.data["tool_call_id"]]
            return str(given.get(_CASE_TOOLS[event.data["name"]], "")) if isinstance(given, dict) else ""
    return ""
