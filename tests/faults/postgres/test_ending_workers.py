"""A worker that ends: requests that reach it, which a load balancer cannot know of, are answered, and streams go on."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.workers import StudioWorker, studio_workers
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

OK = "http/1.1 200 ok"
CLOSING = {"type": "server_closing", "data": {"reason": "handed_over"}}
WAITING = 100  # connections: more than the server accepts in a few iterations of its loop


class Connection:
    """A connection to a worker, for one request after another."""

    def __init__(self, worker: StudioWorker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = f"127.0.0.1:{worker.port}"
        self._token = worker.token
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, worker: StudioWorker) -> Connection:
        return cls(worker, *await asyncio.open_connection("127.0.0.1", worker.port))

    async def send(self, *, part: slice = slice(None)) -> None:
        """Send a request that asks the database, or a part of its bytes."""
        head = f"GET /api/sessions HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        self._writer.write(head.encode()[part])
        await self._writer.drain()

    async def receive(self) -> tuple[str, bool]:
        """Return the status line of the response, and whether it says that the connection is closed behind it."""
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(line for line in head.splitlines() if line.startswith("content-length:"))
            await self._reader.readexactly(int(length.partition(":")[2]))
        return head.partition("\r\n")[0], "\r\nconnection: close\r\n" in head

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; return False if anything comes before it."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read() == b""

    def close(self) -> None:
        self._writer.close()


async def test_requests_that_were_sent_before_a_worker_ends_are_answered(postgres: Cluster, tmp_path: Path) -> None:
    async with studio_workers(tmp_path, await postgres.fresh_database(), 2) as workers:
        worker = workers.all[0]
        kept, idle, unused = [await Connection.open(worker) for _ in range(3)]
        for connection in (kept, idle):
            await connection.send()
            assert await connection.receive() == (OK, False)
        worker.freeze()
        waiting = [await Connection.open(worker) for _ in range(WAITING)]
        for connection in (kept, *waiting):
            await connection.send()
        worker.process.send_signal(signal.SIGTERM)
        worker.thaw()
        assert {(await connection.receive())[0] for connection in (kept, *waiting)} == {OK}
        assert all([await connection.is_closed() for connection in (kept, idle, unused, *waiting)])
        assert await worker.terminate() == 0
        for connection in (kept, idle, unused, *waiting):
            connection.close()


async def test_a_request_to_a_worker_that_ends_is_the_last_one_of_its_connection(
    postgres: Cluster, tmp_path: Path
) -> None:
    async with studio_workers(tmp_path, await postgres.fresh_database(), 2) as workers:
        worker = workers.all[0]
        connection = await Connection.open(worker)
        await connection.send()
        assert await connection.receive() == (OK, False)
        await connection.send(part=slice(20))
        worker.process.send_signal(signal.SIGTERM)
        await wait_until_refused(worker)
        await connection.send(part=slice(20, None))
        assert await connection.receive() == (OK, True)
        assert await connection.is_closed()
        assert await worker.terminate() == 0
        connection.close()


async def test_streams_of_a_worker_that_ends_go_on_while_its_turns_do(postgres: Cluster, tmp_path: Path) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 2, AGX_DRAIN_SECONDS="8") as workers:
        worker = workers.all[0]
        async with worker.client() as client:
            ids = [(await client.post("/api/sessions", json={})).json()["id"] for _ in range(2)]
            turn = await client.post(f"/api/sessions/{ids[0]}/turns", json={"input": "Count to 3000"})
        readers = [StreamClient(worker.port, f"/api/sessions/{id_}/events", worker.token) for id_ in ids]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.read())
            await wait_until(lambda: len(readers[0].frames) > 10)
            assert await worker.terminate() == 0
        assert turn.json()["turn_id"] in readers[0].ended_turns
        assert [json.loads(reader.unnumbered[-1].partition(b"data: ")[2]) for reader in readers] == [CLOSING] * 2


async def wait_until_refused(worker: StudioWorker) -> None:
    """Wait until a worker accepts no connection."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                connection = await Connection.open(worker)
            except ConnectionRefusedError:
                return
            connection.close()
            await asyncio.sleep(0.01)
