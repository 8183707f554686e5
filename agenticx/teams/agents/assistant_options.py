"""The options of an `AssistantAgent`, checked: tools, handoffs, limits and the output type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from pydantic import BaseModel

from agenticx.argument_types import check_int, check_sequence
from agenticx.teams.agents.handoff import Handoff, handoff_tool
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox, as_tool, check_tools

__all__ = ["agent_tools", "check_iterations", "check_output_content", "checked_handoffs", "toolbox"]


def agent_tools(tools: Sequence[Tool | Callable[..., Any]]) -> list[Tool]:
    """Return the tools of an agent's `tools` argument; ValueError for another kind and for duplicate names."""
    check_tools(tools)
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
    """Return handoffs by the names of their tools; ValueError for another kind and for duplicate names."""
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
    """Return a toolbox of the tools and the handoffs."""
    return Toolbox([*tools, *map(handoff_tool, handoffs.values())])


def check_iterations(number: int | None) -> None:
    """Raise TypeError or ValueError for a limit of iterations that is no int of at least 1, or None."""
    if number is None:
        return
    check_int("max_tool_iterations", number)
    if number < 1:
        raise ValueError(f"Maximum number of tool iterations must be greater than or equal to 1, got {number}")


def check_output_content(content_type: object, text_format: str | None) -> None:
    """Raise TypeError if the type is not a pydantic model, ValueError if the format has a field that it lacks."""
    if content_type is None:
        return
    if not (isinstance(content_type, type) and issubclass(content_type, BaseModel)):
        raise TypeError(f"output_content_type must be a subclass of pydantic.BaseModel, not {content_type!r}")
    if text_format is None:
        return
    names = [name for _, name, _, _ in Formatter().parse(text_format) if name is not None]
    known = {*content_type.model_fields, *content_type.model_computed_fields}
    if unknown := [name for name in names if name.split(".")[0].split("[")[0] not in known]:
        raise ValueError(f"output_content_type_format has the fields {unknown}; right would be {sorted(known)}")
