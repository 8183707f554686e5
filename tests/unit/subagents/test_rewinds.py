"""Endings of sub-agents in conversations that are rewound or forked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agenticx.sessions import Hub, Store, fork
from agenticx.testing import call, check_grammar, hang
from agenticx.tools import tool
from tests.support.endings import ending_text, told_endings
from tests.support.teams.subagent_sessions import SubagentSession, notices, spawn

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]
TOLD = ending_text("kid-1 completed", "42")
WAIT = call("wait_subagents")


@tool(risk="read")
def look(number: int) -> str:
    """Look at one."""
    return f"seen {number}"


async def told(session: SubagentSession, hub: Hub, text: str = "And?") -> list[str]:
    """Run a turn, and return what the main agent has been told by then."""
    await session.run(hub, text)
    return notices(session.main.requests[-1])


async def id_of(session: SubagentSession, hub: Hub, content: str) -> str:
    """Return the id of the last message with that content."""
    return [row["message_id"] for row in await hub.messages(session.id) if row["content"] == content][-1]


async def forked(session: SubagentSession, message_id: str | None = None) -> None:
    """Make a fork of the session the session."""
    session.record = await fork(session.store, session.id, message_id, now="2026-01-02T00:00:00.000Z")


async def run_until_ended(session: SubagentSession, hub: Hub) -> None:
    """Run a turn that starts a sub-agent, and wait for the event of its ending."""
    await session.run(hub)
    await session.wait_for_event("subagent_completed", "kid-1")


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_ending_that_a_rewind_removes_is_told_again_and_after_its_undoing_too(
    tmp_path: Path, open_store: OpenStore, restarts: bool
) -> None:
    session = SubagentSession(tmp_path, open_store)
    script = ["Hi.", spawn("kid"), "Later.", "I see."] + ["Yes."] * 4
    async with session.hub(script if not restarts else script[:4], kid=["42"]) as hub:
        await session.run(hub)
        await run_until_ended(session, hub)
        assert await told(session, hub) == [TOLD]
        undo = (await hub.rewind(session.id, await id_of(session, hub, "Later."))).undo
        if not restarts:
            assert await told(session, hub) == await told(session, hub) == [TOLD]
            await hub.rewind(session.id, undo)
            assert await told(session, hub) == await told(session, hub) == [TOLD]
    if restarts:
        async with session.hub(["Yes."] * 2) as hub:
            assert await told(session, hub) == await told(session, hub) == [TOLD]
            await hub.rewind(session.id, undo)
        async with session.hub(["Yes."] * 2) as hub:
            assert await told(session, hub) == await told(session, hub) == [TOLD]
            check_grammar(await session.envelopes())


@pytest.mark.parametrize("is_told", [False, True])
async def test_an_ending_is_told_only_where_its_start_is_part_of_the_conversation(
    tmp_path: Path, open_store: OpenStore, is_told: bool
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub(["Hi.", spawn("kid"), "Later."] + ["Yes."] * 3, kid=["42"]) as hub:
        await session.run(hub)
        await run_until_ended(session, hub)
        if is_told:
            assert await told(session, hub) == [TOLD]
        undo = (await hub.rewind(session.id, await id_of(session, hub, "Hi."))).undo
        assert await told(session, hub) == []
    async with session.hub(["Yes."] * 3) as hub:
        assert await told(session, hub) == []
        assert [one["agent_id"] for one in await hub.subagents(session.id)] == ["kid-1"]
        await hub.rewind(session.id, undo)
        assert await told(session, hub) == await told(session, hub) == [TOLD]


async def test_a_rewind_into_the_turn_of_the_start_keeps_or_removes_what_was_told_in_it(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("kid"), WAIT, "It is 42."] + ["Yes."] * 4, kid=["42"]) as hub:
        await session.run(hub)
        assert await told(session, hub) == [TOLD]
        await hub.rewind(session.id, await id_of(session, hub, "It is 42."))
        assert await told(session, hub) == [TOLD]
        rows = await hub.messages(session.id)
        calls, result = rows[1]["message_id"], rows[2]["message_id"]
        await hub.rewind(session.id, result)
        assert await told(session, hub) == [TOLD]
        await hub.rewind(session.id, calls)  # its call counts as not run
        assert await told(session, hub) == []


async def test_a_fork_is_told_of_the_endings_that_it_lacks(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub(["Hi.", spawn("kid"), "Later.", "I see."] + ["Yes."] * 8, kid=["42"]) as hub:
        await session.run(hub)
        await run_until_ended(session, hub)
        original = session.record
        before, start = await id_of(session, hub, "Hi."), await id_of(session, hub, "Later.")
        await forked(session)
        assert await told(session, hub) == await told(session, hub) == [TOLD]
        session.record = original
        assert await told(session, hub) == [TOLD]
        for message_id, expected in ((None, [TOLD]), (start, [TOLD]), (before, [])):
            session.record = original
            await forked(session, message_id)
            assert await told(session, hub) == expected
        assert await hub.subagents(session.id) == []


async def test_a_fork_of_a_fork_and_a_rewind_in_it_tell_each_ending_once(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("kid"), "Later.", "I see."] + ["Yes."] * 3, kid=["42"]) as hub:
        await run_until_ended(session, hub)
        assert await told(session, hub) == [TOLD]
        await forked(session)
        await forked(session)
        await hub.rewind(session.id, await id_of(session, hub, "Later."))
        assert await told(session, hub) == await told(session, hub) == [TOLD]
        check_grammar(await session.envelopes())


async def test_a_fork_is_told_of_subagents_that_stay_with_the_old_conversation(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store, [look], max_tool_rounds=10)
    rounds = [call("look", {"number": number}) for number in range(10)]
    script = [spawn("paused"), WAIT, [spawn("mid"), spawn("slow")], "Later.", spawn("late"), "ok", "Yes."]
    workers = {"paused": rounds, "mid": [spawn("leaf"), hang()], "leaf": ["leaf ends"], "slow": [hang()]}
    async with session.hub(script, **workers, late=["late ends"]) as hub:
        await session.run(hub)
        await session.wait_for_event("subagent_completed", "leaf-4")
        original = session.id
        await forked(session)
        assert told_endings(*await told(session, hub)) == [
            "mid-2 stays with the old conversation",
            "paused-1 paused; a message resumes it",  # told in the turn that both have
            "slow-3 stays with the old conversation",
        ]
        assert [one["agent_id"] for one in await hub.subagents(session.id)] == ["late-5"]
        await hub.stop(original)


async def test_a_subagent_that_goes_on_after_a_restart_has_what_it_was_told(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("mid"), WAIT, "ok"], mid=[spawn("kid"), WAIT, "I know it."], kid=["42"]) as hub:
        await session.run(hub)
    async with session.hub([], mid=["It was 42."]) as hub:
        await hub.message_subagent(session.id, "mid-1", "What was it?")
        await session.wait_for_event("subagent_completed", "mid-1", 2)
        (request,) = session.model("mid").requests
        assert notices(request) == [ending_text("kid-2 completed", "42")]
        assert [one.content for one in request.messages[-3:]] == ["I know it.", *notices(request), "What was it?"]


async def test_an_ending_that_was_compacted_is_told_again_only_where_its_summary_goes(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store, compaction_threshold_messages=8)
    question = "How is it, and why? " * 50
    async with session.hub([spawn("kid"), "Later."] + ["Yes."] * 30, kid=["42"]) as hub:
        await run_until_ended(session, hub)
        assert await told(session, hub, question) == [TOLD]
        while await told(session, hub, question):
            pass  # until it is part of a summary
        kept = (await hub.messages(session.id))[-2]["message_id"]
        await hub.rewind(session.id, kept)
        assert await told(session, hub) == []
        await forked(session)
        assert await told(session, hub) == []
        await hub.rewind(session.id, await id_of(session, hub, "Later."))
        assert await told(session, hub) == await told(session, hub) == [TOLD]
