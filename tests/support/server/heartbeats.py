"""Heartbeats of event streams: their times, and checks of their intervals in every state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from agenticx.testing import call, hang, say
from agenticx.tools import ToolContext, tool
from tests.support.server.running_studio import Frame, RunningStudio, until
from tests.support.timeouts import PATIENCE, LoopDelays


@tool(risk="read")
async def wait(context: ToolContext) -> None:
    """Run for ever."""
    await asyncio.get_running_loop().create_future()


SPEED = 25.0


SHORT_HEARTBEAT_INTERVAL = {10.0: 10 / SPEED}
"""A heartbeat interval `SPEED` times shorter than in real time; all other waits keep their length."""


STATES = {
    "idle": ([], None),
    "model": ([[say("a"), hang()]], "token"),
    "tool": ([call("wait")], "tool_call"),
    "confirm": ([call("note", {"text": "x"}), "done"], "confirm_required"),
    "queued": ([[say("a"), hang()]], "token"),
}
"""The script of the model, and the event after which nothing more happens."""


_BUFFERED_SECONDS = 0.02  # within which a heartbeat comes that is already buffered
_COUNT = 3
_TRIES = 5  # a delay that the server makes is there each time, one that the machine makes is not


async def check_intervals(frames: AsyncIterator[Frame]) -> None:
    """Check the times of the next heartbeats of a stream, without the delays of the event loop."""
    tries = [await _beats(frames)]
    while not _is_regular(tries[-1]):
        assert len(tries) < _TRIES, tries
        tries.append(await _beats(frames))


async def _beats(frames: AsyncIterator[Frame]) -> list[tuple[float, float]]:
    """Return the times of the next heartbeats, each with the delays until then, after those that are buffered.

    Server and client share this loop, so it delays both. The times are nominal seconds.
    """
    beats = list[tuple[float, float]]()
    async with LoopDelays.watching() as delays:
        while len(beats) < _COUNT:
            asked = time.monotonic()
            await until(frames, "comment")
            if beats or time.monotonic() - asked > _BUFFERED_SECONDS:
                beats.append((time.monotonic() * SPEED, delays.total * SPEED))
    return beats


def _is_regular(beats: Sequence[tuple[float, float]]) -> bool:
    """Return whether one comes every ten seconds, none later than after fifteen."""
    (first, _), (last, late) = beats[0], beats[-1]
    longest = max(later - earlier - (after - before) for (earlier, before), (later, after) in pairwise(beats))
    return longest <= 15 and last - first >= 9 * (_COUNT - 1) - late


async def check_heartbeats(studio: RunningStudio, state: str, *, seconds: float = PATIENCE) -> None:
    """Check heartbeats in that state, on the session's stream and that of all, within `seconds` of real time."""
    session_id, last = await studio.session(), STATES[state][1]
    async with studio.events(session_id) as frames, studio.frames("/api/events") as of_all:
        if last is not None:
            await studio.turn(session_id)
            await until(frames, last)
        if state == "queued":
            await studio.turn(session_id, "more", when_busy="queue")
            await until(frames, "queued")
        async with asyncio.timeout(seconds):
            await asyncio.gather(check_intervals(frames), check_intervals(of_all))
