"""The hub: running turns, and how each of them ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SessionBusy, SessionNotFound, StoreError
from agenticx.llms import ChatModel, ScriptedModel
from agenticx.messages import SystemMessage
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import (
    Hub,
    HubClosed,
    MemoryStore,
    Position,
    SessionRecord,
    SqliteStore,
    StateChange,
    Store,
    StoredEvent,
    TurnConflict,
    TurnRecord,
    TurnRequest,
    transcript,
)
from agenticx.sessions.hub.writer import merge_deltas
from agenticx.sessions.log.records import CallBegan
from agenticx.sessions.store.base import find_fact
from agenticx.settings import load_settings
from agenticx.testing import call, hang, say
from agenticx.tools import tool
from agenticx.untrusted_text import frame_text
from tests.support.commits import append
from tests.support.intercepted_store import FailingCommits, InterceptedStore, Write
from tests.support.lanes import Count
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.timeouts import PatientClock, wait_until
from tests.support.two_hubs import authority, hub_over

pytestmark = pytest.mark.anyio


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


@tool(risk="read")
def look() -> str:
    """Look around."""
    return "nothing"


NewStore = Callable[[], Store]
HubWith = Callable[..., Awaitable[tuple[Hub, Store, str]]]


@pytest.fixture
def hub_with(new_store: NewStore) -> HubWith:
    """Return a function that returns a hub, a store that has what is stored at once, and the id of a new session."""

    async def make(
        model: ChatModel,
        tmp_path: Path,
        *,
        store: Store | None = None,
        tools: Sequence[Any] = (note,),
        clock: PatientClock | None = None,
    ) -> tuple[Hub, Store, str]:
        store = store or new_store()
        record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(record)
        settings = load_settings({"home": tmp_path / "home"}, environ={})
        hub = hub_over(
            store,
            models=lambda _name: model,
            tools=lambda _record: tools,
            settings=settings,
            clock=clock or PatientClock(),
        )
        return hub, authority(store), record.id

    return make


def types(events: Sequence[StoredEvent]) -> list[str]:
    return [str(event.type) for event in events if event.type not in ("state", "usage")]


async def test_a_started_turn_is_stored_and_ends(tmp_path: Path, hub_with: HubWith) -> None:
    hub, store, session_id = await hub_with(ScriptedModel(["hello"]), tmp_path)
    turn = await hub.start(session_id, TurnRequest(input="hi"))
    assert turn.after_seq == 0
    assert await store.log.head(session_id) >= 1
    events = await wait_for_turn_end(store, session_id)
    assert types(events) == ["turn_started", "round_start", "token", "final"]
    assert {event.turn_id for event in events} == {turn.id}
    envelopes = [json.loads(event.frame_json) for event in events]
    message_id = envelopes[-1]["data"]["message_id"]
    created_at = next(one["ts"] for one in envelopes if one["type"] == "token" and one["data"]["text"])
    assert transcript(events)[1:] == [
        {"message_id": message_id, "role": "assistant", "content": "hello", "created_at": created_at}
    ]
    await wait_until(lambda: hub.running_turn_id(session_id) is None)


async def test_the_agents_file_of_the_workspace_is_in_the_system_prompt(tmp_path: Path, hub_with: HubWith) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    model = ScriptedModel(["hello"])
    hub, store, session_id = await hub_with(model, tmp_path)
    await hub.start(session_id, TurnRequest(input="hi"))
    await wait_for_turn_end(store, session_id)
    (request,) = model.requests
    assert frame_text(f"file {tmp_path}/AGENTS.md", "Use tabs.") in request.messages[0].content


async def test_one_of_64_simultaneous_starts_is_accepted_and_the_others_write_nothing(
    tmp_path: Path, hub_with: HubWith
) -> None:
    hub, store, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path)
    starts = [hub.start(session_id, TurnRequest(input=str(number))) for number in range(64)]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [repr(error) for error in refusals if not isinstance(error, SessionBusy)] == []
    assert len(refusals) == 63
    await hub.stop(session_id)
    events = await wait_for_turn_end(store, session_id)
    assert types(events).count("turn_started") == 1
    assert types(events)[-1] == "error"


@pytest.mark.loses_owner
async def test_a_repeated_client_turn_id_returns_the_same_turn_running_or_ended(
    tmp_path: Path, hub_with: HubWith
) -> None:
    hub, store, session_id = await hub_with(ScriptedModel(["one", "two"]), tmp_path)
    request = TurnRequest(input="hi", client_turn_id="c1")
    first, second = await asyncio.gather(hub.start(session_id, request), hub.start(session_id, request))
    assert first == second
    await wait_for_turn_end(store, session_id)
    assert await hub.start(session_id, request) == first
    with pytest.raises(TurnConflict, match="c1"):
        await hub.start(session_id, TurnRequest(input="other", client_turn_id="c1"))
    assert (await hub.start(session_id, TurnRequest(input="next"))).id != first.id
    await wait_for_turn_end(store, session_id, ends=2)


async def test_a_stopped_turn_ends_and_the_next_one_can_begin_at_once(tmp_path: Path, hub_with: HubWith) -> None:
    hub, store, session_id = await hub_with(ScriptedModel([[say("a"), hang()], "again"]), tmp_path)
    turn = await hub.start(session_id, TurnRequest(input="hi"))
    stopped = await hub.stop(session_id)
    assert stopped is not None
    assert stopped.id == turn.id
    events = await wait_for_turn_end(store, session_id)
    assert json.loads(events[-1].frame_json)["data"]["code"] == "stopped"
    await wait_until(lambda: hub.running_turn_id(session_id) is None)
    assert await hub.stop(session_id) is None
    await hub.start(session_id, TurnRequest(input="more"))
    await wait_for_turn_end(store, session_id, ends=2)


async def test_a_confirm_is_answered_through_the_hubs_gate(tmp_path: Path, hub_with: HubWith) -> None:
    hub, store, session_id = await hub_with(ScriptedModel([call("note", {"text": "x"}), "done"]), tmp_path)
    await hub.start(session_id, TurnRequest(input="hi"))
    asked = await wait_for_event(store, session_id, "confirm_required")
    assert [question.id for question in hub.gate.pending(session_id)] == [asked["id"]]
    hub.gate.resolve(asked["id"], True, digest=asked["digest"])
    events = await wait_for_turn_end(store, session_id)
    assert types(events) == [
        "turn_started",
        "round_start",
        "tool_call_delta",
        "tool_call",
        "confirm_required",
        "confirm_response",
        "tool_result",
        "round_start",
        "token",
        "final",
    ]
    messages = transcript(events)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["name"] == "note"
    assert messages[2]["content"] == "noted x"
    assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]


async def test_a_call_is_a_fact_of_its_own_turn_although_others_have_the_same_id(
    tmp_path: Path, hub_with: HubWith
) -> None:
    scripted = [call("look", {}, id="call_0"), "done"]
    hub, store, first = await hub_with(ScriptedModel(scripted * 2), tmp_path, tools=[look])
    second = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(second)
    turns: list[TurnRecord] = []
    for session_id in (first, second.id):
        turns.append(await hub.start(session_id, TurnRequest(input="hi")))
        await wait_for_turn_end(store, session_id)
    await hub.close()
    for turn in turns:
        began = await find_fact(store.log, turn.session_id, CallBegan, f"{turn.id}/call_0")
        assert began is not None
        assert (began.call_id, began.name, began.arguments) == ("call_0", "look", "{}")


async def test_a_call_id_that_a_compacted_call_may_have_had_is_not_reused_after_a_restart(
    tmp_path: Path, hub_with: HubWith
) -> None:
    random_id = "call_9XkD0fLlqJhYw2Zs8TnB4mQe"
    again = [[call("look", {}, id="call_0"), call("look", {}, id=random_id)], "done"]
    first, store, session_id = await hub_with(ScriptedModel(["hello"]), tmp_path, tools=[look])
    await first.start(session_id, TurnRequest(input="hi"))
    events = await wait_for_turn_end(store, session_id)
    summary = StateChange([SystemMessage(content="A summary of the earlier messages.")])
    changed = RuntimeEvent(EventType.SESSION_CHANGED, {})
    await first.close()
    await append(store, session_id, None, [changed], state=summary)
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    model = ScriptedModel(again)
    second = Hub(
        store, models=lambda _name: model, tools=lambda _record: [look], settings=settings, clock=PatientClock()
    )
    await second.start(session_id, TurnRequest(input="more"))
    events = await wait_for_turn_end(store, session_id, ends=2)
    calls = [json.loads(event.frame_json)["data"]["tool_call_id"] for event in events if event.type == "tool_call"]
    assert calls[0] != "call_0"
    assert calls[1] == random_id


async def test_a_storage_failure_ends_the_turn_and_the_next_one_works(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 2)
    slow = ScriptedModel([[say("a"), hang()], "better"])
    hub, _, session_id = await hub_with(slow, tmp_path, store=store)
    await hub.start(session_id, TurnRequest(input="hi"))
    events = await wait_for_turn_end(store, session_id)
    assert json.loads(events[-1].frame_json)["data"]["code"] == "storage"
    await hub.start(session_id, TurnRequest(input="again"))
    assert types(await wait_for_turn_end(store, session_id, ends=2))[-1] == "final"


async def test_a_turn_end_that_the_storage_refused_is_stored_later_without_a_request(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 2, times=4)
    clock = PatientClock({0.5: 0.001, 2.0: 0.002, 10.0: 0.004})
    hub, _, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path, store=store, clock=clock)
    await hub.start(session_id, TurnRequest(input="hi"))
    events = await wait_for_turn_end(store, session_id)
    assert types(events) == ["turn_started", "round_start", "error"]
    assert json.loads(events[-1].frame_json)["data"]["code"] == "storage"
    await hub.close()


async def test_a_first_commit_without_an_answer_is_repeated_and_the_turn_goes_on(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 1, carried_out=True, times=3)
    hub, _, session_id = await hub_with(ScriptedModel(["hello"]), tmp_path, store=store)
    await hub.start(session_id, TurnRequest(input="hi"))
    assert store.has_failed
    events = await wait_for_turn_end(store, session_id)
    assert types(events) == ["turn_started", "round_start", "token", "final"]
    await hub.close()


async def test_a_first_commit_that_stays_without_an_answer_does_not_block_the_session(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 1, carried_out=True, times=4)
    hub, _, session_id = await hub_with(ScriptedModel(["lost", "better"]), tmp_path, store=store)
    with pytest.raises(StoreError, match="did not answer"):
        await hub.start(session_id, TurnRequest(input="hi"))
    await hub.start(session_id, TurnRequest(input="again"))
    events = await wait_for_turn_end(store, session_id, ends=2)
    assert [event.type for event in events if event.terminal] == ["error", "final"]


async def test_an_internal_error_ends_the_turn_with_code_internal(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 2, RuntimeError("a bug"))
    hub, _, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path, store=store)
    await hub.start(session_id, TurnRequest(input="hi"))
    events = await wait_for_turn_end(store, session_id)
    assert json.loads(events[-1].frame_json)["data"] == {
        "text": "The turn failed because of an error in AgenticX.",
        "code": "internal",
        "fatal": True,
    }


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError()])
async def test_a_turn_whose_end_cannot_be_stored_because_of_an_internal_error_is_ended_later(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore, error: Exception
) -> None:
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    store, clock = FailingCommits(new_store(), 2, error, times=2), PatientClock({2.0: 0.1})
    model = ScriptedModel([[say("a"), hang()], "better"])
    hub, _, session_id = await hub_with(model, tmp_path, store=store, clock=clock)
    await hub.start(session_id, TurnRequest(input="hi"))
    events = await wait_for_turn_end(store, session_id)
    assert events[-1].type == "error"
    assert set(reported) == {error}
    await hub.start(session_id, TurnRequest(input="again"))
    assert (await wait_for_turn_end(store, session_id, ends=2))[-1].type == "final"


async def test_a_turn_that_fails_before_its_first_event_stores_nothing(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    store = FailingCommits(new_store(), 1)
    hub, _, session_id = await hub_with(ScriptedModel(["unused", "fine"]), tmp_path, store=store)
    with pytest.raises(StoreError, match="disk full"):
        await hub.start(session_id, TurnRequest(input="hi", client_turn_id="c1"))
    assert await store.log.head(session_id) == 0
    await hub.start(session_id, TurnRequest(input="hi", client_turn_id="c1"))
    await wait_for_turn_end(store, session_id)


@pytest.mark.loses_owner
async def test_changing_a_session_during_a_turn_stores_an_event_without_a_turn_id(
    tmp_path: Path, hub_with: HubWith
) -> None:
    hub, store, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path)
    await hub.start(session_id, TurnRequest(input="hi"))
    record = await hub.change(session_id, {"name": "new", "tools": ("note",)})
    assert (record.name, record.tools) == ("new", ("note",))
    assert await wait_for_event(store, session_id, "session_changed") == {"name": "new", "tools": ["note"]}
    await hub.stop(session_id)
    events = await wait_for_turn_end(store, session_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.turn_id for event in events if event.type == "session_changed"] == [None]


@pytest.mark.loses_owner
async def test_deleting_a_session_ends_its_running_turn(tmp_path: Path, hub_with: HubWith) -> None:
    model = ScriptedModel([[say("a"), hang()]])
    hub, store, session_id = await hub_with(model, tmp_path)
    await hub.start(session_id, TurnRequest(input="hi"))
    await hub.delete(session_id)
    await wait_until(lambda: model.open_streams == 0)
    with pytest.raises(SessionNotFound):
        await hub.start(session_id, TurnRequest(input="hi"))
    assert await store.log.read_all(Position(0), 10) == []


@pytest.mark.loses_owner
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_a_start_while_a_session_is_deleted_returns_a_turn_or_raises_busy_or_not_found(
    tmp_path: Path, hub_with: HubWith, rng: random.Random, count: Count
) -> None:
    for yields in rng.sample(range(60), count(10, 10, 60)):
        hub, store, session_id = await hub_with(ScriptedModel([[say("a"), hang()]] * 4), tmp_path)
        posts = [asyncio.create_task(hub.start(session_id, TurnRequest(input="hi", when_busy="queue"))) for _ in "abc"]
        for _ in range(yields):
            await asyncio.sleep(0)
        deleting = asyncio.create_task(hub.delete(session_id))
        posts += [asyncio.create_task(hub.start(session_id, TurnRequest(input="hi"))) for _ in "de"]
        await deleting
        for result in await asyncio.gather(*posts, return_exceptions=True):
            assert isinstance(result, TurnRecord | SessionNotFound | SessionBusy)
        assert await store.log.read_all(Position(0), 10) == []
        await hub.close()


async def test_closing_stops_every_turn_and_starts_none(tmp_path: Path, hub_with: HubWith) -> None:
    hub, store, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path)
    await hub.start(session_id, TurnRequest(input="hi"))
    await hub.close()
    events = await wait_for_turn_end(store, session_id)
    assert json.loads(events[-1].frame_json)["data"]["code"] == "stopped"
    with pytest.raises(HubClosed):
        await hub.start(session_id, TurnRequest(input="hi"))
    await wait_until(lambda: not {name for name in map(asyncio.Task.get_name, asyncio.all_tasks()) if is_of_hub(name)})


def is_of_hub(name: str) -> bool:
    """Return whether a task of that name is one of the hub's: those of a store go on until it is closed."""
    return "agx" in name and not name.startswith("agx store")


