"""Calls as rules see them, made of a tool and its arguments; nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agenticx.permissions.rules import Call
from agenticx.runtime.user_requests.confirm_digest import confirm_digest, jsonable
from agenticx.sandbox.options import sandbox_options
from agenticx.settings import Settings
from agenticx.tools.base import Tool
from agenticx.tools.context import ToolContext

__all__ = ["describe_call"]


def describe_call(tool: Tool, arguments: Mapping[str, Any], workspace: Path, settings: Settings) -> Call:
    """Return the call of a tool in a workspace.

    Raises `InvalidArguments`, and `ToolError` for a call that the tool itself refuses.
    """
    context = ToolContext(
        workspace=workspace, protected_roots=settings.private_paths, sandbox=sandbox_options(settings)
    )
    valid = tool.validate(arguments)
    assessment = tool.assess(valid, context)
    name, plain = tool.schema.name, jsonable(valid)
    return Call(
        tool=name,
        assessment=assessment,
        arguments=plain,
        workspace=workspace.resolve(),
        digest=confirm_digest(name, plain, assessment.binding),
    )
