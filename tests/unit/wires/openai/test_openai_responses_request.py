"""Tests of the request bodies of the Responses wire against the rules and the SDK types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.llms import ModelRequest, ResponsesDialect, Sampling, ToolSchema
from agenticx.llms.wires.openai_responses._request import request_body
from agenticx.messages import AssistantMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import sanitize
from tests.support.histories import broken_histories
from tests.support.wires import sdk_types
from tests.support.wires.rules_responses import violations

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSchema("add", "adds", SCHEMA)
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


def body(
    messages: Sequence[Message],
    *,
    model: str = "m",
    replay_state: bool = True,
    dialect: ResponsesDialect | None = None,
    **more: Any,
) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **more)
    return json.loads(
        request_body(
            request, model=model, dialect=dialect or ResponsesDialect(), stream=True, replay_state=replay_state
        )
    )


def items(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    return body(messages, **options)["input"]


def provider_state(*output: Any, wire: str = "openai-responses", model: str = "m") -> ProviderState:
    return ProviderState(wire=wire, model=model, payload={"output": list(output)})


def message_item(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **fields}


def call_item(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "add", "arguments": "{}", **fields}


CALL, RESULT = ToolCall(id="c1", name="add"), ToolMessage(tool_call_id="c1", name="add", content="2")


# --- the whole body -------------------------------------------------------------------------------------------------


def test_messages_tools_and_limits_in_the_form_of_responses() -> None:
    messages = [
        SystemMessage(content="be brief"),
        UserMessage(content="add"),
        AssistantMessage(content="Let me see.", tool_calls=(ToolCall(id="c1", name="add", arguments='{"a":1}'),)),
        RESULT,
        AssistantMessage(content="two"),
    ]
    dialect = ResponsesDialect(reasoning_summary=True)
    sampling = Sampling(max_output_tokens=99)
    assert body(messages, tools=[ADD], tool_choice="required", sampling=sampling, dialect=dialect) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "input": [
            {"type": "message", "role": "system", "content": "be brief"},
            {"type": "message", "role": "user", "content": "add"},
            {"type": "message", "role": "assistant", "content": "Let me see."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
            {"type": "message", "role": "assistant", "content": "two"},
        ],
        "tools": [{"type": "function", "name": "add", "description": "adds", "parameters": SCHEMA, "strict": False}],
        "tool_choice": "required",
        "max_output_tokens": 99,
    }


def test_options_that_are_not_set_are_left_out() -> None:
    assert body([UserMessage(content="hello")], dialect=ResponsesDialect(encrypted_reasoning=False)) == {
        "model": "m",
        "stream": True,
        "store": False,
        "input": [{"type": "message", "role": "user", "content": "hello"}],
    }


def test_lone_surrogates_and_non_finite_numbers_are_replaced() -> None:
    message = AssistantMessage(content="a", provider_state=provider_state({**message_item("a"), "cost": float("inf")}))
    assert [item["content"] for item in items(UserMessage(content="a\ud800b"))] == ["a\ufffdb"]
    assert items(message)[0]["cost"] is None


# --- replay of a model's own output ------------------------------------------------------------


def test_a_reply_of_the_same_model_is_replayed_item_by_item() -> None:
    output = [THOUGHT, message_item("I add.", phase="commentary"), call_item(namespace="math")]
    message = AssistantMessage(content="I add.", tool_calls=(CALL,), provider_state=provider_state(*output))
    assert items(message, RESULT) == [*output, {"type": "function_call_output", "call_id": "c1", "output": "2"}]


def test_parallel_calls_and_server_tools_are_replayed_in_order() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    output = [THOUGHT, search, call_item("c1"), call_item("c2", id="fc_2")]
    other = ToolCall(id="c2", name="add")
    message = AssistantMessage(tool_calls=(CALL, other), provider_state=provider_state(*output))
    results = [RESULT, RESULT.model_copy(update={"tool_call_id": "c2"})]
    assert [(item["type"], item.get("call_id")) for item in items(message, *results)] == [
        ("reasoning", None),
        ("web_search_call", None),
        ("function_call", "c1"),
        ("function_call", "c2"),
        ("function_call_output", "c1"),
        ("function_call_output", "c2"),
    ]


def test_a_call_with_a_replaced_id_is_sent_with_the_id_of_its_result() -> None:
    message = AssistantMessage(
        tool_calls=(CALL.model_copy(update={"id": "ours"}),), provider_state=provider_state(call_item())
    )
    result = RESULT.model_copy(update={"tool_call_id": "ours"})
    assert [item["call_id"] for item in items(message, result)] == ["ours", "ours"]


def test_a_freeform_call_is_replayed_with_a_freeform_result() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": 'say "a"'}
    call = ToolCall(id="c1", name="patch", arguments=json.dumps(item["input"]))
    message = AssistantMessage(tool_calls=(call,), provider_state=provider_state(item))
    assert items(message, RESULT) == [item, {"type": "custom_tool_call_output", "call_id": "c1", "output": "2"}]
    assert items(message, RESULT, replay_state=False)[0]["arguments"] == json.dumps(
        {"malformed_arguments": call.arguments}
    )


PLAIN = [
    {"type": "message", "role": "assistant", "content": "I add."},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "2"},
]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"model": "another"}, id="another model"),
        pytest.param({"wire": "anthropic"}, id="another wire"),
        pytest.param({"output": [THOUGHT, message_item("Something else."), call_item()]}, id="another text"),
        pytest.param({"output": [THOUGHT, message_item("I add."), call_item(name="subtract")]}, id="another call"),
        pytest.param(
            {"output": [THOUGHT, message_item("I add."), call_item(arguments='{"a":2}')]}, id="other arguments"
        ),
        pytest.param(
            {"output": [THOUGHT, message_item("I add."), call_item(), call_item()]}, id="a call that was filtered out"
        ),
        pytest.param({"output": [THOUGHT, message_item("I add.")]}, id="a call that was put in"),
        pytest.param(
            {"output": [message_item("I add."), call_item(), {"type": "shell_call", "id": "s"}]},
            id="a call nobody answers",
        ),
        pytest.param({"output": []}, id="nothing"),
        pytest.param({"output": "x"}, id="no list"),
    ],
)
def test_a_reply_with_state_of_another_model_or_form_is_sent_as_text(changed: dict[str, Any]) -> None:
    fields = {
        "wire": "openai-responses",
        "model": "m",
        "output": [THOUGHT, message_item("I add."), call_item()],
        **changed,
    }
    output = fields.pop("output")
    message = AssistantMessage(
        content="I add.", tool_calls=(CALL,), provider_state=ProviderState(**fields, payload={"output": output})
    )
    assert items(message, RESULT) == PLAIN


@pytest.mark.parametrize(
    "reasoning",
    [
        {**THOUGHT, "encrypted_content": None},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "r"}]},
        {**THOUGHT, "encrypted_content": "", "content": []},
    ],
)
def test_reasoning_without_encrypted_content_is_left_out(reasoning: dict[str, Any]) -> None:
    message = AssistantMessage(content="a", provider_state=provider_state(reasoning, message_item("a")))
    assert items(message) == [message_item("a")]


def test_reasoning_at_the_end_of_a_reply_is_left_out() -> None:
    message = AssistantMessage(content="a", provider_state=provider_state(message_item("a"), THOUGHT))
    assert items(message) == [message_item("a")]


def test_null_fields_are_not_sent_back() -> None:
    message = AssistantMessage(
        content="a", provider_state=provider_state({**message_item("a"), "status": None, "phase": None})
    )
    assert sorted(items(message)[0]) == ["content", "id", "role", "type"]


def test_a_reply_that_is_in_the_history_twice_is_replayed_once() -> None:
    message = AssistantMessage(content="a", provider_state=provider_state(message_item("a")))
    assert items(message, message) == [message_item("a"), {"type": "message", "role": "assistant", "content": "a"}]


def test_a_malformed_call_is_sent_in_a_valid_form() -> None:
    call = ToolCall(id="c1", name="no such tool!", arguments="{")
    message = AssistantMessage(
        tool_calls=(call,), provider_state=provider_state(THOUGHT, call_item(name=call.name, arguments=call.arguments))
    )
    wrapped = json.dumps({"malformed_arguments": "{"})
    assert items(message) == [THOUGHT, call_item(name="no_such_tool__957a42d4", arguments=wrapped)]


# --- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "sent"),
    [
        ("call_1", "call_1"),
        ("chatcmpl-tool|fc:1.2", "chatcmpl-tool|fc:1.2"),
        ("x" * 64, "x" * 64),
        ("x" * 65, None),
        ("é", None),
        ("a b", None),
        ("", None),
    ],
)
def test_invalid_call_ids_are_replaced_deterministically(id_: str, sent: str | None) -> None:
    message = AssistantMessage(tool_calls=(CALL.model_copy(update={"id": id_}),))
    result = RESULT.model_copy(update={"tool_call_id": id_})
    first, second = ([item["call_id"] for item in items(message, result)] for _ in range(2))
    assert first == second
    assert first[0] == first[1]
    assert len(first[0]) <= 64
    assert first[0] == sent if sent else first[0] not in ("", id_)


def test_a_repeated_call_id_is_replaced() -> None:
    message = AssistantMessage(tool_calls=(CALL,))
    found = items(message, RESULT, message, RESULT, message, RESULT)
    assert [item["call_id"] for item in found] == ["c1", "c1", "c1_2", "c1_2", "c1_3", "c1_3"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("no such tool!", "no_such_tool__957a42d4"),
        ("", "unnamed_e3b0c442"),
        ("é" * 70, "_" * 55 + "_78dcf717"),
    ],
)
def test_invalid_tool_names_are_replaced(name: str, sent: str) -> None:
    assert items(AssistantMessage(tool_calls=(ToolCall(id="c1", name=name),)))[0]["name"] == sent


# --- any history ----------------------------------------------------------------------------------------------------

_ids = st.sampled_from(["a", "b", "c", "x" * 80, "é", "with space"])
_names = st.sampled_from(["look", "no such tool!", "", "n" * 70])
_arguments = st.sampled_from(["{}", '{"a": 1}', "", "{", "[1]", '"free"', '{"a": NaN}'])
_texts = st.sampled_from(["", "words", "é\n"])
_calls = st.lists(st.builds(ToolCall, id=_ids, name=_names, arguments=_arguments), max_size=3)


@st.composite
def replies(draw: st.DrawFn) -> AssistantMessage:
    """Draw a reply with its output items as provider state, which may be of another model or changed since."""
    text, calls = draw(_texts), draw(_calls)
    output: list[dict[str, Any]] = []
    if draw(st.booleans()):
        output.append(
            {**THOUGHT, "id": f"rs_{draw(st.uuids())}", "encrypted_content": draw(st.sampled_from(["x", "", None]))}
        )
    if text or draw(st.booleans()):
        output.append(message_item(text, id=f"msg_{draw(st.uuids())}"))
    for call in calls:
        output.append(call_item(call.id, id=f"fc_{draw(st.uuids())}", name=call.name, arguments=call.arguments))
    if draw(st.booleans()):
        output = draw(st.permutations(output))
    if draw(st.integers(0, 5)) == 0:
        text += "!"
    made_by = draw(st.sampled_from(["m", "m", "m", "another"]))
    return AssistantMessage(
        content=text, tool_calls=tuple(calls), provider_state=provider_state(*output, model=made_by)
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Return a history after repair: rows of every kind, with replies that have a state between them."""
    rows = draw(broken_histories())
    for reply in draw(st.lists(replies(), max_size=4)):
        place = draw(st.integers(0, len(rows)))
        times = draw(st.sampled_from([1, 1, 1, 2]))
        rows[place:place] = [reply, *_results(reply, draw(st.booleans()))] * times
    return sanitize(rows)


