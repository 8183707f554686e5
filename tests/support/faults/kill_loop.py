"""Servers killed at random moments, again and again over one folder, with recording clients."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.faults.checker import findings
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import KillableStudio, RecordedFolder, Servers
from tests.support.timeouts import PATIENCE, explained_timeout

MAX_UPTIME_SECONDS = 0.3
MAX_UPTIME_PER_START = 2
"""The longest uptime in multiples of the start's duration, so that turns also run on a slow machine."""
THINKING_SECONDS = 0.01  # before the next message, per busy session
CHECK_EVERY = 10  # lost events stay lost, so not every cycle needs a check
MAX_CYCLES_PER_FOLDER = 250
"""A new folder is used after so many cycles, as checks read the whole log."""


@dataclass
class KillLoopFigures:
    """The figures of a run."""

    cycles: int = 0
    seconds: float = 0.0
    slowest_start: float = 0.0
    last_start: float = 0.0
    crashed: bool = False
    statuses: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class KillLoop:
    """A loop of servers; `after_kill` is called between each kill and the next start and returns its findings."""

    server_forker: Servers
    recorded: RecordedFolder
    rng: random.Random
    sessions: int = 50
    busy_sessions: int = 6
    check_every: int = CHECK_EVERY
    modes: Sequence[str] = ("auto", "default")
    kills: bool = True  # False: the servers end by themselves
    max_uptime: float = MAX_UPTIME_SECONDS
    server_options: dict[str, Any] = field(default_factory=dict[str, Any])
    after_kill: Callable[[], list[str]] = list[str]
    figures: KillLoopFigures = field(default_factory=KillLoopFigures)

    async def run(self, cycles: int) -> list[str]:
        """Run the cycles; return the findings, the first of which end the loop."""
        began = time.monotonic()
        await self._populate()
        for _ in range(cycles):
            await self.cycle()
            self.figures.cycles += 1
            check = self.check if self.figures.cycles % self.check_every == 0 else list[str]
            if found := [*self.after_kill(), *check()]:
                return found
        found = await self.finish()
        self.figures.seconds = time.monotonic() - began
        return found

    def check(self) -> list[str]:
        return [*findings(self.recorded.log(), self.recorded.seen), *self.recorded.different_tables()]

    async def _populate(self) -> None:
        async with self.serve_without_fault() as (studio, _, client):
            modes = (self.modes[number % len(self.modes)] for number in range(self.sessions))
            await self.recorded.make_sessions(client, modes)
            await studio.end()

    async def cycle(self) -> None:
        """Run one server until it is killed."""
        chosen = self.rng.sample(sorted(self.recorded.seen.sessions), min(self.busy_sessions, self.sessions))
        async with self.serve() as (studio, streams, client):
            kill_task = asyncio.create_task(self._kill_later(studio))
            async with asyncio.TaskGroup() as group:
                group.create_task(self.recorded.follow(streams, None))
                for session in chosen:
                    group.create_task(self.recorded.follow(streams, session))
                    group.create_task(self._act_as_user(client, session))
            await kill_task

    async def _kill_later(self, studio: KillableStudio) -> None:
        if not self.kills:
            await asyncio.wait([studio.exited], timeout=5 * PATIENCE)
            self.figures.crashed = studio.exited.done()
        else:
            uptime = max(self.max_uptime, MAX_UPTIME_PER_START * self.figures.last_start)
            await asyncio.sleep(uptime * self.rng.random() ** 2)
        await studio.end()

    async def _act_as_user(self, client: httpx.AsyncClient, session: str) -> None:
        """Act as a user until the server is gone: answer open questions, send a message."""
        rng = random.Random(self.rng.random())
        status = 1
        while status:
            await self._answer_all(client, rng, session_id=session)
            status = await self.recorded.start(client, session, self.make_input(session, rng))
            self.figures.statuses[status] = self.figures.statuses.get(status, 0) + 1
            await asyncio.sleep(rng.uniform(0, THINKING_SECONDS * self.busy_sessions))

    def make_input(self, session: str, rng: random.Random) -> str:
        rounds = [
            (rng.randint(0, 20), [rng.choice(["mark", "mark", "look"]) for _ in range(rng.randint(1, 3))])
            for _ in range(rng.randint(0, 2))
        ]
        return plan(*rounds, (rng.randint(1, 40), []))

    async def _answer_all(self, client: httpx.AsyncClient, rng: random.Random, **of_session: str) -> None:
        with suppress(httpx.TransportError):
            waiting = await client.get("/api/confirms", params=of_session)
            for question in waiting.json()["confirms"]:
                await self.recorded.answer(client, question, rng.random() < 0.7)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def finish(self) -> list[str]:
        """Let everything end, read all streams to their ends, and check the whole log."""
        async with self.serve_without_fault() as (studio, streams, client):
            sessions = sorted(self.recorded.seen.sessions)
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(self.recorded.follow(streams, one)) for one in (None, *sessions)]
                async with explained_timeout(lambda: f"these turns run: {self.recorded.log().running}"):
                    while self.recorded.log().running:
                        await self._answer_all(client, self.rng)
                        await asyncio.sleep(0.02)
                    await self._wait_until_all_is_received()
                await studio.end(signal.SIGTERM)
            del following
        log = self.recorded.log()
        return findings(log, self.recorded.seen, over=True)

    async def _wait_until_all_is_received(self) -> None:
        log = self.recorded.log()
        while any(
            len(transcript.frames) < len(log.events[session])
            for session, transcript in self.recorded.seen.sessions.items()
        ):
            await asyncio.sleep(0.02)

    def serve(self) -> _RunningServer:
        return _RunningServer(self, self.server_options)

    def serve_without_fault(self) -> _RunningServer:
        """Return a server without the fault."""
        return _RunningServer(self, {name: value for name, value in self.server_options.items() if name != "crash"})


class _RunningServer:
    """A server with a client for its streams and one for calls; the time of its start is recorded."""

    def __init__(self, loop: KillLoop, options: dict[str, Any]) -> None:
        self._loop = loop
        self._options = options

    async def __aenter__(self) -> tuple[KillableStudio, httpx.AsyncClient, httpx.AsyncClient]:
        began = time.monotonic()
        self._studio = await self._loop.server_forker.serve(self._loop.recorded.home, **self._options)
        figures = self._loop.figures
        figures.last_start = time.monotonic() - began
        figures.slowest_start = max(figures.slowest_start, figures.last_start)
        self._clients = self._studio.client(), self._studio.caller()
        return self._studio, *self._clients

    async def __aexit__(self, *exc: object) -> None:
        for client in self._clients:
            await client.aclose()
        await self._studio.end()


def split_cycles(cycles: int, most: int = MAX_CYCLES_PER_FOLDER) -> list[int]:
    """Return `cycles` divided among several folders."""
    return [min(most, cycles - start) for start in range(0, cycles, most)]
