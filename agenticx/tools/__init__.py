"""The public interface of tools: the tool protocol and the toolbox of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.tools.base import Assessment, Risk, Tool, ToolOutput, UserQuestion
    from agenticx.tools.context import ToolContext, ToolState
    from agenticx.tools.registry import FunctionTool, Toolbox, as_tool, tool

__all__ = [
    "Assessment",
    "FunctionTool",
    "Risk",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolState",
    "Toolbox",
    "UserQuestion",
    "as_tool",
    "tool",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.tools.base": ["Assessment", "Risk", "Tool", "ToolOutput", "UserQuestion"],
        "agenticx.tools.context": ["ToolContext", "ToolState"],
        "agenticx.tools.registry": ["FunctionTool", "Toolbox", "as_tool", "tool"],
    },
)
