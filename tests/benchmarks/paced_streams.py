"""Readers of paced streams; they observe the delay of each token and the CPU time of the server."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import httpx

__all__ = ["READERS", "Load", "Reader", "Token", "measure_load", "stamp", "tokens_of"]

STAMP = re.compile(rb"(?<!\d)\d{19}(?!\d)")
START_SECONDS = 0.01
"""Between two streams that begin: all together, their beginnings would be measured."""
SAMPLE_SECONDS = 0.02


def stamp() -> bytes:
    """Return the time in a form that is found among other bytes; all processes of a machine have the same clock."""
    return b"%019d" % time.monotonic_ns()


@dataclass(frozen=True)
class Load:
    """The cost of a number of streams; the percentiles are of the delays from the provider's byte to the reader's.

    `peer_share` is how much of a core the provider and the readers used; near 1 the delays are theirs.
    """

    cpu_micros: float
    p50_ms: float
    p99_ms: float
    peer_share: float


@dataclass(frozen=True)
class _Sample:
    """A time with the CPU times of the server and of this process by then, in nanoseconds."""

    at: int
    cpu: int
    own: int

    @classmethod
    def take(cls, pid: int) -> Self:
        return cls(time.monotonic_ns(), _cpu_nanos(pid), time.process_time_ns())


@dataclass(frozen=True)
class Token:
    """A token with the times at which it was sent and at which it arrived, in nanoseconds."""

    sent: int
    arrived: int


# --- readers --------------------------------------------------------------------------------------------------------


class Reader(ABC):
    """A client that posts messages and records what it receives, to be parsed later."""

    def __init__(self, port: int, token: str) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._port = port
        self._headers = {
            "authorization": f"Bearer {token}",
            "accept": "text/event-stream",
            "content-type": "application/json",
        }

    @abstractmethod
    async def read(self, path: str, body: bytes) -> Sequence[tuple[int, bytes]]:
        """Post `body` and return the pieces of the answer, each with its time of arrival, at its end."""

    async def close(self) -> None:
        return


class _Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.monotonic_ns(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class RawReader(Reader):
    """A reader on plain sockets, which costs as little as possible."""

    async def read(self, path: str, body: bytes) -> Sequence[tuple[int, bytes]]:
        transport, receiver = await asyncio.get_running_loop().create_connection(_Receiver, "127.0.0.1", self._port)
        headers = {"host": f"127.0.0.1:{self._port}", "connection": "close", "content-length": len(body)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | self._headers).items())
        transport.write(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        await receiver.ended
        return receiver.pieces


class HttpxReader(Reader):
    """A reader with httpx as it is installed."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port, token)
        unlimited = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(
            base_url=self._url, headers=self._headers, limits=unlimited, timeout=60, trust_env=False
        )

    async def read(self, path: str, body: bytes) -> Sequence[tuple[int, bytes]]:
        async with self._client.stream("POST", path, content=body) as answer:
            return [(time.monotonic_ns(), piece) async for piece in answer.aiter_bytes()]

    async def close(self) -> None:
        await self._client.aclose()


READERS: Mapping[str, type[Reader]] = {"raw": RawReader, "httpx": HttpxReader}


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure_load(reader: Reader, sessions: Sequence[str], model: str, tokens: int, pid: int) -> Load:
    """Run a turn of `tokens` stamped tokens in each session, and return what they cost.

    Counted is the time in which all turns stream, without its first quarter.
    """
    body = json.dumps({"input": "go", "model": model}).encode()
    samples: list[_Sample] = []

    async def turn(number: int, session: str) -> Sequence[Token]:
        await asyncio.sleep(number * (START_SECONDS + START_SECONDS / len(sessions)))  # in different phases
        return tokens_of(await reader.read(f"/api/sessions/{session}/turns", body), tokens)

    gc.disable()  # looking for garbage would count as delay
    sampling = asyncio.create_task(_sample(pid, samples))
    try:
        turns = await asyncio.gather(*(turn(number, session) for number, session in enumerate(sessions)))
    finally:
        sampling.cancel()
        gc.enable()
    samples.append(_Sample.take(pid))
    begin, end = _steady(turns, samples)
    delays = sorted((token.arrived - token.sent) / 1e6 for token in _between(turns, begin, end))
    cpu = (end.cpu - begin.cpu) / 1e3 / len(delays)
    share = (end.own - begin.own) / (end.at - begin.at)
    return Load(cpu, delays[len(delays) // 2], delays[int(len(delays) * 0.99)], share)


def tokens_of(pieces: Sequence[tuple[int, bytes]], tokens: int) -> Sequence[Token]:
    """Return the tokens of an answer; the complete text, which follows them, holds all stamps again."""
    answer = b"".join(data for _, data in pieces)
    ends = list(accumulate(len(data) for _, data in pieces))
    stamps = list(STAMP.finditer(answer))[:tokens]
    if len(stamps) < tokens:
        raise RuntimeError(f"{len(stamps)} of {tokens} tokens arrived: {answer[:300]!r} … {answer[-600:]!r}")
    return [Token(int(found[0]), pieces[bisect_left(ends, found.end())][0]) for found in stamps]


def _steady(turns: Sequence[Sequence[Token]], samples: Sequence[_Sample]) -> tuple[_Sample, _Sample]:
    """Return the first and the last sample that count; those of the whole run if no others have a token between."""
    first = max(tokens[0].arrived for tokens in turns)
    last = min(tokens[-1].arrived for tokens in turns)
    within = [sample for sample in samples if first + (last - first) // 4 <= sample.at <= last]
    if len(within) > 1 and any(_between(turns, within[0], within[-1])):
        return within[0], within[-1]
    return samples[0], samples[-1]


def _between(turns: Sequence[Sequence[Token]], begin: _Sample, end: _Sample) -> Iterator[Token]:
    return (token for tokens in turns for token in tokens if begin.at <= token.arrived <= end.at)


async def _sample(pid: int, samples: list[_Sample]) -> None:
    while True:
        samples.append(_Sample.take(pid))
        await asyncio.sleep(SAMPLE_SECONDS)


def _cpu_nanos(pid: int) -> int:
    """Return the CPU time of another process, of all its threads: user and system.

    Linux has a clock for it (clock_getcpuclockid(3)), which is finer than the hundredths of a second in /proc.
    """
    if sys.platform != "linux":
        raise RuntimeError("the CPU time of another process is read on Linux only")
    return time.clock_gettime_ns(~pid << 3 | 2)
