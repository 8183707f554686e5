"""Processes of `agx serve` over one PostgreSQL database: each request can go to any of them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx.testing import FakeOpenAIServer
from tests.support.postgres.cluster import Cluster, cluster, requires_postgres
from tests.support.postgres.workers import StudioWorker, studio_workers
from tests.support.server.agx_processes import agx, outcome
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, pytest.mark.promise("G")]

KEY, OTHER = "canary-of-a-shared-key-1", "canary-of-a-shared-key-2"
WITHOUT_MODELS = {
    "AGX_MODEL": "",
    "GROQ_API_KEY": "",
    "GROQ_BASE_URL": "http://127.0.0.1:9/v1",
    **{f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")},
}


async def stored_values(postgres: Cluster, url: str) -> str:
    """Return the rows of the shared values as text."""
    database = url.rpartition("/")[2]
    return await postgres.sql("SELECT name, encode(value, 'escape'), value FROM shared", database)


async def redeemed(worker: StudioWorker, ticket: str) -> httpx.Response:
    async with worker.client() as client:
        return await client.post("/api/ticket", json={"ticket": ticket})


async def event_types(client: httpx.AsyncClient, session_id: str) -> list[str]:
    """Run a turn and return the types of its events."""
    url, headers = f"/api/sessions/{session_id}/turns", {"Accept": "text/event-stream"}
    async with client.stream("POST", url, json={"input": "hi"}, headers=headers) as answer:
        lines = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]
    return [event["type"] for event in map(json.loads, lines)]


async def wait_for(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is the expected one."""
    async with asyncio.timeout(PATIENCE):
        while await ask() != expected:
            await asyncio.sleep(0.02)


async def test_workers_that_start_at_once_have_one_token_and_redeem_each_ticket_once(
    tmp_path: Path, postgres: Cluster
) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 3) as workers:
        (token,) = {worker.token for worker in workers.all}
        one = workers.all[0]
        async with one.client() as client:
            tickets = [(await client.post("/api/tickets")).json()["ticket"] for _ in range(10)]
        for ticket in [*tickets, one.ticket]:
            answers = await asyncio.gather(*(redeemed(worker, ticket) for worker in workers.all for _ in range(2)))
            codes = sorted(answer.status_code for answer in answers)
            assert codes == [200, 401, 401, 401, 401, 401]
            assert [answer.json() for answer in answers if answer.status_code == 200] == [{"token": token}]
        async with one.client() as client:
            kept = (await client.post("/api/tickets")).json()["ticket"]
        values = await stored_values(postgres, url)
        assert token not in values
        assert kept not in values
        assert await one.terminate() == 0
        assert (await redeemed(workers.all[1], kept)).status_code == 200
        (late,) = await workers.start()
        assert late.token == token


async def test_a_key_that_one_worker_stores_is_used_by_the_others_and_by_commands(
    tmp_path: Path, postgres: Cluster
) -> None:
    url = await postgres.fresh_database()
    async with (
        FakeOpenAIServer(["hi"]) as provider,
        studio_workers(tmp_path, url, 2, **{**WITHOUT_MODELS, "GROQ_BASE_URL": provider.base_url}) as workers,
        workers.all[0].client() as one,
        workers.all[1].client() as two,
    ):

        async def keys_of_two() -> Any:
            return (await two.get("/api/keys")).json()["keys"]

        async def default_of_two() -> Any:
            return (await two.get("/api/models")).json()["default"]

        assert (await default_of_two(), await keys_of_two()) == ("demo", [])
        stored = (await one.put("/api/keys/groq", json={"key": KEY})).json()
        assert stored == {"provider": "groq", "stored": "database", "source": "database", "tested": False}
        await wait_for([{"provider": "groq", "source": "database", "variable": "GROQ_API_KEY"}], keys_of_two)
        await wait_for("groq:openai/gpt-oss-120b", default_of_two)
        session_id = (await two.post("/api/sessions", json={"name": "Named"})).json()["id"]
        assert (await event_types(two, session_id))[-1] == "final"
        assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"

        home = tmp_path / "elsewhere/home"
        home.parent.mkdir()
        variables = {"AGX_STORE_URL": url, "AGX_SECRET_FILE": str(tmp_path / "secret"), **WITHOUT_MODELS}
        assert (await outcome(await agx(home, "keys", "list", **variables)))[:2] == (
            0,
            "groq  database  GROQ_API_KEY\n",
        )
        code, _, err = await outcome(await agx(home, "keys", "remove", "groq", **variables))
        assert (code, err) == (0, "agx keys: the stored key of groq is removed\n")
        await wait_for([], keys_of_two)
        assert (await one.delete("/api/keys/groq")).json()["code"] == "key_not_found"
        await one.put("/api/keys/groq", json={"key": OTHER})
        values = await stored_values(postgres, url)
        assert "key/GROQ_API_KEY" in values
        assert "canary" not in values
        assert not any("canary" in worker.log for worker in workers.all)


