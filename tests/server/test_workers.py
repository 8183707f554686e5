"""`GET /api/workers`: who uses the store, what waits for a worker, and the database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agenticx.cli.client.discovery import find_studio
from agenticx.cli.client.studio_file import StudioAddress
from agenticx.llms import ScriptedModel
from agenticx.sessions import PostgresStore, TurnRecord
from agenticx.sessions.store.configuration import configuration_digests
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.workers import describe_workers
from agenticx.settings import load_settings
from agenticx.testing import hang, say
from tests.support.commits import append
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.proxy import FaultyProxy
from tests.support.postgres.stores import store_url
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker
from tests.support.stores import record, started
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


async def report_of(studio: RunningStudio) -> dict[str, Any]:
    answer = await studio.client.get("/api/workers")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def begin_turn(studio: RunningStudio, workspace: Path) -> None:
    made = (await studio.client.post("/api/sessions", json={"workspace": str(workspace)})).json()
    turn = await studio.client.post(f"/api/sessions/{made['id']}/turns", json={"input": "x"})
    assert turn.status_code == 202, turn.text


@IN_A_FILE
async def test_a_store_in_a_file_has_this_process_as_its_only_worker(make_studio: StudioMaker, tmp_path: Path) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        studio.services.store.address = "http://127.0.0.1:1234"
        await begin_turn(studio, tmp_path)
        report = await report_of(studio)
    (worker,) = report["workers"]
    shown = {key: worker[key] for key in ("address", "host", "pid", "is_alive", "is_this", "sessions", "running_turns")}
    assert shown == {
        "address": "http://127.0.0.1:1234",
        "host": this_host(),
        "pid": os.getpid(),
        "is_alive": True,
        "is_this": True,
        "sessions": 1,
        "running_turns": 1,
    }
    assert worker["started"] <= worker["seen"]
    (server,) = report["servers"]
    assert (server["engine"], server["version"], server["durability"]) == ("sqlite", sqlite3.sqlite_version, "disk")
    assert server["size_bytes"] > 0
    assert report["orphans"] == {"sessions": 0, "since": None, "hosts": []}


@pytest.mark.ci_lane
async def test_workers_of_one_database_show_each_other_and_what_a_dead_one_left(
    make_studio: StudioMaker, postgres: Cluster, tmp_path: Path
) -> None:
    url = await store_url(postgres)
    other = await PostgresStore.open(url, lease=3600)  # with few heartbeats
    other.address = "http://b.example:8765"
    try:
        async with make_studio(ScriptedModel([[say("a"), hang()]]), store=PostgresStore(url)) as studio:
            await begin_turn(studio, tmp_path)
            far = replace(record(), workspace_host="b.example")
            await other.create(far)
            begins = TurnRecord(id="turn_1", session_id=far.id, input="x")
            await append(other, far.id, "turn_1", [started()], begins=begins)
            workers = (await report_of(studio))["workers"]
            assert [
                (each["is_this"], each["is_alive"], each["sessions"], each["running_turns"]) for each in workers
            ] == [*((True, True, 1, 1), (False, True, 1, 1))]
            assert workers[1]["address"] == "http://b.example:8765"
            assert (await other.workers())["workers"][1]["is_this"]

            database = url.rpartition("/")[2]
            expire = "UPDATE workers SET until = clock_timestamp() - interval '1 minute', server = NULL WHERE id ="
            await postgres.sql(f"{expire} '{workers[1]['id']}'", database)
            report = await report_of(studio)
            assert [each["is_alive"] for each in report["workers"]] == [True, False]
            orphans = report["orphans"]
            assert (orphans["sessions"], orphans["hosts"]) == (
                *(1, [{"host": "b.example", "sessions": 1, "has_worker": False}]),
            )
            assert orphans["since"] < report["workers"][0]["seen"]
            (server,) = report["servers"]
            assert (server["engine"], server["durability"], server["standbys"]) == ("postgresql", "disk", 0)
            assert 2 <= server["connections"] <= server["max_connections"]
            assert (report["deletions"]["sessions"], report["deletions"]["partitions"]) == (0, 0)

            vault = await studio.client.get("/api/vaults/vault_of_another_worker")
            assert (vault.status_code, vault.json()["code"]) == (404, "vault_not_found")
            assert (
                f"each worker has vaults of its own, and these are those of the worker on '{this_host()}'" in vault.text
            )
    finally:
        await other.aclose()


@pytest.mark.parametrize("fault", ["refused", "silent"])
@pytest.mark.ci_lane
async def test_probes_say_no_while_the_database_cannot_be_written_without_a_commit_that_failed(
    make_studio: StudioMaker, postgres: Cluster, tmp_path: Path, fault: str
) -> None:
    url = await store_url(postgres)
    async with FaultyProxy(postgres.port).listening() as proxy:
        through = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        store = await asyncio.to_thread(PostgresStore, through, lease=1)
        async with make_studio(store=store) as studio:

            async def statuses() -> tuple[int, int]:
                health, ready = [await studio.client.get(f"/api/{probe}") for probe in ("health", "ready")]
                return health.status_code, ready.status_code

            assert await statuses() == (200, 200)
            if fault == "refused":
                await proxy.refuse()
                proxy.cut()
            else:
                proxy.pause()
            async with asyncio.timeout(PATIENCE):
                while await statuses() != (503, 503):
                    await asyncio.sleep(0)
            begun = asyncio.get_running_loop().time()
            health = await studio.client.get("/api/health")
            assert asyncio.get_running_loop().time() - begun < 20  # and not the thirty seconds of other requests
            assert (health.json()["code"], str(proxy.port) in health.text) == ("storage", False)
            address = StudioAddress("127.0.0.1", studio.port, studio.services.instance, tmp_path / "token")
            address.write_file(tmp_path)
            assert await find_studio(tmp_path, response_timeout=PATIENCE) == address
            if fault == "refused":
                await proxy.accept()
            else:
                proxy.resume()
            async with asyncio.timeout(PATIENCE):
                while await statuses() != (200, 200):
                    await asyncio.sleep(0)


FULL = """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER fails BEFORE INSERT ON commits EXECUTE FUNCTION fail();
    CREATE TRIGGER fails BEFORE INSERT ON commands EXECUTE FUNCTION fail()"""


@pytest.mark.ci_lane
async def test_probes_say_no_while_the_disk_of_the_database_is_full(
    make_studio: StudioMaker, postgres: Cluster
) -> None:
    url = await store_url(postgres)
    async with make_studio(store=await PostgresStore.open(url)) as studio:
        session_id = await studio.session()
        await postgres.sql(FULL, url.rpartition("/")[2])
        answer = await studio.turn(session_id)
        assert (answer.status_code, "could not extend file" in answer.json()["detail"]) == (503, True)
        for _ in range(5):
            assert [(await studio.client.get(f"/api/{probe}")).status_code for probe in ("health", "ready")] == [
                503,
                503,
            ]
        await postgres.sql("DROP FUNCTION fail CASCADE", url.rpartition("/")[2])
        assert (await studio.client.get("/api/ready")).status_code == 200
        assert (await studio.turn(session_id)).status_code == 202


@pytest.mark.ci_lane
async def test_workers_whose_configuration_differs_are_named_with_the_part_that_does(
    postgres: Cluster, tmp_path: Path
) -> None:
    url, stores = await store_url(postgres), list[PostgresStore]()
    for name in ("a", "b", "c"):
        (home := tmp_path / name / "agents").mkdir(parents=True)
        (home / "one.toml").write_text("name = 1" if name == "c" else "name = 2")
        settings = load_settings({"home": tmp_path / name, "store_url": url, "model": f"demo-{name}"}, environ={})
        store = await PostgresStore.open(url, configuration=partial(configuration_digests, settings))
        store.address = f"http://{name}.example:8765"
        stores.append(store)
        report = await store.workers()
    alike, _, other = (worker["configuration"]["agents"] for worker in report["workers"])
    place = f"process {os.getpid()} on {this_host()}"
    differences = [sentence for sentence, is_fine in describe_workers(report) if not is_fine]
    assert differences[1:] == [f"the workers differ in their agents: {place}, {place} ({alike}); {place} ({other})"]
    assert differences[0].startswith("the workers differ in their settings (variables and settings.toml): ")
    for store in stores:
        await store.aclose()


@pytest.mark.ci_lane
async def test_a_dead_worker_is_not_reported_any_more_once_another_has_its_address(postgres: Cluster) -> None:
    url = await store_url(postgres)
    row = "'{}', 'http://{}:8765', '{}', 1, '1', '{{}}', clock_timestamp() - {}, clock_timestamp() - {}"
    rows = [
        row.format("replaced", this_host(), this_host(), *["interval '1 minute'"] * 2),
        row.format("missing", "b.example", "b.example", *["interval '1 minute'"] * 2),
        row.format("old", "c.example", "c.example", *["interval '11 minutes'"] * 2),
    ]
    columns = "id, address, host, pid, version, configuration, seen, until"
    values = ", ".join(f"({row})" for row in rows)
    await postgres.sql(f"INSERT INTO workers ({columns}) VALUES {values}", url.rpartition("/")[2])
    store = await PostgresStore.open(url)
    store.address = f"http://{this_host()}:8765"
    await store.create(record())
    try:
        async with asyncio.timeout(PATIENCE):
            while len(workers := (await store.workers())["workers"]) > 2:
                await asyncio.sleep(0.01)
        assert [(each["id"], each["is_alive"]) for each in workers if not each["is_this"]] == [("missing", False)]
    finally:
        await store.aclose()
