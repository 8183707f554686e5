"""Guide rails: checks of a result before it is returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agenticx import user_code
from agenticx.argument_types import check_sequence
from agenticx.errors import AgenticXError

if TYPE_CHECKING:
    from agenticx.core.agent import Agent
    from agenticx.core.task import Task

__all__ = ["GuideRail", "GuideRailContext", "GuideRailVerdict", "check_result", "checked_rails"]


_RAILS = "objects with a method check(text, context)"


@dataclass(frozen=True, slots=True)
class GuideRailVerdict:
    """A verdict: `pass`, `modify` with the `text` to return instead, or `abort`; `reason` says why."""

    action: Literal["pass", "modify", "abort"]
    text: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in ("pass", "modify", "abort"):
            raise ValueError(f"the action of a verdict is pass, modify or abort, not {self.action!r}")
        if self.action == "modify" and not isinstance(self.text, str):
            raise ValueError("a verdict that modifies the result needs its text")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideRailContext:
    """The task that was run, the agent that acted last, its context variables, and the attempt, from 1."""

    agent: Agent[Any, Any]
    task: Task
    context_variables: dict[str, Any]
    attempt: int
    _ask: Callable[[str, str, Any], Awaitable[str]] = field(repr=False)

    async def ask(self, prompt: str, *, model: Any = None, name: str = "GuideRail") -> str:
        """Return the answer of a model, by default the model with which the task began.

        The call is a turn of the agent `name`; its events, usage and cost are part of the run, and it counts to the
        run's budget. Raises `TurnError` if it fails.
        """
        return await self._ask(prompt, name, model)


class GuideRail(Protocol):
    """A check of results, plain or async; like a call of a tool it may take `AGX_TOOL_TIMEOUT_SECONDS`."""

    async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict: ...


def checked_rails(rails: Sequence[GuideRail]) -> tuple[GuideRail, ...]:
    """Return the guide rails; raise `TypeError` if one is not a `GuideRail`."""
    check_sequence("guide_rails", rails, _RAILS)
    for rail in rails:
        if isinstance(rail, type):
            raise TypeError(f"guide_rails must be a list of {_RAILS}, not the class {rail.__name__} itself")
        if not callable(getattr(rail, "check", None)):
            raise TypeError(f"guide_rails must be a list of {_RAILS}, which {type(rail).__name__} is not")
    return tuple(rails)


async def check_result(
    rails: Sequence[GuideRail], text: str, context: GuideRailContext, limit: Callable[[], float]
) -> tuple[str, tuple[GuideRailVerdict, ...]]:
    """Return the text as the rails leave it, and their verdicts; an abort, also by a rail that fails, is the last.

    `limit` returns the real seconds that the next rail may take.
    """
    verdicts: list[GuideRailVerdict] = []
    for rail in rails:
        verdict = await _verdict(rail, text, context, limit())
        verdicts.append(verdict)
        if verdict.action == "abort":
            break
        if verdict.action == "modify":
            text = verdict.text or ""
    return text, tuple(verdicts)


async def _verdict(rail: GuideRail, text: str, context: GuideRailContext, limit: float) -> GuideRailVerdict:
    what = f"guide rail {type(rail).__name__}"
    try:
        verdict: object = await user_code.call(rail.check, text, context, what=what, limit=limit)
    except AgenticXError as exc:
        return GuideRailVerdict("abort", reason=str(exc))
    if not isinstance(verdict, GuideRailVerdict):
        return GuideRailVerdict("abort", reason=f"{what} must return a GuideRailVerdict, not {type(verdict).__name__}")
    return verdict
