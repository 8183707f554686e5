"""Tests of the request bodies of the Gemini wire against the API's rules and the SDK's types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.llms import GeminiDialect, ModelRequest, Sampling, ToolSchema
from agenticx.llms.identifiers import ToolNames
from agenticx.llms.wires.gemini._request import TOOL_NAMES, request_body
from agenticx.llms.wires.gemini._schema import accepted_schema
from agenticx.messages import AssistantMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import sanitize
from tests.support.histories import broken_histories
from tests.support.wires import sdk_types
from tests.support.wires.rules_gemini import violations

NEW, OLD = "gemini-3-pro", "gemini-2.5-flash"
LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
WAIT = ToolSchema("wait", "Waits.", {"type": "object", "properties": {}})
HELLO = UserMessage(content="hello")
SIGNED = {"thoughtSignature": "c2lnbmVk"}
UNSIGNED = {"thoughtSignature": "skip_thought_signature_validator"}


def body_of(
    *messages: Message,
    model: str = NEW,
    dialect: GeminiDialect | None = None,
    replay_state: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Return the request for these messages after checking it against the rules."""
    request = ModelRequest(messages=messages, **options)
    body = json.loads(
        request_body(
            request, model=model, dialect=dialect or GeminiDialect(include_thoughts=False), replay_state=replay_state
        )
    )
    assert violations(body, signed=model == NEW) == []
    return body


def rows_of(*messages: Message, **options: Any) -> list[tuple[str, list[Any]]]:
    """Return role and parts of each content, plain texts as strings."""
    return [
        (row["role"], [part["text"] if part.keys() == {"text"} else part for part in row["parts"]])
        for row in body_of(*messages, **options)["contents"]
    ]


def assistant(
    text: str = "", *calls: str, state: ProviderState | None = None, arguments: str = "{}"
) -> AssistantMessage:
    tool_calls = tuple(ToolCall(id=id_, name="look", arguments=arguments) for id_ in calls)
    return AssistantMessage(content=text, tool_calls=tool_calls, provider_state=state)


def result(id_: str, content: str = "seen", **fields: Any) -> ToolMessage:
    return ToolMessage(tool_call_id=id_, name="look", content=content, **fields)


def provider_state(*parts: dict[str, Any], wire: str = "gemini", model: str = NEW) -> ProviderState:
    return ProviderState(wire=wire, model=model, payload={"parts": list(parts)})


def call_part(name: str = "look", *, args: dict[str, Any] | None = None, id: str | None = None) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args or {}} | ({"id": id} if id else {})}


def response_part(
    content: str = "seen", *, key: str = "output", name: str = "look", id: str | None = None
) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {key: content}} | ({"id": id} if id else {})}


# --- one request --------------------------------------------------------------------------------------------------


def test_a_request_with_all_fields() -> None:
    body = body_of(
        SystemMessage(content="Be brief."),
        SystemMessage(content="[compacted] We spoke."),
        HELLO,
        assistant("Let me look.", "call_1", arguments='{"at": "it"}'),
        result("call_1"),
        tools=[LOOK, WAIT],
        tool_choice="required",
        sampling=Sampling(max_output_tokens=100),
        dialect=GeminiDialect(),
    )
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "[compacted] We spoke."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": [{"text": "Let me look."}, {**call_part(args={"at": "it"}), **UNSIGNED}]},
            {"role": "user", "parts": [response_part()]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "look", "description": "Looks.", "parametersJsonSchema": LOOK.parameters},
                    {"name": "wait", "description": "Waits."},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"includeThoughts": True}},
    }


def test_without_system_instructions_the_system_message_is_a_user_part() -> None:
    body = body_of(
        SystemMessage(content="Be brief."),
        HELLO,
        dialect=GeminiDialect(include_thoughts=False, system_instruction=False),
    )
    assert body == {"contents": [{"role": "user", "parts": [{"text": "Be brief."}, {"text": "hello"}]}]}


