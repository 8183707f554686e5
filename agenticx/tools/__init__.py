"""The public interface of tools: the tool protocol, the permission modes and the toolbox of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names

if TYPE_CHECKING:
    from agenticx.tools.base import Assessment, Risk, Tool, UserQuestion
    from agenticx.tools.context import ToolContext, ToolState
    from agenticx.tools.permissions import PermissionMode, Verdict, decide
    from agenticx.tools.registry import FunctionTool, Toolbox, as_tool, tool

__all__ = [
    "Assessment",
    "FunctionTool",
    "PermissionMode",
    "Risk",
    "Tool",
    "ToolContext",
    "ToolState",
    "Toolbox",
    "UserQuestion",
    "Verdict",
    "as_tool",
    "decide",
    "tool",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agenticx.tools.base": ["Assessment", "Risk", "Tool", "UserQuestion"],
        "agenticx.tools.context": ["ToolContext", "ToolState"],
        "agenticx.tools.permissions": ["PermissionMode", "Verdict", "decide"],
        "agenticx.tools.registry": ["FunctionTool", "Toolbox", "as_tool", "tool"],
    },
)
