"""Tests of switches between wires within a conversation, by the rules of strict servers."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import Finished, RetryingModel, RetryPolicy, ScriptedModel
from agenticx.messages import AssistantMessage, Message, ProviderState, ToolCall
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, ContextCompactor, Session, sanitize
from tests.support.histories import broken_histories
from tests.support.wires.conversations import (
    LOOK,
    REPLY_BODIES,
    SECRET,
    conversation,
    is_replayed,
    own_ids,
    reply_with_calls,
    reply_with_names,
    results_of,
    text_of,
)
from tests.support.wires.wires import WIRES, WireUnderTest, refusals

WIRE_NAMES = sorted(WIRES)
MATRIX = [
    pytest.param(WIRES[first], WIRES[then], id=f"{first}-{then}") for first, then in product(WIRE_NAMES, WIRE_NAMES)
]


FOREIGN_IDS = [
    pytest.param(["functions.look:0", "functions.look:1"], id="dots and colons"),
    pytest.param(["x" * 200, "x" * 199 + "y"], id="200 characters"),
    pytest.param(["a b/ü🎉", "a b/ü🎊"], id="spaces and emoji"),
    pytest.param(["call|fc_1", "call|fc_2"], id="a bar"),
    pytest.param(["abc123XYZ", "abc123XYW"], id="Mistral's"),
    pytest.param(["call_" + "a" * 35, "call_" + "a" * 36], id="40 and 41 characters"),
    pytest.param(["c" * 64, "c" * 65], id="64 and 65 characters"),
    pytest.param(["c" * 300, "c" * 299 + "d"], id="300 characters"),
    pytest.param(["_a", "-a"], id="an underscore and a dash first"),
    pytest.param(["a" * 39, "a" * 39 + "\ud800"], id="a lone surrogate"),
]
CALL_NAMES = [
    pytest.param(["multi_tool_use.parallel", "multi_tool_use_parallel"], id="OpenAI's own"),
    pytest.param(["look at", "look\tat"], id="spaces"),
    pytest.param(["öffne", "🎉", "функция"], id="other letters"),
    pytest.param(["n" * 64, "n" * 65, "n" * 300, "n" * 299 + "m"], id="64, 65 and 300 characters"),
    pytest.param(["", " ", "None"], id="none"),
    pytest.param(["3d", "-x", ".x"], id="odd beginnings"),
    pytest.param(["a</function>", '"}', "<parameter=x>"], id="markup"),
]


# --- the matrix -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("D5")
@pytest.mark.parametrize(("first", "then"), MATRIX)
@pytest.mark.parametrize("ended", [False, True], ids=["in a turn", "between turns"])
def test_a_conversation_can_continue_over_any_other_wire(
    first: WireUnderTest, then: WireUnderTest, ended: bool
) -> None:
    history = conversation(first, own_ids(first, 3), own_ids(first, 1, 3))
    if ended:
        history += [AssistantMessage(content="There is a chair."), UserMessage(content="And now?")]

    assert then.refusals(history, tools=[LOOK]) == []
    assert then.refusals(history) == [], "without tools"
    assert is_replayed(then, history) == (first is then)


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_provider_state_is_sent_only_to_the_same_wire_and_model(first: WireUnderTest, then: WireUnderTest) -> None:
    history = conversation(first, own_ids(first, 2))
    assert is_replayed(first, history)
    assert not is_replayed(first, history, model="m2")
    assert first.refusals(history, model="m2", tools=[LOOK]) == []
    assert (SECRET in text_of(then.request(history, tools=[LOOK]))) == (first is then and first.name != "ollama")
    sent_text = text_of(then.request(history, tools=[LOOK]))
    assert all(word in sent_text for word in ("Let me see.", "look", "seen"))


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_a_conversation_can_switch_wires_and_back(first: WireUnderTest, then: WireUnderTest) -> None:
    history = conversation(first, own_ids(first, 2))
    message = reply_with_calls(then, own_ids(then, 2, 10))
    history += [message, *results_of(message), AssistantMessage(content="Done."), UserMessage(content="Again.")]
    message = reply_with_calls(first, own_ids(first, 2, 20))
    history += [message, *results_of(message)]
    assert refusals(history, tools=[LOOK]) == {}


@pytest.mark.parametrize("ids", FOREIGN_IDS)
@pytest.mark.parametrize(("first", "then"), MATRIX)
@pytest.mark.cases(quick=20)
def test_calls_with_any_ids_become_a_valid_request(first: WireUnderTest, then: WireUnderTest, ids: list[str]) -> None:
    history = conversation(first, ids, [f"{ids[0]}2"])
    assert then.refusals(history, tools=[LOOK]) == []


@pytest.mark.promise("D5")
@pytest.mark.parametrize("names", CALL_NAMES)
@pytest.mark.parametrize(("first", "then"), MATRIX)
@pytest.mark.cases(quick=15)
def test_calls_of_any_name_become_a_valid_request(first: WireUnderTest, then: WireUnderTest, names: list[str]) -> None:
    message = reply_with_names(first, names, own_ids(first, len(names)))
    history = [UserMessage(content="Look."), message, *results_of(message)]
    assert then.refusals(history, tools=[LOOK]) == []
    assert then.refusals(history) == [], "without tools"
    assert is_replayed(then, history) == (first is then)


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_repeated_ids_in_a_later_round_become_a_valid_request(first: WireUnderTest, then: WireUnderTest) -> None:
    history = conversation(first, own_ids(first, 2), own_ids(first, 2))
    assert then.refusals(sanitize(history), tools=[LOOK]) == []


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_calls_without_results_become_a_valid_request(first: WireUnderTest, then: WireUnderTest) -> None:
    message = reply_with_calls(first, own_ids(first, 3))
    dangling = [
        *conversation(first, own_ids(first, 1, 9)),
        message,
        results_of(message)[1],
        UserMessage(content="Stop. Why?"),
    ]
    assert then.refusals(sanitize(dangling), tools=[LOOK]) == []


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_malformed_arguments_become_a_valid_request(first: WireUnderTest, then: WireUnderTest) -> None:
    message = reply_with_calls(first, own_ids(first, 6))
    texts = ['{"at": ', "[1]", "", '{"at": NaN}', '{"at":1}{"at":2}', '{"a":' * 300 + "1" + "}" * 300]
    calls = [call.model_copy(update={"arguments": text}) for call, text in zip(message.tool_calls, texts, strict=True)]
    message = message.model_copy(update={"tool_calls": tuple(calls)})
    history = [UserMessage(content="Look."), message, *results_of(message)]
    assert then.refusals(history, tools=[LOOK]) == []


@pytest.mark.parametrize(("first", "then"), MATRIX)
def test_malformed_provider_state_is_left_out(first: WireUnderTest, then: WireUnderTest) -> None:
    message = reply_with_calls(first, own_ids(first, 2))
    state = message.provider_state
    assert state is not None
    for payload in ({}, *({name: odd} for name in state.payload for odd in ("x", 5, None, [], [5], [{}], {"x": 1}))):
        odd_state = ProviderState(wire=state.wire, model=state.model, payload=payload)
        changed = message.model_copy(update={"provider_state": odd_state})
        history = [UserMessage(content="Look."), changed, *results_of(changed)]
        assert then.refusals(history, tools=[LOOK]) == [], payload


# --- compaction and fallback ----------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(("first", "then"), MATRIX)
async def test_a_compacted_conversation_can_continue_over_any_other_wire(
    first: WireUnderTest, then: WireUnderTest
) -> None:
    history = conversation(first, *(own_ids(first, 2, 2 * n) for n in range(12)))
    compactor = ContextCompactor(threshold_messages=8, retain_recent_messages=4)
    compacted = await compactor.compact(history, ScriptedModel(["They looked around."]))
    assert compacted is not None
    assert "[compacted]" in compacted.messages[0].content
    assert then.refusals(sanitize(compacted.messages), tools=[LOOK]) == []
    assert is_replayed(then, compacted.messages) == (first is then)


class RecordedModel:
    """A model of one wire that replays the given bodies and then raises an overload error."""

    def __init__(self, wire: WireUnderTest, *bodies: bytes) -> None:
        self.wire, self.bodies = wire, list(bodies)
        self.refusals: list[str] = []
        self.name, self.context_window = f"{wire.name}:m", None

    async def stream(self, request: Any) -> Any:
        self.refusals += self.wire.violations(json.loads(self.wire.body(request, "m")))
        if not self.bodies:
            raise ModelError("overloaded", code="provider.overloaded", status=503)
        parser = self.wire.parser("m")
        deltas = [*parser.feed(self.bodies.pop(0)), *parser.end()]
        assert isinstance(deltas[-1], Finished)
        yield deltas


@pytest.mark.anyio
@pytest.mark.parametrize(("first", "then"), MATRIX)
@pytest.mark.cases(quick=4)
async def test_a_fallback_of_any_wire_takes_over_within_a_turn(first: WireUnderTest, then: WireUnderTest) -> None:
    failing = RecordedModel(first, REPLY_BODIES[first.name](own_ids(first, 2)))
    prepare_handoff = RecordedModel(
        then, REPLY_BODIES[then.name](own_ids(then, 2, 5)), REPLY_BODIES[then.name](own_ids(then, 1, 7))
    )
    last = ScriptedModel(["A chair."], name="last")

    def look(at: str) -> str:
        """Look."""
        return f"{at} is there"

    model = RetryingModel(failing, fallbacks=[prepare_handoff, last], policy=RetryPolicy(attempts=1))
    session = Session(id="s")
    events = [
        event async for event in AgentRuntime(model, AutoApproveConfirmGate()).run_turn("Hi", session, tools=[look])
    ]
    assert (events[-1].type, events[-1].data.get("text")) == ("final", "A chair.")
    assert (failing.refusals, prepare_handoff.refusals) == ([], [])
    history = [*session.messages, UserMessage(content="go on")]
    assert refusals(history, tools=[LOOK]) == {}
    states = [row.provider_state.wire for row in history if isinstance(row, AssistantMessage) and row.provider_state]
    assert [state.replace("-", "_") for state in states] == [first.name, then.name, then.name]


@pytest.mark.promise("D5")
@given(broken_histories(), st.data())
def test_any_sanitized_history_becomes_a_valid_request_on_every_wire(
    history: list[Message], data: st.DataObject
) -> None:
    wire = WIRES[data.draw(st.sampled_from(WIRE_NAMES))]
    rows = list(history)
    if rows:
        message = reply_with_calls(wire, own_ids(wire, 2))
        rows.insert(data.draw(st.integers(0, len(rows))), message)
    rows = [*sanitize([*rows, UserMessage(content="go on")])]
    assert refusals(rows, tools=[LOOK]) == {}


def test_calls_with_equal_ids_in_one_message_become_a_valid_request() -> None:
    calls = tuple(ToolCall(id=id_, name="look") for id_ in ("a", "a", ""))
    rows = sanitize([UserMessage(content="x"), AssistantMessage(tool_calls=calls), UserMessage(content="y")])
    assert refusals(rows) == {}
