"""Sessions that clients use through several workers: turns, and readers that move among workers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from tests.support.postgres.workers import StudioWorkers
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, explained_timeout, wait_until

__all__ = ["TimedReader", "UsedSession", "WorkerLoad", "worker_load"]

_PAUSE_SECONDS = 0.02  # before a client tries again


@dataclass
class TimedReader(StreamClient):
    """A stream client that also stores the time at which each of its frames came."""

    times: list[float] = field(default_factory=list[float])

    def feed(self, piece: bytes) -> bytes:
        rest = super().feed(piece)
        self.times += [time.monotonic()] * (len(self.frames) - len(self.times))
        return rest

    def longest_silence(self, since: float) -> float:
        """Return the longest time without a frame, of those after `since`."""
        times = [since, *(one for one in self.times if one > since)]
        return max((after - before for before, after in pairwise(times)), default=0.0)


@dataclass(eq=False)
class UsedSession:
    """A session, its reader, and the ids of the turns that were accepted."""

    id: str
    reader: TimedReader
    accepted: list[str] = field(default_factory=list[str])

    @property
    def failures(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """The time and the envelope of each event that ended a turn with an error."""
        for moment, envelope in zip(self.reader.times, self.reader.envelopes, strict=True):
            if envelope["type"] == "error" and envelope["data"].get("fatal"):
                yield moment, envelope


@dataclass(eq=False)
class WorkerLoad:
    """A load of sessions with one turn after another, in which the demo model counts to `length`, until `stop`.

    Requests go to the load balancer, each on a connection of its own, and are repeated until there is an answer, at the
    latest after `answer_seconds`. So do the readers of the sessions, which go on elsewhere after `silence_seconds`, as
    from a worker that was stopped. With `hop_bytes` they go to a worker, and after at most so many bytes to another
    one.
    """

    workers: StudioWorkers
    rng: random.Random
    length: int
    hop_bytes: int | None
    answer_seconds: float
    silence_seconds: float
    sessions: list[UsedSession] = field(default_factory=list[UsedSession])
    problems: list[str] = field(default_factory=list[str])
    """The responses and lost connections that a client saw, apart from those of streams that ended in order."""
    hops: int = 0
    _stopping: bool = False
    _posting: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _reading: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    async def start(self, count: int) -> None:
        token, client = self.workers.all[0].token, self.workers.client()
        async with client:
            for number in range(count):
                answer = await client.post("/api/sessions", json={"name": f"session {number}"})
                assert answer.status_code == 201, answer.text
                id_ = answer.json()["id"]
                self.sessions.append(UsedSession(id_, TimedReader(0, f"/api/sessions/{id_}/events", token)))
        for session in self.sessions:
            self._posting.append(asyncio.create_task(self._post(session)))
            self._reading.append(asyncio.create_task(self._read(session)))

    async def progress(self, seconds: float = PATIENCE) -> None:
        """Wait until each session has an event that came after this call; raise `TimeoutError`."""
        since = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                while not all(one.reader.times and one.reader.times[-1] > since for one in self.sessions):
                    self._raise_failure()
                    await asyncio.sleep(0.002)
        except TimeoutError as exc:
            exc.add_note(self.describe())
            raise

    def describe(self) -> str:
        """Return the state of each session, and the last problems."""
        sessions = [
            f"{one.id}: accepted {one.accepted[-1:]}, ended {len(one.reader.ended_turns)} of {len(one.accepted)}, read"
            f" from {one.reader.port} {one.reader.outline()}"
            for one in self.sessions
        ]
        return "\n".join([*sessions, *self.problems[-5:]])

    async def stop(self) -> None:
        """Begin no more turns, and wait until all that were accepted have ended."""
        self._stopping = True
        await wait_until(
            lambda: self._raise_failure() or all(task.done() for task in self._posting), state=self.describe
        )
        await self.cancel()

    async def cancel(self) -> None:
        """Stop at once, whatever runs."""
        tasks = [*self._posting, *self._reading]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _raise_failure(self) -> None:
        for task in [*self._posting, *self._reading]:
            if task.done():
                task.result()

    async def _post(self, session: UsedSession) -> None:
        number = 0
        while not self._stopping:
            number += 1
            turn_id = await self._post_turn(session, f"{session.id}-{number}")
            session.accepted.append(turn_id)
            while turn_id not in session.reader.ended_turns:
                await asyncio.sleep(_PAUSE_SECONDS / 4)

    async def _post_turn(self, session: UsedSession, key: str) -> str:
        body = {"input": f"count to {self.length}", "client_turn_id": key}
        async with explained_timeout(self.describe):
            while True:
                try:
                    async with self.workers.client() as client:
                        path = f"/api/sessions/{session.id}/turns"
                        answer = await client.post(path, json=body, timeout=self.answer_seconds)
                except httpx.TransportError as exc:
                    self.problems.append(f"a request was lost: {exc!r}")
                else:
                    if answer.status_code == 202:
                        return str(answer.json()["turn_id"])
                    self.problems.append(f"{answer.status_code}: {answer.text}")
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, session: UsedSession) -> None:
        reader = session.reader
        while True:
            reader.port, most = self.workers.balancer.port, None
            if self.hop_bytes is not None and (running := self.workers.running):
                reader.port, most = self.rng.choice(running).port, self.rng.randrange(1, self.hop_bytes)
            try:
                await reader.read(max_bytes=most, seconds=min(self.answer_seconds, self.silence_seconds))
            except TimeoutError:
                pass
            except (OSError, EOFError, AssertionError) as exc:  # the last for a status other than 200
                self.problems.append(f"a stream was lost: {exc!r}")
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self.hops += 1

    # --- checks

    async def findings(self) -> list[str]:
        """Return a sentence for each difference between what clients saw and the log, after `stop`."""
        found: list[str] = []
        for session in self.sessions:
            for worker in self.workers.running:
                log = StreamClient(worker.port, session.reader.path, session.reader.token)
                await log.read(lambda log, ids=session.accepted: log.ended_turns.issuperset(ids), cursor="0")
                found += (f"{session.id} by {worker.name}: {text}" for text in _differences(session, log))
        return found


def _differences(session: UsedSession, log: StreamClient) -> Iterator[str]:
    both = min(len(log.frames), len(session.reader.frames))
    if log.frames[:both] != session.reader.frames[:both]:
        first = next(n for n in range(both) if log.frames[n] != session.reader.frames[n])
        yield f"its reader saw {session.reader.frames[first]!r} where the log has {log.frames[first]!r}"
    numbers = [envelope["seq"] for envelope in log.envelopes]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the numbers of its events have a gap or are out of order: {numbers}"
    if session.reader.unnumbered and any(b'"reset"' in frame for frame in session.reader.unnumbered):
        yield "its reader was told to start again"
    ends = Counter(
        envelope["turn_id"]
        for envelope in log.envelopes
        if envelope["type"] == "final" or (envelope["type"] == "error" and envelope["data"].get("fatal"))
    )
    yield from (f"turn {id_} ended {ends[id_]} times" for id_ in session.accepted if ends[id_] != 1)
    yield from (f"turn {id_} was accepted by nobody" for id_ in ends if id_ not in session.accepted)


@asynccontextmanager
async def worker_load(
    workers: StudioWorkers,
    rng: random.Random,
    *,
    sessions: int = 6,
    length: int = 30,
    hop_bytes: int | None = None,
    answer_seconds: float = PATIENCE,
    silence_seconds: float = 5.0,
) -> AsyncGenerator[WorkerLoad]:
    """Run a load on workers until `stop`, or the end of the body."""
    load = WorkerLoad(workers, rng, length, hop_bytes, answer_seconds, silence_seconds)
    try:
        await load.start(sessions)
        yield load
    finally:
        await load.cancel()
