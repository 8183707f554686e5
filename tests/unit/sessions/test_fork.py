"""Forks of a session: their own ids, and the texts that a search finds in them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer, EventType, RuntimeEvent
from agenticx.sessions import Fact, Hub, SessionRecord, SqliteStore, StateChange, Store, TurnRecord, fork, read_messages
from agenticx.sessions.files.changes import file_edited, file_rewound
from agenticx.sessions.log.events import decode
from agenticx.sessions.log.records import (
    FACT_CLASSES,
    FORKED_CLASSES,
    RECORD_CLASSES,
    ChildTurnSaved,
    FileEdited,
    NameAnnounced,
    NameDerived,
    ProcessStarted,
    RequestAnswered,
    RequestDecided,
    RewindBegan,
    RewindEnded,
    SubagentAnnounced,
    SubagentDelivered,
    SubagentEnded,
    SubagentFact,
    SubagentMessaged,
    SubagentMessageTaken,
    SubagentStarted,
    SubagentUnannounced,
)
from agenticx.sessions.store.search import MATCHES_SHOWN
from agenticx.settings import load_settings
from agenticx.subagents import SubagentRun
from agenticx.teams import SubagentEnding
from tests.support.commits import append
from tests.support.sessions import SessionHarness
from tests.support.stores import began, final, posted, question, started, taken
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

NOW = "2026-01-01T00:00:00.000Z"
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")


async def created_session(store: Store, tmp_path: Path) -> str:
    record = SessionRecord(name="Old", workspace=str(tmp_path), created_at=NOW)
    await store.create(record)
    return record.id


async def compacted_session(store: Store, tmp_path: Path) -> str:
    """Create a session with one word per message whose first messages are compacted."""
    session_id = await created_session(store, tmp_path)
    await say_words(store, session_id, tmp_path)
    return session_id


async def say_words(store: Store, session_id: str, tmp_path: Path, *, goes_back: bool = False) -> None:
    """Say one word per message in the session, which is compacted meanwhile, and take the last one back on demand."""
    settings = load_settings({"home": tmp_path / "home", "compaction_threshold_messages": 8}, environ={})
    model = ScriptedModel(["A letter. " * 50] * 20)
    hub = Hub(store, models=lambda _name: model, tools=lambda _record: [], settings=settings, clock=PatientClock())
    for word in WORDS:
        async for _ in hub.run_turn(session_id, f"{word} " * 100):
            pass
    if goes_back:
        await hub.rewind(session_id, (await hub.messages(session_id))[-3]["message_id"])
    await hub.close()


async def found(store: Store, word: str) -> set[str]:
    return {found.id for found in await store.catalog.sessions(query=word)}


async def test_a_search_finds_a_fork_by_its_messages_including_compacted_ones(store: Store, tmp_path: Path) -> None:
    old = await compacted_session(store, tmp_path)
    assert "alpha" not in str((await store.log.state(old)).messages)
    shown = await read_messages(store.log, old)
    whole = (await fork(store, old, now=NOW)).id
    upto_beta = (await fork(store, old, shown[2]["message_id"], now=NOW)).id
    of_a_fork = (await fork(store, whole, now=NOW)).id
    everywhere = {old, whole, upto_beta, of_a_fork}
    assert [await found(store, word) for word in ("alpha", "beta")] == [everywhere] * 2
    assert [await found(store, word) for word in ("gamma", "zeta", "iota")] == [everywhere - {upto_beta}] * 3
    matches = {
        one.record.id: [match.message_id for match in one.matches]
        for one in await store.catalog.sessions(query="letter")
    }
    answers = [message["message_id"] for message in shown if message["role"] == "assistant"]
    assert matches[upto_beta] == answers[:1]
    assert matches[whole] == matches[of_a_fork] == answers[:MATCHES_SHOWN]


async def test_an_open_question_has_a_new_id_in_a_fork(
    harness: SessionHarness,
) -> None:
    hub, question = await harness.open_with_confirmation()
    made = await fork(harness.store, harness.session_id, now=NOW)
    events = [json.loads(event.frame_json) for event in await harness.store.log.read(made.id, 0, 1000)]
    asked, closed = [event["data"] for event in events if event["type"].startswith("confirm_")]
    assert asked["id"] == closed["id"] != question.id
    assert (closed["approved"], closed["by"]) == (False, "stop")
    assert [one.id for one in await hub.open_requests()] == [question.id]
    await harness.close(hub)


TURN = "turn_first"


def facts_of_every_class() -> list[Fact]:
    """Return a fact of each class for the session of `session_with_every_record`, and an edit of a call it lacks."""
    ending = SubagentEnding(turn_id="turn_sub", agent_id="a", state="completed", text="done")
    run = SubagentRun(turn_id="turn_sub", agent_id="a", task="look", message="look", parent_path=("meta",))
    answer = ConfirmAnswer(approved=True)
    return [
        *(began("k"), question("q"), posted("m"), taken("m")),
        ProcessStarted(key="k", turn_id=TURN, call_id="c", host="h", pid=1, started=1, mark="x"),
        RequestAnswered(key="q", turn_id=TURN, answer=answer),
        RequestDecided(key="q", turn_id=TURN, answer=answer),
        *(NameDerived(key=TURN, name="x"), NameAnnounced(key=TURN)),
        file_edited("call_here", "/a", None, None),
        file_edited("call_elsewhere", "/a", None, None),
        file_rewound("/a", {"call_here"}, ()),
        *(RewindBegan(key="r", message_id=None, after_seq=1), RewindEnded(key="r")),
        ChildTurnSaved(key=TURN, turn_id=TURN),
        SubagentStarted(key="turn_sub", run=run),
        SubagentEnded(key="turn_sub", ending=ending),
        SubagentDelivered(key="turn_sub", ending=ending, message_id="n", recipient_turn_id="turn_of_another"),
        *(SubagentUnannounced(key="turn_sub"), SubagentAnnounced(key="turn_sub")),
        SubagentMessaged(key="s", agent_id="a", text="more"),
        SubagentMessageTaken(key="s"),
    ]


async def session_with_every_record(store: Store, tmp_path: Path) -> str:
    """Create a session with records of every class; in its first turn a call ran and a sub-agent started."""
    session_id = await created_session(store, tmp_path)
    result = {"tool_call_id": "call_here", "name": "note", "result": "noted", "is_error": False, "outcome": "ok"}
    subagent = {"parent_agent_id": "meta", "depth": 1, "task": "look"}
    events = [
        started(),
        RuntimeEvent(EventType.TOOL_CALL, {"tool_call_id": "call_here", "name": "note", "arguments": {}}),
        RuntimeEvent(EventType.TOOL_RESULT, result),
        RuntimeEvent(EventType.SUBAGENT_STARTED, subagent, "a"),
        final(),
    ]
    turn = TurnRecord(id=TURN, session_id=session_id, input="hi")
    await append(store, session_id, TURN, events, begins=turn)
    await say_words(store, session_id, tmp_path, goes_back=True)
    gone = StateChange(keep_messages=len((await store.log.state(session_id)).messages), removed_parts=["gone"])
    await append(store, session_id, None, [], facts=facts_of_every_class(), state=gone)
    return session_id


async def test_a_fork_has_of_each_record_what_the_record_says(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    old = await session_with_every_record(store, tmp_path)
    made = await fork(store, old, now=NOW)
    edits = [(one.call_id, one.key) for one in await store.log.facts(made.id, FileEdited)]
    deliveries = await store.log.facts(made.id, SubagentFact)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        query = "SELECT DISTINCT kind FROM records JOIN sessions ON number = session WHERE id = ?"
        of_old, of_fork = ({kind for (kind,) in connection.execute(query, (id_,))} for id_ in (old, made.id))
    every, facts = ({each.kind for each in classes} for classes in (RECORD_CLASSES, FACT_CLASSES))
    copied = {each.kind for each in FORKED_CLASSES}
    assert of_old | of_fork == every
    assert of_fork & facts == copied == {"file_edited", "subagent_delivered"}
    assert every - facts - of_fork == {"turn_accepted", "texts_removed", "part_removed"}

    ((call_id, key),) = edits
    assert call_id == "call_here"
    assert key not in {fact.key for fact in facts_of_every_class()}
    (delivery,) = deliveries
    assert isinstance(delivery, SubagentDelivered)
    assert (delivery.message_id, delivery.key) == ("n", delivery.ending.turn_id)
    assert {"turn_sub", "turn_of_another"}.isdisjoint({delivery.key, delivery.recipient_turn_id})


async def test_a_fork_keeps_the_order_of_the_log_and_ends_turns_where_the_path_leaves_them(
    store: Store, tmp_path: Path
) -> None:
    """Fork a session with a child turn that is open while the next turn runs, and with a turn that was rewound."""
    old = await created_session(store, tmp_path)

    async def begin(turn_id: str, **data: str) -> None:
        turn = TurnRecord(id=turn_id, session_id=old, input="x", parent_turn_id=data.get("parent_turn_id"))
        said = {"input": turn_id, "model": "m", "message_id": f"u_{turn_id}", **data}
        await append(store, old, turn_id, [RuntimeEvent(EventType.TURN_STARTED, said)], begins=turn)

    def reply(name: str) -> RuntimeEvent:
        return RuntimeEvent(EventType.TOKEN, {"text": name, "message_id": f"m_{name}", "offset": 0})

    await begin("one")
    await begin("child", parent_turn_id="one")
    await append(store, old, "one", [reply("one"), final()])
    await begin("two")
    await append(store, old, "child", [reply("child")])
    await append(store, old, "two", [reply("two"), reply("more"), final()])
    await append(store, old, None, [RuntimeEvent(EventType.SESSION_CHANGED, {"rewound_to": "m_two"})])
    await begin("three")

    async def copied(message_id: str | None) -> list[tuple[str, str]]:
        made = await fork(store, old, message_id, now=NOW)
        decoded = [decode(event).event for event in await store.log.read(made.id, 0, 100)]
        names = {event.turn_id: event.data["input"] for event in decoded if event.type == "turn_started"}
        return [(names[event.turn_id], event.type) for event in decoded]

    first = [("one", "turn_started"), ("child", "turn_started"), ("one", "token"), ("one", "final")]
    second = [("two", "turn_started"), ("child", "token"), ("two", "token")]
    ended = {name: [(name, "state"), (name, "error")] for name in ("child", "two", "three")}
    assert await copied("m_one") == [*first, ("child", "token"), *ended["child"]]
    assert await copied("m_two") == [*first, *second, *ended["two"], *ended["child"]]
    assert await copied(None) == [
        *(*first, *second, *ended["two"]),
        *(("three", "turn_started"), *ended["three"], *ended["child"]),
    ]
