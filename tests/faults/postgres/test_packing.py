"""Packing of logs by their owners, which read the rows in pieces of limited size."""

from __future__ import annotations

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx.sessions.store.postgres import _lease, _packing
from tests.support.postgres.cluster import Cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadWriter, create_sessions, open_postgres, stored_events

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

COMMITS = 512  # after which a running turn is packed here


@pytest.mark.parametrize("piece", [1, 100_000], ids=["one row", "100 kB"])
async def test_a_log_that_two_owners_have_packed_in_turn_is_whole(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(_lease, "PACKED_COMMITS", COMMITS)
    monkeypatch.setattr(_packing, "_BYTES_AT_ONCE", piece)
    url = await store_url(postgres)
    async with open_postgres(url) as first, open_postgres(url) as second:
        (session_id,) = await create_sessions(first, 1)
        stored = list[object]()
        for store in (first, second, first):
            writer = LoadWriter(store, session_id)
            await writer.claim()
            for _ in range(COMMITS + COMMITS // 4):
                await writer.commit(events=2)
            await writer.release()  # waits for the packing
            stored += writer.stored
        assert await stored_events(second, session_id) == stored
    rows = await postgres.sql("SELECT count(*) FROM commits", url.rpartition("/")[2])
    assert int(rows) < COMMITS
