"""Servers that are not what they were: poolers, earlier primaries, outages, changed settings, old snapshots."""

from __future__ import annotations

import asyncio
import pwd
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.clocks import SystemClock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.sessions import Commit, PostgresStore, TurnRecord
from agenticx.sessions.store.postgres import KnownTimelines, purge_database
from tests.support.postgres.cluster import USER, Cluster, cluster, free_port, multi_host_url, requires_postgres
from tests.support.postgres.proxy import FaultyProxy, through
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadReader, LoadWriter, create_sessions, open_postgres
from tests.support.stores import record
from tests.support.timeouts import explained_timeout, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]


# --- a pooler ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def pooler(server: Cluster, url: str, folder: Path) -> AsyncGenerator[str]:
    """Run PgBouncer, with two connections to the database that transactions take in turn; give the URL through it."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip("needs PgBouncer, such as Debian's package pgbouncer")
    account, port, database = pwd.getpwnam("postgres"), free_port(), url.rpartition("/")[2]
    folder.mkdir()
    (folder / "users.txt").write_text(f'"{USER}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users.txt\n"
        f"pool_mode = transaction\nserver_round_robin = 1\ndefault_pool_size = 2\nmax_client_conn = 200\n"
    )
    for path in (folder, *folder.iterdir(), *folder.parents[:4]):
        path.chmod(0o755)
    process = subprocess.Popen(
        [program, folder / "pgbouncer.ini"], user=account.pw_uid, group=account.pw_gid, stderr=subprocess.DEVNULL
    )
    try:
        through_it = multi_host_url([port], database)
        await wait_until(lambda: _accepts(port))
        yield through_it
    finally:
        process.terminate()
        process.wait()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def test_a_pooler_is_noticed_and_the_database_is_polled(postgres: Cluster, tmp_path: Path) -> None:
    url = await store_url(postgres)
    async with (
        pooler(postgres, url, tmp_path / "pooler") as pooled,
        open_postgres(pooled) as store,
        open_postgres(pooled) as other,
    ):
        writers = [LoadWriter(store, id_) for id_ in await create_sessions(store, 8)]
        readers = [LoadReader(other, writer.session_id) for writer in writers]
        await asyncio.gather(*(writer.claim() for writer in writers))
        for _ in range(20):
            await asyncio.gather(*(writer.commit() for writer in writers))
        ended = [reader.follow(lambda reader=reader: len(reader.seen) == 20) for reader in readers]
        await asyncio.gather(*ended)
        assert [reader.seen for reader in readers] == [writer.stored for writer in writers]


# --- an earlier primary -----------------------------------------------------------------------------------------------


async def test_an_earlier_primary_is_refused_by_a_new_process_that_knows_the_later_one(tmp_path: Path) -> None:
    async with cluster() as old:
        standby = await old.standby()
        database = (await store_url(old)).rpartition("/")[2]
        url, known = multi_host_url([old.port, standby.port], database), tmp_path / "timelines.json"
        await old.stop()
        await standby.promote()
        async with open_postgres(url, timelines=KnownTimelines(known)) as store:
            (session_id,) = await create_sessions(store, 1)
        await standby.stop()
        await old.start()
        await old.release_standbys()
        with pytest.raises(StoreError, match=rf"is an earlier primary \(timeline 1\).*or delete {known} to go back"):
            await PostgresStore.open(url, timeout=3.0, timelines=KnownTimelines(known))
        async with open_postgres(url, lease=1.0) as store:  # it knows of no other one
            await create_sessions(store, 1)
            await standby.start()
            async with explained_timeout(lambda: "the session of the newer primary is not found, and no error says so"):
                while await _is_missing(store, session_id):
                    await asyncio.sleep(0.1)


async def _is_missing(store: PostgresStore, session_id: str) -> bool:
    try:
        await store.catalog.get(session_id)
    except (SessionNotFound, StoreError):
        return True
    return False


# --- an outage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease_seconds", "outage", "later"),
    [(3.0, 8.0, 0.5), (5.0, 0.0, 1.0)],
    ids=["longer than two leases", "only a cut"],  # at the end of which half of a lease is left, or more
)
async def test_workers_that_come_back_later_than_others_keep_their_sessions(
    postgres: Cluster, lease_seconds: float, outage: float, later: float
) -> None:
    url = await store_url(postgres)
    async with (
        FaultyProxy(postgres.port).listening() as first,
        FaultyProxy(postgres.port).listening() as last,
        open_postgres(through(first, url), lease=lease_seconds) as early,
        open_postgres(through(last, url), lease=lease_seconds) as late,
    ):
        made = record()
        await late.create(made)
        lease = await late.ownership.claim(made.id)
        turn = TurnRecord(id="turn_1", session_id=made.id, input="hi")
        await lease.commit(Commit(turn_id=turn.id, begins=turn))
        taken = list[str]()

        async def take() -> None:
            async for session_id in early.ownership.orphans(follow=True):
                taken.append(session_id)

        taking = asyncio.create_task(take())
        await asyncio.sleep(lease_seconds + 1)  # longer than a lease: each is known to be steady
        for proxy in (first, last):
            await proxy.refuse()
            proxy.cut()
        await asyncio.sleep(outage)
        await first.accept()
        await asyncio.sleep(later)
        await last.accept()
        await lease.check()
        await asyncio.sleep(1)
        taking.cancel()
        assert taken == []
        assert not lease.lost.is_set()


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_no_longer_waits_for_syncs_is_reported(tmp_path: Path) -> None:
    async with cluster() as server, open_postgres(await store_url(server), lease=1.0) as store:
        await create_sessions(store, 1)
        await store.check()
        for value, is_safe in (("off", False), ("on", True)):
            await server.sql(f"ALTER SYSTEM SET synchronous_commit = {value}")
            await server.sql("SELECT pg_reload_conf()")
            async with explained_timeout(lambda: server.sql("SHOW synchronous_commit")):
                while await _is_safe(store) is not is_safe:
                    await asyncio.sleep(0.05)


async def _is_safe(store: PostgresStore) -> bool:
    try:
        await store.check()
    except StoreError as exc:
        return "synchronous_commit off" not in str(exc)
    return True


# --- a purge beside a snapshot ----------------------------------------------------------------------------------------


async def purge_all(url: str) -> list[str]:
    _, left = await asyncio.to_thread(purge_database, url, SystemClock(), timeout=30, is_pooled=False)
    return left


async def test_a_purge_waits_for_transactions_that_may_still_read_what_was_deleted(tmp_path: Path) -> None:
    name = "a name that nobody else has"
    async with cluster(config={"wal_recycle": "off"}) as server:
        url = await store_url(server)
        async with open_postgres(url) as store:
            made = record(name)
            await store.create(made)
            reader = await asyncpg.connect(url)
            async with reader.transaction(isolation="repeatable_read"):
                assert await reader.fetchval("SELECT count(*) FROM sessions")
                await store.delete(await store.ownership.claim(made.id))
                left = await purge_all(url)
                assert [reason.partition(": ")[2] for reason in left[:-1]] == [
                    "an open transaction may still read deleted rows; it is tried again"
                ] * (len(left) - 1)
                assert len(left) > 1
            assert await purge_all(url) == []
            await reader.close()
        await server.stop()
        found = [path for path in server.data.rglob("*") if path.is_file() and name.encode() in path.read_bytes()]
        assert found == []
