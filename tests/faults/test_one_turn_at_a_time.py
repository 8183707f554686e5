"""Promise D1: of many messages at once one begins a turn, and that stays so over kills."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.support.faults.checker import findings, report_findings
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.lanes import Count
from tests.support.timeouts import explained_timeout

pytestmark = pytest.mark.anyio

POSTS = 64
ROUNDS_PER_SERVER = 10
LONG = plan((100_000_000, []))


@pytest.mark.ci_lane
@pytest.mark.promise("D1")
async def test_one_of_64_simultaneous_posts_is_accepted_and_the_others_write_nothing_across_kills(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server_forker() as forker:
        studio = await forker.serve(recorded.home)
        async with studio.client() as client:
            (session,) = await recorded.make_sessions(client, ["auto"])
        await studio.end()
        for _ in range(count(10, 50, 200) // ROUNDS_PER_SERVER):
            studio = await forker.serve(recorded.home)
            async with studio.caller() as client:
                for _ in range(ROUNDS_PER_SERVER):
                    statuses = await asyncio.gather(*(recorded.start(client, session, LONG) for _ in range(POSTS)))
                    assert Counter(statuses) == {202: 1, 409: POSTS - 1}
                    await wait_until_stopped(client, session)
                tasks = [asyncio.create_task(recorded.start(client, session, LONG)) for _ in range(POSTS)]
                await asyncio.sleep(rng.uniform(0, 0.05))
                await studio.end()
                await asyncio.gather(*tasks)
        assert await (await forker.serve(recorded.home)).end(signal.SIGTERM) == 0
    log = recorded.log()
    found = findings(log, recorded.seen, over=True)
    assert found == [], report_findings(found)
    assert log.client_turn_ids.keys() >= recorded.seen.accepted


async def wait_until_stopped(client: httpx.AsyncClient, session: str) -> None:
    """Return once the session's turn is over."""
    await client.post(f"/api/sessions/{session}/stop", json={})
    path = f"/api/sessions/{session}"
    shown: dict[str, object] = {"running_turn_id": ""}
    async with explained_timeout(lambda: shown):
        while shown["running_turn_id"] is not None:
            await asyncio.sleep(0.005)
            shown = (await client.get(path)).json()
