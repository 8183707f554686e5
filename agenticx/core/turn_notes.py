"""The notes of a turn: pinned notes, a first search, and checked citations at its end."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from agenticx.core.context_envelope import NOTES_HEAD, ContextEnvelope, GivenPassage
from agenticx.core.prompt_modes import Mode, ModeKind
from agenticx.errors import ToolError
from agenticx.knowledge.citations import check_citations
from agenticx.knowledge.index import VaultIndex
from agenticx.knowledge.parsing import NoteText, Passage
from agenticx.knowledge.passages import (
    NumberedPassage,
    given_number,
    number_passage,
    numbered_passages,
    outdated_line,
    outdated_numbers,
    shown_numbers,
)
from agenticx.knowledge.registry import UnknownVault, VaultRecord, VaultUnreadable
from agenticx.knowledge.search import FoundPassage
from agenticx.knowledge.tools import VaultAccess, note_text, read_passage
from agenticx.knowledge.vault import VaultMissing
from agenticx.knowledge.vaults import Vault
from agenticx.knowledge.words import NOTE_MARK
from agenticx.logs import get_logger
from agenticx.messages import Message, UserMessage
from agenticx.runtime.compactor import without_notes
from agenticx.runtime.session import Session
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible_path

__all__ = ["SessionTurnNotes", "cite_passages"]

_WINDOW_SHARE = 0.4
"""The largest share of the model's window that the notes of this and of earlier turns may fill."""
_RESERVED_CHARS = 16_000
"""The least room that the notes of a turn have: about eight passages."""
_TOKEN_CHARS = 3
_UNKNOWN_WINDOW = 32_000
_MAX_PINNED = 20
_MAX_FOUND = 8
_CITED = re.compile(r"\[\^(\d{1,9})\]")
_CHATTING = "The user is chatting: answer from what you know, and use tools only if that is not enough."
_NOTHING_FOUND = "A first search in the notes found nothing; search with other words, or say that they do not have it."
_NOTHING_SO_FAR = "A first search found nothing in these; search again with note_search, which waits for more of them."
_NO_ROOM = "What a first search in the notes found has no room here; note_search and note_read give it in parts."
_WITHOUT_NOTES = "If the passages do not answer the question, search further, or say that the notes do not have it."

_CANNOT_READ = "The notes of {name!r} cannot be searched now ({reason}); answer without them, and say so."
_INDEX_ERRORS = (UnknownVault, VaultMissing, VaultUnreadable, sqlite3.Error, OSError)
"""The errors of an index or a folder of a vault that cannot be read."""

T = TypeVar("T")

_log = get_logger(__name__)


