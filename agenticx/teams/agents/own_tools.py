"""The tools and handoffs of an agent, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agenticx.argument_types import check_sequence
from agenticx.teams.agents.handoff import Handoff, handoff_tool
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox, as_tool

__all__ = ["agent_tools", "checked_handoffs", "toolbox"]


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
    check_sequence("handoffs", handoffs, "names and Handoffs")
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
    return Toolbox([*tools, *map(handoff_tool, handoffs.values())])
