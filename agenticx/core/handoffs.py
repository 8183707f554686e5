"""Handoffs that an agent declares (`Agent.handoffs`): their check, and the names of their tools."""

from __future__ import annotations

import inspect
import re
from typing import Any

from agenticx.argument_types import wrong_type
from agenticx.runtime.turn_agent import AgentDefinition

AnyAgent = AgentDefinition[Any, Any]

__all__ = ["AnyAgent", "check_handoff", "handoff_name"]

_MAX_NAME = 64


def handoff_name(target: str) -> str:
    """Return the name of the tool that hands over to an agent: `handoff_to_` and its name, `_` for other characters."""
    return f"handoff_to_{re.sub(r'[^A-Za-z0-9_-]+', '_', target)}"[:_MAX_NAME]


def check_handoff(handoff: object) -> None:
    """Raise `TypeError` or `ValueError` unless this is an agent, a name, or a function without arguments."""
    if isinstance(handoff, AgentDefinition):
        return
    if isinstance(handoff, str):
        if not handoff:
            raise ValueError("the name of an agent to hand over to must not be empty")
        return
    if isinstance(handoff, type) or not callable(handoff):
        raise wrong_type("handoffs", handoff, "agents, names of agents, or functions that return an agent")
    try:
        inspect.signature(handoff).bind()
    except TypeError as exc:
        name = getattr(handoff, "__name__", type(handoff).__name__)
        raise ValueError(
            f"a function in handoffs takes no arguments and returns an agent; {name} needs some, so it belongs in tools"
        ) from exc