class SessionTurnNotes:
    """The notes of one turn of a session.

    `access` names the vaults that the session may use, None for no vault. `words` are the person's own words if the
    message has more text. `missing` has the chosen vaults that cannot be used, each with the reason. A vault that
    cannot be read ends no turn: a note for the model and a log line report it.
    """

    def __init__(
        self,
        access: VaultAccess | None,
        mode: Mode,
        *,
        has_citations: bool = True,
        words: str | None = None,
        missing: Mapping[str, str] | None = None,
    ) -> None:
        self._access = access
        self._mode = mode
        self._has_citations = has_citations
        self._words = words
        self._missing = missing or {}
        self._unreadable: dict[str, str] = {}  # names of vaults, with the reason
        self._is_unfinished = False

    @property
    def mode(self) -> ModeKind:
        return self._mode.kind

    @property
    def mode_reason(self) -> str:
        return self._mode.reason

    async def check_indexes(self) -> None:
        """Open the indexes for a turn of mode vault; if none can be read the mode becomes agent, with the reason."""
        if self._mode.kind != "vault":
            return
        self._unreadable |= self._missing
        vaults = await self._list()
        for vault in vaults:
            try:
                await vault.index()
                if vault.report_rebuilt():
                    _log.warning("the index of a vault was damaged or old, and was made anew", vault=vault.record.name)
                await run_in_thread(_check_folder, vault.record.path, name="agx vault")
            except _INDEX_ERRORS as exc:
                self._report_unreadable(vault, exc)
        if not self._has_readable(vaults):
            names = ", ".join(map(repr, self._unreadable))
            problem = f"the notes of {names} cannot be read" if names else "there is no vault"
            self._mode = Mode("agent", f"{self._mode.reason}, but {problem}", certain=False)

    async def begin(self, session: Session, window: int | None) -> None:
        """Pin the notes that the user names, search if the mode is vault, and put the passages before the message."""
        for at in range(len(session.messages) - 1, -1, -1):
            raw = session.messages[at]
            if isinstance(raw, UserMessage) and not raw.injected:
                envelope = await self.make_envelope(session, raw, window)
                if (message := envelope.notes_message()) is not None:
                    session.messages.insert(at, message)
                return

    async def pin(self, session: Session, message: UserMessage, window: int | None) -> None:
        """Put the notes that a message to the running turn names before it."""
        if "[[" not in message.content:
            return
        budget, vaults = _Budget(session, _characters(window)), await self._list()
        pinned, remarks = await self._pinned(session, message.content, vaults, budget)
        pinned = [_with_place(session, one) for one in pinned]
        notes = ContextEnvelope(notes=pinned, left_out=budget.left_out, remarks=remarks).notes_message()
        if notes is not None:
            session.messages.insert(session.messages.index(message), notes)

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the citations of an answer, compared with the notes as they are now."""
        if not self._has_citations or "[^" not in text:
            return ()
        return await cite_passages(session, text, {vault.record.id: vault.record for vault in await self._list()})

    async def make_envelope(self, session: Session, raw: UserMessage, window: int | None) -> ContextEnvelope:
        """Return the context of the turn with the person's message `raw`."""
        budget = _Budget(session, _characters(window))
        vaults = await self._list()
        words = raw.content if self._words is None else self._words
        pinned, remarks = await self._pinned(session, words, vaults, budget)
        smart: list[GivenPassage] = []
        if self._mode.kind == "vault":
            smart = await self._found(session, words, vaults, budget, remarks)
        remarks += await self._changes(session, vaults, pinned, smart, budget)
        remarks += [_CANNOT_READ.format(name=name, reason=reason) for name, reason in self._unreadable.items()]
        if self._mode.kind == "vault" and self._has_readable(vaults):
            nothing_found = _NOTHING_SO_FAR if self._is_unfinished else _NOTHING_FOUND
            without_passages = _NO_ROOM if budget.left_out else nothing_found
            remarks.append(_WITHOUT_NOTES if smart or pinned else without_passages)
        if self._mode.kind == "chat":
            remarks.append(_CHATTING)
        pinned, smart = ([_with_place(session, one) for one in given] for given in (pinned, smart))
        return ContextEnvelope(notes=pinned, smart=smart, raw=raw, left_out=budget.left_out, remarks=remarks)

    async def _list(self) -> Sequence[Vault]:
        """Return the vaults; none if their folder cannot be read, which the log says."""
        try:
            return () if self._access is None else await self._access.list()
        except OSError as exc:
            _log.warning("the vaults cannot be read; the turn goes on without them", error=str(exc))
            return ()

    def _has_readable(self, vaults: Sequence[Vault]) -> bool:
        return any(vault.record.name not in self._unreadable for vault in vaults)

    async def _pinned(
        self, session: Session, text: str, vaults: Sequence[Vault], budget: _Budget
    ) -> tuple[list[GivenPassage], list[str]]:
        """Return the notes that `[[Note]]` in the text names, whole, and remarks on ambiguous and unknown names."""
        given: list[GivenPassage] = []
        remarks: list[str] = []
        for name in list(dict.fromkeys(NOTE_MARK.findall(text)))[:_MAX_PINNED]:
            found = [(vault, path) for vault in vaults for path in await self._call(vault, partial(_paths, name), [])]
            if len(found) > 1:
                remarks.append(f"[[{name}]] is the name of {len(found)} notes; all of them are here.")
            if not found:
                self._unreadable |= self._missing
            if not found and not self._unreadable:
                so_far = " that is indexed so far" if any(vault.state == "indexing" for vault in vaults) else ""
                remarks.append(f"[[{name}]] is the name of no note{so_far}.")
            for vault, path in found:
                whole = await self._call(vault, partial(_whole, path, budget.limit), None)
                if whole is None and vault.record.name in self._unreadable:
                    continue
                if whole is None:
                    remarks.append(f"{path} cannot be read now.")
                    continue
                passage, rest = whole
                if rest is not None:
                    remarks.append(f"{path} {rest} (note_read).")
                given += self._given(session, vault, passage, len(vaults) > 1, budget, is_pinned=True)
        return given, remarks

    async def _call(self, vault: Vault, function: Callable[[VaultIndex], T], otherwise: T) -> T:
        """Return `function` of a vault's index, or `otherwise` if the index or the note cannot be read."""
        if vault.record.name in self._unreadable:
            return otherwise
        try:
            result = await vault.call(function)
        except _INDEX_ERRORS as exc:
            self._report_unreadable(vault, exc)
            return otherwise
        except ToolError as exc:  # the note has just gone, or the folder
            _log.warning("a note cannot be read", vault=vault.record.name, error=str(exc))
            result = otherwise
        if not result and vault.problem is not None:
            self._report_unreadable(vault, vault.problem)
        return result

    def _report_unreadable(self, vault: Vault, error: Exception | str) -> None:
        write = _log.warning if vault.record.path.is_dir() else _log.info  # `agx ask` says that a folder is missing
        write("the notes of a vault cannot be read; the turn goes on", vault=vault.record.name, error=str(error))
        self._unreadable[vault.record.name] = str(error)

    async def _changes(
        self,
        session: Session,
        vaults: Sequence[Vault],
        given_notes: list[GivenPassage],
        smart: Sequence[GivenPassage],
        budget: _Budget,
    ) -> list[str]:
        """Return remarks on passages whose notes have changed; a pinned note is added to `given_notes` again.

        The pinned notes are checked, and the notes whose passages the conversation shows.
        """
        state, remarks = session.state, list[str]()
        pinned: dict[tuple[str, str], list[int]] = {}
        for number, row in enumerate(state.passages, start=1):
            if row.get("pinned"):
                pinned.setdefault((row["vault"], row["path"]), []).append(number)
        given = {one.number for one in (*given_notes, *smart)}
        rows = [state.passages[number - 1] for number in given | _shown_numbers(session)]
        shown = {(row["vault"], row["path"]) for row in rows if "vault" in row}
        by_id = {vault.record.id: vault for vault in vaults}
        for vault_id, path in sorted(pinned.keys() | shown):
            if (vault := by_id.get(vault_id)) is None or vault.record.name in self._unreadable:
                continue
            text = await run_in_thread(note_text, vault.record, path, name="agx vault")
            numbers = pinned.get((vault_id, path), [])
            whole = (
                None
                if text is None or not numbers
                else await self._call(vault, partial(_whole, path, budget.limit), None)
            )
            current = [state.passages[n - 1] for n in numbers if not state.passages[n - 1].get("outdated")]
            old = [n for n in numbers if whole is not None and _differs(state.passages[n - 1], whole[0])]
            for number in old:
                state.passages[number - 1]["outdated"] = True
            if whole is not None and all(row.get("outdated") for row in current):
                given_notes += self._given(session, vault, whole[0], len(vaults) > 1, budget, is_pinned=True)
            elif whole is not None and not any(n in given or _shows(session, n) for n in numbers):  # left out since
                given_notes += self._given(session, vault, whole[0], len(vaults) > 1, budget)
            if outdated := sorted([*old, *outdated_numbers(state, vault_id, path, text)]):
                remarks.append(outdated_line(outdated, path, is_gone=text is None))
        return remarks

    async def _found(
        self, session: Session, text: str, vaults: Sequence[Vault], budget: _Budget, remarks: list[str]
    ) -> list[GivenPassage]:
        """Return the best passages of a first search in all vaults; missing vaults and the like go to `remarks`."""
        found_in: list[tuple[FoundPassage, Vault]] = []
        for vault in vaults:
            if vault.record.name in self._unreadable:
                continue
            try:
                found = await vault.search(text)
            except _INDEX_ERRORS as exc:
                self._report_unreadable(vault, exc)
                continue
            if found.problem is not None and not found.results:
                self._report_unreadable(vault, found.problem)
                continue
            state = found.state
            if state.indexed < state.total:
                self._is_unfinished = True
                searched = f"{state.indexed:,} of {state.total:,} notes were searched so far"
                remarks.append(f"Of the vault {vault.record.name!r}, {searched}; the others are being indexed.")
            notes = (found.problem, found.embedding_note)
            remarks += [f"The notes of {vault.record.name!r}: {note}." for note in notes if note is not None]
            found_in += ((result, vault) for result in found.results)
        found_in.sort(key=lambda row: (-row[0].score, -len(row[0].matched)))
        given = (
            self._given(session, vault, result.passage, len(vaults) > 1, budget)
            for result, vault in found_in[:_MAX_FOUND]
        )
        return [one for passages in given for one in passages]

    def _given(
        self,
        session: Session,
        vault: Vault,
        passage: Passage,
        is_one_of_several: bool,
        budget: _Budget,
        *,
        is_pinned: bool = False,
    ) -> list[GivenPassage]:
        """Return the passage with its number, or nothing if there is no room for it."""
        state = session.state
        number = given_number(state, vault.record.id, passage)
        is_shown = number is not None and _shows(session, number)
        if not is_shown and not budget.take(passage, is_pinned=is_pinned):
            return []
        number = number_passage(state, vault.record.id, passage, vault_name=vault.record.name)
        if is_pinned:
            state.passages[number - 1]["pinned"] = True
        return [GivenPassage(number, passage, vault.record.name if is_one_of_several else None)]


