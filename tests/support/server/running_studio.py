"""A real studio on a real socket, with a client and helpers for its event streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx.clocks import Clock
from agenticx.llms import ChatModel, NamedModels, ScriptedModel, resolve_model
from agenticx.runtime import AgentHook
from agenticx.sessions import Store
from agenticx.settings import load_settings
from agenticx.testing import check_grammar
from agenticx.tools import Tool, tool
from studio.access import load_or_create_token
from studio.server import StudioServer, listen
from studio.services import Services, make_services
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PatientClock, explained_timeout, patient_client

TOKEN = "t" * 43

IN_A_FILE = pytest.mark.parametrize("make_studio", ["sqlite"], indirect=True)
"""A mark of tests that look at the files of a single studio, or damage them.

Those of keys that another process stores have their like over a database in tests/server/test_shared_workers.py.
"""


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


@dataclass(frozen=True)
class Frame:
    """One server-sent event as a client sees it, or a comment."""

    id: str | None
    data: Any
    raw: bytes

    @property
    def type(self) -> str:
        return "comment" if self.data is None else self.data["type"]


@dataclass
class RunningStudio:
    """A running studio and an authorized client."""

    services: Services
    server: StudioServer
    client: httpx.AsyncClient
    port: int
    workspace: Path
    serving: asyncio.Task[None]

    async def session(self, **fields: Any) -> str:
        """Create a session with a name, so that no turn adds a naming event, and return its id."""
        answer = await self.client.post("/api/sessions", json={"name": "Named", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def turn(self, session_id: str, text: str = "hi", **fields: Any) -> httpx.Response:
        return await self.client.post(f"/api/sessions/{session_id}/turns", json={"input": text, **fields})

    @asynccontextmanager
    async def frames(self, path: str, *, cursor: str | None = None) -> AsyncIterator[AsyncIterator[Frame]]:
        headers = {} if cursor is None else {"Last-Event-ID": cursor}
        async with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200
            yield frames_of(answer)

    def events(
        self, session_id: str, *, cursor: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Frame]]:
        return self.frames(f"/api/sessions/{session_id}/events", cursor=cursor)

    async def events_until(self, session_id: str, type_: str, *, cursor: str | None = None) -> list[Frame]:
        """Return the session's events up to the first one of that type."""
        async with self.events(session_id, cursor=cursor) as frames:
            found = await until(frames, type_)
        if cursor is None:
            check_grammar([frame.data for frame in found if frame.id is not None], complete=False)
        return found

    def reader(self, session_id: str, query: str = "") -> StreamClient:
        """Return a client of the session's stream that can disconnect in the middle of a frame."""
        return StreamClient(self.port, f"/api/sessions/{session_id}/events{query}", TOKEN)

    async def close(self) -> None:
        self.server.should_exit = True
        await self.serving


async def frames_of(answer: httpx.Response) -> AsyncIterator[Frame]:
    """Yield the frames of a stream without the `retry` field; comments have no data."""
    buffer = b""
    async for piece in answer.aiter_raw():
        buffer += piece
        while b"\n\n" in buffer:
            raw, buffer = buffer.split(b"\n\n", 1)
            fields = dict(line.split(b": ", 1) for line in raw.split(b"\n"))
            if b"retry" not in fields:
                data = json.loads(fields[b"data"]) if b"data" in fields else None
                yield Frame(fields.get(b"id", b"").decode() or None, data, raw)


async def until(frames: AsyncIterator[Frame], type_: str) -> list[Frame]:
    """Return all frames up to the first one of that type."""
    found: list[Frame] = []
    async with explained_timeout(lambda: f"the frames so far: {[frame.type for frame in found]}"):
        async for frame in frames:
            found.append(frame)
            if frame.type == type_:
                return found
    raise AssertionError(f"the stream ended without {type_!r}: {[frame.type for frame in found]}")


StudioMaker = Callable[..., AbstractAsyncContextManager[RunningStudio]]


@asynccontextmanager
async def running_studio(
    tmp_path: Path,
    default_model: ChatModel | None = None,
    *,
    tools: Iterable[Tool] | None = None,
    hooks: Sequence[AgentHook] = (),
    clock: Clock | None = None,
    store: Store | None = None,
    **settings: Any,
) -> AsyncIterator[RunningStudio]:
    """Yield a studio whose default model is `default_model`, by default one that says hello.

    Without a `clock` it has a `PatientClock`, without a `store` the one in its home. Its token is `TOKEN`, or the one
    that the workers of the store share.
    """
    workspace = tmp_path / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    model = default_model or ScriptedModel(["hello"] * 100, name="scripted")
    given = {"home": tmp_path / "home", "workspace_root": workspace, "model": "scripted", **settings}
    loaded = load_settings(given, environ={})
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]

    def resolve(spec: str) -> ChatModel:
        return model if spec == "scripted" else resolve_model(spec, settings=loaded)

    shared = None if store is None else store.shared
    token = TOKEN if shared is None else load_or_create_token(loaded, shared)
    services = make_services(
        loaded,
        token=token,
        store=store,
        models=NamedModels(loaded, resolve),
        tools=tools or [note],
        hooks=hooks,
        clock=clock or PatientClock(),
    )
    ready = asyncio.Event()
    server = StudioServer(services, ready.set)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await ready.wait()
    headers = {"Authorization": f"Bearer {token}"}
    async with patient_client(f"http://127.0.0.1:{port}", headers=headers) as client:
        running = RunningStudio(services, server, client, port, workspace, serving)
        try:
            yield running
        finally:
            await running.close()