# --- batches ----------------------------------------------------------------------------------------------------------


def token(text: str, offset: int, message_id: str = "m", **more: Any) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": message_id, "offset": offset, **more})


async def test_a_call_begins_only_once_its_event_is_stored(
    tmp_path: Path, hub_with: HubWith, new_store: NewStore
) -> None:
    async def commit_slowly(write: Write) -> Sequence[StoredEvent]:
        await asyncio.sleep(0.01)
        return await write.make()

    logs_seen: list[list[str]] = []

    @tool(risk="read")
    async def peek() -> str:
        """Read the log."""
        logs_seen.append(types(await store.log.read(session_id, 0, 100)))
        return "done"

    hub, store, session_id = await hub_with(
        ScriptedModel([call("peek", {}), "done"]),
        tmp_path,
        store=InterceptedStore(new_store(), commit_slowly),
        tools=[peek],
    )
    await hub.start(session_id, TurnRequest(input="hi"))
    await wait_for_turn_end(store, session_id)
    assert [one[-1] for one in logs_seen] == ["tool_call"]


async def test_only_neighbouring_deltas_of_one_message_are_merged() -> None:
    waiting = token("", 0, waiting=True, elapsed_seconds=8.0)
    thought = RuntimeEvent(EventType.THINKING, {"text": "hm", "message_id": "m", "offset": 0})
    batch = [waiting, token("a", 0), token("b", 1), thought, token("c", 2), token("d", 0, "n"), token("e", 1, "n")]
    assert merge_deltas(batch) == [
        waiting,
        token("ab", 0),
        thought,
        token("c", 2),
        token("de", 0, "n"),
    ]


