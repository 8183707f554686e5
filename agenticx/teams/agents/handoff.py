"""Handoffs to other participants, and the tools that make them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from agenticx.argument_types import check_str
from agenticx.call_errors import explain_calls
from agenticx.core.handoff_tools import HandoffTool, handoff_message
from agenticx.runtime.turn_agent import ToolResult

__all__ = ["Handoff", "handoff_tool"]


@explain_calls
@dataclass(frozen=True)
class Handoff:
    """A participant's way to give control to `target`, as a tool that its model may call.

    The default `name` is `handoff_to_TARGET`. `message` is the content of the `HandoffMessage`. Raises ValueError for a
    name that is no identifier. The `reason` that the model gives is in the message's metadata and in what the target
    reads.
    """

    target: str
    description: str = ""
    name: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_str(field.name, getattr(self, field.name))
        name = self.name or f"handoff_to_{self.target}"
        if not name.isidentifier():
            raise ValueError(f"the name of a handoff must be an identifier, such as 'handoff_to_writer', not {name!r}")
        message = handoff_message(self.target)
        defaults = {"name": name, "description": f"Handoff to {self.target}.", "message": message}
        for option, default in defaults.items():
            object.__setattr__(self, option, getattr(self, option) or default)


def handoff_tool(handoff: Handoff) -> HandoffTool:
    """Return the tool of a handoff to another participant, whose call ends the turn."""

    async def hand_over(reason: str) -> ToolResult:
        return ToolResult(text=handoff.message, ending="handoff", target=handoff.target, reason=reason)

    return HandoffTool(handoff.name, handoff.description, handoff.target, hand_over)
