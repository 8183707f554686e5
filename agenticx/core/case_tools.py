"""The two tools with which an agent ends a run: list them in its `tools`."""

from __future__ import annotations

from collections.abc import Mapping

from agenticx.runtime.turn_agent import EndReason, ToolResult
from agenticx.tools.registry import tool

__all__ = ["ENDINGS_BY_NAME", "case_not_resolved", "case_resolved"]

ENDINGS_BY_NAME: Mapping[str, EndReason] = {"case_not_resolved": "not_resolved", "case_resolved": "resolved"}
"""The reason of `final` for each of the tools."""


@tool(risk="read")
def case_resolved(result: str = "") -> ToolResult:
    """End the work on the case, because it is resolved.

    Args:
        result: The result of the work, for the user.
    """
    return ToolResult(text=f"The case is resolved. {result}".rstrip(), ending="resolved", answer=result)


@tool(risk="read")
def case_not_resolved(reason: str = "") -> ToolResult:
    """End the work on the case, because it cannot be resolved; use this only when everything else was tried.

    Args:
        reason: What was tried, and why it does not suffice, for the user.
    """
    return ToolResult(text=f"The case is not resolved. {reason}".rstrip(), ending="not_resolved", answer=reason)