# --- order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "rows"),
    [
        pytest.param(
            [HELLO, UserMessage(content="again", injected=True)], [("user", ["hello", "again"])], id="neighbours"
        ),
        pytest.param(
            [HELLO, assistant("a"), assistant("b", "1", "2"), result("1"), result("2", "no", outcome="denied"), HELLO],
            [
                ("user", ["hello"]),
                ("model", ["a", "b", {**call_part(), **UNSIGNED}, call_part()]),
                ("user", [response_part(), response_part("no", key="error"), "hello"]),
            ],
            id="results of parallel calls and what else the user says",
        ),
        pytest.param(
            [assistant("a"), HELLO],
            [("user", ["[The conversation begins here.]"]), ("model", ["a"]), ("user", ["hello"])],
            id="begun by the assistant",
        ),
        pytest.param(
            [HELLO, assistant("a")],
            [("user", ["hello"]), ("model", ["a"]), ("user", ["[Go on.]"])],
            id="ended by the assistant",
        ),
        pytest.param([], [("user", ["[Go on.]"])], id="nothing"),
        pytest.param([UserMessage(content=""), HELLO], [("user", ["hello"])], id="empty text"),
    ],
)
def test_contents_alternate_and_begin_and_end_with_the_user(messages: list[Message], rows: Any) -> None:
    assert rows_of(*messages) == rows


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ("{", {"malformed_arguments": "{"}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ('{"a": NaN}', {"malformed_arguments": '{"a": NaN}'}),
        ('{"a":1}', {"a": 1}),
    ],
)
def test_arguments_of_any_form_are_sent_as_an_object(arguments: str, args: dict[str, Any]) -> None:
    rows = rows_of(HELLO, assistant("", "1", arguments=arguments), result("1"), model=OLD)
    assert rows[1:2] == [("model", [call_part(args=args)])]


def test_lone_surrogates_are_replaced() -> None:
    assert rows_of(UserMessage.model_construct(role="user", content="a\ud800b")) == [("user", ["a\ufffdb"])]


# --- what goes back as it came ------------------------------------------------------------------------------------

THOUGHT_PART = {"text": "t", "thought": True}
STATE = provider_state(
    THOUGHT_PART,
    {"text": "a"},
    {**SIGNED, "functionCall": {"name": "look", "id": "f1"}},
    {"functionCall": {"name": "look"}},
)


def test_a_reply_of_the_same_model_is_replayed_with_signatures_and_its_own_ids() -> None:
    rows = rows_of(HELLO, assistant("a", "1", "2", state=STATE), result("1", "x"), result("2", "y"))
    assert rows[1:] == [
        ("model", [THOUGHT_PART, "a", {**SIGNED, **call_part(id="f1")}, call_part()]),
        ("user", [response_part("x", id="f1"), response_part("y")]),
    ]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(assistant("a", "1", "2", state=STATE.model_copy(update={"model": OLD})), id="another model's"),
        pytest.param(assistant("a", "1", "2", state=STATE.model_copy(update={"wire": "other"})), id="another wire's"),
        pytest.param(assistant("a", "1", "2", state=provider_state(THOUGHT_PART, {"text": "a"})), id="calls added"),
        pytest.param(
            assistant("a", "1", "2", state=provider_state(*STATE.payload["parts"], {"text": "b"})), id="text changed"
        ),
        pytest.param(
            assistant("a", "1", "2", state=ProviderState(wire="gemini", model=NEW, payload={})), id="no parts"
        ),
    ],
)
def test_a_reply_of_another_model_or_a_changed_one_is_sent_as_text_and_calls(message: AssistantMessage) -> None:
    rows = rows_of(HELLO, message, result("1"), result("2"))
    assert rows[1:] == [
        ("model", ["a", {**call_part(), **UNSIGNED}, call_part()]),
        ("user", [response_part(), response_part()]),
    ]


def test_without_replay_of_state_a_reply_is_sent_as_text_and_calls() -> None:
    rows = rows_of(HELLO, assistant("a", "1", "2", state=STATE), result("1"), result("2"), replay_state=False)
    assert rows[1] == ("model", ["a", {**call_part(), **UNSIGNED}, call_part()])


def test_models_without_signatures_get_calls_without_one() -> None:
    assert rows_of(HELLO, assistant("", "1"), result("1"), model=OLD)[1] == ("model", [call_part()])


# --- tools --------------------------------------------------------------------------------------------------------


