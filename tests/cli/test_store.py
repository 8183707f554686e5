"""`agx store check`, which compares what is made of the logs of sessions with them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenticx.sessions import BlobFolder, PostgresStore
from tests.support.commits import add_fact, append, delete
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.stores import posted, running_in, session_in, token


def test_a_store_is_compared_with_its_logs(agx: Any, tmp_path: Path) -> None:
    database = tmp_path / "home" / "sessions.db"
    missing = agx("store", "check")
    assert (missing.returncode, missing.stdout) == (0, f"{database} is created on first use\n")
    assert agx("run", "hi").returncode == 0
    same = agx("store", "check")
    assert (same.returncode, same.stdout, same.stderr) == (0, f"{database} agrees with its logs\n", "")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        (session_id,) = connection.execute("SELECT id FROM sessions").fetchone()
        connection.execute("UPDATE usage SET calls = 7")
    other = agx("store", "check")
    assert (other.returncode, other.stdout) == (1, f"session '{session_id}' differs from its log in its usage\n")


@pytest.mark.anyio
@pytest.mark.ci_lane
async def test_the_tables_of_a_postgresql_database_are_compared_with_its_logs(agx: Any, postgres: Cluster) -> None:
    url = await store_url(postgres)
    name = f"postgresql://{url.partition('@')[2]}"
    agx.environment["AGX_STORE_URL"] = url
    store = await PostgresStore.open(url)
    session_id = await running_in(store, "turn_1")
    await append(store, session_id, "turn_1", [token("a"), token("b", 1)])
    await add_fact(store, session_id, posted("message_1"))
    await store.aclose()
    same = agx("store", "check")
    assert (same.returncode, same.stdout, same.stderr) == (0, f"{name} agrees with its logs\n", "")


@pytest.mark.ci_lane
@pytest.mark.anyio
async def test_deleted_sessions_are_purged_and_the_version_is_reported(agx: Any, postgres: Cluster) -> None:
    url = await store_url(postgres)
    name, database = f"postgresql://{url.partition('@')[2]}", url.rpartition("/")[2]
    agx.environment["AGX_STORE_URL"] = url
    store = await PostgresStore.open(url)
    await delete(store, await session_in(store))
    await store.aclose()
    purged = agx("store", "purge")
    assert (purged.returncode, purged.stderr) == (1, "")
    left = f"{name} still has bytes of deleted sessions: the log of writes: wal_recycle is on"
    assert purged.stdout.startswith(left)
    assert await postgres.sql("SELECT count(*) FROM purges", database) == "0"
    again = agx("store", "purge")
    assert (again.returncode, again.stdout, again.stderr) == (0, f"{name} is purged\n", "")
    current = agx("store", "migrate")
    assert (current.returncode, current.stdout) == (0, f"{name} has the current version\n")
    await postgres.sql("UPDATE meta SET value = '99' WHERE key = 'version'", database)
    newer = agx("store", "migrate")
    assert (newer.returncode, newer.stdout, "use a newer AgenticX" in newer.stderr) == (1, "", True)


@pytest.mark.anyio
@pytest.mark.ci_lane
async def test_doctor_creates_and_stores_nothing_in_a_database(agx: Any, postgres: Cluster, tmp_path: Path) -> None:
    url = await postgres.fresh_database()
    name, database = f"postgresql://{url.partition('@')[2]}", url.rpartition("/")[2]
    (secret := tmp_path / "secret").write_text("1" * 64)
    secret.chmod(0o600)
    agx.environment |= {"AGX_STORE_URL": url, "AGX_SECRET_FILE": str(secret)}
    assert f"--  store        {name} is empty: its tables are created on first use" in agx("doctor").stdout
    assert await postgres.sql("SELECT count(*) FROM pg_class WHERE relname = 'meta'", database) == "0"
    await PostgresStore(url).aclose()
    assert f"ok  store        {name} is postgresql" in agx("doctor").stdout
    assert await postgres.sql("SELECT count(*) FROM shared", database) == "0"
    assert agx("keys", "set", "openai", stdin="sk-one").returncode == 0
    assert "OPENAI_API_KEY" in agx("doctor").stdout
    secret.write_text("2" * 64)
    wrong = agx("doctor")
    assert (wrong.returncode, "!!  keys         the key of AGX_SECRET_FILE does not open" in wrong.stdout) == (1, True)


@pytest.mark.anyio
@pytest.mark.ci_lane
async def test_what_workers_share_is_encrypted_with_another_key(agx: Any, postgres: Cluster, tmp_path: Path) -> None:
    url = await postgres.fresh_database()
    old, new = (tmp_path / name for name in ("secret", "secret.new"))
    for path, digit in ((old, "1"), (new, "2")):
        path.write_text(digit * 64)
        path.chmod(0o600)
    agx.environment |= {"AGX_STORE_URL": url, "AGX_SECRET_FILE": str(old)}
    for provider in ("openai", "groq"):
        assert agx("keys", "set", provider, stdin="sk-one").returncode == 0
    worker = await PostgresStore.open(url)
    await worker.workers()
    refused = agx("keys", "rotate-secret", str(new))
    assert (refused.returncode, "stop all workers first" in refused.stderr) == (1, True), refused.stderr
    await worker.aclose()
    done = agx("keys", "rotate-secret", str(new))
    text = f"agx keys: 3 values are encrypted with the key of {str(new)!r}; let AGX_SECRET_FILE of all workers have it"
    assert (done.returncode, done.stderr) == (0, f"{text}\n")
    again = agx("keys", "rotate-secret", str(new))
    assert (again.returncode, "does not open the stored value" in again.stderr) == (2, True), again.stderr
    agx.environment["AGX_SECRET_FILE"] = str(new)
    assert agx("doctor").stdout.count("; --online tests it at ") == 2


@pytest.mark.anyio
@pytest.mark.ci_lane
async def test_sessions_are_copied_from_one_store_to_another(agx: Any, postgres: Cluster, tmp_path: Path) -> None:
    url = await store_url(postgres)
    name, file = f"postgresql://{url.partition('@')[2]}", f"sqlite:///{tmp_path}/home/sessions.db"
    assert agx("run", "hi").returncode == 0
    shown = agx("sessions", "list").stdout
    session_id = json.loads(agx("sessions", "list", "--json").stdout)["id"]
    digest = await BlobFolder(tmp_path / "home" / "snapshots").put(session_id, b"a file before a change")
    agx.environment["AGX_HOME"] = str(tmp_path / "worker")
    copied = agx("store", "copy", file, url)
    assert (copied.returncode, copied.stdout) == (0, f"copied 1 session to {name}\n"), copied.stderr
    at_worker = BlobFolder(tmp_path / "worker" / "snapshots").read(session_id, digest)
    assert at_worker == b"a file before a change"
    again = agx("store", "copy", file, url, "--session", "nothing")
    assert (again.returncode, again.stdout) == (1, f"copied 0 sessions to {name}, refused 1\n")
    assert again.stderr == "agx store: session nothing is not copied: no session has the id 'nothing'\n"
    agx.environment["AGX_STORE_URL"] = url
    assert agx("sessions", "list").stdout == shown
    assert f"ok  store        {name} is postgresql" in agx("doctor").stdout
    several = f"{await postgres.fresh_database()} {await postgres.fresh_database()}"
    moved = agx("store", "copy", url, several)
    assert (moved.returncode, moved.stdout.startswith("copied 1 session to ")) == (0, True), moved.stderr
    agx.environment["AGX_STORE_URL"] = several
    assert agx("sessions", "list").stdout == shown
    same = agx("store", "copy", file, file)
    assert (same.returncode, "are the same store" in same.stderr) == (1, True)
    missing = agx("store", "copy", f"sqlite:///{tmp_path}/nothing.db", url)
    assert (missing.returncode, "there is no store" in missing.stderr) == (1, True)