async def test_a_worker_without_the_secret_of_the_others_does_not_start(tmp_path: Path, postgres: Cluster) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 1):
        other = tmp_path / "other-secret"
        other.touch(0o600)
        other.write_text(secrets.token_hex(32))
        home = tmp_path / "elsewhere/home"
        home.parent.mkdir()
        for variables, words in (
            ({"AGX_SECRET_FILE": str(other)}, "was encrypted with another key, or changed; give each worker the same"),
            ({}, "set AGX_SECRET_FILE to a file with the same key on each worker"),
            ({"AGX_SECRET_FILE": str(tmp_path / "none")}, "openssl rand -hex 32"),
        ):
            code, out, err = await outcome(await agx(home, "serve", "--port", "0", AGX_STORE_URL=url, **variables))
            assert (code, out) == (2, "")
            assert words in err
            assert "Traceback" not in err
        assert not (home / "token").exists()


async def test_rules_of_a_file_keep_a_worker_from_starting_until_they_are_imported(
    tmp_path: Path, postgres: Cluster
) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 1) as workers, workers.all[0].client() as client:
        home = tmp_path / "elsewhere/home"
        home.mkdir(mode=0o700, parents=True)
        file = home / "permissions.toml"
        file.write_text('[[rules]]\ndecision = "deny"\ntool = "bash_exec"\ncommand = "git push"\n')
        variables = {"AGX_STORE_URL": url, "AGX_SECRET_FILE": str(tmp_path / "secret"), **WITHOUT_MODELS}
        for words in (["serve", "--port", "0"], ["run", "hi", "--model", "demo"]):
            code, out, err = await outcome(await agx(home, *words, **variables))
            assert (code, out, f"`agx permissions import {file}` moves them there" in err) == (2, "", True), err
        code, _, err = await outcome(await agx(home, "permissions", "import", str(file), **variables))
        assert (code, "added 1 rule;" in err, file.exists()) == (0, True, False), err
        assert (home / "permissions.imported.toml").exists()
        (rule,) = (await client.get("/api/permissions")).json()["rules"]
        assert (rule["decision"], rule["command"], rule["scope"]) == ("deny", "git push", "user")
        assert "git push" not in await stored_values(postgres, url)
        code, out, _ = await outcome(await agx(home, "run", "say hi", "--model", "demo", **variables))
        assert (code, out) == (0, "hi\n")
        push = json.dumps({"command": "sudo git push"})
        code, out, _ = await outcome(await agx(home, "permissions", "explain", "bash_exec", push, **variables))
        assert (code, out.splitlines()[0]) == (0, 'deny (rule: deny bash_exec command="git push")')
        assert (await outcome(await agx(home, "permissions", "remove", rule["id"], **variables)))[0] == 0

        async def rules_of_the_worker() -> Any:
            return (await client.get("/api/permissions")).json()["rules"]

        await wait_for([], rules_of_the_worker)


async def test_with_a_token_file_no_secret_is_needed_and_no_key_is_stored(tmp_path: Path, postgres: Cluster) -> None:
    url, token_file = await postgres.fresh_database(), tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text("t" * 43)
    variables = {**WITHOUT_MODELS, "AGX_TOKEN_FILE": str(token_file), "AGX_SECRET_FILE": ""}
    async with studio_workers(tmp_path, url, 2, **variables) as workers, workers.all[1].client() as client:
        answer = await client.put("/api/keys/groq", json={"key": KEY})
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_settings")
        assert "AGX_SECRET_FILE" in answer.json()["detail"]
        ticket = (await client.post("/api/tickets")).json()["ticket"]
        assert (await redeemed(workers.all[0], ticket)).json() == {"token": "t" * 43}


@requires_postgres
async def test_tickets_and_keys_wait_for_a_database_that_restarts(tmp_path: Path) -> None:
    async with cluster(in_memory=True) as database:
        url = await database.fresh_database()
        async with (
            studio_workers(tmp_path, url, 2, **WITHOUT_MODELS) as workers,
            workers.all[0].client() as one,
            workers.all[1].client() as two,
        ):
            tickets = [(await one.post("/api/tickets")).json()["ticket"] for _ in range(2)]
            await database.kill()
            async with asyncio.TaskGroup() as group:
                storing = group.create_task(one.put("/api/keys/groq", json={"key": KEY}))
                redeeming = group.create_task(redeemed(workers.all[1], tickets[0]))
                await database.start()
            assert (storing.result().status_code, redeeming.result().status_code) == (200, 200)
            assert (await redeemed(workers.all[0], tickets[1])).status_code == 200

            async def keys_of_two() -> object:
                return (await two.get("/api/keys")).json()["keys"]

            await wait_for([{"provider": "groq", "source": "database", "variable": "GROQ_API_KEY"}], keys_of_two)
