"""The entries of a session's log, and the tree of turns that is folded from them."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from agenticx import UserMessage
from agenticx.llms import Sampling
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import ConfirmAnswer, EventType, QuestionAnswer, RuntimeEvent
from agenticx.sessions import DamagedData, Fact, TurnRecord
from agenticx.sessions.log.events import TokenMerger, decode, encode
from agenticx.sessions.log.records import (
    CLOSING_CLASSES,
    FACT_CLASSES,
    RECORD_CLASSES,
    BaseRecord,
    ChildTurnSaved,
    MessagePosted,
    PartChanged,
    PartRemoved,
    Record,
    RequestAnswered,
    RequestDecided,
    SessionChanged,
    StoredRecord,
    SubagentDelivered,
    SubagentStarted,
    TurnAccepted,
    decode_message,
    decode_record,
    encode_message,
    encode_record,
)
from agenticx.sessions.log.state import fold
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.subagents import SubagentRun
from agenticx.teams import SubagentEnding
from tests.support.stores import asked, began, final, posted, question, record, taken, token

TS = "2026-01-01T00:00:00.000Z"
ENDING = SubagentEnding(turn_id="t", agent_id="a", state="error", text="No.", code="internal", sources=("page",))
RUN = SubagentRun(turn_id="t", agent_id="a", task="look", message="look", tools=("see",), parent_path=("meta",))
FACTS = [
    began("k"),
    question("k"),
    RequestAnswered(key="k", turn_id="t", answer=ConfirmAnswer(approved=True, arguments={"a": [1]}, reason="so")),
    RequestDecided(key="k", turn_id="t", answer=QuestionAnswer(answer="red", by="user")),
    posted("k"),
    MessagePosted(
        key="k", turn_id="t", message=UserMessage(content="hi"), sampling=Sampling(temperature=0.5), vaults=("v",)
    ),
    taken("k"),
    ChildTurnSaved(
        key="k", turn_id="k", messages=(UserMessage(content="\ud800"),), state={"todos": "[]"}, agent_path=("meta", "a")
    ),
    ChildTurnSaved(key="k", turn_id="k"),
    SubagentStarted(key="t", run=RUN),
    SubagentDelivered(key="t", ending=ENDING, is_due=True, recipient_turn_id="turn_1"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.kind)
def test_a_fact_is_decoded_as_it_was(fact: Fact) -> None:
    assert decode_record(fact.kind, fact.key, fact.turn_id, encode_record(fact)) == fact


MESSAGES = {
    '{"role":"system","content":"s","message_id":"m"}': SystemMessage(content="s", message_id="m"),
    '{"role":"user","content":"\\ud800","message_id":"m"}': UserMessage(content="\ud800", message_id="m"),
    '{"role":"user","content":"u","message_id":"m","injected":true}': UserMessage(
        content="u", message_id="m", injected=True
    ),
    '{"role":"assistant","tool_calls":[{"id":"c","name":"n"}],"message_id":"m"}': AssistantMessage(
        tool_calls=(ToolCall(id="c", name="n"),), message_id="m"
    ),
    '{"role":"tool","tool_call_id":"c","name":"n","content":"r","message_id":"m"}': ToolMessage(
        tool_call_id="c", name="n", content="r", message_id="m"
    ),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_a_message_is_stored_without_what_is_as_by_default(text: str) -> None:
    message: Message = MESSAGES[text]
    assert (encode_message(message), decode_message(text)) == (text, message)


def test_a_turn_is_stored_without_what_is_as_by_default() -> None:
    for turn, text in {
        TurnRecord(id="t", session_id="s", input=""): '{"session_id":"s","input":""}',
        TurnRecord(id="t", session_id="s", input="x", variants=("a",), sampling=Sampling(temperature=0.5)): (
            '{"session_id":"s","input":"x","sampling":{"temperature":0.5},"variants":["a"]}'
        ),
    }.items():
        accepted = TurnAccepted(key="t", turn_id="t", turn=turn)
        assert encode_record(accepted) == text
        assert decode_record(accepted.kind, "t", "t", text) == accepted


def test_each_kind_of_record_has_one_class_that_is_decoded() -> None:
    pending, kinds = [BaseRecord], list[str]()
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if "kind" in vars(each):
            kinds.append(each.kind)
    assert sorted({*kinds}) == sorted(each.kind for each in RECORD_CLASSES)


def test_each_kind_of_work_has_a_class_that_closes_it() -> None:
    assert sorted(CLOSING_CLASSES) == sorted(each.kind for each in FACT_CLASSES if each.is_work)


@pytest.mark.parametrize("each", FACT_CLASSES, ids=lambda each: each.kind)
def test_a_fact_with_other_data_is_damaged(each: type[Fact]) -> None:
    for data in ("", "[]", "null", "{", '{"more": 1}'):
        with pytest.raises(DamagedData):
            decode_record(each.kind, "k", "", data)


@pytest.mark.parametrize("text", ["word", "\ud800 alone", "\0", "é 😀", "[" * 500])
def test_an_event_is_decoded_as_it_was_and_one_without_a_key_is_damaged(text: str) -> None:
    event = replace(token(text), agent_id=text, turn_id="turn_1")
    stored = encode(event, session_id="ses_1", turn_id="turn_1", seq=3, position=4, ts=TS)
    entry = decode(stored)
    assert (entry.event, entry.turn_id, entry.seq, entry.ts) == (event, "turn_1", 3, TS)
    envelope = json.loads(stored.frame_json)
    del envelope["data"]["offset"]
    with pytest.raises(DamagedData):
        decode(stored._replace(frame_json=json.dumps(envelope).encode()))


def test_a_tree_knows_parents_agents_questions_and_ends_of_random_turns(rng: random.Random) -> None:
    tree, parents, ends, asking = TurnTree(), dict[str, str | None](), set[str](), dict[str, set[str]]()
    for number in range(300):
        running = [id_ for id_ in parents if id_ not in ends]
        if not running or rng.random() < 0.2:
            id_, parent = f"turn_{number}", rng.choice([*running, None])
            above = {} if parent is None else {"parent_turn_id": parent}
            data = {"input": "x", "model": "m", "message_id": "m", **above}
            tree.apply(RuntimeEvent(EventType.TURN_STARTED, data, f"agent_{number}", id_), TS)
            parents[id_], asking[id_] = parent, set()
            continue
        id_ = rng.choice(running)
        event = rng.choice([token("a"), asked(f"cnf_{number}"), final()])
        if event.type == "final":
            ends.add(id_)
        elif event.type == "confirm_required":
            asking[id_].add(event.data["id"])
        elif asking[id_]:
            answer = {"id": asking[id_].pop(), "approved": True, "by": "user"}
            event = RuntimeEvent(EventType.CONFIRM_RESPONSE, answer)
        tree.apply(replace(event, turn_id=id_), TS)
    assert list(tree.turns) == list(parents)
    for id_, parent in parents.items():
        turn, status = tree[id_], "waiting" if asking[id_] else "running"
        assert (turn.parent_id, set(turn.open_requests)) == (parent, asking[id_])
        assert turn.status == ("ended" if id_ in ends else status)
        above = () if parent is None else tree.agent_path(parent)
        assert tree.agent_path(id_) == (*above, id_.replace("turn", "agent"))
        below = {other for other in parents if id_ in tree.lineage(other)}
        assert tree.within({id_}) == below >= {turn.id for turn in tree.children({id_})} | {id_}


def test_the_place_of_a_new_part_is_behind_all_others_also_once_the_last_one_is_removed() -> None:
    made = record()
    changes = [PartChanged(key=f"part {place}", place=place, text="[]") for place in (1, 2, 3)]
    records: list[Record] = [SessionChanged(key=made.id, record=made), *changes, PartRemoved(key="part 3")]
    session = fold([StoredRecord(1, place, 0, each) for place, each in enumerate(records)])
    assert (session.next_part_place(), list(session.parts)) == (4, ["part 1", "part 2"])


def test_the_tokens_of_a_message_are_merged_unless_their_turn_has_another_event_between_them() -> None:
    said = [
        *(("turn_1", token("a")), ("turn_2", token("x")), ("turn_1", token("b")), ("turn_2", token("y"))),
        *(("turn_1", asked("q")), ("turn_1", token("c")), ("turn_2", token("z"))),
        ("turn_2", RuntimeEvent(EventType.TOKEN, {"text": "!", "message_id": "other", "offset": 0})),
    ]
    merger = TokenMerger()
    for seq, (turn_id, event) in enumerate(said, 1):
        merger.add(decode(encode(event, session_id="ses_1", turn_id=turn_id, seq=seq, position=seq, ts=TS)))
    merged = [(entry.turn_id, entry.seq, entry.event.data.get("text")) for entry in merger.events()]
    assert merged == [
        *(("turn_1", 1, "ab"), ("turn_2", 2, "xyz"), ("turn_1", 5, None), ("turn_1", 6, "c"), ("turn_2", 8, "!")),
    ]
