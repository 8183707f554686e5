"""The notes of a turn: pinned notes, a first search, and checked citations at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agenticx.core.context import ContextEnvelope, GivenPassage
from agenticx.core.modes import Mode, ModeKind
from agenticx.errors import ToolError
from agenticx.knowledge.citations import check_citations
from agenticx.knowledge.index import VaultIndex
from agenticx.knowledge.parsing import Passage
from agenticx.knowledge.passages import number_passage, numbered_passages
from agenticx.knowledge.tools import VaultAccess, read_passage
from agenticx.knowledge.vaults import Vault
from agenticx.logs import get_logger
from agenticx.messages import UserMessage
from agenticx.runtime.session import Session
from agenticx.threads import run_in_thread

__all__ = ["SessionTurnNotes"]

_WINDOW_SHARE = 0.4
"""The largest share of the model's window that notes may fill."""
_TOKEN_CHARS = 3
_UNKNOWN_WINDOW = 32_000
_MAX_PINNED = 20
_NOTE_MARK = re.compile(r"\[\[([^\[\]\n|#]{1,400})[^\[\]\n]{0,400}\]\]")
_CHATTING = "The user is chatting: answer from what you know, and use tools only if that is not enough."
_NOTHING_FOUND = "A first search in the notes found nothing; search with other words, or say that they do not have it."
_WITHOUT_NOTES = "If the passages do not answer the question, search further, or say that the notes do not have it."

_log = get_logger(__name__)


class SessionTurnNotes:
    """The notes of one turn of a session, whose `access` says which vaults it may use."""

    def __init__(self, access: VaultAccess, mode: Mode, *, has_citations: bool = True) -> None:
        self._access = access
        self._mode = mode
        self._has_citations = has_citations

    @property
    def mode(self) -> ModeKind:
        return self._mode.kind

    @property
    def mode_reason(self) -> str:
        return self._mode.reason

    async def begin(self, session: Session, window: int | None) -> None:
        """Pin the notes that the user names, search if the mode is vault, and put the passages before the message."""
        for at in range(len(session.messages) - 1, -1, -1):
            raw = session.messages[at]
            if isinstance(raw, UserMessage) and not raw.injected:
                envelope = await self._envelope(session, raw, window)
                if (message := envelope.notes_message()) is not None:
                    session.messages.insert(at, message)
                return

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the citations of an answer, compared with the notes as they are now."""
        if not self._has_citations or "[^" not in text:
            return ()
        numbered = numbered_passages(session.state)
        vaults = {vault.record.id: vault for vault in await self._access.list()}
        indexes = {vault_id: await vault.index() for vault_id, vault in vaults.items()}
        return await run_in_thread(_citations, text, numbered, indexes, vaults, name="agx citations")

    async def _envelope(self, session: Session, raw: UserMessage, window: int | None) -> ContextEnvelope:
        budget = _Budget(int((window or _UNKNOWN_WINDOW) * _TOKEN_CHARS * _WINDOW_SHARE))
        vaults = await self._access.list()
        pinned, remarks = await self._pinned(session, raw.content, vaults, budget)
        smart: list[GivenPassage] = []
        if self._mode.kind == "vault":
            smart = await self._found(session, raw.content, vaults, budget)
            remarks.append(_WITHOUT_NOTES if smart or pinned else _NOTHING_FOUND)
        if self._mode.kind == "chat":
            remarks.append(_CHATTING)
        return ContextEnvelope(notes=pinned, smart=smart, raw=raw, left_out=budget.left_out, remarks=remarks)

    async def _pinned(
        self, session: Session, text: str, vaults: Sequence[Vault], budget: _Budget
    ) -> tuple[list[GivenPassage], list[str]]:
        """Return the notes that `[[Note]]` in the text names, whole, and remarks on names of several notes or none."""
        given: list[GivenPassage] = []
        remarks: list[str] = []
        for name in list(dict.fromkeys(_NOTE_MARK.findall(text)))[:_MAX_PINNED]:
            found = [(vault, path) for vault in vaults for path in await vault.call(partial(_paths, name))]
            if len(found) > 1:
                remarks.append(f"[[{name}]] is the name of {len(found)} notes; all of them are here.")
            if not found:
                remarks.append(f"[[{name}]] is the name of no note.")
            for vault, path in found:
                passage, is_cut = await vault.call(partial(_whole, path))
                if is_cut:
                    remarks.append(f"{path} is longer than what is here; note_read has its sections.")
                given += self._given(session, vault, passage, len(vaults) > 1, budget)
        return given, remarks

    async def _found(self, session: Session, text: str, vaults: Sequence[Vault], budget: _Budget) -> list[GivenPassage]:
        given: list[GivenPassage] = []
        for vault in vaults:
            found = await vault.search(text)
            if found.problem is not None:
                _log.warning("a vault cannot be read; its last state is used", vault=vault.record.name)
            for result in found.results:
                given += self._given(session, vault, result.passage, len(vaults) > 1, budget)
        return given

    def _given(
        self, session: Session, vault: Vault, passage: Passage, is_one_of_several: bool, budget: _Budget
    ) -> list[GivenPassage]:
        """Return the passage with its number, or nothing if there is no room for it."""
        state, before = session.state, len(session.state.passages)
        if not budget.take(passage):
            return []
        number = number_passage(state, vault.record.id, passage)
        known = number <= before and any(f"[passage {number}: " in message.content for message in session.messages)
        return [GivenPassage(number, passage, vault.record.name if is_one_of_several else None, known)]


class _Budget:
    """The characters that are left for notes; what does not fit is named in `left_out`."""

    def __init__(self, characters: int) -> None:
        self._left = characters
        self.left_out: list[str] = []

    def take(self, passage: Passage) -> bool:
        if len(passage.text) > self._left:
            self.left_out.append(f"{passage.path}:{passage.line_start}")
            return False
        self._left -= len(passage.text)
        return True


def _paths(name: str, index: VaultIndex) -> list[str]:
    return [note.path for note in index.find_notes(name)]


def _whole(path: str, index: VaultIndex) -> tuple[Passage, bool]:
    return read_passage(index, path, None)


def _citations(
    text: str,
    numbered: Mapping[int, tuple[str, Passage]],
    indexes: Mapping[str, VaultIndex],
    vaults: Mapping[str, Vault],
) -> list[dict[str, Any]]:
    """Return the payloads of citations; blocks."""
    passages = {
        number: replace(passage, path=f"{vault_id}:{passage.path}") for number, (vault_id, passage) in numbered.items()
    }

    def read(place: str) -> str | None:
        vault_id, _, path = place.partition(":")
        try:
            return indexes[vault_id].read(path).text
        except (KeyError, ToolError):  # the vault was removed, or the note
            return None

    payloads: list[dict[str, Any]] = []
    for cited in check_citations(text, passages, read):
        vault_id, _, path = cited.path.partition(":")
        payload: dict[str, Any] = {
            "marker": cited.marker,
            "status": cited.status,
            "vault": vaults[vault_id].record.name if vault_id in vaults else vault_id,
            "path": path,
            "line_start": cited.line_start,
            "line_end": cited.line_end,
            "quote": cited.quote,
            "sha256": cited.sha256,
        }
        payloads.append(payload if cited.heading is None else payload | {"heading": cited.heading})
    return payloads
