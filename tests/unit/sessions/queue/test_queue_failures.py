"""No accepted message is lost or duplicated, whichever write fails, committed or not."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import AgenticXError
from agenticx.errors import SessionBusy, StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    Fact,
    Hub,
    OutcomeUnknown,
    SessionRecord,
    SqliteStore,
    StoredEvent,
    Submission,
    TurnRequest,
)
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar
from tests.support.intercepted_store import FailingCommits, InterceptedStore, Write
from tests.support.message_queue import note
from tests.support.timeouts import PATIENCE, PatientClock, wait_until

pytestmark = pytest.mark.anyio

MAX_WRITES = 60
ATTEMPTS = 4  # the number of attempts at a commit before its outcome is reported as unknown
INPUT_EVENTS = ("turn_started", "steered", "handed_back")


def make_hub(store: Any, model: ScriptedModel, folder: Path) -> Hub:
    settings = load_settings({"home": folder / "home"}, environ={})
    tools, clock = [note], PatientClock({0.5: 0.01, 2.0: 0.04, 10.0: 0.2})
    return Hub(store, models=lambda _name: model, tools=lambda _record: tools, settings=settings, clock=clock)


async def submit_with_retries(hub: Hub, session_id: str, text: str, when_busy: Any) -> bool:
    """Submit a message as a client does, again with the same id until there is an answer.

    Return whether it was accepted.
    """
    request = TurnRequest(input=text, when_busy=when_busy, client_turn_id=text)
    for _ in range(5):
        try:
            posted: Submission = await hub.submit(session_id, request)
        except SessionBusy:
            return False
        except AgenticXError:
            continue
        return posted.state in ("started", "queued", "steered", "handed_back")
    return False


async def posted_messages(hub: Hub, session_id: str) -> list[Fact]:
    """Return the messages that are queued in the store."""
    actor = await hub._actors.open(session_id)  # pyright: ignore[reportPrivateUsage]
    loaded = await actor.lease.load()
    return [fact for fact in loaded.open_facts if fact.kind == "message_posted"]


async def wait_until_idle(hub: Hub, session_id: str, store: SqliteStore | None = None) -> None:
    """Approve all questions until no turn runs and, if `store` is given, no message is queued in it."""
    async with asyncio.timeout(PATIENCE):
        idle = 0
        while idle < 3:
            for asked in hub.gate.pending(session_id):
                hub.gate.resolve(asked.id, True, digest=asked.digest)
            waits = store is not None and await posted_messages(hub, session_id)
            idle = 0 if waits or hub.running_turn_id(session_id) else idle + 1
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.cases(quick=1)
async def test_no_accepted_message_is_lost_or_duplicated_whichever_write_fails(
    tmp_path: Path, first: int, carried_out: bool, times: int
) -> None:
    """Every third write from the `first` fails, each in a session of its own."""
    for nth in range(first, MAX_WRITES, 3):
        folder = tmp_path / str(nth)
        folder.mkdir()
        store = SqliteStore(folder / "sessions.db")
        record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        await store.create(record)
        failing = FailingCommits(store, nth, times=times, carried_out=carried_out)
        hub = make_hub(failing, ScriptedModel([call("note", {"text": "x"}), *["yes"] * 20]), folder)
        texts = {
            "one": "reject",
            "two": "queue",
            "three": "steer",
            "four": "queue",
            "five": "interrupt",
            "six": "queue",
        }
        taken = [text for text, mode in texts.items() if await submit_with_retries(hub, record.id, text, mode)]
        await wait_until_idle(hub, record.id)
        await hub.close()
        again = make_hub(store, ScriptedModel(["yes"] * 20), folder)
        await again.recover()
        await wait_until_idle(again, record.id, store)
        events = [json.loads(event.frame_json) for event in await store.log.read(record.id, 0, 10_000)]
        check_grammar(events, complete=any(event["turn_id"] for event in events))
        counts = Counter(
            event["data"].get("input") or event["data"]["text"] for event in events if event["type"] in INPUT_EVENTS
        )
        where = f"write {nth}, {times} times, carried out: {carried_out}"
        assert {text for text in taken if not counts[text]} == set(), where
        assert [text for text, count in counts.items() if count > 1] == [], where
        assert await posted_messages(again, record.id) == [], where
        await again.close()
        await store.aclose()
        if not failing.has_failed:
            return
    raise AssertionError(f"there are more than {MAX_WRITES} writes")


class LostAcknowledgements(InterceptedStore):
    """A store that commits two writes and does not answer them and their first repetitions: "waits" and "steered".

    It makes the second once `go` is set.
    """

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store, self._commit)
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self._silences = {"waits": ATTEMPTS, "steered": ATTEMPTS}

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        steers = "steered" in write.types
        waits = any(event.data.get("input") == "waits" for event in write.commit.events)
        if steers:
            self.entered.set()
            await self.go.wait()
        stored = await write.make()
        for name, concerned in (("steered", steers), ("waits", waits)):
            if concerned and self._silences[name]:
                self._silences[name] -= 1
                raise OutcomeUnknown("the disk did not answer")
        return stored


async def test_an_unconfirmed_message_is_not_resolved_while_the_outcome_of_another_is_written(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    unreliable = LostAcknowledgements(store)
    hub = make_hub(unreliable, ScriptedModel([call("note", {"text": "x"}), *["yes"] * 20]), tmp_path)
    await hub.submit(record.id, TurnRequest(input="one"))
    asked = await wait_until(lambda: hub.gate.pending(record.id))
    await hub.submit(record.id, TurnRequest(input="steers", when_busy="steer"))
    waits = TurnRequest(input="waits", when_busy="queue", client_turn_id="waits")
    with pytest.raises(StoreError):
        await hub.submit(record.id, waits)
    hub.gate.resolve(asked[0].id, True, digest=asked[0].digest)
    await unreliable.entered.wait()
    posting = asyncio.create_task(hub.submit(record.id, waits))
    await asyncio.wait({posting}, timeout=0.2)  # time enough to look for what is being written only now
    unreliable.go.set()
    await posting
    await wait_until_idle(hub, record.id, store)
    await hub.close()
    events = [json.loads(event.frame_json) for event in await store.log.read(record.id, 0, 10_000)]
    check_grammar(events)
    assert [event["data"]["text"] for event in events if event["type"] == "steered"] == ["steers"]
    assert "steers" not in [event["data"]["input"] for event in events if event["type"] == "handed_back"]
    await store.aclose()
