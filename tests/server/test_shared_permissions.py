"""Rules and trusted files that two studios share: given at one of them, they hold at the other."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.sessions import MemoryStore
from agenticx.settings import load_settings
from agenticx.shared_state.state import SharedState
from agenticx.shared_state.values import MemorySharedValues, SharedValues
from agenticx.testing import call
from agenticx.tools import tool
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.server.running_studio import RunningStudio, running_studio
from tests.support.timeouts import PATIENCE

if TYPE_CHECKING:
    from agenticx.sessions import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E5")]

RULE = {"decision": "allow", "tool": "run_code", "scope": "user"}
CODE = call("run_code", {"code": "1 + 1"})


@tool(risk="execute")
def run_code(code: str) -> str:
    """Run code."""
    return "done"


Worker = Callable[[], "tuple[MemoryStore | PostgresStore, SharedValues]"]


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.ci_lane)])
async def worker(request: pytest.FixtureRequest) -> AsyncIterator[Worker]:
    """Return a function that makes the store of another worker, and the values that they share."""
    if request.param == "memory":
        store, values = MemoryStore(), MemorySharedValues()
        yield lambda: (store.other_worker(), values)
        return
    from agenticx.sessions import PostgresStore
    from agenticx.sessions.store.postgres import PostgresValues

    cluster: Cluster = request.getfixturevalue("postgres")
    url = await store_url(cluster)
    yield lambda: (PostgresStore(url), PostgresValues(url))


@asynccontextmanager
async def two_studios(
    folder: Path, worker: Worker, *script: Any
) -> AsyncGenerator[tuple[RunningStudio, RunningStudio]]:
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))
    model = ScriptedModel(script, name="scripted")

    def studio(name: str) -> Any:
        settings = load_settings({"home": folder / name / "home", "secret_file": secret}, environ={})
        store, values = worker()
        store.shared = SharedState(values, settings)
        return running_studio(folder / name, model, store=store, tools=[run_code], sandbox="off")

    async with studio("a") as one, studio("b") as two:
        yield one, two


async def asked(studio: RunningStudio, session_id: str) -> str:
    """Begin a turn, wait for its question, and return the cursor before the turn."""
    cursor = (await studio.turn(session_id)).json()["cursor"]
    await studio.events_until(session_id, "confirm_required", cursor=cursor)
    return cursor


async def answer(studio: RunningStudio, session_id: str, cursor: str) -> tuple[bool, str]:
    """Return the answer to the question, and whose it is."""
    data = (await studio.events_until(session_id, "confirm_response", cursor=cursor))[-1].data["data"]
    return data["approved"], data["by"]


async def test_a_rule_stored_at_one_studio_decides_a_question_that_waits_at_the_other(
    tmp_path: Path, worker: Worker
) -> None:
    async with two_studios(tmp_path, worker, *[CODE, "done"] * 4) as (one, two):
        session_id = await two.session()
        cursor = await asked(two, session_id)
        (rule,) = (await one.client.put("/api/permissions", json={"rules": [RULE]})).json()["rules"]
        assert await answer(two, session_id, cursor) == (True, "policy")
        await two.events_until(session_id, "final", cursor=cursor)
        unasked = (await two.turn(session_id)).json()["cursor"]
        assert "confirm_required" not in [
            frame.type for frame in await two.events_until(session_id, "final", cursor=unasked)
        ]
        assert two.services.store.shared is not None
        stored = two.services.store.shared.values.items("")
        assert f"rule/{rule['id']}" in stored
        assert not any(b"run_code" in value for value in stored.values())
        assert (await one.client.delete(f"/api/permissions/{rule['id']}")).json() == rule
        async with asyncio.timeout(PATIENCE):
            while (await two.client.get("/api/permissions")).json()["rules"]:
                await asyncio.sleep(0.01)
        cursor = await asked(two, session_id)
        await one.client.put("/api/permissions", json={"rules": [{**RULE, "decision": "deny"}]})
        assert await answer(two, session_id, cursor) == (False, "policy")


@pytest.mark.ci_lane
async def test_a_file_trusted_at_one_studio_decides_a_question_that_waits_at_the_other(
    tmp_path: Path, worker: Worker
) -> None:
    async with two_studios(tmp_path, worker, *[CODE, "done"] * 2) as (one, two):
        (two.workspace / "AGENTS.md").write_text("Use tabs.")
        session_id = await two.session(permission_mode="auto")
        cursor = await asked(two, session_id)
        body = {"sha256": hashlib.sha256(b"Use tabs.").hexdigest()}
        trusted = await one.client.post(f"/api/sessions/{session_id}/trust", json=body)
        assert trusted.json()["files"][0]["trusted"] is True
        assert await answer(two, session_id, cursor) == (True, "policy")