async def cite_passages(session: Session, text: str, vaults: Mapping[str, VaultRecord]) -> Sequence[Mapping[str, Any]]:
    """Return the citations of an answer, compared with the notes of `vaults`, by id, as they are now."""
    return await run_in_thread(_citations, text, numbered_passages(session.state), vaults, name="agx citations")


def _characters(window: int | None) -> int:
    """Return the characters that all notes may fill in a context window."""
    return int((window or _UNKNOWN_WINDOW) * _TOKEN_CHARS * _WINDOW_SHARE)


def _shown_numbers(session: Session) -> set[int]:
    """Return the numbers of the passages whose text the conversation has."""
    texts = (message.content for message in session.messages if message.role != "assistant" and message.sources)
    numbers = {number for text in texts for number in shown_numbers(text)}
    return {number for number in numbers if 0 < number <= len(session.state.passages)}


def _shows(session: Session, number: int) -> bool:
    """Return whether the conversation has the text of a passage."""
    return any(f"[passage {number}: " in message.content for message in session.messages)


def _with_place(session: Session, given: GivenPassage) -> GivenPassage:
    """Return a passage with its text, or by name alone if the conversation still has the text."""
    return replace(given, known=_shows(session, given.number))


class _Budget:
    """The characters that a turn may still add for notes, besides the notes that the conversation has.

    If the notes in the conversation take too much room, the text of the oldest is left out. A note that does not fit is
    named in `left_out`.
    """

    def __init__(self, session: Session, limit: int) -> None:
        self.limit = limit
        self._session = session
        self._left = limit - sum(len(message.content) for message in session.messages if _has_notes(message))
        self.left_out: list[str] = []
        self._make_room(min(limit // 2, _RESERVED_CHARS))

    def take(self, passage: Passage, *, is_pinned: bool = False) -> bool:
        """Reserve room for a passage, or name it in `left_out`; older notes make room for one that a person named."""
        if is_pinned:
            self._make_room(len(passage.text))
        if len(passage.text) > self._left:
            self.left_out.append(f"{passage.path}:{passage.line_start}")
            return False
        self._left -= len(passage.text)
        return True

    def _make_room(self, characters: int) -> None:
        """Leave out the text of the oldest notes until there is enough room or none is left."""
        messages, end = list(self._session.messages), 0
        for index, message in enumerate(messages):
            if self._left >= characters:
                break
            if _has_notes(message):
                self._left += len(message.content)
                end = index + 1
        if end:
            shorter = without_notes(messages, end)
            self._left -= sum(len(message.content) for message in shorter[:end] if _has_notes(message))
            self._session.apply_compaction(messages, end, shorter, end)


def _has_notes(message: Message) -> bool:
    """Return whether a message contains notes that were added in front of a message of the person."""
    return isinstance(message, UserMessage) and message.injected and message.content.startswith(NOTES_HEAD)


def _differs(row: Mapping[str, Any], passage: Passage) -> bool:
    return not row.get("outdated") and row["sha256"] != passage.sha256


def _paths(name: str, index: VaultIndex) -> list[str]:
    return [note.path for note in index.find_notes(name)]


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise VaultMissing(f"the vault's folder {visible_path(str(folder))!r} is missing")


def _whole(path: str, most: int, index: VaultIndex) -> tuple[Passage, str | None]:
    return read_passage(index, path, most=most)


def _citations(
    text: str, numbered: Mapping[int, NumberedPassage], vaults: Mapping[str, VaultRecord]
) -> list[dict[str, Any]]:
    """Return the payloads of citations; blocks.

    A passage with a URL is compared with its text as it was read.
    """

    @cache
    def read(vault: str, path: str) -> str | None:
        return note_text(vaults[vault], path) if vault in vaults else None

    cited = set(map(int, _CITED.findall(text)))
    passages: dict[int, Passage] = {}
    given: dict[str, NumberedPassage] = {}  # by the paths in `passages`, which are one for each note
    for number, one in numbered.items():
        passage, key = one.passage, f"{one.vault or number}:{one.passage.path}"
        if number in cited and not one.whole:
            note = None if one.vault is None else read(one.vault, passage.path)
            restored = None if note is None else NoteText(note).restore(passage)
            passage, key = (passage, f"{number}") if restored is None else (restored, key)
        given[key] = one
        passages[number] = replace(passage, path=key)

    def read_given(key: str) -> str | None:
        one = given[key]
        if key.isdigit():  # a passage without its text cannot be compared
            return None
        return one.passage.text if one.vault is None else read(one.vault, one.passage.path)

    payloads: list[dict[str, Any]] = []
    for checked in check_citations(text, passages, read_given):
        one = given[checked.path]
        if one.vault is None:
            place = {"url": one.passage.path}
        else:
            name = vaults[one.vault].name if one.vault in vaults else one.vault_name or one.vault
            place = {"vault": name, "path": one.passage.path}
        payload: dict[str, Any] = {
            "marker": checked.marker,
            "status": checked.status,
            **place,
            "line_start": checked.line_start,
            "line_end": checked.line_end,
            "quote": checked.quote,
            "quote_line": checked.quote_line,
            "sha256": checked.sha256,
        }
        payloads.append(payload if checked.heading is None else payload | {"heading": checked.heading})
    return payloads
