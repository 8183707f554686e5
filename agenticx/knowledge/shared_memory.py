"""The memory of a user in the shared state of several workers, encrypted there."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict

from agenticx.errors import SettingsError, StoreError
from agenticx.knowledge.memory import (
    MemoryEntry,
    MemoryUnusable,
    check_room,
    checked_text,
    search_entries,
    unknown_entry,
)
from agenticx.messages import new_id
from agenticx.shared_state.state import SharedState

__all__ = ["SharedMemory"]

_ID = re.compile(r"mem_[0-9a-f]+")
_PREFIX = "memory/"


class SharedMemory:
    """A `Memory` of all workers, oldest entries first; without AGX_SECRET_FILE there is none.

    Two workers that save at once can exceed the limit by an entry, or both save the same text.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def exists(self) -> bool:
        return self._shared.has_secret

    def list(self) -> list[MemoryEntry]:
        with _unusable_errors():
            secret = self._shared.secret
            entries = [
                MemoryEntry(**json.loads(secret.unseal(name, sealed)))
                for name, sealed in self._shared.values.items(_PREFIX).items()
            ]
        return sorted(entries, key=lambda entry: (entry.saved_at, entry.id))

    def check_room(self) -> None:
        """Do nothing: `save` checks it, and this may be called on the event loop."""

    def save(self, text: str, *, saved_at: str, session_id: str = "") -> tuple[MemoryEntry, bool]:
        text, entries = checked_text(text), self.list()
        if (known := next((entry for entry in entries if entry.text == text), None)) is not None:
            return known, False
        check_room(entries)
        entry = MemoryEntry(new_id("mem"), text, saved_at, session_id)
        name = _PREFIX + entry.id
        with _unusable_errors():
            self._shared.values.put(name, self._shared.secret.seal(name, json.dumps(asdict(entry)).encode()))
        return entry, True

    def remove(self, entry_id: str) -> MemoryEntry:
        name = _PREFIX + entry_id
        with _unusable_errors():
            sealed = self._shared.values.take(name) if _ID.fullmatch(entry_id) else None
            if sealed is None:
                raise unknown_entry(entry_id)
            return MemoryEntry(**json.loads(self._shared.secret.unseal(name, sealed)))

    def search(self, query: str, *, limit: int = 10) -> list[MemoryEntry]:
        return search_entries(self.list(), query, limit=limit)


@contextmanager
def _unusable_errors() -> Generator[None]:
    try:
        yield
    except (SettingsError, StoreError) as exc:
        raise MemoryUnusable(f"the memory cannot be used: {exc}") from exc
