"""Packing of logs by their owners, who keep their own commits in memory until then."""

from __future__ import annotations

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx.sessions.store.postgres._packing import PACKED_COMMITS
from tests.support.postgres.cluster import Cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadWriter, create_sessions, open_postgres, stored_events

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]


@pytest.mark.parametrize("events", [1, 40], ids=["kept in memory", "too large for that"])
async def test_a_log_that_two_owners_have_packed_in_turn_is_whole(postgres: Cluster, events: int) -> None:
    url = await store_url(postgres)
    async with open_postgres(url) as first, open_postgres(url) as second:
        (session_id,) = await create_sessions(first, 1)
        stored = list[object]()
        for store in (first, second, first):
            writer = LoadWriter(store, session_id)
            await writer.claim()
            for _ in range(PACKED_COMMITS + PACKED_COMMITS // 4):
                await writer.commit(events)
            await writer.release()  # waits for the packing
            stored += writer.stored
        assert await stored_events(second, session_id) == stored
    rows = await postgres.sql("SELECT count(*) FROM commits", url.rpartition("/")[2])
    assert int(rows) < PACKED_COMMITS
