"""The memory of a user: short texts that all sessions are given, kept in one file below AGX_HOME.

1. The file has one JSON object per line. Each change writes a new file and renames it over the old one: a reader sees
   all of a change or none of it, and nothing of a removed entry is left.
2. Writers of several processes take turns by a lock on a second file; readers need no lock.
3. Texts have no control or invisible characters: what a user agrees to is what models are given.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from agenticx.errors import AgenticXError, InvalidArguments, ToolError, error_text
from agenticx.knowledge.words import index_text, query_words
from agenticx.messages import clean_text, new_id
from agenticx.private_files import acquire_lock, read_regular_file, replace_file
from agenticx.tools.visible import visible
from agenticx.untrusted_text import without_controls

__all__ = [
    "MAX_ENTRIES",
    "MAX_ENTRY_CHARS",
    "Memory",
    "MemoryEntry",
    "MemoryUnusable",
    "UnknownMemory",
    "UserMemory",
    "check_room",
    "checked_text",
    "search_entries",
    "unknown_entry",
]

MAX_ENTRIES = 500
MAX_ENTRY_CHARS = 2_000

_FILE = "memory.jsonl"
_MAX_FILE_BYTES = 16_000_000
_LOCK_SECONDS = 5.0
_REMOVING = "`agx memory remove ID`"


class MemoryUnusable(ToolError):
    """A memory that is full, damaged or cannot be read or written; the message says what would be right."""


class UnknownMemory(AgenticXError):
    """An id of no entry."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A text that the user agreed to keep; `saved_at` as RFC 3339, `session_id` where it was saved."""

    id: str
    text: str
    saved_at: str
    session_id: str = ""


def checked_text(text: str) -> str:
    """Return a text as it is kept, without control and invisible characters; raises `InvalidArguments`.

    >>> checked_text(" Prefers tea.\\x1b ")
    'Prefers tea.'
    """
    kept = without_controls(clean_text(text))[0].strip()
    if len(kept) > MAX_ENTRY_CHARS:
        raise InvalidArguments(
            f"the text has {len(kept):,} characters; an entry of the memory has at most {MAX_ENTRY_CHARS:,}: shorten it"
        )
    if not kept:
        raise InvalidArguments("the text is empty, or has invisible characters only; give a sentence to remember")
    return kept


class Memory(Protocol):
    """The memory of a user, oldest entries first. All methods block; all but `exists` raise `MemoryUnusable`."""

    def exists(self) -> bool:
        """Return whether there may be an entry; takes no time worth mentioning."""
        ...

    def list(self) -> list[MemoryEntry]:
        """Return all entries."""
        ...

    def check_room(self) -> None:
        """Raise `MemoryUnusable` if no entry can be added, as far as that is known at once."""
        ...

    def save(self, text: str, *, saved_at: str, session_id: str = "") -> tuple[MemoryEntry, bool]:
        """Add a text and return its entry with True, or, if it is there already, that entry with False.

        Raises `InvalidArguments` for a text that cannot be kept.
        """
        ...

    def remove(self, entry_id: str) -> MemoryEntry:
        """Remove the entry of that id and return it; raises `UnknownMemory`."""
        ...

    def search(self, query: str, *, limit: int = 10) -> list[MemoryEntry]:
        """Return the entries that have words of the query, or words that begin so; those with most words first."""
        ...


