"""Wakes the readers of a log after each commit."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Bell"]


class Bell:
    """Sets each reader's `asyncio.Event` when its session (or, for readers of everything, any session) is rung."""

    def __init__(self) -> None:
        self._readers: dict[str | None, set[asyncio.Event]] = {}

    @contextmanager
    def subscribe(self, session_id: str | None, news: asyncio.Event) -> Generator[None]:
        """Set `news` for as long as the block lasts; None hears every session."""
        readers = self._readers.setdefault(session_id, set())
        readers.add(news)
        try:
            yield
        finally:
            readers.discard(news)
            if not readers and self._readers.get(session_id) is readers:
                del self._readers[session_id]

    def ring(self, session_id: str) -> None:
        """Wake the readers of `session_id` and those of everything."""
        for news in self._readers.get(session_id, ()):
            news.set()
        for news in self._readers.get(None, ()):
            news.set()

    @property
    def readers(self) -> int:
        """How many subscriptions are open."""
        return sum(len(readers) for readers in self._readers.values())
