"""Shutdown of a busy studio: all streams end with a farewell, nothing hangs, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.faults.broken_agx import SOUND
from tests.support.patience import PATIENCE
from tests.support.server.reading import Reader, envelope_of
from tests.support.server.serving import ServedStudio, agx_serve, outcome

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B6")]

FAREWELL = b'data: {"type":"server_closing"}'


@asynccontextmanager
async def streams_of(served: ServedStudio, readers: list[Reader]) -> AsyncIterator[list[asyncio.Task[bool]]]:
    """Follow all streams until they end."""
    for reader in readers:
        reader.port = served.port
    reading = [asyncio.create_task(reader.read()) for reader in readers]
    try:
        yield reading
    finally:
        await asyncio.gather(*reading, return_exceptions=True)


async def all_open(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await client.get("/api/ready")).json()["streams"] < count:
            await asyncio.sleep(0.02)


async def all_have(readers: list[Reader], type_: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not all(any(f'"type":"{type_}"'.encode() in frame for frame in reader.frames) for reader in readers):
            await asyncio.sleep(0.02)


async def test_a_shutdown_with_100_streams_20_turns_and_5_questions_is_in_time_and_all_resume(
    tmp_path: Path,
) -> None:
    scenario = ShutdownScenario(running=20, asking=5, streams=100)
    await scenario.check_shutdown(tmp_path / "home")
    await scenario.check_restart(tmp_path / "home")


@dataclass
class ShutdownScenario:
    """Sessions whose turns run or ask, with readers: equally many for each session, and the rest for all."""

    running: int
    asking: int
    streams: int
    by_session: dict[str, list[Reader]] = field(default_factory=dict[str, list[Reader]])
    of_all: list[Reader] = field(default_factory=list[Reader])

    @property
    def readers(self) -> list[Reader]:
        return [*self.of_all, *(reader for one in self.by_session.values() for reader in one)]

    @property
    def running_sessions(self) -> list[list[Reader]]:
        return list(self.by_session.values())[: self.running]

    @property
    def asking_sessions(self) -> list[list[Reader]]:
        return list(self.by_session.values())[self.running :]

    async def check_shutdown(self, home: Path, mutant: str | None = None) -> None:
        """Check that a server ends in time, and that each reader has got a last event and a farewell."""
        async with agx_serve(home, mutant=mutant or SOUND) as served, served.client(200) as client:
            await self._open(served, client)
            async with streams_of(served, self.readers) as reading:
                await all_open(client, self.streams)
                await self._post(client)
                began = asyncio.get_running_loop().time()
                served.process.send_signal(signal.SIGTERM)
                code, out, err = await outcome(served.process)
                took = asyncio.get_running_loop().time() - began
                ended = await asyncio.gather(*reading)
        assert (code, out, err) == (0, "", "")
        assert took < PATIENCE / 2, "nobody waits until a time-out ends it"
        assert (len(self.readers), all(ended)) == (self.streams, True)
        assert [reader.unnumbered for reader in self.readers] == [[FAREWELL]] * self.streams
        for sessions, last in ((self.running_sessions, "error"), (self.asking_sessions, "confirm_required")):
            assert [envelope_of(one[0].frames[-1])["type"] for one in sessions] == [last] * len(sessions)

    async def _open(self, served: ServedStudio, client: httpx.AsyncClient) -> None:
        made = [(await client.post("/api/sessions", json={})).json()["id"] for _ in range(self.running + self.asking)]
        each = (self.streams - 1) // len(made)
        for path in (f"/api/sessions/{session_id}/events" for session_id in made):
            self.by_session[path] = [Reader(served.port, path, served.token) for _ in range(each)]
        rest = self.streams - each * len(made)
        self.of_all = [Reader(served.port, "/api/events", served.token) for _ in range(rest)]

    async def _post(self, client: httpx.AsyncClient) -> None:
        for number, path in enumerate(self.by_session):
            text = "count to 99999" if number < self.running else f"Write {number}.txt with the text x"
            assert (await client.post(path.replace("events", "turns"), json={"input": text})).status_code == 202
        await all_have([one[0] for one in self.running_sessions], "token")
        await all_have([one[0] for one in self.asking_sessions], "confirm_required")

    async def check_restart(self, home: Path) -> None:
        """Check that on a new server the waiting turns go on and every reader gets the whole log."""
        async with agx_serve(home, mutant=SOUND) as served, served.client(200) as client:
            whole = [Reader(served.port, path, served.token) for path in self.by_session]
            async with streams_of(served, [*self.readers, *whole]) as reading:
                await all_open(client, self.streams + len(whole))
                for question in (await client.get("/api/confirms")).json()["confirms"]:
                    no = {"approved": False, "digest": question["digest"]}
                    assert (await client.post(f"/api/confirms/{question['id']}", json=no)).status_code == 200
                await all_have(whole[self.running :], "final")
                served.process.send_signal(signal.SIGTERM)
                assert await outcome(served.process) == (0, "", "")
                await asyncio.gather(*reading)
        for log in whole:
            followers = self.by_session[log.path]
            assert [envelope["seq"] for envelope in log.envelopes] == list(range(1, len(log.frames) + 1))
            assert [reader.frames for reader in followers] == [log.frames] * len(followers)
        events = {data_of(frame) for log in whole for frame in log.frames}
        for reader in self.of_all:
            assert reader.frames == self.of_all[0].frames
            assert sorted(map(data_of, reader.frames)) == sorted(events)


def data_of(frame: bytes) -> bytes:
    return frame.partition(b"\ndata: ")[2]
