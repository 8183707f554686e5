"""Handoffs to other participants, and the tools that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agenticx.llms.base import ToolSchema
from agenticx.messages import clean_text
from agenticx.runtime.turn_agent import ToolResult
from agenticx.tools.base import Assessment, ToolContext

__all__ = ["Handoff", "HandoffTool"]


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
        name = self.name or f"handoff_to_{self.target}"
        if not name.isidentifier():
            raise ValueError(f"the name of a handoff must be an identifier, such as 'handoff_to_writer', not {name!r}")
        message = f"Transferred to {self.target}, adopting the role of {self.target} immediately."
        defaults = {"name": name, "description": f"Handoff to {self.target}.", "message": message}
        for field, default in defaults.items():
            object.__setattr__(self, field, getattr(self, field) or default)


class HandoffTool:
    """The tool of a handoff: its call ends the turn. It takes an optional `reason`; other arguments are ignored."""

    read_only = True
    timeout: float | None = None

    def __init__(self, handoff: Handoff) -> None:
        self._message, self._target = handoff.message, handoff.target
        about = f"Why you hand over, and what {handoff.target} needs to know, such as a question to answer."
        parameters = {"type": "object", "properties": {"reason": {"type": "string", "description": about}}}
        self.schema = ToolSchema(handoff.name, handoff.description, parameters)

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        return Assessment(risk="read")

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"reason": clean_text(str(arguments.get("reason") or ""))}

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=self._message, ending="handoff", target=self._target, reason=arguments["reason"])
