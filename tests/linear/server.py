"""A running server whose model writes a megabyte at a time, and its response times meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agenticx.testing import FakeOpenAIServer, ProviderReply, as_json, call, say, think
from tests.linear.texts import JSON, TEXTS
from tests.support.forked import ROOT
from tests.support.server.agx_processes import ServedStudio, agx_serve
from tests.support.server.stream_client import StreamClient, envelope_of
from tests.support.timeouts import PATIENCE

__all__ = ["REPLIES", "Waits", "wait_during"]

_PIECES = 5_000


@dataclass(frozen=True, slots=True)
class Waits:
    """The response times: seconds and CPU seconds of the server for each; `outcomes` are those of the turn."""

    name: str
    outcomes: Sequence[str]
    seconds: Sequence[float]
    cpu: Sequence[float]


def _called(name: str, arguments: str) -> list[ProviderReply]:
    return [[call(name, arguments)], "done"]


def _many_calls(size: int) -> list[ProviderReply]:
    note = "a" * (size // 1_200)
    return [[call("scratchpad_write", {"key": f"note {number}", "content": note}) for number in range(200)], "done"]


REPLIES: Mapping[str, Callable[[int], list[ProviderReply]]] = {
    "nothing, in the first turn": lambda _: ["hello"],
    "an answer in words": lambda size: [[say(TEXTS["words"](size), pieces=_PIECES)]],
    "an answer in one piece": lambda size: [[say(TEXTS["not ASCII"](size))]],
    "an answer that is no stream": lambda size: [as_json(say(TEXTS["mixed"](size).replace("\ud800", "x")))],
    "thoughts": lambda size: [[think(TEXTS["lines"](size), pieces=_PIECES), say("done")]],
    "backticks": lambda size: [[say(TEXTS["opened fences"](size))]],
    "arguments": lambda size: _called("file_search", json.dumps({"pattern": "a" * size})),
    "arguments in pieces": lambda size: [
        [call("file_search", json.dumps({"pattern": "a", "path": "a" * size}), pieces=_PIECES)],
        "done",
    ],
    "broken arguments": lambda size: _called("file_read", JSON["single quotes"](size)),
    "numbers": lambda size: _called("file_read", JSON["numbers"](size // 4)),
    "nested lists": lambda size: _called("file_read", JSON["nested"](size // 8)),
    "deep lists": lambda size: _called("file_read", JSON["deep lists"](size // 4)),
    "many calls": _many_calls,
    "a command": lambda size: _called("bash_exec", json.dumps({"command": "echo " + TEXTS["words"](size)})),
    "a command of one word": lambda size: _called("bash_exec", json.dumps({"command": "echo " + "a/" * (size // 2)})),
    "a command in many words": lambda size: _called(
        "bash_exec", json.dumps({"command": " ".join(f"w{number}*" for number in range(size // 9))})
    ),
    "a short command": lambda _: _called("bash_exec", json.dumps({"command": "yes | head -c 2000000"})),
    "a file": lambda size: _called(
        "file_write", json.dumps({"path": "a.txt", "content": TEXTS["lines"](size)}, ensure_ascii=False)
    ),
    "a file that is not ASCII": lambda size: _called(
        "file_write", json.dumps({"path": "b.txt", "content": TEXTS["not ASCII"](size)}, ensure_ascii=False)
    ),
}


async def wait_during(home: Path, names: Sequence[str], size: int) -> AsyncGenerator[Waits]:
    """Run a turn for each of these replies, and yield the response times of `/api/health` meanwhile.

    The first turn is one of them, in which the server loads its model client.
    """
    replies = [reply for name in names for reply in REPLIES[name](size)]
    async with _serving(home, replies) as served, _polling(served) as poll, served.client() as client:
        for name in names:
            await poll()
            outcomes = await _turn(served, client)
            waits = await poll()
            yield Waits(name, outcomes, [one[0] for one in waits], [one[1] for one in waits])


@asynccontextmanager
async def _serving(home: Path, replies: Sequence[ProviderReply]) -> AsyncGenerator[ServedStudio]:
    async with FakeOpenAIServer(replies) as provider:
        more = {
            "AGX_MODEL": "openai-chat:fake-model",
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "sk-fake",
        }
        async with agx_serve(home, **more) as served:
            yield served


@asynccontextmanager
async def _polling(served: ServedStudio) -> AsyncGenerator[Callable[[], Any]]:
    """Yield a function that ends the current polling interval and returns its response times."""
    pipe = asyncio.subprocess.PIPE
    arguments = (sys.executable, "-m", "tests.linear.polling", str(served.port), str(served.process.pid))
    process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, cwd=ROOT, limit=2**24)
    assert process.stdin is not None
    assert process.stdout is not None
    feed, lines = process.stdin, process.stdout

    async def poll() -> list[tuple[float, float]]:
        feed.write(b"\n")
        async with asyncio.timeout(PATIENCE):
            return json.loads(await lines.readline())

    try:
        yield poll
    finally:
        feed.close()
        await process.wait()


async def _turn(served: ServedStudio, client: httpx.AsyncClient) -> list[str]:
    """Run one turn, allowing every question; return the outcomes of its calls, and how it ended."""
    path = f"/api/sessions/{(await client.post('/api/sessions', json={})).json()['id']}"
    (await client.post(f"{path}/turns", json={"input": "go on"})).raise_for_status()
    reader, answered = StreamClient(served.port, f"{path}/events", served.token), set[str]()
    while not reader.ended_turns:
        await reader.read(lambda log: bool(log.ended_turns or _asked(log, answered)))
        for question in _asked(reader, answered):
            answered.add(question["id"])
            yes = {"approved": True, "digest": question["digest"]}
            (await client.post(f"/api/confirms/{question['id']}", json=yes)).raise_for_status()
    events = reader.envelopes
    results = [one["data"]["outcome"] for one in events if one["type"] == "tool_result"]
    ended = [one["data"].get("code") or one["data"]["reason"] for one in events if one["type"] in ("final", "error")]
    return [*dict.fromkeys([*results, *ended])]


def _asked(reader: StreamClient, answered: set[str]) -> list[dict[str, Any]]:
    """Return the questions that are not answered yet."""
    frames = (frame for frame in reader.frames if b'"type":"confirm_required"' in frame[:200])
    return [data for frame in frames if (data := envelope_of(frame)["data"])["id"] not in answered]
