"""The notes and the memory of a hub's sessions: vaults, opened on first use, and tools for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agenticx.clocks import Clock
from agenticx.core.chain_limits import ChainLimits
from agenticx.core.prompt_modes import Mode, ModeKind, detect_mode
from agenticx.core.session_memory import CURRENT_MEMORY, recent_sessions, session_memory
from agenticx.knowledge.memory import Memory, UserMemory
from agenticx.knowledge.registry import NOTE_TOOLS, VaultRegistry
from agenticx.knowledge.shared_memory import SharedMemory
from agenticx.logs import get_logger
from agenticx.messages import UserMessage
from agenticx.runtime.session import Session
from agenticx.sessions.hub.session_fields import derive_name
from agenticx.sessions.hub.turn_services import NoteTurn
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.hosts import this_host
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.builtin.images import IMAGE_TOOLS
from agenticx.tools.registry import Toolbox

if TYPE_CHECKING:
    from agenticx.knowledge import Vaults

__all__ = ["OPTIONAL_TOOLS", "SessionNotes"]

OPTIONAL_TOOLS = NOTE_TOOLS | IMAGE_TOOLS
"""Tools that a session or a setting may name although they are not offered, without a vault or an image model."""

T = TypeVar("T")

_KEPT_SESSIONS = 1_000

_log = get_logger(__name__)


class SessionNotes:
    """The vaults and the memory in AGX_HOME for the sessions of one hub, on one event loop.

    Workers of a store with shared state have one memory, in that state. The parser and the indexes are imported and
    opened only once there is a vault.
    """

    def __init__(self, settings: Settings, clock: Clock, store: Store) -> None:
        self.memory: Memory = UserMemory(settings.home) if store.shared is None else SharedMemory(store.shared)
        self._catalog = store.catalog
        self._recent: dict[str, Sequence[SessionRecord]] = {}
        self._settings = settings
        self._home = settings.home
        self._clock = clock
        self._worker = this_host() if store.log.is_shared else None
        self._registry = VaultRegistry(settings.home)
        self._vaults: Vaults | None = None
        self._modes: dict[str, Mode] = {}

    @property
    def vaults(self) -> Vaults:
        """The vaults."""
        if self._vaults is None:
            from agenticx.knowledge import Vaults

            self._vaults = Vaults(
                self._home,
                clock=self._clock,
                embedding_model=self._settings.embedding_model,
                worker=self._worker,
            )
        return self._vaults

    def with_tools(self, toolbox: Toolbox) -> Toolbox:
        """Return the tools, with tools for notes if there is a vault; an application's tool of the same name stays."""
        if not self._registry.has_vaults():
            return toolbox
        from agenticx.knowledge.tools import session_note_tools

        return Toolbox([*toolbox, *(tool for tool in session_note_tools() if tool.schema.name not in toolbox)])

    def tools_of(self, record: SessionRecord, toolbox: Toolbox) -> Sequence[Tool]:
        """Return the tools of a session: all, or the tools in its record; raises `ToolError` for unknown names."""
        available = self.with_tools(toolbox)
        if record.tools is None:
            return tuple(available)
        return tuple(available.only(name for name in record.tools if name in available or name not in OPTIONAL_TOOLS))

    async def enter(self, record: SessionRecord, turn: TurnRecord) -> NoteTurn | None:
        """Let the tools for notes and memory find the notes of the current turn, and return these notes.

        A turn for which the user has chosen the mode vault has the limits of an `AgentChainRunner`. Without vaults,
        passages that tools read elsewhere can be cited.
        """
        recent = await self._recent_sessions(record)
        named = record if record.name is not None else replace(record, name=derive_name(turn.input))  # as it will be
        CURRENT_MEMORY.set(await session_memory(named, self.memory, self._clock, self._catalog, recent))
        elsewhere = NoteTurn(_ForeignPassages()) if self._settings.enable_inline_citations else None
        chosen = record.vaults if turn.vaults is None else turn.vaults
        needs_vault = bool(chosen) or turn.mode == "vault"
        if not (self._registry.has_vaults() or needs_vault):
            return elsewhere
        from agenticx.core.turn_notes import SessionTurnNotes
        from agenticx.knowledge.tools import CURRENT_VAULTS, VaultAccess

        access = VaultAccess(self.vaults, chosen)
        CURRENT_VAULTS.set(access)
        try:
            vaults = await access.list()
        except OSError as exc:
            _log.warning("the vaults cannot be read; the turn goes on without them", error=str(exc))
            return elsewhere
        if not (vaults or needs_vault):
            return elsewhere
        here = {vault.record.id for vault in vaults}
        missing = {id_: self._missing_reason for id_ in chosen or () if id_ not in here}
        if missing:
            _log.warning("vaults of the session are not here; the turn goes on without them", vaults=[*missing])
        if turn.mode is not None:
            mode = Mode(cast("ModeKind", turn.mode), "the user chose it", certain=True)
        else:
            before, tools = self._modes.get(record.id), ("any",)
            mode = await run_in_thread(
                partial(detect_mode, turn.input, vaults=True, tools=tools, previous=before), name="agx mode"
            )
        self._remember(record.id, mode)
        has_citations = self._settings.enable_inline_citations
        notes = SessionTurnNotes(access, mode, has_citations=has_citations, missing=missing)
        await notes.check_indexes()
        if turn.mode != "vault":
            return NoteTurn(notes)
        limits = ChainLimits.from_settings(self._settings)
        return NoteTurn(
            notes,
            max_rounds=limits.max_rounds,
            turn_seconds=limits.turn_seconds,
            on_exhausted=limits.on_exhausted,
            enabled=limits.enabled,
        )

    @property
    def _missing_reason(self) -> str:
        if self._worker is None:
            return "there is no vault with this id any more"
        return f"the worker on {self._worker!r} has no vault with this id; each worker has vaults of its own"

    def _remember(self, session_id: str, mode: Mode) -> None:
        """Keep the mode for a next prompt that continues this one; the 1,000 sessions used last have one."""
        _keep_last(self._modes, session_id, mode)

    async def _recent_sessions(self, record: SessionRecord) -> Sequence[SessionRecord]:
        """Return the sessions that the system prompt names, the same in all turns of a session."""
        if not (count := self._settings.recent_conversations):
            return ()
        found = self._recent.get(record.id)
        if found is None:
            found = await recent_sessions(self._catalog, record, count)
        _keep_last(self._recent, record.id, found)
        return found

    async def folders(self) -> Collection[Path]:
        """Return the folders of all vaults."""
        if not self._registry.has_vaults():
            return ()
        return [record.path for record in await run_in_thread(self._registry.list, name="agx vaults")]

    async def close(self) -> None:
        """Close the indexes."""
        if self._vaults is not None:
            await self._vaults.close()


class _ForeignPassages:
    """The notes of a turn without vaults: passages that tools read elsewhere are cited."""

    mode = None
    mode_reason = ""

    async def begin(self, session: Session, window: int | None) -> None:
        """Do nothing: there are no notes."""

    async def pin(self, session: Session, message: UserMessage, window: int | None) -> None:
        """Do nothing: there are no notes."""

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the citations of an answer."""
        if "[^" not in text or not session.state.passages:
            return ()
        from agenticx.core.turn_notes import cite_passages

        return await cite_passages(session, text, {})


def _keep_last(kept: dict[str, T], session_id: str, value: T) -> None:
    """Keep a value for the session, and drop the values of all but the 1,000 sessions used last."""
    kept.pop(session_id, None)
    kept[session_id] = value
    while len(kept) > _KEPT_SESSIONS:
        del kept[next(iter(kept))]
