"""Tests of the request bodies of the Anthropic wire against the API's rules and the SDK's types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.llms import ModelRequest, ToolSchema
from agenticx.llms.wires.anthropic._request import request_body
from agenticx.messages import AssistantMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import sanitize
from tests.support.wires import sdk_types
from tests.support.wires.rules_anthropic import violations

LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
CACHED = {"cache_control": {"type": "ephemeral"}}
HELLO = UserMessage(content="hello")


def body_of(
    *messages: Message, thinking: dict[str, Any] | None = None, max_tokens: int = 100, **options: Any
) -> dict[str, Any]:
    """Return the request for these messages after checking it against the rules."""
    request = ModelRequest(messages=messages, **options)
    body = json.loads(request_body(request, model="m", max_tokens=max_tokens, thinking=thinking))
    assert violations(body) == []
    return body


def rows_of(*messages: Message, **options: Any) -> list[tuple[str, list[Any]]]:
    """Return role and blocks of each message, texts as strings, without `cache_control`."""
    return [
        (row["role"], [_plain_block(block) for block in row["content"]])
        for row in body_of(*messages, **options)["messages"]
    ]


def _plain_block(block: dict[str, Any]) -> Any:
    block = {name: value for name, value in block.items() if name != "cache_control"}
    return block["text"] if block.keys() == {"type", "text"} else block


def tool_use(id_: str, name: str = "look", **input_: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": input_}


def tool_result(id_: str, content: str | None = "seen", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, **fields, **({} if content is None else {"content": content})}


def assistant(text: str = "", *calls: str, state: ProviderState | None = None) -> AssistantMessage:
    tool_calls = tuple(ToolCall(id=id_, name="look") for id_ in calls)
    return AssistantMessage(content=text, tool_calls=tool_calls, provider_state=state)


def result(id_: str, content: str = "seen", **fields: Any) -> ToolMessage:
    return ToolMessage(tool_call_id=id_, name="look", content=content, **fields)


def provider_state(*content: dict[str, Any], wire: str = "anthropic", model: str = "m") -> ProviderState:
    return ProviderState(wire=wire, model=model, payload={"content": list(content)})


THINKING_BLOCK = {"type": "thinking", "thinking": "t", "signature": "s"}
REDACTED_BLOCK = {"type": "redacted_thinking", "data": "x"}
TEXT_BLOCK = {"type": "text", "text": "a"}
CALL_BLOCK = {"type": "tool_use"}
SEARCH_BLOCKS = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]


# --- one request --------------------------------------------------------------------------------------------------


def test_a_request_with_all_fields() -> None:
    body = body_of(
        SystemMessage(content="Be brief."),
        SystemMessage(content="[compacted] We spoke."),
        HELLO,
        assistant("Let me look.", "toolu_1"),
        result("toolu_1"),
        tools=[LOOK],
    )
    assert body == {
        "model": "m",
        "max_tokens": 100,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "[compacted] We spoke.", **CACHED}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, tool_use("toolu_1")]},
            {"role": "user", "content": [tool_result("toolu_1", **CACHED)]},
        ],
        "tools": [
            {
                "name": "look",
                "description": "Looks.",
                "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
            }
        ],
    }


# --- order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "rows"),
    [
        pytest.param(
            [HELLO, UserMessage(content="again", injected=True)], [("user", ["hello", "again"])], id="neighbours"
        ),
        pytest.param(
            [HELLO, assistant("a"), assistant("b", "1"), result("1"), HELLO],
            [("user", ["hello"]), ("assistant", ["a", "b", tool_use("1")]), ("user", [tool_result("1"), "hello"])],
            id="results before what else the user says",
        ),
        pytest.param(
            [assistant("a"), HELLO],
            [("user", ["[The conversation begins with your own words.]"]), ("assistant", ["a"]), ("user", ["hello"])],
            id="begun by the assistant",
        ),
        pytest.param(
            [HELLO, assistant("a \n")],
            [("user", ["hello"]), ("assistant", ["a \n"]), ("user", ["[Go on.]"])],
            id="ended by the assistant",
        ),
        pytest.param([], [("user", ["[Go on.]"])], id="nothing"),
        pytest.param(
            [HELLO, assistant(" \n"), UserMessage(content="\t"), HELLO], [("user", ["hello", "hello"])], id="blanks"
        ),
        pytest.param(
            [HELLO, SystemMessage(content="note"), assistant("a"), HELLO],
            [("user", ["hello", "note"]), ("assistant", ["a"]), ("user", ["hello"])],
            id="a system row in the middle",
        ),
        pytest.param(
            [HELLO, result("9", "late")], [("user", ["hello", "[result of look] late"])], id="a result of no call"
        ),
    ],
)
def test_the_order_of_messages(messages: list[Message], rows: list[tuple[str, list[Any]]]) -> None:
    assert rows_of(*messages) == rows


# --- calls and results --------------------------------------------------------------------------------------------


def test_an_invalid_id_is_replaced_by_the_same_one_in_call_and_result() -> None:
    ids = ["call|1", "call/1", "", "ok_1-A"]
    _, (_, calls), (_, results) = rows_of(HELLO, assistant("", *ids), *(result(id_, id_ or "none") for id_ in ids))
    sent = [block["id"] for block in calls]
    assert sent == [block["tool_use_id"] for block in results]
    assert len(set(sent)) == 4
    assert sent[3] == "ok_1-A"
    assert rows_of(HELLO, assistant("", *ids), *(result(id_) for id_ in ids))[1][1] == calls


def test_a_repeated_id_is_replaced() -> None:
    rows = rows_of(HELLO, *[assistant("", "1"), result("1")] * 3, assistant("", "1_2"), result("1_2"))
    assert [block["id"] for role, blocks in rows if role == "assistant" for block in blocks] == [
        "1",
        "1_2",
        "1_3",
        "1_2_2",
    ]


@pytest.mark.parametrize(
    ("message", "block"),
    [
        pytest.param(result("1", ""), tool_result("1", None), id="empty"),
        pytest.param(result("1", "no", outcome="denied"), tool_result("1", "no", is_error=True), id="error"),
        pytest.param(
            result("1", " ", outcome="timed_out"), tool_result("1", "timed out", is_error=True), id="empty error"
        ),
    ],
)
def test_tool_results(message: ToolMessage, block: dict[str, Any]) -> None:
    assert rows_of(HELLO, assistant("", "1"), message)[2] == ("user", [block])


@pytest.mark.parametrize(
    ("arguments", "input_"),
    [
        ('{"at": "é"}', {"at": "é"}),
        ("", {}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ('{"at": ', {"malformed_arguments": '{"at": '}),
        ('{"at": NaN}', {"malformed_arguments": '{"at": NaN}'}),
    ],
)
def test_arguments_are_sent_as_an_object(arguments: str, input_: dict[str, Any]) -> None:
    call = ToolCall(id="1", name="look", arguments=arguments)
    rows = rows_of(HELLO, AssistantMessage(tool_calls=(call,)), result("1"))
    assert rows[1] == ("assistant", [tool_use("1", **input_)])


def test_an_invalid_tool_name_is_replaced_by_the_same_one_in_tools_and_calls() -> None:
    call = ToolCall(id="1", name="our.look")
    body = body_of(
        HELLO, AssistantMessage(tool_calls=(call,)), result("1"), tools=[ToolSchema("our.look", "Looks.", {})]
    )
    assert body["tools"][0]["name"] == body["messages"][1]["content"][0]["name"] != "our.look"


# --- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sent"), [("auto", None), ("none", {"type": "none"}), ("required", {"type": "any"})]
)
def test_tool_choice(choice: Any, sent: dict[str, Any] | None) -> None:
    assert body_of(HELLO, tools=[LOOK], tool_choice=choice).get("tool_choice") == sent
    assert "tool_choice" not in body_of(HELLO, tool_choice=choice)


def test_a_request_without_tools_declares_those_of_earlier_calls_and_forbids_them() -> None:
    body = body_of(HELLO, assistant("", "1", "2"), result("1"), result("2"))
    assert body["tools"] == [{"name": "look", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_a_tool_schema_is_reduced_to_a_plain_object() -> None:
    tools = [ToolSchema("look", "", {"anyOf": [{"required": ["a"]}], "properties": {"a": {"anyOf": [{}]}}})]
    assert body_of(HELLO, tools=tools)["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {"a": {"anyOf": [{}]}},
    }


# --- what the model itself said -----------------------------------------------------------------------------------


def test_a_reply_of_the_same_model_is_replayed_block_by_block() -> None:
    blank = {"type": "text", "text": "\n"}
    state = provider_state(
        THINKING_BLOCK,
        REDACTED_BLOCK,
        TEXT_BLOCK,
        *SEARCH_BLOCKS,
        blank,
        {**CALL_BLOCK, "caller": {"type": "direct"}},
        CALL_BLOCK,
    )
    rows = rows_of(HELLO, assistant("a\n", "1", "2", state=state), result("1"), result("2"))
    called = [{**tool_use("1"), "caller": {"type": "direct"}}, tool_use("2")]
    assert rows[1] == ("assistant", [THINKING_BLOCK, REDACTED_BLOCK, "a", *SEARCH_BLOCKS, *called])


@pytest.mark.parametrize(
    ("state", "text"),
    [
        pytest.param(provider_state(THINKING_BLOCK, TEXT_BLOCK, CALL_BLOCK, model="other"), "a", id="another model"),
        pytest.param(provider_state(THINKING_BLOCK, TEXT_BLOCK, CALL_BLOCK, wire="gemini"), "a", id="another wire"),
        pytest.param(provider_state(THINKING_BLOCK, TEXT_BLOCK, CALL_BLOCK), "b", id="another text"),
        pytest.param(provider_state(THINKING_BLOCK, TEXT_BLOCK), "a", id="another number of calls"),
        pytest.param(ProviderState(wire="anthropic", model="m", payload={}), "a", id="nothing kept"),
    ],
)
def test_a_reply_of_another_model_is_sent_as_text_and_calls(state: ProviderState, text: str) -> None:
    assert rows_of(HELLO, assistant(text, "1", state=state), result("1"))[1] == ("assistant", [text, tool_use("1")])


def test_thinking_without_text_or_calls_is_left_out() -> None:
    blank = {"type": "text", "text": " "}
    assert rows_of(HELLO, assistant(" ", state=provider_state(THINKING_BLOCK, blank)), HELLO) == [
        ("user", ["hello", "hello"])
    ]


def test_a_request_does_not_change_the_provider_state() -> None:
    state = provider_state(THINKING_BLOCK, TEXT_BLOCK, CALL_BLOCK)
    before = state.model_dump_json()
    body_of(HELLO, assistant("a", "1", state=state), result("1"))
    assert state.model_dump_json() == before


# --- thinking -----------------------------------------------------------------------------------------------------

BUDGET = {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.parametrize(
    ("messages", "options", "thinks"),
    [
        pytest.param([HELLO], {}, True, id="a new turn"),
        pytest.param([HELLO], {"max_tokens": 2048}, False, id="no room"),
        pytest.param([HELLO], {"tools": [LOOK], "tool_choice": "required"}, False, id="a forced call"),
        pytest.param([HELLO, assistant("", "1"), result("1")], {}, False, id="a turn begun by another model"),
        pytest.param(
            [
                HELLO,
                assistant("", "1", state=provider_state(THINKING_BLOCK, CALL_BLOCK)),
                result("1"),
                assistant("", "2"),
                result("2"),
            ],
            {},
            True,
            id="a turn begun with a thought",
        ),
        pytest.param([HELLO, assistant("", "1"), result("1"), assistant("a"), HELLO], {}, True, id="the turn after it"),
    ],
)
def test_thinking_is_requested_where_the_api_permits_it(
    messages: list[Message], options: dict[str, Any], thinks: bool
) -> None:
    body = body_of(*messages, thinking=BUDGET, **{"max_tokens": 4096, **options})
    assert body.get("thinking") == (BUDGET if thinks else None)


# --- any conversation ---------------------------------------------------------------------------------------------

_texts = st.sampled_from(["", " ", "words", "é\n", "more words "])
_ids = st.sampled_from(["", "a", "b", "call|1", "call/1", "toolu_01", "ü" * 200])
_names = st.sampled_from(["look", "our.look", "mcp/tool name", "x" * 200])
_arguments = st.sampled_from(["", "{}", '{"x": 1}', "[1]", '{"x"', '"text"'])
_outcomes = st.sampled_from(["ok", "error", "denied", "unknown"])
_states = st.lists(
    st.sampled_from(
        [[THINKING_BLOCK], [REDACTED_BLOCK], [TEXT_BLOCK], [CALL_BLOCK], [{**TEXT_BLOCK, "text": " "}], SEARCH_BLOCKS]
    ),
    max_size=6,
).map(lambda groups: provider_state(*[block for group in groups for block in group]))
_calls = st.lists(st.builds(ToolCall, id=_ids, name=_names, arguments=_arguments), max_size=3).map(tuple)
_replies = st.builds(AssistantMessage, content=_texts, tool_calls=_calls, provider_state=st.none() | _states)


def _consistent(message: AssistantMessage) -> AssistantMessage:
    """Return the message with text and calls as in its provider state, so that the state is used."""
    if message.provider_state is None:
        return message
    content = message.provider_state.payload["content"]
    count = sum(block["type"] == "tool_use" for block in content)
    return message.model_copy(
        update={
            "content": "".join(block["text"] for block in content if block["type"] == "text"),
            "tool_calls": tuple(ToolCall(id=f"c{number}", name="look") for number in range(count)),
        }
    )


_histories = st.lists(
    st.one_of(
        st.builds(UserMessage, content=_texts),
        st.builds(SystemMessage, content=_texts),
        st.builds(ToolMessage, tool_call_id=_ids, name=_names, content=_texts, outcome=_outcomes),
        _replies,
        _replies.map(_consistent),
    ),
    max_size=14,
)
_requests = st.builds(
    ModelRequest,
    messages=_histories.map(sanitize),
    tools=st.sampled_from([(), (LOOK,), (LOOK, ToolSchema("our.look", "", {"oneOf": []}))]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
)
_thinking = st.sampled_from([None, BUDGET, {"type": "adaptive"}])


def _body_of_request(request: ModelRequest, thinking: dict[str, Any] | None) -> dict[str, Any]:
    return json.loads(request_body(request, model="m", max_tokens=4096, thinking=thinking))


@pytest.mark.promise("D5")
@given(_requests, _thinking)
def test_every_sanitized_history_becomes_a_valid_request(
    request: ModelRequest, thinking: dict[str, Any] | None
) -> None:
    body = _body_of_request(request, thinking)
    assert violations(body) == []
    assert body == _body_of_request(request, thinking)
    sent = [block for row in body["messages"] for block in row["content"] if block["type"] == "tool_result"]
    assert len(sent) == sum(isinstance(message, ToolMessage) for message in request.messages)


@sdk_types.needs_sdk("anthropic")
@given(_requests, _thinking)
@pytest.mark.ci_lane
def test_every_request_matches_the_types_of_the_sdk(request: ModelRequest, thinking: dict[str, Any] | None) -> None:
    assert sdk_types.type_errors("anthropic", _body_of_request(request, thinking)) == []


def test_lone_surrogates_are_replaced() -> None:
    assert rows_of(UserMessage(content="a\ud83db")) == [("user", ["a\ufffdb"])]
