"""One run of a task: its attempts, each a turn, and the checks between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, cast

from agenticx.clocks import Clock
from agenticx.core.agent import Agent
from agenticx.core.guide_rails import GuideRail, GuideRailContext, GuideRailVerdict, check_result
from agenticx.core.results import ExecutionResult, ExecutionStats
from agenticx.core.task import Task
from agenticx.core.turn_agents import TurnAgents
from agenticx.llms.base import Usage
from agenticx.logs import get_logger
from agenticx.runtime import AgentRuntime, Budget, Session, TurnContext
from agenticx.runtime.events import Event, RuntimeEvent
from agenticx.runtime.events.payloads import FinalUsageData
from agenticx.runtime.results import own_events
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn import usage_data, usage_from_data
from agenticx.runtime.turn_agent import TurnAgent

__all__ = ["Execution"]

_log = get_logger(__name__)

_CASE_TOOLS = {"case_resolved": "result", "case_not_resolved": "reason"}


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One turn and what is known of its answer; `problem` is None for a result that can be returned."""

    text: str = ""
    reason: str = ""
    problem: str | None = None
    is_repeatable: bool = False
    verdicts: tuple[GuideRailVerdict, ...] = ()


@dataclass(slots=True, kw_only=True)
class Execution:
    """A run of `task`. `result` returns its outcome once `events` is exhausted."""

    agent: Agent
    task: Task
    prompt: str
    agents: TurnAgents
    acting: TurnAgent
    runtime: AgentRuntime
    session: Session | None
    context_variables: dict[str, Any]
    max_rounds: int
    execute_tools: bool
    guide_rails: Sequence[GuideRail]
    resolve_on_text: bool
    budget: Budget | None
    clock: Clock
    _events: list[Event] = field(default_factory=list[Event], init=False)
    _attempt: _Attempt = field(default_factory=_Attempt, init=False)
    _variables: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _last: Agent | None = field(default=None, init=False)
    _output: OutputType | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _seconds: float = field(default=0.0, init=False)

    async def events(self) -> AsyncGenerator[RuntimeEvent, None]:
        """Run the attempts, at most `max_retry_limit` after the first, and yield their events."""
        self._started = self.clock.monotonic()
        self._output = None if self.task.output_type is None else OutputType(self.task.output_type)
        for number in range(1, self.agent.max_retry_limit + 2):
            session = Session() if self.session is None else self.session
            turn, events = self._begin_turn(session), list[Event]()
            try:
                async for event in turn:
                    events.append(event)
                    yield event
            finally:
                await turn.aclose()
            await self._end_attempt(number, session, events)
            if self._attempt.problem is None or not self._attempt.is_repeatable:
                break
            _log.warning("retry", attempt=number, error=self._attempt.problem)
        self._seconds = self.clock.monotonic() - self._started

    def result(self) -> ExecutionResult:
        """Return the outcome of the run."""
        attempt = self._attempt
        output = self._output.value if self._output is not None and attempt.problem is None else None
        return ExecutionResult(
            success=attempt.problem is None,
            result=attempt.text,
            output=output,
            error=attempt.problem,
            events=tuple(self._events),
            stats=self._stats(),
            agent=self._last or self.agent,
            context_variables=self._variables,
            guide_rails=attempt.verdicts,
        )

    def _begin_turn(self, session: Session) -> AsyncGenerator[Event, None]:
        session.state.context_variables.update(self.context_variables)
        context = TurnContext(
            agent=self.acting,
            max_rounds=self.max_rounds,
            on_exhausted="error",
            execute_tools=self.execute_tools,
            budget=self.budget,
        )
        return self.runtime.run_turn(self.prompt, session, output_type=self._output, context=context)

    async def _end_attempt(self, number: int, session: Session, events: Sequence[Event]) -> None:
        self._events += events
        events = own_events(events)
        self._variables = dict(session.state.context_variables)
        handovers = [event.data["to_agent"] for event in events if event.type == "handoff"]
        self._last = self.agents.named(handovers[-1]) if handovers else self.agent
        self._attempt = self._read(events)
        if self._attempt.problem is None:
            await self._check(number)

    def _read(self, events: Sequence[Event]) -> _Attempt:
        """Return the answer of a turn, or its problem."""
        end = events[-1]
        if end.type == "error":
            is_refused = self._output is not None and end.data["code"] == "provider.bad_reply"
            return _Attempt(problem=f"{end.data['code']}: {end.data['text']}", is_repeatable=is_refused)
        assert end.type == "final"
        text, reason = end.data["text"], end.data["reason"]
        if reason in ("resolved", "not_resolved"):
            text = text or _case_text(events)
        elif self.resolve_on_text:
            reason = "not_resolved" if "case_not_resolved" in text else reason
        problem = f"not_resolved: {text}".rstrip(": ") if reason == "not_resolved" else None
        return _Attempt(text=text, reason=reason, problem=problem)

    async def _check(self, number: int) -> None:
        """Pass the answer through the guide rails."""
        attempt = self._attempt
        context = GuideRailContext(
            agent=self._last or self.agent,
            task=self.task,
            context_variables=self._variables,
            attempt=number,
        )
        attempt.text, attempt.verdicts = await check_result(self.guide_rails, attempt.text, context)
        if attempt.verdicts and (last := attempt.verdicts[-1]).action == "abort":
            attempt.problem, attempt.is_repeatable = f"guide_rail: {last.reason or 'the result was refused'}", True

    def _stats(self) -> ExecutionStats:
        usages = [usage_from_data(event.data) for event in self._events if event.type == "usage"]
        usage = usage_data(reduce(add, usages, Usage() if not usages else usages.pop()))
        return ExecutionStats(
            rounds=sum(event.type == "round_start" for event in self._events),
            tool_calls=sum(event.type == "tool_result" for event in self._events),
            usage=cast("FinalUsageData", usage),
            cost_usd=usage.get("cost_usd"),
            seconds=round(self._seconds, 3),
            organization_id=self.agent.organization_id,
        )


def _case_text(events: Sequence[Event]) -> str:
    """Return what the call that ended the case said of it."""
    for event in reversed(events):
        if event.type == "tool_call" and event.data["name"] in _CASE_TOOLS:
            arguments = event.data["arguments"]
            return str(arguments.get(_CASE_TOOLS[event.data["name"]], "")) if isinstance(arguments, dict) else ""
    return ""
