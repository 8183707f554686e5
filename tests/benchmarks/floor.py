"""The floors of the benchmarks, and the measurement of CPU time.

The floor of reading is a raw socket whose events are split at blank lines and parsed by orjson; the floor of storing is
a thread that inserts rows in groups.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Self, TypeVar

import orjson

__all__ = ["Job", "RawClient", "bare_group_commit", "cpu_of", "medians"]

Name = TypeVar("Name", bound=Hashable)
Job = Callable[[], Awaitable[object]]


class RawClient:
    """A persistent connection to the provider."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, model: str) -> int:
        """Send a request, read its reply to the end, and return the number of events."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "go"}], "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        self._writer.write(head % len(body) + body)
        rest, count = b"", 0
        while True:
            *events, rest = (rest + await self._reader.read(65_536)).split(b"\n\n")
            for event in events:
                payload = event[event.index(b"data: ") + 6 :]
                if payload == b"[DONE]":
                    return count
                orjson.loads(payload)
                count += 1

    async def read(self, path: str, model: str, separator: bytes) -> None:
        """Send a request to `path`, and read a chunked reply of JSON texts between separators to the end."""
        body = json.dumps({"model": model, "stream": True}).encode()
        self._writer.write(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
        )
        rest = tail = b""
        while tail != b"0\r\n\r\n":
            data = await self._reader.read(65_536)
            tail = (tail + data[-5:])[-5:]
            *events, rest = (rest + data).split(separator)
            for event in events:
                if (begin := event.find(b"{")) >= 0:
                    orjson.loads(event[begin:])

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def cpu_of(job: Job) -> float:
    """Return the CPU seconds that this process spends on one run of `job`."""
    begun = time.process_time()
    await job()
    return time.process_time() - begun


async def medians(repeats: int, jobs: Mapping[Name, Job]) -> dict[Name, float]:
    """Return the median CPU seconds of each job.

    The jobs run in turn, so that a temporary load slows them all; a first round is not counted.
    """
    for job in jobs.values():
        await job()
    taken = [{name: await cpu_of(job) for name, job in jobs.items()} for _ in range(repeats)]
    return {name: median(times[name] for times in taken) for name in jobs}


async def bare_group_commit(streams: int, each: int) -> float:
    """Return the CPU seconds of `streams` tasks that each store `each` rows of 260 bytes, one after the other."""
    loop, jobs = asyncio.get_running_loop(), SimpleQueue[_Insert | None]()

    async def stream(number: int) -> None:
        for place in range(each):
            stored = loop.create_future()
            jobs.put((number, place, stored))
            await stored

    with tempfile.TemporaryDirectory() as folder:
        thread = threading.Thread(target=_commit_groups, args=(Path(folder, "rows.db"), jobs, loop))
        thread.start()
        spent = await cpu_of(lambda: asyncio.gather(*map(stream, range(streams))))
        jobs.put(None)
        thread.join()
    return spent


_Insert = tuple[int, int, asyncio.Future[None]]


def _commit_groups(path: Path, jobs: SimpleQueue[_Insert | None], loop: asyncio.AbstractEventLoop) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE rows (position INTEGER PRIMARY KEY, stream INTEGER, place INTEGER, body BLOB)")
        while (first := jobs.get()) is not None:
            group = [first, *(job for _ in range(jobs.qsize()) if (job := jobs.get()) is not None)]
            connection.execute("BEGIN IMMEDIATE")
            rows = [(number, place, _BODY) for number, place, _ in group]
            connection.executemany("INSERT INTO rows (stream, place, body) VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
            loop.call_soon_threadsafe(_resolve_futures, group)


_BODY = b"x" * 260


def _resolve_futures(group: Sequence[_Insert]) -> None:
    for _, _, stored in group:
        stored.set_result(None)
