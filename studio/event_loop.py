"""The server's event loop: it handles a few ready sockets per iteration.

A token passes through several iterations of the loop: it is read, parsed, stored and sent. asyncio reads from all ready
sockets in one iteration, so that with 150 streams each takes long, and a token 100 ms in all. With 16 sockets per
iteration it takes a third of that; bytes that arrive meanwhile wait in their sockets and are read together.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import deque

__all__ = ["BatchingSelector", "new_event_loop"]

_BATCH = 16


class BatchingSelector(selectors.DefaultSelector):
    """A selector that reports at most 16 ready files per call, and the rest in the next calls."""

    def __init__(self) -> None:
        super().__init__()
        self._pending = deque[tuple[selectors.SelectorKey, int]]()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._pending:
            ready = super().select(timeout)
            if len(ready) <= _BATCH:
                return ready
            self._pending.extend(ready)
        registered, batch = self.get_map(), list[tuple[selectors.SelectorKey, int]]()
        while self._pending and len(batch) < _BATCH:
            key, events = self._pending.popleft()
            if registered.get(key.fileobj) is key:  # neither removed nor changed since
                batch.append((key, events))
        return batch


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a server; on Windows asyncio's own loop, because that has no selector."""
    return asyncio.new_event_loop() if sys.platform == "win32" else asyncio.SelectorEventLoop(BatchingSelector())
