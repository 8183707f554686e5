"""Heartbeats of event streams: their times, and checks of their intervals in every state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise

from agenticx.testing import call, hang, say
from agenticx.tools import ToolContext, tool
from tests.support.server.running_studio import Frame, RunningStudio, until
from tests.support.timeouts import PATIENCE


@tool(risk="read")
async def wait(context: ToolContext) -> None:
    """Run for ever."""
    await asyncio.get_running_loop().create_future()


SPEED = 50.0


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


_WATCH_SECONDS = 0.002


@dataclass
class HeartbeatLog:
    """The times of heartbeats, each with the total delay of the event loop until then, in nominal seconds."""

    beats: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _delay: float = 0.0
    _last_wake: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @classmethod
    async def record(cls, frames: AsyncIterator[Frame], count: int = 4) -> HeartbeatLog:
        """Return the next heartbeats of a stream, after those that are already buffered."""
        beats, loop = cls(), asyncio.get_running_loop()
        watching = asyncio.create_task(beats._watch())
        try:
            while len(beats.beats) < count:
                asked = loop.time()
                await until(frames, "comment")
                if beats.beats or loop.time() - asked > 10 * _WATCH_SECONDS:
                    beats._record()
        finally:
            watching.cancel()
        return beats

    async def _watch(self) -> None:
        while True:
            self._measure_delay()
            await asyncio.sleep(_WATCH_SECONDS)

    def _measure_delay(self) -> None:
        """Add the delay since the last call; server and client share this loop, so it delays both."""
        now = asyncio.get_running_loop().time()
        self._delay += max(now - self._last_wake - _WATCH_SECONDS, 0)
        self._last_wake = now

    def _record(self) -> None:
        self._measure_delay()
        self.beats.append((self._last_wake * SPEED, self._delay * SPEED))

    def check(self) -> None:
        for (earlier, late_before), (later, late) in pairwise(self.beats):
            assert later - earlier <= 15 + late - late_before
            assert later - earlier >= 9 - late


async def check_heartbeats(studio: RunningStudio, state: str, *, seconds: float = PATIENCE) -> None:
    """Check four heartbeats in that state, on the session's stream and that of all, within `seconds` of real time."""
    session_id, last = await studio.session(), STATES[state][1]
    async with studio.events(session_id) as frames, studio.frames("/api/events") as of_all:
        if last is not None:
            await studio.turn(session_id)
            await until(frames, last)
        if state == "queued":
            await studio.turn(session_id, "more", when_busy="queue")
            await until(frames, "queued")
        async with asyncio.timeout(seconds):
            both = await asyncio.gather(HeartbeatLog.record(frames), HeartbeatLog.record(of_all))
        for beats in both:
            beats.check()