class UserMemory:
    """A `Memory` in a file below AGX_HOME."""

    def __init__(self, home: Path) -> None:
        self._file = home / _FILE

    def exists(self) -> bool:
        return os.path.lexists(self._file)

    def list(self) -> list[MemoryEntry]:
        try:
            content = read_regular_file(self._file, _MAX_FILE_BYTES)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise MemoryUnusable(f"the memory {self._shown} cannot be read: {error_text(exc)}") from exc
        lines = content.split(b"\n")
        entries = [self._parse(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
        if len({entry.id for entry in entries}) < len(entries):
            raise self._damaged("two entries have the same id")
        return entries

    def check_room(self) -> None:
        check_room(self.list())

    def save(self, text: str, *, saved_at: str, session_id: str = "") -> tuple[MemoryEntry, bool]:
        text = checked_text(text)
        with self._locked():
            entries = self.list()
            for entry in entries:
                if entry.text == text:
                    return entry, False
            check_room(entries)
            entry = MemoryEntry(new_id("mem"), text, saved_at, session_id)
            self._write([*entries, entry])
        return entry, True

    def remove(self, entry_id: str) -> MemoryEntry:
        """Remove the entry with this id, so that the file has nothing of it, and return it."""
        with self._locked():
            entries = self.list()
            removed = next((entry for entry in entries if entry.id == entry_id), None)
            if removed is None:
                raise unknown_entry(entry_id)
            self._write([entry for entry in entries if entry is not removed])
        return removed

    def search(self, query: str, *, limit: int = 10) -> list[MemoryEntry]:
        return search_entries(self.list(), query, limit=limit)

    # --- the file -----------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> str:
        return repr(visible(str(self._file)))

    def _damaged(self, problem: str) -> MemoryUnusable:
        return MemoryUnusable(f"the memory {self._shown} is damaged: {problem}; repair that line, or delete the file")

    def _parse(self, number: int, line: bytes) -> MemoryEntry:
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            raise self._damaged(f"line {number} is no JSON") from None  # the cause would have the text
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        match fields:
            case {"id": str(id_), "text": str(text), "saved_at": str(saved_at), "session_id": str(session_id)}:
                return MemoryEntry(id_, clean_text(text), saved_at, session_id)
            case _:
                raise self._damaged(f"line {number} is no entry with id, text, saved_at and session_id")

    def _write(self, entries: Sequence[MemoryEntry]) -> None:
        content = "".join(f"{json.dumps(asdict(entry), ensure_ascii=False)}\n" for entry in entries)
        try:
            replace_file(self._file, content.encode(), self._file.with_name(f".{_FILE}.new"))
        except OSError as exc:
            raise self._unwritable(exc) from exc

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            descriptor = acquire_lock(self._file.with_name(f"{_FILE}.lock"), _LOCK_SECONDS)
        except OSError as exc:
            raise self._unwritable(exc) from exc
        if descriptor is None:
            raise MemoryUnusable(
                f"the memory {self._shown} is being changed by another process for {_LOCK_SECONDS:g} seconds;"
                " try again once that has ended"
            )
        try:
            yield
        finally:
            os.close(descriptor)

    def _unwritable(self, error: OSError) -> MemoryUnusable:
        return MemoryUnusable(f"the memory {self._shown} cannot be written: {error_text(error)}")


def search_entries(entries: Sequence[MemoryEntry], query: str, *, limit: int = 10) -> list[MemoryEntry]:
    """Return the entries that have words of the query, or words that begin so; those with most words first."""
    wanted = query_words(_without_accents(query))
    scored: list[tuple[int, int, MemoryEntry]] = []
    for place, entry in enumerate(entries):
        words = "".join(sign if sign.isalnum() else " " for sign in index_text(_without_accents(entry.text)).lower())
        padded = f" {words}"
        if score := sum(f" {word}" in padded for word in wanted):
            scored.append((-score, -place, entry))
    return [entry for _, _, entry in sorted(scored, key=lambda row: row[:2])[:limit]]


def unknown_entry(entry_id: str) -> UnknownMemory:
    """Return the error for an id that no entry has."""
    return UnknownMemory(
        f"the memory has no entry {visible(entry_id[:100])!r}; `agx memory list` shows those that it has"
    )


def check_room(entries: Sequence[MemoryEntry]) -> None:
    """Raise `MemoryUnusable` if no entry can be added to these."""
    if len(entries) >= MAX_ENTRIES:
        raise MemoryUnusable(
            f"the memory is full: it has {len(entries):,} entries of at most {MAX_ENTRIES:,}; the user can remove some"
            f" with {_REMOVING}"
        )


def _without_accents(text: str) -> str:
    """Return text without case and accents."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(sign for sign in parts if unicodedata.category(sign) != "Mn"))
