"""The shutdown of a server with many readers, running turns and open questions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.faults.broken_agx import SOUND
from tests.support.server.agx_processes import ServedStudio, agx_serve, outcome
from tests.support.server.stream_client import StreamClient, envelope_of
from tests.support.timeouts import PATIENCE, wait_until

__all__ = ["ShutdownScenario"]

CLOSING_FRAME = b'data: {"type":"server_closing","data":{"reason":"stopped"}}'


@dataclass
class ShutdownScenario:
    """Sessions whose turns run or ask, with readers: equally many for each session, and the rest for all."""

    running: int
    asking: int
    streams: int
    by_session: dict[str, list[StreamClient]] = field(default_factory=dict[str, list[StreamClient]])
    of_all: list[StreamClient] = field(default_factory=list[StreamClient])

    @property
    def readers(self) -> list[StreamClient]:
        return [*self.of_all, *(reader for one in self.by_session.values() for reader in one)]

    @property
    def running_sessions(self) -> list[list[StreamClient]]:
        return list(self.by_session.values())[: self.running]

    @property
    def asking_sessions(self) -> list[list[StreamClient]]:
        return list(self.by_session.values())[self.running :]

    async def check_shutdown(self, home: Path, mutant: str | None = None) -> None:
        """Check that a server ends in time, and that each reader has got a last event and a closing frame."""
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
        assert (code, out, err) == (0, "", ""), f"the server ended with {(code, out, err)}"
        assert took < PATIENCE / 2, "nobody waits until a time-out ends it"
        assert (len(self.readers), all(ended)) == (self.streams, True)
        closings = [reader.unnumbered for reader in self.readers]
        assert closings == [[CLOSING_FRAME]] * self.streams, f"not one {CLOSING_FRAME!r} for each reader: {closings}"
        for sessions, last in ((self.running_sessions, "error"), (self.asking_sessions, "confirm_required")):
            types = [envelope_of(one[0].frames[-1])["type"] for one in sessions]
            assert types == [last] * len(sessions), types

    async def _open(self, served: ServedStudio, client: httpx.AsyncClient) -> None:
        made = [(await client.post("/api/sessions", json={})).json()["id"] for _ in range(self.running + self.asking)]
        each = (self.streams - 1) // len(made)
        for path in (f"/api/sessions/{session_id}/events" for session_id in made):
            self.by_session[path] = [StreamClient(served.port, path, served.token) for _ in range(each)]
        rest = self.streams - each * len(made)
        self.of_all = [StreamClient(served.port, "/api/events", served.token) for _ in range(rest)]

    async def _post(self, client: httpx.AsyncClient) -> None:
        for number, path in enumerate(self.by_session):
            text = "count to 99999" if number < self.running else f"Write {number}.txt with the text x"
            assert (await client.post(path.replace("events", "turns"), json={"input": text})).status_code == 202
        await all_have([one[0] for one in self.running_sessions], "token")
        await all_have([one[0] for one in self.asking_sessions], "confirm_required")

    async def check_restart(self, home: Path) -> None:
        """Check that on a new server the waiting turns go on and every reader gets the whole log."""
        async with agx_serve(home, mutant=SOUND) as served, served.client(200) as client:
            whole = [StreamClient(served.port, path, served.token) for path in self.by_session]
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


@asynccontextmanager
async def streams_of(served: ServedStudio, readers: list[StreamClient]) -> AsyncGenerator[list[asyncio.Task[bool]]]:
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


async def all_have(readers: list[StreamClient], type_: str) -> None:
    await wait_until(
        lambda: all(any(f'"type":"{type_}"'.encode() in frame for frame in reader.frames) for reader in readers)
    )


def data_of(frame: bytes) -> bytes:
    return frame.partition(b"\ndata: ")[2]
