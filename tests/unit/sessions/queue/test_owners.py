"""Messages to a session whose owner changes, in a store that loses acknowledgements."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from agenticx import AgenticXError
from agenticx.errors import SessionBusy
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    Hub,
    OutcomeUnknown,
    OwnershipLost,
    SessionRecord,
    Store,
    StoredEvent,
    TurnRequest,
)
from agenticx.settings import load_settings
from agenticx.testing import check_grammar
from tests.support.commits import load
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.lanes import Count
from tests.support.message_queue import QueueHarness
from tests.support.postgres.stores import NewUnreliableStore
from tests.support.timeouts import PATIENCE, PatientClock
from tests.support.two_hubs import UnreliableWorker

pytestmark = pytest.mark.anyio


INPUT_EVENTS = ("turn_started", "steered", "handed_back")
MODES = ("reject", "queue", "queue", "steer", "interrupt")


async def submit_with_retries(harness: QueueHarness, text: str, when_busy: str) -> bool:
    """Submit a message to one hub after another, with the same id, until there is an answer."""
    for _ in range(10):
        try:
            await harness.submit(text, when_busy, client_turn_id=text)
        except SessionBusy:
            return False
        except AgenticXError:
            await asyncio.sleep(0.001)
        else:
            return True
    return False


async def finish(harness: QueueHarness, store: UnreliableWorker) -> None:
    """Wait until no turn runs, then end both hubs and hand back what is left, as the next start does."""
    store.failure_rate = 0.0
    async with asyncio.timeout(PATIENCE):
        while await harness.hub.recover() or await store.log.turn(harness.record.id):
            await asyncio.sleep(0.002)
    await harness.hub.close()
    last = QueueHarness(harness.folder, store.other_worker())
    last.record = harness.record
    await (await last.open(ScriptedModel([]))).close()
    loaded = await load(store.other_worker(), harness.record.id)
    assert (loaded.main_turn, loaded.open_facts) == (None, [])


async def take_leases(store: UnreliableWorker, session_id: str, rng: random.Random) -> None:
    for _ in range(rng.randrange(6)):
        await asyncio.sleep(rng.random() * 0.01)
        await store.expire(session_id)


@pytest.mark.ci_lane
async def test_each_accepted_message_has_one_outcome_whoever_owns_the_session(
    new_unreliable_store: NewUnreliableStore, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    cases = count(5, 30, 2_000) if new_unreliable_store.is_in_memory else count(1, 3, 100)
    for number in range(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = await new_unreliable_store(failure_rate=rng.choice([0.0, 0.02, 0.1]))
        harness = QueueHarness(folder, store)
        await harness.open(ScriptedModel(["yes"] * 500))
        texts = {f"{number}-{index}": rng.choice(MODES) for index in range(12)}

        taking = asyncio.create_task(take_leases(store, harness.record.id, rng))
        accepted = [text for text, mode in texts.items() if await submit_with_retries(harness, text, mode)]
        await taking
        await finish(harness, store)
        events = [
            json.loads(event.frame_json) for event in await store.authority.log.read(harness.record.id, 0, 10_000)
        ]
        check_grammar(events, complete=False)
        outcomes = Counter(
            event["data"].get("input") or event["data"]["text"] for event in events if event["type"] in INPUT_EVENTS
        )
        assert {text for text in accepted if not outcomes[text]} == set(), number
        assert [text for text, times in outcomes.items() if times > 1] == [], number
        await store.aclose()


async def test_a_message_whose_commit_may_be_stored_when_the_lease_is_lost_is_not_submitted_again_by_the_hub(
    tmp_path: Path, rng: random.Random
) -> None:
    # In memory alone: a lease of PostgreSQL, which has stored the commit, returns that when it is repeated, and learns
    # of its loss with the worker's next heartbeat.
    async def lose_lease(write: Write) -> Sequence[StoredEvent]:
        await write.make()
        await network.expire(record.id, noticed=False)
        raise OutcomeUnknown("the store did not answer")

    def hub_over(store: Store) -> Hub:
        settings, model = load_settings({"home": tmp_path / "home"}, environ={}), ScriptedModel([])
        return Hub(store, models=lambda _: model, tools=lambda _: [], settings=settings, clock=PatientClock())

    network = await NewUnreliableStore(rng)(unknown_rate=0.0)
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await network.create(record)
    old, new = hub_over(InterceptedStore(network, lose_lease)), hub_over(network.other_worker())
    request = TurnRequest(input="hi", client_turn_id="c")
    with pytest.raises(OwnershipLost):
        await old.submit(record.id, request)
    again = await new.submit(record.id, request)
    events = await network.authority.log.read(record.id, 0, 100)
    assert [event.turn_id for event in events if event.type == "turn_started"] == [again.turn.id]
    assert [json.loads(event.frame_json)["data"]["code"] for event in events if event.terminal] == ["interrupted"]
    await asyncio.gather(old.close(), new.close())
