"""Stores with one fault each: an operation of a good store kills the process or fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agenticx.errors import StoreError
from agenticx.sessions import JournalEntry, Store
from tests.support.faults.disk import DiskFault


@dataclass(frozen=True)
class Operation:
    """One call of a store's method."""

    name: str
    args: Sequence[Any]
    run: partial[Awaitable[Any]]

    @property
    def types(self) -> set[str]:
        """The types of the events that it appends."""
        return {str(event.type.value) for event in self.args[2]} if self.name == "append" else set()

    @property
    def kind(self) -> str | None:
        """The kind of the entry that it adds to the journal, else None."""
        entry = self.args[0] if self.name == "add_journal_entry" else None
        return entry.kind if isinstance(entry, JournalEntry) else None


POINTS: dict[str, Callable[[Operation], bool]] = {
    "append": lambda operation: operation.name == "append",
    "tool start": lambda operation: operation.kind == "began",
    "tool end": lambda operation: "tool_result" in operation.types,
    "confirm ask": lambda operation: "confirm_required" in operation.types,
    "confirm answer": lambda operation: operation.kind == "answered",
    "confirm response": lambda operation: "confirm_response" in operation.types,
    "compaction": lambda operation: "compaction" in operation.types,
    "final": lambda operation: "final" in operation.types,
    "claim": lambda operation: operation.name == "claim",
}
"""The places at which a process can end; each has a before and an after."""


class WrappedStore:
    """A `Store` whose operations all go through `around`."""

    METHODS = frozenset(name for name in vars(Store) if not name.startswith("_")) - {"subscribe", "aclose"}

    def __init__(self, store: Store, around: Callable[[Operation], Awaitable[Any]]) -> None:
        self._store = store
        self._around = around

    def __getattr__(self, name: str) -> Any:
        method: Any = getattr(self._store, name)
        if name not in self.METHODS or not callable(method):
            return method

        async def operate(*args: Any, **kwargs: Any) -> Any:
            return await self._around(Operation(name, args, partial(method, *args, **kwargs)))

        return operate


def crashing(store: Store, point: str, when: str, nth: int) -> Store:
    """Return a store that kills the process `when` ("before" or "after") the `nth` operation of that kind."""
    left = nth

    async def around(operation: Operation) -> Any:
        nonlocal left
        left -= POINTS[point](operation)
        here = left == 0 and POINTS[point](operation)
        if here and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await operation.run()
        finally:  # also behind one that was refused, such as the claim of a busy session
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

    return WrappedStore(store, around)  # type: ignore[return-value]


REFUSED, UNANSWERED = "refused", "unanswered"


def failing(store: Store, fault: DiskFault) -> Store:
    """Return a store whose operations fail as `fault` says.

    An operation is refused, or carried out without an answer, as when the disk's answer is lost.
    """

    async def around(operation: Operation) -> Any:
        what = fault.next_failure(lambda name: name in {REFUSED, UNANSWERED})
        if what == REFUSED:
            raise StoreError("the disk is full")
        result = await operation.run()
        if what == UNANSWERED:
            raise StoreError("the disk did not answer")
        return result

    return WrappedStore(store, around)  # type: ignore[return-value]