def _results(reply: AssistantMessage, every: bool) -> list[ToolMessage]:
    calls = reply.tool_calls if every else reply.tool_calls[1:]
    return [ToolMessage(tool_call_id=call.id, name=call.name, content="seen") for call in calls]


@pytest.mark.promise("D5")
@given(histories(), st.booleans())
def test_every_sanitized_history_becomes_a_valid_request(history: list[Message], replay_state: bool) -> None:
    sampling = Sampling(max_output_tokens=16)
    assert violations(body(history, replay_state=replay_state, tools=[ADD], sampling=sampling)) == []


@given(histories())
def test_all_texts_are_sent_in_their_order(history: list[Message]) -> None:
    texts = [row.content for row in history if row.content]
    assert [text for item in items(*history) if (text := _text(item))] == texts


@given(histories(), st.integers(0, 30))
def test_a_longer_conversation_begins_with_the_same_request_items(history: list[Message], cut: int) -> None:
    """Prompt caches are keyed on the beginning of a request."""
    while 0 < cut < len(history) and isinstance(history[cut], ToolMessage):
        cut += 1
    earlier = items(*history[:cut])
    assert items(*history)[: len(earlier)] == earlier


def _text(item: dict[str, Any]) -> str:
    content = item.get("content", item.get("output", ""))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


# --- the official client's request types ------------------------------------------------------------------------------


@sdk_types.needs_sdk("openai_responses")
@given(histories())
@pytest.mark.ci_lane
def test_every_request_matches_the_types_of_the_sdk(history: list[Message]) -> None:
    sent = body(history, tools=[ADD], tool_choice="required", dialect=ResponsesDialect(reasoning_summary=True))
    assert sdk_types.type_errors("openai_responses", sent) == []
