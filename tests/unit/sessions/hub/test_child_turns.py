"""Child turns in a session: their events, records, questions and ends in the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.runtime import (
    AgentRuntime,
    AutoApproveConfirmGate,
    ConfirmAnswer,
    EventType,
    RuntimeEvent,
    Session,
    TurnContext,
    UserRequest,
    current_turn,
)
from agenticx.sessions import Fact, SessionRecord, Store, StoredEvent, TurnRecord, TurnRequest, fork, read_messages
from agenticx.sessions.log.records import RequestAsked
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang
from agenticx.tools import tool
from tests.support.commits import append, load
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.sessions import wait_for_turn_end
from tests.support.stores import began
from tests.support.teams.child_turns import asks
from tests.support.timeouts import wait_until
from tests.support.two_hubs import authority, hub_over

pytestmark = [pytest.mark.anyio, pytest.mark.keeps_owner]

OpenStore = Callable[[], Store]
EXPIRY = "2099-01-01T00:00:00Z"
YES, NO = ConfirmAnswer(approved=True), ConfirmAnswer(approved=False)


@asynccontextmanager
async def session_over(
    store: Store, folder: Path, script: Sequence[Any], tools: Sequence[Any]
) -> AsyncIterator[tuple[Any, str]]:
    """Yield a hub with one session, whose model has `script`."""
    record = SessionRecord(name="x", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    model, settings = ScriptedModel(script), load_settings({"home": folder}, environ={})
    hub = hub_over(store, models=lambda _: model, tools=lambda _: tools, settings=settings)
    await hub.recover()
    yield hub, record.id
    await hub.close()


def frames(events: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    return [json.loads(event.frame_json) for event in events]


def turns(events: Sequence[StoredEvent]) -> dict[str, list[dict[str, Any]]]:
    """Return the envelopes of each turn by the name of the agent that begins it."""
    envelopes = frames(events)
    names = {one["turn_id"]: one["agent_id"] for one in envelopes if one["type"] == "turn_started"}
    return {name: [one for one in envelopes if one["turn_id"] == id_] for id_, name in names.items()}


async def all_ended(store: Store, session_id: str, count: int) -> dict[str, list[dict[str, Any]]]:
    """Return the turns of a session once so many have ended; their grammar is checked."""
    events = await wait_for_turn_end(store, session_id, ends=count)
    check_grammar(frames(events))
    return turns(events)


async def test_a_child_has_a_turn_of_its_own_in_the_log(new_store: OpenStore, tmp_path: Path) -> None:
    store, leaf = new_store(), asks("leaf", ["Leaf."])
    script = [call("ask_reader", {"question": "why?"}), "Done."]
    reader = asks("reader", [call("ask_leaf"), "Because."], [leaf])
    async with session_over(store, tmp_path, script, [reader]) as (hub, id_):
        turn = await hub.start(id_, TurnRequest(input="go"))
        found = await all_ended(store, id_, 3)
        assert {name: events[-1]["data"]["text"] for name, events in found.items()} == {
            "meta": "Done.", "reader": "Because.", "leaf": "Leaf."
        }  # fmt: skip
        assert {one["agent_id"] for one in found["leaf"]} == {"leaf"}
        reader_id, above = found["reader"][0]["turn_id"], found["leaf"][0]["data"]["parent_turn_id"]
        assert (found["reader"][0]["data"]["parent_turn_id"], above) == (turn.id, reader_id)
        record = await authority(store).log.turn(id_, reader_id)
        assert record is not None
        assert (record.input, record.parent_turn_id) == ("why?", turn.id)
        await wait_until(lambda: hub.running_turn_id(id_) is None)
        usage = {row.agent_id: row.counts.calls for row in await authority(store).catalog.usage(session_id=id_)}
        assert usage == {"meta": 2, "reader": 2, "leaf": 1}
        messages = await read_messages(authority(store).log, id_)
        assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant"]
    await store.aclose()


async def test_two_children_ask_at_once_and_each_answer_reaches_its_call(new_store: OpenStore, tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(risk="execute")
    def post(text: str) -> str:
        """Post a text."""
        ran.append(text)
        return "posted"

    store = new_store()
    tools = [asks(name, [call("post", {"text": name}), f"{name} ends"], [post]) for name in ("a", "b")]
    async with session_over(store, tmp_path, [[call("ask_a"), call("ask_b")], "Done."], tools) as (hub, id_):
        await hub.start(id_, TurnRequest(input="go"))

        async def both() -> Sequence[UserRequest]:
            found = await hub.open_requests(id_)
            return found if len(found) == 2 else ()

        questions = await wait_until(both)
        assert sorted(one.agent_path for one in questions) == [("meta", "a"), ("meta", "b")]
        for one in reversed(questions):
            answer = YES if one.agent_id == "b" else NO
            assert await hub.answer(one.id, answer, digest=one.digest) == answer
        found = await all_ended(store, id_, 3)
        assert ran == ["b"]
        results = [one for name in "ab" for one in found[name] if one["type"] == "tool_result"]
        assert [one["data"]["outcome"] for one in results] == ["denied", "ok"]
        asked = next(one for one in found["a"] if one["type"] == "confirm_required")
        assert asked["data"]["agent_path"] == ["meta", "a"]
        assert await hub.open_requests(id_) == []
    await store.aclose()


@pytest.mark.parametrize("end", ["stop", "close", "delete"])
async def test_an_end_of_the_session_s_work_ends_the_turns_below(
    new_store: OpenStore, tmp_path: Path, end: str
) -> None:
    store = new_store()
    tools = [asks("a", [call("ask_leaf")], [asks("leaf", [hang()])]), asks("b", [hang()])]
    async with session_over(store, tmp_path, [[call("ask_a"), call("ask_b")]], tools) as (hub, id_):
        await hub.start(id_, TurnRequest(input="go"))

        async def with_leaf() -> dict[str, list[dict[str, Any]]]:
            found = turns(await authority(store).log.read(id_, 0, 1000))
            return found if len(found.get("leaf", ())) == 3 else {}

        found = await wait_until(with_leaf)
        assert set(found) == {"meta", "a", "b", "leaf"}
        if end == "delete":
            return await hub.delete(id_)
        await (hub.stop(id_) if end == "stop" else hub.close())
        found = await all_ended(store, id_, 4)
        assert {name: events[-1]["data"]["code"] for name, events in found.items()} == dict.fromkeys(found, "stopped")
        last = {name: events[-1]["seq"] for name, events in found.items()}
        assert last["leaf"] < last["a"] < last["meta"] > last["b"]
    await store.aclose()


async def test_a_turn_that_outlives_its_parent_runs_beside_the_next_one(new_store: OpenStore, tmp_path: Path) -> None:
    go_on, tasks = asyncio.Event(), list[asyncio.Task[Any]]()

    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "waited"

    @tool(risk="read")
    async def spawn() -> str:
        """Begin another agent's work."""
        runtime = AgentRuntime(ScriptedModel([call("wait"), "Late."]), AutoApproveConfirmGate(), tools=[wait])
        below = TurnContext(parent=current_turn(), detached=True)
        tasks.append(asyncio.create_task(runtime.run("go", Session(), agent_id="late", context=below)))
        return "begun"

    store = new_store()
    async with session_over(store, tmp_path, [call("spawn"), "One.", "Two."], [spawn]) as (hub, id_):
        await hub.start(id_, TurnRequest(input="one"))
        await wait_for_turn_end(store, id_, ends=1)
        await wait_until(lambda: hub.running_turn_id(id_) is None)
        await hub.start(id_, TurnRequest(input="two", when_busy="queue"))
        await wait_for_turn_end(store, id_, ends=2)
        go_on.set()
        await asyncio.wait(tasks)
        found = frames(await wait_for_turn_end(store, id_, ends=3))
        check_grammar(found)
        ends = [one["agent_id"] for one in found if one["type"] == "final"]
        assert ends == ["meta", "meta", "late"]
    await store.aclose()


