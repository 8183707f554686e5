"""The bytes of deleted sessions in the files of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from tests.support.postgres.cluster import Cluster, cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.workers import studio_workers
from tests.support.postgres.writers import break_function
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import explained_timeout, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

PART = slice(64, 128)  # of what is searched in place of a longer content


@asynccontextmanager
async def server_and_url() -> AsyncGenerator[tuple[Cluster, str]]:
    async with cluster(config={"wal_recycle": "off"}) as server:
        yield server, await store_url(server)


async def deleted_session(folder: Path, url: str, rng: random.Random) -> list[bytes]:
    """Delete a session that workers have used; return texts and parts of contents that the database had of it."""
    name, word, sent = (rng.randbytes(16).hex() for _ in range(3))
    picture = rng.randbytes(5_000)
    file = {"name": "f.bin", "media_type": "text/csv", "data": base64.b64encode(picture.hex().encode()).decode()}
    async with (
        studio_workers(folder, url, 2) as workers,
        workers.all[0].client() as owner,
        workers.all[1].client() as other,
    ):
        created = await owner.post("/api/sessions", json={"name": name})
        path = f"/api/sessions/{created.json()['id']}"
        reader = StreamClient(workers.all[1].port, f"{path}/events", workers.all[1].token)
        for client, body in (
            (owner, {"input": f"Say {word}", "attachments": [file]}),
            (other, {"input": f"Say {sent}"}),  # as a command to the owner
            (owner, {"input": "Count to 600"}),
        ):
            answer = await client.post(f"{path}/turns", json=body)
            assert answer.status_code == 202, answer.text
            turn_id = answer.json()["turn_id"]
            await reader.read(lambda log, turn_id=turn_id: turn_id in log.ended_turns)
        kept = [text.encode() for text in (name, word, sent)] + await contents(url)
        async with connected(url) as connection:
            await connection.execute("ANALYZE")
            await connection.execute("CHECKPOINT")
        assert (await other.delete(path)).status_code == 204
        await purged(url)
    return kept


async def contents(url: str) -> list[bytes]:
    """Return a part of each segment and content that is stored; they are compressed, so no text is found in them.

    Wait until there are some: a worker packs the log after the end of a turn.
    """
    found: list[bytes] = []
    async with explained_timeout(lambda: f"{len(found)} are stored"), connected(url) as connection:
        while True:
            rows = await connection.fetch("SELECT body FROM segments UNION ALL SELECT body FROM blobs")
            found = [bytes(body)[PART] for (body,) in rows if len(body) >= PART.stop]
            if len(found) > 1:
                return found
            await asyncio.sleep(0.05)


async def purged(url: str) -> None:
    """Wait until a worker has purged what was deleted."""
    async with connected(url) as connection:
        purges = "SELECT partition, since, rewritten FROM purges"
        await wait_until(lambda: _is_empty(connection, purges), state=lambda: connection.fetch(purges))


async def _is_empty(connection: Any, query: str) -> bool:
    return not await connection.fetch(query)


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def files_with(server: Cluster, texts: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Return the files of the server that have one of these texts, its log of writes included."""
    found = dict[str, list[bytes]]()
    for path in server.data.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if some := [text for text in texts if text in content]:
                found[str(path.relative_to(server.data))] = some
    return found


async def test_no_byte_of_a_deleted_session_is_in_the_files_of_the_server(tmp_path: Path, rng: random.Random) -> None:
    async with server_and_url() as (server, url):
        texts = await deleted_session(tmp_path, url, rng)
        await server.stop()
        assert files_with(server, texts) == {}


async def test_without_a_purge_the_bytes_of_a_deleted_session_are_there(tmp_path: Path, rng: random.Random) -> None:
    async with server_and_url() as (server, url):
        await break_function(server, url, "note_purge", ("ON CONFLICT", "LIMIT 0 ON CONFLICT"))
        texts = await deleted_session(tmp_path, url, rng)
        await server.stop()
        found = files_with(server, texts)
        assert any(name.startswith("pg_wal/") for name in found)
        assert any(name.startswith("base/") for name in found)
        assert {text for some in found.values() for text in some} == set(texts)
