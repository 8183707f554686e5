"""Stock clients of server-sent events that follow a session through cuts and a killed server."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import httpx_sse
import pytest

from tests.support.lanes import Count
from tests.support.server.agx_processes import agx_serve, outcome
from tests.support.server.cutting_proxy import CuttingProxy
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, explained_timeout

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B1")]

NODE_FOLDER = Path(__file__).parent.parent / "node"
NODE_CLIENTS = {
    "eventsource": NODE_FOLDER / "eventsource.mjs",
    "@microsoft/fetch-event-source": NODE_FOLDER / "fetch-event-source.mjs",
}
BYTES = 40_000
"""Less than what is streamed, so that all cuts come."""

SAID = "one \u2028 two \x85 drei für 四 🎉 id: 1 data: 2 " * 15

Follow = Callable[[str, str, list[tuple[str, str]]], Awaitable[None]]
"""Follows the stream at a URL with a token, for ever, and adds the id and data of each event of the log."""


@dataclass
class StockClient:
    """A client of one kind with a proxy of its own, and the events that it received."""

    follow: Follow
    proxy: CuttingProxy
    got: list[tuple[str, str]] = field(default_factory=list)


# --- the clients ------------------------------------------------------------------------------------------------------


async def httpx_sse_client(url: str, token: str, got: list[tuple[str, str]]) -> None:
    """Follow a stream as the page of httpx-sse says: it parses events, reconnecting is up to its user."""
    cursor, retry = "", 500
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as client:
        while True:
            known = {"Last-Event-ID": cursor} if cursor else {}
            try:
                async with httpx_sse.aconnect_sse(client, "GET", url, headers=known) as source:
                    async for frame in source.aiter_sse():
                        retry = frame.retry or retry
                        if frame.data:
                            cursor = frame.id
                            keep(got, frame.id, frame.data)
            except httpx.TransportError:
                await asyncio.sleep(retry / 1000)


def node_client(program: Path) -> Follow:
    async def follow(url: str, token: str, got: list[tuple[str, str]]) -> None:
        process = await asyncio.create_subprocess_exec(
            *("node", str(program)),
            env={"AGX_STREAM": url, "AGX_TOKEN": token},
            executable=shutil.which("node"),
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                cursor, _, data = line.decode().rstrip("\n").partition("\t")
                keep(got, cursor, data)
            raise AssertionError(f"{program.name} ended")
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return follow


def keep(got: list[tuple[str, str]], cursor: str, data: str) -> None:
    """Record an event unless it is a closing frame, the only event here that is not in the log."""
    if json.loads(data)["type"] != "server_closing":
        got.append((cursor, data))


# --- what they go through ---------------------------------------------------------------------------------------------


async def through_cuts_and_a_kill(home: Path, clients: dict[str, StockClient], cuts: int) -> list[tuple[str, str]]:
    """Return the log, once every client has had all its cuts and received as many events as there are."""
    async with AsyncExitStack() as stack:
        for client in clients.values():
            await stack.enter_async_context(client.proxy.listening())
        own = {"AGX_ALLOWED_HOSTS": ",".join(f"127.0.0.1:{client.proxy.port}" for client in clients.values())}
        following: list[asyncio.Task[None]] = []
        stack.push_async_callback(ended, following)
        async with agx_serve(home, **own) as served, served.client() as person:
            point_at(clients, served.port)
            path = f"/api/sessions/{(await person.post('/api/sessions', json={})).json()['id']}"
            for client in clients.values():
                url = f"http://127.0.0.1:{client.proxy.port}{path}/events"
                following.append(asyncio.create_task(client.follow(url, served.token, client.got)))
            await person.post(f"{path}/turns", json={"input": "count to 999"})
            await StreamClient(served.port, f"{path}/events", served.token).read(lambda log: len(log.frames) > 150)
            served.process.kill()
            await outcome(served.process)
        async with agx_serve(home, **own) as served, served.client() as person:
            point_at(clients, served.port)
            log = StreamClient(served.port, f"{path}/events", served.token)
            for text in (f"say {SAID}", *["count to 120"] * 100):  # a busy machine joins words, and sends fewer bytes
                turn = (await person.post(f"{path}/turns", json={"input": text})).json()["turn_id"]
                await log.read(lambda log, turn=turn: turn in log.ended_turns)
                await everything_got(clients, log, following)
                if all(client.proxy.cuts == cuts for client in clients.values()):
                    return [cursor_and_data(frame) for frame in log.frames]
    raise AssertionError(f"cuts that came: {[client.proxy.cuts for client in clients.values()]}")


async def everything_got(
    clients: dict[str, StockClient], log: StreamClient, following: list[asyncio.Task[None]]
) -> None:
    async with explained_timeout(
        lambda: f"got { ({name: len(client.got) for name, client in clients.items()}) } of {len(log.frames)}"
    ):
        while not all(len(client.got) >= len(log.frames) for client in clients.values()):
            await asyncio.wait(following, timeout=0.02)
            for task in following:
                if task.done():
                    task.result()


def point_at(clients: dict[str, StockClient], port: int) -> None:
    for client in clients.values():
        client.proxy.upstream = port


async def ended(following: list[asyncio.Task[None]]) -> None:
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)


def cursor_and_data(frame: bytes) -> tuple[str, str]:
    first, second = frame.decode().split("\n")
    return first.removeprefix("id: "), second.removeprefix("data: ")


def lacking(name: str) -> str | None:
    """Return the reason why that client of npm cannot run here, else None."""
    if shutil.which("node") is None:
        return f"{name} needs node"
    if not (NODE_FOLDER / "node_modules" / name).exists():
        return f"needs {name}: run `npm ci` in {NODE_FOLDER}"
    return None


async def check_that_they_have_the_log(home: Path, rng: random.Random, cuts: int, kinds: dict[str, Follow]) -> None:
    """Check that each client has the log byte for byte, after so many cuts and a killed server."""
    clients = {
        name: StockClient(follow, CuttingProxy.random(rng, cuts=cuts, total_bytes=BYTES))
        for name, follow in kinds.items()
    }
    log = await through_cuts_and_a_kill(home, clients, cuts)
    for name, client in clients.items():
        assert (name, client.proxy.cuts, client.got) == (name, cuts, log)


async def test_httpx_sse_receives_the_whole_log_across_disconnects_and_kills_of_the_server(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    await check_that_they_have_the_log(tmp_path / "home", rng, count(3, 20, 20), {"httpx-sse": httpx_sse_client})


async def test_npm_clients_receive_the_whole_log_across_disconnects_and_kills_of_the_server(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    if missing := [reason for name in NODE_CLIENTS if (reason := lacking(name))]:
        pytest.skip("; ".join(missing))
    kinds = {name: node_client(program) for name, program in NODE_CLIENTS.items()}
    await check_that_they_have_the_log(tmp_path / "home", rng, count(3, 20, 20), kinds)