@pytest.mark.cases(quick=1)
async def test_a_session_evicted_from_memory_continues_where_it_was(tmp_path: Path, hub_with: HubWith) -> None:
    model = ScriptedModel(["one", "two"])
    hub, store, session_id = await hub_with(model, tmp_path)
    await hub.start(session_id, TurnRequest(input="first"))
    await wait_for_turn_end(store, session_id)
    for _ in range(300):
        other = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(other)
        await hub.change(other.id, {"name": "another"})
    await hub.start(session_id, TurnRequest(input="second"))
    await wait_for_turn_end(store, session_id, ends=2)
    assert [message.content for message in model.requests[-1].messages if message.role != "system"] == [
        "first",
        "one",
        "second",
    ]


async def test_a_tool_that_its_own_hub_refuses_is_a_failed_call_and_the_turn_continues(
    tmp_path: Path, hub_with: HubWith
) -> None:
    @tool(risk="read")
    async def begin(where: str) -> str:
        """Begin a turn of this session, of none, or after the store failed."""
        if where == "store":
            raise StoreError("another store has no room")
        turn = await hub.start(session_id if where == "here" else "ses_none", TurnRequest(input="again"))
        return turn.id

    calls = [call("begin", {"where": where}) for where in ("here", "nowhere", "store")]
    hub, store, session_id = await hub_with(ScriptedModel([calls, "done"]), tmp_path, tools=[begin])
    await hub.start(session_id, TurnRequest(input="go"))

    events = await wait_for_turn_end(store, session_id)
    results = [json.loads(event.frame_json)["data"] for event in events if event.type == "tool_result"]
    assert [(data["outcome"], data["result"].startswith("Error: ")) for data in results] == [("error", True)] * 3
    assert types(events)[-1] == "final"


async def test_only_one_of_two_simultaneous_deletions_finds_the_session(tmp_path: Path, hub_with: HubWith) -> None:
    for store in (MemoryStore(), SqliteStore(tmp_path / "sessions.db")):
        hub, _, session_id = await hub_with(ScriptedModel([[say("a"), hang()]]), tmp_path, store=store)
        await hub.start(session_id, TurnRequest(input="hi"))
        outcomes = await asyncio.gather(hub.delete(session_id), hub.delete(session_id), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), SessionNotFound]
        await hub.close()
        await store.aclose()
