"""What outlives a turn: the conversation's messages and what its tools keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agenticx.messages import Message, new_id
from agenticx.tools.base import ToolState
from agenticx.tools.permissions import PermissionMode

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """One conversation. The runtime appends to `messages`; only compaction replaces a prefix of them.

    `allowed` holds the digests of calls the person allowed for the rest of the session.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    workspace: Path = field(default_factory=Path.cwd)
    permission_mode: PermissionMode = "default"
    messages: list[Message] = field(default_factory=list[Message])
    state: ToolState = field(default_factory=ToolState)
    allowed: set[str] = field(default_factory=set[str])
