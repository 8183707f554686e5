"""What an agent can do: tools, what they are allowed, and the box a turn takes them from."""

from agenticx.tools.base import Assessment, Risk, Tool, ToolContext, ToolState
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
    "Verdict",
    "as_tool",
    "decide",
    "tool",
]
