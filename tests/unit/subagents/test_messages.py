"""Messages to sub-agents: each that was accepted is heard once, after the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound
from agenticx.llms import ModelRequest
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import HubClosed, Store
from agenticx.sessions.log.records import SubagentMessaged
from agenticx.testing import call, check_grammar, hang
from agenticx.tools import tool
from tests.support.commits import load
from tests.support.teams.subagent_sessions import SubagentSession, spawn

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]
WAIT = call("wait_subagents")


@tool(risk="execute")
def act(number: int) -> str:
    """Act."""
    return f"done {number}"


def heard(request: ModelRequest) -> list[str]:
    """Return what an agent has been told, its task first."""
    return [one.content for one in request.messages if isinstance(one, UserMessage) and not one.injected]


async def allow(session: SubagentSession, hub: Any) -> None:
    """Allow the call that a sub-agent asks about."""
    (question,) = await hub.open_requests(session.id)
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)


async def open_messages(store: Store, session: SubagentSession) -> list[str]:
    """Return the recorded messages that no conversation has."""
    loaded = await load(store, session.id)
    return [fact.text for fact in loaded.subagent_facts if isinstance(fact, SubagentMessaged)]


@pytest.mark.parametrize("restarts", [0, 1, 2])
async def test_a_message_to_a_subagent_that_waits_for_a_person_is_heard_once_after_restarts(
    tmp_path: Path, open_store: OpenStore, restarts: int
) -> None:
    session = SubagentSession(tmp_path, open_store, [act])
    hub = session.new_hub([spawn("kid"), "Later."], {"kid": [call("act", {"number": 1}), "kid ends"]})
    await session.store.create(session.record)
    await session.run(hub)
    await session.wait_for_event("confirm_required", "kid-1")
    await hub.message_subagent(session.id, "kid-1", "Be careful!")
    for number in range(restarts):
        await hub.close()
        await session.store.aclose()
        hub = session.new_hub([], {"kid": ["kid ends"]})
        await hub.recover()
        await hub.message_subagent(session.id, "kid-1", f"Restart {number}.")  # before its turn runs again
    await allow(session, hub)
    await session.wait_for_event("subagent_completed", "kid-1")
    later = [f"Restart {number}." for number in range(restarts)]
    assert heard(session.model("kid").requests[-1]) == ["work", "Be careful!", *later]
    log = await session.envelopes()
    check_grammar(log)
    assert [one["data"]["text"] for one in log if one["type"] == "steered"] == ["Be careful!", *later]
    await hub.close()
    assert await open_messages(session.store, session) == []
    await session.store.aclose()


async def test_messages_to_a_subagent_that_ends_with_an_error_are_heard_when_it_goes_on(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("kid"), "Later."], kid=[hang()]) as hub:
        await session.run(hub)
        await session.wait_for_event("round_start", "kid-1")
        for text in ("First.", "Second."):
            await hub.message_subagent(session.id, "kid-1", text)
    async with session.hub([], kid=["ok", "ok"]) as hub:
        for text in ("Third.", "Fourth."):
            await hub.message_subagent(session.id, "kid-1", text)
            await session.wait_for_event("subagent_completed", "kid-1", 1 if text == "Third." else 2)
        first, second = session.model("kid").requests
        assert heard(first) == ["work", "First.\n\nSecond.\n\nThird."]
        assert heard(second) == ["work", "First.\n\nSecond.\n\nThird.", "Fourth."]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_message_to_a_subagent_that_never_began_comes_after_its_task(
    tmp_path: Path, open_store: OpenStore, restarts: bool
) -> None:
    session = SubagentSession(tmp_path, open_store, subagent_max_running=1)
    workers: dict[str, Sequence[Any]] = {"slow": [hang()], "kid": ["ok", "ok"]}
    async with session.hub([spawn("slow"), spawn("kid", "Read the log"), "Later."], **workers) as hub:
        await session.run(hub)
        await hub.message_subagent(session.id, "kid-2", "All of it!")
        await hub.cancel_subagent(session.id, "kid-2")
        await session.wait_for_event("subagent_error", "kid-2")
        if not restarts:
            await hub.cancel_subagent(session.id, "slow-1")
            await hub.message_subagent(session.id, "kid-2", "Now!")
            await session.wait_for_event("subagent_completed", "kid-2")
    if restarts:
        async with session.hub([], kid=["ok"]) as hub:
            await hub.message_subagent(session.id, "kid-2", "Now!")
            await session.wait_for_event("subagent_completed", "kid-2")
    assert heard(session.model("kid").requests[0]) == ["Read the log\n\nAll of it!\n\nNow!"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_retry_begins_with_the_messages_that_were_not_heard_once(
    tmp_path: Path, open_store: OpenStore, restarts: bool
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("kid"), "Later."], kid=[hang(), "ok"]) as hub:
        await session.run(hub)
        await session.wait_for_event("round_start", "kid-1")
        await hub.message_subagent(session.id, "kid-1", "Not heard.")
        await hub.cancel_subagent(session.id, "kid-1")
        await session.wait_for_event("subagent_error", "kid-1")
        if not restarts:
            await hub.retry_subagent(session.id, "kid-1")
            await session.wait_for_event("subagent_completed", "kid-1")
    async with session.hub([], kid=["ok", "ok", "ok"]) as hub:
        if restarts:
            await hub.retry_subagent(session.id, "kid-1")
            await session.wait_for_event("subagent_completed", "kid-1")
        await hub.message_subagent(session.id, "kid-1", "And now?")
        await session.wait_for_event("subagent_completed", "kid-1", 2)
        assert heard(session.model("kid").requests[-1]) == ["work\n\nNot heard.", "And now?"]
        await hub.retry_subagent(session.id, "kid-1")
        await session.wait_for_event("subagent_completed", "kid-1", 3)
        log = await session.envelopes()
    check_grammar(log)
    inputs = [one["data"]["input"] for one in log if one["type"] == "turn_started" and one["agent_id"] == "kid-1"]
    assert inputs == ["work", "work\n\nNot heard.", "And now?", "work"]
    messages = [one["data"] for one in log if one["type"] == "subagent_message"]
    assert [(one["text"], one["from_agent_id"]) for one in messages] == [("Not heard.", None), ("And now?", None)]
    starts = [one["data"] for one in log if one["type"] == "subagent_started"]
    first, second = ([one["message_id"]] for one in messages)
    assert [(one.get("message_ids", []), one.get("anew", False)) for one in starts] == [
        ([], False),
        (first, True),
        (second, False),
        ([], True),
    ]


async def test_a_message_has_an_event_that_names_the_agent_that_sent_it(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store, [act])
    message = call("message_subagent", {"agent_id": "kid-1", "text": "From your parent."})
    async with session.hub([spawn("kid"), message, "Later."], kid=[call("act", {"number": 1}), "ok"]) as hub:
        await session.run(hub)
        await session.wait_for_event("confirm_required", "kid-1")
        await hub.message_subagent(session.id, "kid-1", "From the user.")
        await allow(session, hub)
        await session.wait_for_event("subagent_completed", "kid-1")
        log = await session.envelopes()
    check_grammar(log)
    messages = [one["data"] for one in log if one["type"] == "subagent_message"]
    senders = {one["text"]: one["from_agent_id"] for one in messages}
    assert senders == {"From your parent.": "meta", "From the user.": None}
    taken = [one["data"]["message_id"] for one in log if one["type"] == "steered"]
    assert taken == [one["message_id"] for one in messages]


async def test_a_message_to_a_subagent_that_is_being_stopped_is_heard_at_once(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("kid"), "Later."], kid=[hang(), "ok"]) as hub:
        await session.run(hub)
        await session.wait_for_event("round_start", "kid-1")
        await hub.cancel_subagent(session.id, "kid-1")
        await hub.message_subagent(session.id, "kid-1", "And now?")
        await session.wait_for_event("subagent_completed", "kid-1")
        assert heard(session.model("kid").requests[-1]) == ["work", "And now?"]


@pytest.mark.parametrize("ending", ["delete", "close"])
async def test_a_session_that_ends_refuses_what_begins_its_subagents_as_it_refuses_messages(
    tmp_path: Path, open_store: OpenStore, ending: str
) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([[spawn("kid"), spawn("slow")], "Later."], kid=["ok"], slow=[hang()]) as hub:
        await session.run(hub)
        await session.wait_for_event("subagent_completed", "kid-1")
        await session.wait_for_event("round_start", "slow-2")
        await hub.cancel_subagent(session.id, "slow-2")
        to_slow = asyncio.create_task(hub.message_subagent(session.id, "slow-2", "And now?"))  # which ends first
        end = asyncio.create_task(hub.delete(session.id) if ending == "delete" else hub.close())
        begun = (hub.retry_subagent(session.id, "kid-1"), hub.message_subagent(session.id, "kid-1", "More?"))
        outcomes = await asyncio.gather(to_slow, *begun, return_exceptions=True)
        await end
    refusals = [outcome for outcome in outcomes if not isinstance(outcome, dict)]  # one may have come before the end
    assert {type(error) for error in refusals} == {SessionNotFound if ending == "delete" else HubClosed}, outcomes
