"""What outlives a turn: the conversation's messages and what its tools keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agenticx.errors import SessionBusy
from agenticx.messages import AssistantMessage, Message, clean_text, new_id
from agenticx.tools.base import Snapshots, ToolState
from agenticx.tools.permissions import PermissionMode

__all__ = ["Session"]

_RANDOM_CHARS = 16
"""A provider's id of this length is random and comes only once; the shortest such ones have more than 20."""


@dataclass(slots=True)
class Session:
    """One conversation. The runtime appends to `messages`; only compaction replaces a prefix of them.

    `allowed` holds the digests of calls that the person allowed for the rest of the session. `resumed` says that there
    may have been calls of which `messages` knows nothing any more: compacted, and then the program was started anew.
    `incompressible` is the size, in rows and characters, of a history of which a summary gained nothing: none is asked
    for again before it has grown (`ContextCompactor.has_changed`). `snapshots` keeps what files held that tools
    changed.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    workspace: Path = field(default_factory=Path.cwd)
    permission_mode: PermissionMode = "default"
    messages: list[Message] = field(default_factory=list[Message])
    state: ToolState = field(default_factory=ToolState)
    allowed: set[str] = field(default_factory=set[str])
    resumed: bool = False
    incompressible: tuple[int, int] | None = None
    snapshots: Snapshots | None = None
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
        """A tool-call id that is unique within this session: the provider's if it can be, else one of ours.

        Some providers count: `call_0` of a resumed session may have been given to a call that is forgotten.
        """
        wanted = clean_text(wanted)
        doubtful = wanted in self._call_ids or (self.resumed and len(wanted) < _RANDOM_CHARS)
        chosen = new_id("call") if doubtful or not wanted else wanted
        self._call_ids.add(chosen)
        return chosen
