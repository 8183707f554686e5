"""Small values that all workers of one database share: the protocol, and values in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from agenticx.clocks import Clock, SystemClock

__all__ = ["MemorySharedValues", "SharedValues"]


class SharedValues(Protocol):
    """Values by name, the same ones for each worker; a value may expire.

    Each method is atomic: it takes effect before it returns, and any later call of any worker sees it. All methods
    block, so that the event loop must not call them, and raise `StoreError` if the storage fails. They may be called by
    several threads at once.
    """

    def get(self, name: str) -> bytes | None:
        """Return the value of that name; None if there is none, or if it has expired."""
        ...

    def items(self, prefix: str) -> Mapping[str, bytes]:
        """Return the values whose names begin with `prefix`, by their whole names."""
        ...

    def put(self, name: str, value: bytes, *, seconds: float | None = None) -> None:
        """Store a value in place of any earlier one; it expires after that many seconds, without them never."""
        ...

    def put_if_absent(self, name: str, value: bytes) -> bytes:
        """Store a value unless there is one of that name; return the one that is stored now."""
        ...

    def replace(self, changes: Mapping[str, tuple[bytes, bytes]]) -> bool:
        """Replace values by name, each given as it is now and as it is to be, and return True.

        If any of them has another value now, or none, all stay as they are, and the result is False.
        """
        ...

    def take(self, name: str) -> bytes | None:
        """Remove a value and return it: of several callers one gets it, all others get None."""
        ...

    def close(self) -> None:
        """Release the resources of this worker; no method is called afterwards."""
        ...


class MemorySharedValues:
    """A `SharedValues` in a dictionary, for the workers of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stored: dict[str, tuple[bytes, float | None]] = {}

    def get(self, name: str) -> bytes | None:
        return self.items(name).get(name)

    def items(self, prefix: str) -> Mapping[str, bytes]:
        with self._lock:
            self._drop_expired()
            return {name: value for name, (value, _) in self._stored.items() if name.startswith(prefix)}

    def put(self, name: str, value: bytes, *, seconds: float | None = None) -> None:
        with self._lock:
            self._stored[name] = value, None if seconds is None else self._clock.monotonic() + seconds

    def put_if_absent(self, name: str, value: bytes) -> bytes:
        with self._lock:
            self._drop_expired()
            return self._stored.setdefault(name, (value, None))[0]

    def replace(self, changes: Mapping[str, tuple[bytes, bytes]]) -> bool:
        with self._lock:
            self._drop_expired()
            if any(self._stored.get(name, (None,))[0] != old for name, (old, _) in changes.items()):
                return False
            self._stored |= {name: (new, self._stored[name][1]) for name, (_, new) in changes.items()}
            return True

    def take(self, name: str) -> bytes | None:
        with self._lock:
            self._drop_expired()
            return self._stored.pop(name, (None, None))[0]

    def close(self) -> None:
        return None

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        for name in [name for name, (_, until) in self._stored.items() if until is not None and until <= now]:
            del self._stored[name]
