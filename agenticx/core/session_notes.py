"""The notes of a hub's sessions: their vaults, opened on first use, and the tools for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agenticx.clocks import Clock
from agenticx.knowledge.registry import NOTE_TOOLS, VaultRegistry
from agenticx.sessions.store.records import SessionRecord
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

if TYPE_CHECKING:
    from agenticx.knowledge import Vaults

__all__ = ["SessionNotes"]


class SessionNotes:
    """The vaults below AGX_HOME for the sessions of one hub, on one event loop.

    The parser and the indexes are imported and opened only once there is a vault.
    """

    def __init__(self, home: Path, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._registry = VaultRegistry(home)
        self._vaults: Vaults | None = None

    @property
    def vaults(self) -> Vaults:
        """The vaults."""
        if self._vaults is None:
            from agenticx.knowledge import Vaults

            self._vaults = Vaults(self._home, clock=self._clock)
        return self._vaults

    def with_tools(self, toolbox: Toolbox) -> Toolbox:
        """Return the tools with those for notes, while there is a vault; one of the application takes precedence."""
        if not self._registry.has_vaults():
            return toolbox
        from agenticx.knowledge.tools import session_note_tools

        return Toolbox([*toolbox, *(tool for tool in session_note_tools() if tool.schema.name not in toolbox)])

    def tools_of(self, record: SessionRecord, toolbox: Toolbox) -> Sequence[Tool]:
        """Return the tools of a session: all, or those that its record names; raises `ToolError` for unknown names."""
        available = self.with_tools(toolbox)
        if record.tools is None:
            return tuple(available)
        return tuple(available.only(name for name in record.tools if name in available or name not in NOTE_TOOLS))

    def enter(self, record: SessionRecord) -> None:
        """Let the tools for notes find the vaults of a session, in whose turn the caller runs."""
        if self._registry.has_vaults():
            from agenticx.knowledge.tools import CURRENT_VAULTS, VaultAccess

            CURRENT_VAULTS.set(VaultAccess(self.vaults, record.vaults))

    async def close(self) -> None:
        """Close the indexes."""
        if self._vaults is not None:
            await self._vaults.close()