async def test_a_child_whose_events_cannot_be_stored_runs_no_call_and_is_ended(
    new_store: OpenStore, tmp_path: Path
) -> None:
    ran: list[str] = []

    @tool(risk="read")
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    async def around(write: Write) -> Sequence[StoredEvent]:
        if any(event.type == "tool_call" and event.agent_id == "a" for event in write.commit.events):
            raise StoreError("no space left")
        return await write.make()

    store = InterceptedStore(new_store(), around)
    tools = [asks("a", [call("look"), "unused"], [look])]
    async with session_over(store, tmp_path, [call("ask_a"), "Done."], tools) as (hub, id_):
        await hub.start(id_, TurnRequest(input="go"))
        found = await all_ended(store, id_, 2)
        assert (ran, found["a"][-1]["data"]["code"], found["meta"][-1]["data"]["text"]) == ([], "storage", "Done.")
    await store.aclose()


async def test_open_children_of_a_dead_process_are_ended_before_their_parent(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    record = SessionRecord(name="x", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    await write_open_turns(store, record.id)
    loaded = await load(store, record.id)
    assert loaded.main_turn is not None
    assert ([turn.id for turn in loaded.child_turns], loaded.main_turn.id) == (["turn_a", "turn_leaf"], "turn_root")
    (question,) = await authority(store).catalog.open_requests(record.id)
    assert question.turn_id == "turn_leaf"
    await store.aclose()
    store = open_store()
    model, settings = ScriptedModel(["next"]), load_settings({"home": tmp_path}, environ={})
    hub = hub_over(store, models=lambda _: model, tools=lambda _: [], settings=settings)
    await hub.recover()
    found = await all_ended(store, record.id, 3)
    assert {name: events[-1]["data"]["code"] for name, events in found.items()} == dict.fromkeys(found, "interrupted")
    last = {name: events[-1]["seq"] for name, events in found.items()}
    assert last["leaf"] < last["a"] < last["meta"]
    results = [one for events in found.values() for one in events if one["type"] == "tool_result"]
    outcomes = {(one["agent_id"], one["data"]["tool_call_id"], one["data"]["outcome"]) for one in results}
    assert outcomes == {("meta", "c1", "unknown"), ("a", "c2", "unknown"), ("leaf", "c3", "cancelled")}
    loaded = await load(store, record.id)
    assert (loaded.main_turn, list(loaded.child_turns)) == (None, [])
    await hub.start(record.id, TurnRequest(input="again"))
    await wait_for_turn_end(store, record.id, ends=4)
    await hub.close()
    await store.aclose()


async def test_a_fork_in_the_middle_of_a_turn_ends_the_turns_below_it(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    record = SessionRecord(name="x", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    await write_open_turns(store, record.id)
    made = await fork(authority(store), record.id, now="2026-01-01T00:00:00.000Z")
    found = frames(await authority(store).log.read(made.id, 0, 1000))
    check_grammar(found)
    ends = [one["agent_id"] for one in found if one["type"] == "error"]
    assert ends == ["leaf", "a", "meta"]
    await store.aclose()


async def write_open_turns(store: Store, session_id: str) -> None:
    """Write a turn with two child turns, the last of which waits for an answer."""
    parent: str | None = None
    for agent, number in (("meta", 1), ("a", 2), ("leaf", 3)):
        id_ = f"turn_{'root' if parent is None else agent}"
        turn = TurnRecord(id=id_, session_id=session_id, input="go", parent_turn_id=parent)
        above = {} if parent is None else {"parent_turn_id": parent}
        started = {"input": "go", "model": "m", "message_id": f"m{number}", **above}
        asked = {"tool_call_id": f"c{number}", "name": "ask", "arguments": {}}
        events = [
            RuntimeEvent(EventType.TURN_STARTED, started, agent),
            RuntimeEvent(EventType.ROUND_START, {"round": 1, "max_rounds": 9}, agent),
            RuntimeEvent(EventType.TOOL_CALL, asked, agent),
        ]
        facts: list[Fact] = [began(f"{turn.id}/c{number}", turn.id, f"c{number}")]
        if agent == "leaf":
            context = {"tool": "ask", "tool_call_id": "c3", "arguments": {}, "risk": "write", "reasons": []}
            data = {"id": "cnf_1", "question": "?", "context": context, "digest": "d", "expires_at": EXPIRY}
            events.append(RuntimeEvent(EventType.CONFIRM_REQUIRED, data | {"agent_path": ["meta", "a", "leaf"]}, agent))
            facts = [RequestAsked(key="cnf_1", turn_id=turn.id, seq=10)]
        await append(store, session_id, turn.id, events, begins=turn, facts=facts)
        parent = turn.id
