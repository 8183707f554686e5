"""What outlives a turn: the conversation's messages and what its tools keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agenticx.errors import SessionBusy
from agenticx.messages import AssistantMessage, Message, clean_text, new_id
from agenticx.tools.base import ToolState
from agenticx.tools.permissions import PermissionMode

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """One conversation. The runtime appends to `messages`; only compaction replaces a prefix of them.

    `allowed` holds the digests of calls that the person allowed for the rest of the session.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    workspace: Path = field(default_factory=Path.cwd)
    permission_mode: PermissionMode = "default"
    messages: list[Message] = field(default_factory=list[Message])
    state: ToolState = field(default_factory=ToolState)
    allowed: set[str] = field(default_factory=set[str])
    _running: object = field(default=None, init=False, repr=False)
    _call_ids: set[str] = field(default_factory=set[str], repr=False)

    def __post_init__(self) -> None:
        for message in self.messages:
            if isinstance(message, AssistantMessage):
                self._call_ids.update(call.id for call in message.tool_calls)

    def begin_turn(self, turn: object) -> None:
        """One turn at a time: raises `SessionBusy` while another runs."""
        if self._running is not None:
            raise SessionBusy(f"session {self.id!r} already runs a turn; wait for its terminal event")
        self._running = turn

    def end_turn(self, turn: object) -> None:
        """Free the session if it is `turn` that runs; a late clean-up of an earlier one changes nothing."""
        if self._running is turn:
            self._running = None

    def call_id(self, wanted: str) -> str:
        """A tool-call id that is unique within this session: the provider's if it can be, else one of ours."""
        wanted = clean_text(wanted)
        chosen = wanted if wanted and wanted not in self._call_ids else new_id("call")
        self._call_ids.add(chosen)
        return chosen
