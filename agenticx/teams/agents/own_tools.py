"""The tools and handoffs of an agent, checked, and the gate that is asked about its risky calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agenticx.runtime import AutoApproveConfirmGate, ConfirmGate, SyncConfirmGate
from agenticx.runtime.confirm import ConfirmAnswer, ConfirmRequest
from agenticx.teams.agents.handoff import Handoff, HandoffTool
from agenticx.tools.base import Tool
from agenticx.tools.registry import FunctionTool, Toolbox, as_tool

__all__ = ["DefaultGate", "agent_tools", "asked_at", "checked_handoffs", "own_functions", "team_gate", "toolbox"]


def agent_tools(tools: Sequence[Tool | Callable[..., Any]]) -> list[Tool]:
    """Return tools made of what an agent was given; ValueError for another kind and for a name twice."""
    made: list[Tool] = []
    for candidate in tools:
        try:
            made.append(as_tool(candidate))
        except TypeError as exc:
            raise ValueError(f"Unsupported tool type: {type(candidate)}: {exc}") from exc
    names = [tool.schema.name for tool in made]
    if len(names) != len(set(names)):
        raise ValueError(f"Tool names must be unique: {names}")
    return made


def checked_handoffs(handoffs: Sequence[object], tools: Sequence[Tool]) -> dict[str, Handoff]:
    """Return handoffs by the names of their tools; ValueError for another kind and for a name twice."""
    made = [_handoff(candidate) for candidate in handoffs]
    names = [handoff.name for handoff in made]
    if len(names) != len(set(names)):
        raise ValueError(f"Handoff names must be unique: {names}")
    tool_names = {tool.schema.name for tool in tools}
    if tool_names & {name for handoff in made for name in (handoff.name, handoff.target)}:
        raise ValueError(f"Handoff names must be unique from tool names; handoffs: {names}, tools: {tool_names}")
    return {handoff.name: handoff for handoff in made}


def _handoff(candidate: object) -> Handoff:
    if isinstance(candidate, Handoff):
        return candidate
    if isinstance(candidate, str):
        return Handoff(candidate)
    raise ValueError(f"Unsupported handoff type: {type(candidate)}")


def toolbox(tools: Sequence[Tool], handoffs: Mapping[str, Handoff]) -> Toolbox:
    """Return the tools with those of the handoffs."""
    return Toolbox([*tools, *map(HandoffTool, handoffs.values())])


def own_functions(tools: Sequence[Tool]) -> set[str]:
    """Return the names of the tools that are functions of the application."""
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    return {tool.schema.name for tool in functions if not _is_built_in(tool)}


def _is_built_in(tool: FunctionTool) -> bool:
    return str(getattr(tool.function, "__module__", "")).startswith("agenticx.tools.")


_team_gate: ContextVar[ConfirmGate | None] = ContextVar("agenticx_team_gate", default=None)


def team_gate() -> ConfirmGate | None:
    """Return the gate of the innermost team with one in which the code runs."""
    return _team_gate.get()


@contextmanager
def asked_at(gate: ConfirmGate | None) -> Generator[None]:
    """Let `gate` be that of the team in which the block, which runs in a task of its own, is at work."""
    before = _team_gate.get()
    _team_gate.set(gate)
    try:
        yield
    finally:
        _team_gate.set(before)


class DefaultGate(ConfirmGate):
    """The gate of an agent that was given none: that of its team.

    Without one it approves the functions of the application, `names`, and asks at the terminal about built-in tools.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._approving = AutoApproveConfirmGate()
        self._terminal = SyncConfirmGate()

    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool | Awaitable[bool]:
        return self._chosen(context).request_confirm(question, context)

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        return await self._chosen(request.context).ask(request, announce)

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        gate = team_gate()
        return None if gate is None else gate.decided(request_id)

    def _chosen(self, context: Mapping[str, Any]) -> ConfirmGate:
        if (gate := team_gate()) is not None:
            return gate
        return self._approving if context.get("tool") in self._names else self._terminal
