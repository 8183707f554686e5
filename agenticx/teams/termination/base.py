"""Termination conditions as functions of a run, their combinations, and their use over one run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add

from agenticx import user_code
from agenticx.argument_types import wrong_type
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, RequestUsage, StopMessage

__all__ = [
    "AndTerminationCondition",
    "ConditionRun",
    "MessageCondition",
    "OrTerminationCondition",
    "Run",
    "TerminatedException",
    "TerminationCondition",
    "checked_condition",
]


class TerminatedException(AgenticXError):
    """Raised for a call of a termination condition that has said stop and was not reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run so far: its messages, tokens, cost, nominal seconds and speeches.

    `task` has the messages that the run was given, at its beginning or by the user meanwhile; `messages` has them too.
    `seconds` is without the time spent waiting for a person. `cost_usd` is None if the price of a called model is
    unknown. `began` is the `time.perf_counter_ns()` of the run's beginning.
    """

    messages: Sequence[BaseAgentEvent | BaseChatMessage] = ()
    task: Sequence[BaseChatMessage] = ()
    usage: RequestUsage = field(default_factory=RequestUsage)
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    turns: int = 0
    began: int = field(default_factory=time.perf_counter_ns)


class TerminationCondition:
    """A rule for the end of a run: override `check`, which sees the run so far and keeps nothing.

    One object may therefore serve several runs at once. Called by hand, a condition keeps a transcript, which grows by
    each call and is given to `check`; `reset` clears it. Teams never call a condition that has `check`; one that
    overrides `__call__`, `reset` and `terminated` instead is reset before a run and called with what is new.
    """

    _transcript: _Transcript | None = None
    _began = 0

    def check(self, run: Run) -> StopMessage | Awaitable[StopMessage | None] | None:
        """Return the reason for which the run is over, else None; plain or async."""
        raise NotImplementedError(f"{type(self).__name__} must override `check`")

    @property
    def terminated(self) -> bool:
        """True if a call by hand has returned a reason and the condition was not reset since."""
        return self._transcript is not None and self._transcript.stopped

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Return `check` of all messages since the last reset; raises `TerminatedException` after a reason."""
        if self._transcript is None:
            self._transcript = _Transcript(ConditionRun(self), self._began)
        if self.terminated:
            raise TerminatedException(f"{type(self).__name__} has said stop already; `await reset()` to use it again")
        return await self._transcript.extend(messages)

    async def reset(self) -> None:
        """Clear the transcript of calls by hand."""
        self._transcript = None
        self._began = time.perf_counter_ns()

    def _stop(self, reason: str) -> StopMessage:
        return StopMessage(content=reason, source=type(self).__name__)

    def __and__(self, other: TerminationCondition) -> TerminationCondition:
        if not _is_condition(other):
            return NotImplemented
        return AndTerminationCondition(self, other)

    def __or__(self, other: TerminationCondition) -> TerminationCondition:
        if not _is_condition(other):
            return NotImplemented
        return OrTerminationCondition(self, other)


class MessageCondition(TerminationCondition):
    """A condition that one message meets: override `reason`, which returns why it does, else None.

    With `skips_task` the messages of the run's task do not count.
    """

    skips_task = False

    def reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        raise NotImplementedError

    def check(self, run: Run) -> StopMessage | None:
        return self.stop_at(run.messages, run.task)

    def stop_at(
        self, messages: Sequence[BaseAgentEvent | BaseChatMessage], task: Sequence[BaseChatMessage]
    ) -> StopMessage | None:
        """Return the reason of the first message that meets the condition."""
        skipped = {message.id for message in task} if self.skips_task else ()
        for message in messages:
            if message.id not in skipped and (reason := self.reason(message)) is not None:
                return self._stop(reason)
        return None


class _Combination(TerminationCondition):
    """Conditions of which all or any must say stop."""

    def __init__(self, *conditions: TerminationCondition) -> None:
        self.conditions = conditions

    async def check(self, run: Run) -> StopMessage | None:
        """Return the joined reasons; conditions without `check` need a `ConditionRun`, else NotImplementedError."""
        return self.combine([await _check(condition, run) for condition in self.conditions])

    async def reset(self) -> None:
        await super().reset()
        for condition in self.conditions:
            await condition.reset()

    def combine(self, stops: Sequence[StopMessage | None]) -> StopMessage | None:
        """Return the joined reasons if they are enough."""
        raise NotImplementedError


