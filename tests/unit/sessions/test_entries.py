"""The entries of a session's log, and the tree of turns that is folded from them."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from agenticx.llms.sampling import Sampling
from agenticx.messages import UserMessage
from agenticx.runtime import ConfirmAnswer, QuestionAnswer
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.events import decode, encode
from agenticx.sessions.store.records import (
    FACT_CLASSES,
    RECORD_CLASSES,
    Fact,
    MessagePosted,
    Record,
    RequestAnswered,
    RequestDecided,
    SubagentDelivered,
    SubagentStarted,
    TurnWaiting,
    decode_record,
    encode_record,
)
from agenticx.sessions.turn_tree import TurnTree
from agenticx.subagents.records import SubagentEnding, SubagentRun
from tests.support.stores import asked, began, final, posted, question, taken, token

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
    TurnWaiting(
        key="k", turn_id="k", messages=(UserMessage(content="\ud800"),), state={"todos": "[]"}, agent_path=("meta", "a")
    ),
    TurnWaiting(key="k", turn_id="k"),
    SubagentStarted(key="t", run=RUN),
    SubagentDelivered(key="t", ending=ENDING, is_due=True, told_in="turn_1"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.kind)
def test_a_fact_is_decoded_as_it_was(fact: Fact) -> None:
    assert decode_record(fact.kind, fact.key, fact.turn_id, encode_record(fact)) == fact


def test_each_kind_of_record_has_one_class_that_is_decoded() -> None:
    pending, kinds = [Record], list[str]()
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if "kind" in vars(each):
            kinds.append(each.kind)
    assert sorted({*kinds}) == sorted(each.kind for each in RECORD_CLASSES)


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
