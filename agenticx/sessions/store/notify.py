"""Wake-up of log readers after each commit."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager

__all__ = ["Notifier"]

_MAX_IMMEDIATE_READERS = 50
_DELAY_SECONDS_PER_READER = 50e-6
_MAX_DELAY_SECONDS = 0.025
"""Up to 50 readers are woken at each commit. More readers are woken with a delay of 50 µs per reader, at most 25 ms:
waking a reader costs about 20 µs, however many events it then reads."""


class Notifier:
    """A notifier that sets the `asyncio.Event` of each reader of a session, or of all sessions, after a commit."""

    def __init__(self) -> None:
        self._readers: dict[str | None, set[asyncio.Event]] = {}
        self._delayed: set[str | None] = set()

    @contextmanager
    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> Generator[None]:
        """Subscribe `wakeup` to a session, or to all sessions (None), while the block runs."""
        readers = self._readers.setdefault(session_id, set())
        readers.add(wakeup)
        try:
            yield
        finally:
            readers.discard(wakeup)
            if not readers and self._readers.get(session_id) is readers:
                del self._readers[session_id]

    def notify(self, session_id: str) -> None:
        """Wake the readers of `session_id` and of all sessions: at once if they are few, else within 25 ms."""
        self._notify(session_id)
        self._notify(None)

    def notify_of_any(self) -> None:
        """Wake the readers of all sessions, for an event of one that is not known here."""
        self._notify(None)

    def _notify(self, key: str | None) -> None:
        readers = self._readers.get(key)
        if readers is None:
            return
        if len(readers) <= _MAX_IMMEDIATE_READERS:
            _set_all(readers)
        elif key not in self._delayed:
            self._delayed.add(key)
            pause = min(_MAX_DELAY_SECONDS, len(readers) * _DELAY_SECONDS_PER_READER)
            asyncio.get_running_loop().call_later(pause, self._notify_delayed, key)

    def _notify_delayed(self, key: str | None) -> None:
        self._delayed.discard(key)
        _set_all(self._readers.get(key, ()))


def _set_all(readers: Collection[asyncio.Event]) -> None:
    for wakeup in readers:
        wakeup.set()
