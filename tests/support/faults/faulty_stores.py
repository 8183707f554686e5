"""Stores with one fault each: a call of a good store kills the process or fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agenticx.errors import StoreError
from agenticx.sessions import OutcomeUnknown, Store, StoredEvent
from tests.support.faults.disk import DiskFault
from tests.support.intercepted_store import InterceptedStore, StoreCall, Write

POINTS: dict[str, Callable[[Write], bool]] = {
    "append": lambda write: bool(write.commit.events),
    "turn start": lambda write: write.commit.begins is not None,
    "tool start": lambda write: "call_began" in write.fact_kinds,
    "tool end": lambda write: "tool_result" in write.types,
    "confirm ask": lambda write: "confirm_required" in write.types,
    "confirm answer": lambda write: "request_answered" in write.fact_kinds,
    "confirm response": lambda write: "confirm_response" in write.types,
    "compaction": lambda write: "compaction" in write.types,
    "final": lambda write: "final" in write.types,
}
"""The commits at which a process can end; each has a before and an after."""


def crashing(store: Store, point: str, when: str, nth: int) -> Store:
    """Return a store that kills the process `when` ("before" or "after") the `nth` commit of that kind."""
    left = nth

    async def around(write: Write) -> Sequence[StoredEvent]:
        nonlocal left
        left -= POINTS[point](write)
        here = left == 0 and POINTS[point](write)
        if here and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await write.make()
        finally:  # also after one that failed
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

    return InterceptedStore(store, around)


REFUSED, UNANSWERED = "refused", "unanswered"


def failing(store: Store, fault: DiskFault) -> Store:
    """Return a store whose calls fail as `fault` says: commits, claims, and reads of sessions, log and catalog.

    A call is refused, or carried out without an answer, as when the disk's answer is lost.
    """

    async def fail(run: Callable[[], Awaitable[Any]], unanswered: type[StoreError]) -> Any:
        what = fault.next_failure(lambda name: name in {REFUSED, UNANSWERED})
        if what == REFUSED:
            raise StoreError("the disk is full")
        result = await run()
        if what == UNANSWERED:
            raise unanswered("the disk did not answer")
        return result

    async def around(write: Write) -> Sequence[StoredEvent]:
        return await fail(write.make, OutcomeUnknown)

    async def around_call(call: StoreCall) -> Any:
        return await fail(call.run, StoreError)

    return InterceptedStore(store, around, around_call)
