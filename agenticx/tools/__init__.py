"""The public interface of tools: the tool protocol, the permission modes and the toolbox of a turn."""

from agenticx.tools.base import Assessment, Risk, Tool, ToolContext, ToolState, UserQuestion
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