class AndTerminationCondition(_Combination):
    """A condition that says stop when all of its conditions do."""

    def combine(self, stops: Sequence[StopMessage | None]) -> StopMessage | None:
        given = [stop for stop in stops if stop is not None]
        return _joined(given) if len(given) == len(stops) else None


class OrTerminationCondition(_Combination):
    """A condition that says stop when any of its conditions does."""

    def combine(self, stops: Sequence[StopMessage | None]) -> StopMessage | None:
        given = [stop for stop in stops if stop is not None]
        return _joined(given) if given else None


def _joined(stops: Sequence[StopMessage]) -> StopMessage:
    return StopMessage(
        content=", ".join(stop.content for stop in stops), source=", ".join(stop.source for stop in stops)
    )


class ConditionRun:
    """A condition over one run, with the reasons of its parts that are given each message once.

    What a condition raises is raised as it is.
    """

    def __init__(self, condition: TerminationCondition) -> None:
        self._condition = condition
        self._seen = 0
        self._stops: dict[int, StopMessage] = {}

    async def begin(self) -> None:
        """Reset the conditions that have no `check`."""
        for condition in _leaves(self._condition):
            if _is_foreign(condition):
                await user_code.call_in_place(condition.reset, what=f"{type(condition).__name__}.reset")

    async def check(self, run: Run) -> StopMessage | None:
        """Return the reason for which the run is over, else None; to be called with a run that grows."""
        new, self._seen = run.messages[self._seen :], len(run.messages)
        return await self._check(self._condition, run, new)

    async def _check(
        self, condition: TerminationCondition, run: Run, new: Sequence[BaseAgentEvent | BaseChatMessage]
    ) -> StopMessage | None:
        if isinstance(condition, _Combination):
            return condition.combine([await self._check(part, run, new) for part in condition.conditions])
        if not (_is_foreign(condition) or _is_by_message(condition)):
            return await _check(condition, run)
        if (stop := self._stops.get(id(condition))) is None:
            name = type(condition).__name__
            look = partial(condition.stop_at, task=run.task) if isinstance(condition, MessageCondition) else condition
            stop = _checked(await user_code.call_in_place(look, new, what=name), name)
            if stop is not None:
                self._stops[id(condition)] = stop
        return stop


async def _check(condition: TerminationCondition, run: Run) -> StopMessage | None:
    what = f"{type(condition).__name__}.check"
    return _checked(await user_code.call_in_place(condition.check, run, what=what), what)


def _checked(stop: object, what: str) -> StopMessage | None:
    if stop is None or isinstance(stop, StopMessage):
        return stop
    text = f"{what} returned a {type(stop)}; right would be a StopMessage or None"
    raise UserCodeError(text, what=what, kind="invalid_result")


def checked_condition(condition: TerminationCondition) -> TerminationCondition:
    """Return `condition`; TypeError if it is not a termination condition."""
    if not _is_condition(condition):
        raise wrong_type(
            "termination_condition", condition, "a TerminationCondition, such as MaxMessageTermination(10)"
        )
    return condition


def _is_condition(value: object) -> bool:
    """Return whether a value is a condition, also one of another library."""
    has_methods = callable(value) and hasattr(value, "terminated") and callable(getattr(value, "reset", None))
    return not isinstance(value, type) and (isinstance(value, TerminationCondition) or has_methods)


def _is_foreign(condition: TerminationCondition) -> bool:
    return getattr(type(condition), "check", None) in {None, TerminationCondition.check}


def _is_by_message(condition: TerminationCondition) -> bool:
    """Return whether the condition needs each message only once."""
    return type(condition).check is MessageCondition.check


def _leaves(condition: TerminationCondition) -> Iterator[TerminationCondition]:
    if isinstance(condition, _Combination):
        for part in condition.conditions:
            yield from _leaves(part)
    else:
        yield condition


class _Transcript:
    """The messages of a condition that is called by hand, as a run without known prices."""

    def __init__(self, condition: ConditionRun, began: int) -> None:
        self._condition = condition
        self._messages: list[BaseAgentEvent | BaseChatMessage] = []
        self._began = began
        self._start = time.monotonic()
        self.stopped = False

    async def extend(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        self._messages.extend(messages)
        used = [message.models_usage for message in self._messages if message.models_usage is not None]
        run = Run(
            messages=tuple(self._messages),
            usage=reduce(add, used, RequestUsage()),
            cost_usd=None if used else 0.0,
            seconds=time.monotonic() - self._start,
            turns=sum(isinstance(message, BaseChatMessage) for message in self._messages),
            began=self._began,
        )
        stop = await self._condition.check(run)
        self.stopped = stop is not None
        return stop
