"""The verdict about an assessment alone, for tests of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agenticx.permissions import Call, PermissionMode, Verdict
from agenticx.permissions import decide as decide_call
from agenticx.tools import Assessment

__all__ = ["decide"]


def decide(mode: PermissionMode, assessment: Assessment, *, tool: str = "tool", **options: Any) -> Verdict:
    """Return the verdict about a call of a tool with that assessment."""
    return decide_call(mode, Call(tool=tool, assessment=assessment, arguments={}, workspace=Path.cwd()), **options)
