"""Sub-agents of a session at two hubs on one store: commands from afar, and a change of the owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.sessions import Hub, MemoryStore
from agenticx.subagents import SubagentBusy, SubagentNotFound
from agenticx.testing import check_grammar, hang
from tests.support.endings import told_endings
from tests.support.memory_store import expire_lease
from tests.support.teams.subagent_sessions import MortalStore, SubagentSession, notices, spawn

pytestmark = pytest.mark.anyio


class Hubs:
    """Two hubs on one store: `owner`, which has the session at first, and `other`."""

    def __init__(self, folder: Path, main: Sequence[Any], workers: dict[str, Sequence[Any]]) -> None:
        self.memory = MemoryStore()
        self.owner_store = MortalStore(self.memory)
        stores = iter([self.owner_store, self.memory.other_worker()])
        self.session = SubagentSession(folder, lambda: next(stores))
        self.owner: Hub = self.session.new_hub(main, workers)
        self.other: Hub = self.session.new_hub(["I see.", "Nothing new."], {})


@asynccontextmanager
async def two_hubs(folder: Path, main: Sequence[Any], **workers: Sequence[Any]) -> AsyncGenerator[Hubs]:
    """Yield two hubs, the first of which has run a turn that plays `main`."""
    hubs = Hubs(folder, main, workers)
    await hubs.memory.create(hubs.session.record)
    await hubs.owner.recover()
    await hubs.session.run(hubs.owner)
    await hubs.other.recover()
    yield hubs
    await hubs.owner.close()
    await hubs.other.close()


async def test_the_other_hub_lists_messages_retries_and_cancels_at_the_owner(tmp_path: Path) -> None:
    scout = ["one", "two", "three", hang()]
    async with two_hubs(tmp_path, [spawn("scout"), "Later."], scout=scout) as hubs:
        session, other = hubs.session, hubs.other
        await session.wait_for_event("subagent_completed", "scout-1")
        assert await other.subagents(session.id) == await hubs.owner.subagents(session.id)

        assert (await other.message_subagent(session.id, "scout-1", "More!"))["agent_id"] == "scout-1"
        assert (await session.wait_for_event("subagent_completed", "scout-1", 2))["data"]["result"] == "two"
        assert (await other.retry_subagent(session.id, "scout-1"))["agent_id"] == "scout-1"
        assert (await session.wait_for_event("subagent_completed", "scout-1", 3))["data"]["result"] == "three"
        await other.message_subagent(session.id, "scout-1", "Hang!")
        await session.wait_for_event("round_start", "scout-1", 4)
        await other.cancel_subagent(session.id, "scout-1")

        assert (await session.wait_for_event("subagent_error", "scout-1"))["data"]["code"] == "stopped"
        assert await other.subagents(session.id) == await hubs.owner.subagents(session.id)
        check_grammar(await session.envelopes())


@pytest.mark.parametrize(
    ("command", "arguments", "error"),
    [
        ("retry_subagent", ("slow-1",), SubagentBusy),
        ("retry_subagent", ("x",), SubagentNotFound),
        ("cancel_subagent", ("x",), SubagentNotFound),
        ("message_subagent", ("x", "hi"), SubagentNotFound),
    ],
)
async def test_the_other_hub_raises_the_errors_of_the_owner(
    tmp_path: Path, command: str, arguments: tuple[str, ...], error: type[Exception]
) -> None:
    async with two_hubs(tmp_path, [spawn("slow"), "Later."], slow=[hang()]) as hubs:
        with pytest.raises(error) as at_owner:
            await getattr(hubs.owner, command)(hubs.session.id, *arguments)
        with pytest.raises(error) as from_afar:
            await getattr(hubs.other, command)(hubs.session.id, *arguments)
        assert str(from_afar.value) == str(at_owner.value)


@pytest.mark.parametrize("end", ["kill", "lost lease"])
async def test_a_new_owner_reports_each_ending_once_and_the_old_one_writes_nothing(tmp_path: Path, end: str) -> None:
    async with two_hubs(tmp_path, [[spawn("a"), spawn("b")], "Later."], a=["one"], b=[hang()]) as hubs:
        session = hubs.session
        await session.wait_for_event("subagent_completed", "a-1")
        await session.wait_for_event("round_start", "b-2")
        if end == "kill":
            hubs.owner_store.die(session.id)
        else:
            expire_lease(hubs.memory, session.id, noticed=False)

        await session.run(hubs.other, "And?")
        await session.run(hubs.other, "More?")

        for request in session.main.requests:
            assert told_endings(*notices(request)) == ["a-1 completed", "b-2 failed: interrupted"]
        assert len(session.main.requests) == 2
        before = await session.envelopes()
        await hubs.owner.close()
        assert await session.envelopes() == before
        ends = Counter(one["agent_id"] for one in before if one["type"] in {"subagent_completed", "subagent_error"})
        assert ends == {"a-1": 1, "b-2": 1}
        check_grammar(before)