def test_invalid_tool_names_are_replaced_and_can_be_mapped_back() -> None:
    tools = [ToolSchema(name, "", {}) for name in ("look", "3d_view", "-")]
    declared = [row["name"] for row in body_of(HELLO, tools=tools)["tools"][0]["functionDeclarations"]]
    originals = ToolNames(TOOL_NAMES, ModelRequest(messages=[HELLO], tools=tools)).originals
    assert (declared[0], originals) == ("look", {declared[1]: "3d_view", declared[2]: "-"})


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"type": "string", "format": "uuid", "examples": ["a"]}, {"type": "string"}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"const": "a"}, {"enum": ["a"]}),
        ({"enum": ["a", None]}, {}),
        ({"type": "integer", "exclusiveMinimum": 0, "minimum": 0}, {"type": "integer", "minimum": 0}),
        (
            {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/A"}]},
            {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]},
        ),
        ({"definitions": {"A": {"$schema": "x"}}}, {"$defs": {"A": {}}}),
        ({"$ref": "#/$defs/A", "description": "d"}, {"$ref": "#/$defs/A"}),
        ({"allOf": [{"$ref": "#/$defs/A"}], "default": 1}, {"$ref": "#/$defs/A"}),
        ({"allOf": [{"type": "string"}], "title": "t"}, {"type": "string", "title": "t"}),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {}),
        ({"type": "array", "items": True, "prefixItems": [{"not": {}}]}, {"type": "array", "prefixItems": [{}]}),
        ({"additionalProperties": {"pattern": "a", "if": {}}}, {"additionalProperties": {"pattern": "a"}}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        (
            {"properties": {"pattern": {"type": ["string", "null"]}}},
            {"properties": {"pattern": {"type": ["string", "null"]}}},
        ),
    ],
)
def test_a_schema_keeps_only_keywords_that_gemini_supports(schema: dict[str, Any], accepted: dict[str, Any]) -> None:
    assert accepted_schema(schema) == accepted


# --- any conversation ---------------------------------------------------------------------------------------------

_SIGNATURES = st.sampled_from([{}, SIGNED])


@st.composite
def _states(draw: st.DrawFn, message: AssistantMessage) -> ProviderState | None:
    """Draw the provider state of a reply: the message's own parts or others, of this model or another, or none."""
    parts: list[dict[str, Any]] = [THOUGHT_PART] if draw(st.booleans()) else []
    if message.content:
        parts.append({"text": message.content, **draw(_SIGNATURES)})
    for index, call in enumerate(message.tool_calls):
        identity = {"name": call.name} | ({"id": f"f{index}"} if draw(st.booleans()) else {})
        parts.append({"functionCall": identity, **(SIGNED if index == 0 else {})})
    if draw(st.booleans()):
        parts.append({"text": "", **SIGNED})
    if draw(st.integers(0, 4)) == 0:
        parts = draw(st.permutations(parts))[1:]
    model, wire = draw(st.sampled_from([NEW, NEW, OLD])), draw(st.sampled_from(["gemini", "gemini", "ollama"]))
    return draw(st.sampled_from([None, provider_state(*parts, model=model, wire=wire)]))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    return [
        row.model_copy(update={"provider_state": draw(_states(row))}) if isinstance(row, AssistantMessage) else row
        for row in sanitize(draw(broken_histories()))
    ]


@pytest.mark.promise("D5")
@given(histories(), st.sampled_from([NEW, OLD]), st.booleans())
def test_every_sanitized_history_becomes_a_valid_request(
    history: list[Message], model: str, replay_state: bool
) -> None:
    body = body_of(*history, model=model, replay_state=replay_state, tools=[LOOK])
    texts = [row.content for row in history if row.role != "tool" and row.content]
    parts = [
        *body.get("systemInstruction", {"parts": []})["parts"],
        *(p for row in body["contents"] for p in row["parts"]),
    ]
    sent_text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    assert sent_text.replace("[The conversation begins here.]", "").replace("[Go on.]", "") == "".join(texts)


@pytest.mark.ci_lane
@sdk_types.needs_sdk("gemini")
@given(histories())
def test_every_request_matches_the_types_of_the_sdk(history: list[Message]) -> None:
    options = {"tools": [LOOK, WAIT], "tool_choice": "required", "sampling": Sampling(max_output_tokens=9)}
    body = body_of(*history, **options, dialect=GeminiDialect())
    assert sdk_types.type_errors("gemini", body) == []
