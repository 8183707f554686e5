"""The events of starts and endings of sub-agents: each is in the log once, whatever writes fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.sessions import MemoryStore, StoredEvent
from agenticx.testing import call, check_grammar, hang
from tests.support.endings import ending_text
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.teams.subagent_sessions import MortalStore, SubagentSession, notices, spawn
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio


def reports(log: Sequence[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    """Return how often the log reports each start, and each ending by its text."""
    types = {"subagent_started": "task", "subagent_completed": "result", "subagent_error": "code"}
    found = [(one["type"], one["agent_id"], one["data"][types[one["type"]]]) for one in log if one["type"] in types]
    return Counter(found)


class RefusingStore(InterceptedStore):
    """A store that refuses the first `times` commits which `refuses` is true of."""

    def __init__(self, memory: MemoryStore, refuses: Callable[[Write], bool], times: int) -> None:
        super().__init__(memory, self._commit)
        self._refuses = refuses
        self._left = times

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        if self._left and self._refuses(write):
            self._left -= 1
            raise StoreError("disk full")
        return await write.make()


@pytest.mark.ci_lane
async def test_a_process_that_dies_at_any_commit_leaves_no_start_or_ending_without_its_event(tmp_path: Path) -> None:
    for dies_at in range(3, 21):
        memory = MemoryStore()
        stores = iter([MortalStore(memory, dies_at), memory.other_worker()])
        session = SubagentSession(tmp_path, lambda stores=stores: next(stores))
        await memory.create(session.record)
        hub = session.new_hub([spawn("a"), call("wait_subagents"), "done"], {"a": ["a ends"]})
        await hub.recover()
        store: Any = session.store
        turn = asyncio.create_task(session.run(hub))
        await wait_until(lambda store=store, turn=turn: store.is_dead or turn.done())
        turn.cancel()
        await asyncio.wait({turn})
        store.die(session.id)
        await hub.close()
        hub = session.new_hub(["yes"], {})
        await hub.recover()
        states = {one["agent_id"]: one.get("code", one["state"]) for one in await hub.subagents(session.id)}
        log = await session.envelopes()
        check_grammar(log)
        starts = [(type_, agent) for type_, agent, _ in reports(log).elements() if type_ == "subagent_started"]
        assert starts == [("subagent_started", agent) for agent in states], dies_at
        ends = [one for one in reports(log).elements() if one[0] != "subagent_started"]
        assert len(ends) == len(states), dies_at
        await hub.close()


async def test_each_start_is_in_the_log_before_the_first_event_of_its_run(tmp_path: Path) -> None:
    session = SubagentSession(tmp_path, MemoryStore)
    script = [[spawn("a"), spawn("b"), spawn("c")], call("wait_subagents"), "done"]
    workers = {"a": [spawn("d"), call("wait_subagents"), "ok"], "b": ["ok"], "c": ["ok"] * 2, "d": ["ok"]}
    async with session.hub(script, **workers) as hub:
        await session.run(hub)
        await hub.retry_subagent(session.id, "c-3")
        await session.wait_for_event("subagent_completed", "c-3", 2)
        log = await session.envelopes()
        check_grammar(log)
        beginnings = [one for one in log if one["type"] in ("subagent_started", "turn_started")][1:]
        for agent, above in (("a-1", "meta"), ("b-2", "meta"), ("c-3", "meta"), ("d-4", "a-1")):
            start, began, *again = (one for one in beginnings if one["agent_id"] == agent)
            assert (start["type"], began["type"]) == ("subagent_started", "turn_started")
            assert start["turn_id"] == began["data"]["parent_turn_id"]
            assert start["data"]["parent_agent_id"] == above
            assert [(one["type"], one["turn_id"]) for one in again[:1]] == [("subagent_started", None)] * bool(again)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_terminal_event_that_could_not_be_stored_has_one_ending_and_one_event(
    tmp_path: Path, times: int
) -> None:
    memory = MemoryStore()

    def ends_child(write: Write) -> bool:
        return any(event.terminal and event.agent_id == "a-1" for event in write.commit.events)

    stores = iter([RefusingStore(memory, ends_child, times), memory.other_worker()])
    session = SubagentSession(tmp_path, lambda: next(stores))
    async with session.hub([spawn("a"), call("wait_subagents"), "done", "again"], a=["a ends"]) as hub:
        await session.run(hub)
        await session.run(hub, "and?")
    async with session.hub(["I see."]) as hub:
        await session.run(hub, "more?")
        log = await session.envelopes()
        check_grammar(log)
        assert reports(log) == {("subagent_started", "a-1", "work"): 1, ("subagent_error", "a-1", "storage"): 1}


async def test_an_event_that_could_not_be_stored_is_not_taken_for_that_of_a_later_run(tmp_path: Path) -> None:
    memory = MemoryStore()

    def reports_ending(write: Write) -> bool:
        return "subagent_completed" in write.types and write.commit.turn_id is None

    stores = iter([RefusingStore(memory, reports_ending, 1), memory.other_worker()])
    session = SubagentSession(tmp_path, lambda: next(stores))
    async with session.hub([spawn("a"), call("wait_subagents"), "done"], a=["first", "second", "third"]) as hub:
        await session.run(hub)
        for text in ("second", "third"):
            await hub.message_subagent(session.id, "a-1", "More!")
            await session.wait_for(lambda one, text=text: one["type"] == "final" and one["data"]["text"] == text)
            await session.wait_for(lambda one: one["type"] == "final")
    async with session.hub(["I see."]) as hub:
        await session.run(hub, "and?")
        found = reports(await session.envelopes())
        assert [found["subagent_completed", "a-1", text] for text in ("first", "second", "third")] == [1, 1, 1]


async def test_an_ending_whose_turn_could_not_be_ended_is_told_once_also_after_a_kill(tmp_path: Path) -> None:
    class Refusing(MortalStore):
        async def _commit(self, write: Write) -> Sequence[StoredEvent]:
            events = write.commit.events
            if not self.is_dead and any(one.agent_id == "a-1" and one.type in ("final", "error") for one in events):
                raise StoreError("disk full")
            return await super()._commit(write)

    memory = MemoryStore()
    stores = iter([Refusing(memory), memory.other_worker()])
    session = SubagentSession(tmp_path, lambda: next(stores))
    await memory.create(session.record)
    hub = session.new_hub([spawn("a"), call("wait_subagents"), hang()], {"a": ["one"]})
    await hub.recover()
    store: Any = session.store
    turn = asyncio.create_task(session.run(hub))
    await wait_until(lambda: len(session.main.requests) == 3)
    turn.cancel()
    store.die(session.id)
    await hub.close()
    hub = session.new_hub(["ok"], {})
    await hub.recover()
    await session.run(hub, "and?")
    assert notices(session.main.requests[0]) == [ending_text("a-1 failed: storage", "disk full")]
    assert reports(await session.envelopes())["subagent_error", "a-1", "storage"] == 1
    await hub.close()
