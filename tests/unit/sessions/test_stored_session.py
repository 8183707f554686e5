"""The owner of a session folds from its commits, at each moment, exactly what its log says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Commit, Fact, MemoryStore, StateChange, Store, TurnRequest
from agenticx.sessions.log.state import FoldedSession, StoredSession
from agenticx.sessions.store.memory_sessions import MemoryData
from agenticx.testing import call
from agenticx.tools import tool
from tests.support.lanes import Count
from tests.support.memory_store import follow
from tests.support.stores import RandomSession, in_a_file, record
from tests.support.teams.subagent_sessions import SubagentSession, spawn
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio


@tool(risk="write")
def change(what: str) -> str:
    """Change something."""
    return f"{what} is changed"


def copied(store: MemoryStore) -> MemoryData:
    """Return a copy of what is stored from now on: the sessions as they are folded from their logs."""
    copy = MemoryData()
    follow(store, copy.change)
    return copy


def values(session: StoredSession) -> dict[str, Any]:
    """Return what an owner needs of a session."""
    found = {field.name: getattr(session, field.name) for field in fields(StoredSession)}
    return found | {"tree": session.tree.turns}


async def test_random_commits_are_folded_alike_by_the_owner_and_from_the_log(rng: random.Random) -> None:
    store, made = MemoryStore(), record()
    log = copied(store)
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    stored, session = StoredSession.of(await lease.load()), RandomSession(rng, lease)
    for number in range(300):
        stored.apply_commit(await session.commit(number))
        assert values(stored) == values(log.session(made.id))
        again = StoredSession.of(await lease.load())  # a new owner, which has not read the events yet
        assert values(again) | {"tree": stored.tree.turns} == values(stored)
        assert again.tree.turns.keys() == stored.tree.turns.keys()


async def test_an_owner_has_what_the_log_says_while_turns_run_wait_and_end(tmp_path: Path) -> None:
    store = MemoryStore()
    log = copied(store)
    session = SubagentSession(tmp_path, lambda: store, [change])
    await store.create(session.record)
    id_ = session.record.id
    main = [spawn("one"), call("change", {"what": "a"}), "waiting", "done", "again"]
    hub = session.new_hub(main, {"one": [call("change", {"what": "b"}), "changed"]})

    def folded() -> FoldedSession:
        return log.session(id_)

    async def check() -> None:
        actor = await hub._actors.open(id_)  # pyright: ignore[reportPrivateUsage]
        assert values(actor._writer.stored) == values(folded())  # pyright: ignore[reportPrivateUsage]

    await hub.submit(id_, TurnRequest(input="go"))
    await wait_until(lambda: len(folded().open_requests) == 2)
    await hub.submit(id_, TurnRequest(input="next", when_busy="queue", client_turn_id="c"))
    assert (len(folded().open_turns), len(folded().queued), folded().subagents.unended != ()) == (2, 1, True)
    await check()
    for asked in folded().open_requests:
        request = next(one for one in await hub.open_requests(id_) if one.id == asked.key)
        await hub.answer(request.id, ConfirmAnswer(approved=True), digest=request.digest)
        await check()
    await wait_until(lambda: not folded().has_work)
    await check()
    await hub.close()
    again = StoredSession.of(await (await store.ownership.claim(id_)).load())
    assert values(again) == values(folded())


class TwoLeases:
    """The leases of one session in two stores, which get the same commits."""

    def __init__(self, session_id: str, *stores: Store) -> None:
        self.session_id = session_id
        self._stores = stores

    async def claim(self) -> None:
        """Take the leases anew, and check that both owners begin with the same."""
        self._leases = [await store.ownership.claim(self.session_id) for store in self._stores]
        first, second = [replace(await lease.load(), damaged_facts=()) for lease in self._leases]
        assert first == second

    async def commit(self, commit: Commit) -> None:
        for lease in self._leases:
            await lease.commit(commit)


async def everything(store: Store, session_id: str, turns: Iterable[str]) -> dict[str, Any]:
    """Return all that a store says of its only session."""
    log, catalog = store.log, store.catalog
    frames = [json.loads(event.frame_json) for event in await log.read(session_id, 0, 100_000)]
    found: dict[str, Any] = {
        "events": [frame | {"ts": ""} for frame in frames],
        "head": await log.head(session_id),
        "state": await log.state(session_id),
        "parts": list((await log.state(session_id)).parts),
        "compacted": await log.compacted_messages(session_id),
        "facts": await log.facts(session_id, Fact),
        "running": await log.turn(session_id),
        "turns": [await log.turn(session_id, id_) for id_ in turns],
        "by client": [await log.turn(session_id, client_turn_id=f"client {id_}") for id_ in turns],
        "sessions": await catalog.sessions(archived="with"),
        "usage": [replace(row, day="") for row in await catalog.usage()],
        "asked in": [await catalog.session_of_request(key) for key in ("turn_0 0", "turn_0 1", "nothing")],
    }
    for query in ("text", "text 1", "n1", "0"):
        found[f"search for {query}"] = await catalog.sessions(query=query, archived="with")
    return found


@pytest.mark.parametrize("store", [pytest.param(in_a_file, marks=pytest.mark.ci_lane), "postgres"], indirect=True)
async def test_a_store_says_after_random_commits_what_is_folded_from_the_log(
    store: Store, rng: random.Random, count: Count
) -> None:
    folded, made = MemoryStore(), record("Named")
    for each in (folded, store):
        await each.create(made, state=StateChange([UserMessage(content="text", message_id="m")], {"a": "0"}, 0))
    leases, known = TwoLeases(made.id, folded, store), list[str]()
    session = RandomSession(rng, leases)  # type: ignore[arg-type]
    for number in range(count(40, 300, 2_000)):
        if number % 20 == 0:
            await leases.claim()
        commit = await session.commit(number)
        known += [] if commit.begins is None else [commit.begins.id]
        if number % 5 == 0:
            some = rng.sample(known, min(5, len(known)))
            assert await everything(store, made.id, some) == await everything(folded, made.id, some), number
