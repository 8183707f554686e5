"""Tests of tool names and call ids: valid for each provider, and mapped back in replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.llms import (
    Delta,
    Finished,
    ModelRequest,
    TextDelta,
    ToolSchema,
    XmlToolModel,
    adapt,
    close_model,
    complete,
)
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.messages import AssistantMessage, Message, ProviderState, ToolCall, ToolMessage
from tests.support.wires import rules_chat
from tests.support.wires.bodies import chat_body
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.conversations import REPLY_BODIES
from tests.support.wires.wires import WIRES, WireUnderTest

OPENAI = IdentifierRule("a-zA-Z0-9_-", 64)
SHORT = IdentifierRule("a-zA-Z0-9", 9, min_length=9)
GEMINI = IdentifierRule("a-zA-Z0-9_.:-", 64, first="a-zA-Z_")
RULES = [pytest.param(rule, id=name) for name, rule in (("OpenAI", OPENAI), ("Mistral", SHORT), ("Gemini", GEMINI))]
HELLO = UserMessage(content="hello")
AT = {"type": "object", "properties": {"at": {"type": "string"}}}
ODD_NAMES = ["files.read", "look at", "öffne", "n" * 65, "3d", "files_read"]
TOOLS = [ToolSchema(name, "Does something.", AT) for name in ODD_NAMES]


def call_round(*calls: tuple[str, str], state: ProviderState | None = None) -> list[Message]:
    """Return an answer with these calls (id, name) and their results."""
    tool_calls = tuple(ToolCall(id=id_, name=name) for id_, name in calls)
    results = [ToolMessage(tool_call_id=id_, name=name, content="seen") for id_, name in calls]
    return [AssistantMessage(tool_calls=tool_calls, provider_state=state), *results]


def names_of(*names: str, tools: Sequence[str] = ()) -> ToolNames:
    messages = [HELLO, *call_round(*((f"c{number}", name) for number, name in enumerate(names)))]
    return ToolNames(OPENAI, ModelRequest(messages=messages, tools=[ToolSchema(name, "", {}) for name in tools]))


# --- one identifier -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@given(st.text(max_size=100), st.integers(1, 1000))
def test_a_fitted_identifier_is_valid_and_deterministic(rule: IdentifierRule, text: str, number: int) -> None:
    fitted = rule.fit(text, number)
    assert rule.allows(fitted)
    assert rule.fit(text, number) == fitted
    assert (fitted == text) == (rule.allows(text) and number == 1)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (OPENAI, "a" * 64),
        (OPENAI, "-"),
        (SHORT, "abc123XYZ"),
        (GEMINI, "_a.b:c-d"),
        (GEMINI, "a" * 64),
    ],
)
def test_a_valid_identifier_is_unchanged(rule: IdentifierRule, text: str) -> None:
    assert rule.fit(text) == text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        *((OPENAI, text) for text in ("a" * 65, "", "a\n", "é", "\ud800")),
        *((SHORT, text) for text in ("abc123XY", "abc_23XYZ")),
        *((GEMINI, text) for text in ("3d", "-a", "a|b")),
    ],
)
def test_an_invalid_identifier_is_replaced(rule: IdentifierRule, text: str) -> None:
    assert not rule.allows(text)
    assert rule.allows(rule.fit(text))


# --- one request ----------------------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "a.b", "a b", "a_b", OPENAI.fit("a.b"), OPENAI.fit("a b"), "n" * 70, ""])


@given(st.lists(_names, max_size=8), st.lists(_names, max_size=4, unique=True))
def test_sent_names_are_distinct_and_can_be_mapped_back(called: list[str], tools: list[str]) -> None:
    names = names_of(*called, tools=tools)
    sent = {name: names.sent_name(name) for name in {*called, *tools}}
    assert len(set(sent.values())) == len(sent)
    assert all(OPENAI.allows(fitted) for fitted in sent.values())
    assert {name: names.originals.get(fitted, fitted) for name, fitted in sent.items()} == {name: name for name in sent}
    assert all(sent[name] == name for name in tools if OPENAI.allows(name))


def test_a_valid_declared_name_takes_precedence_over_a_fitted_one() -> None:
    taken = OPENAI.fit("files.read")
    names = names_of(tools=["files.read", taken])
    assert (names.sent_name(taken), names.sent_name("files.read")) == (taken, OPENAI.fit("files.read", 2))


def test_an_undeclared_name_equal_to_a_sent_name_is_replaced() -> None:
    invented = OPENAI.fit("files.read")
    names = names_of(invented, tools=["files.read"])
    assert names.originals == {invented: "files.read", f"{invented}_2": invented}


@given(st.lists(st.sampled_from(["a", "a_2", "a b", "n" * 70, "n" * 64, ""]), max_size=30))
def test_sent_call_ids_are_distinct_and_results_get_those_of_their_calls(ids: list[str]) -> None:
    fitting = CallIds(OPENAI)
    sent: list[str] = []
    for id_ in ids:
        sent.append(fitting.assign(id_))
        assert fitting.pop(id_) == sent[-1]
        assert fitting.pop(id_) is None
    assert len(set(sent)) == len(sent)
    assert all(map(OPENAI.allows, sent))


# --- every wire -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES.values(), ids=sorted(WIRES, key=list(WIRES).index))
def test_a_longer_conversation_begins_with_the_same_request_items(wire: WireUnderTest) -> None:
    """Prompt caches are keyed on the beginning of a request."""
    rounds = [call_round((f"{name} {number}" * 9, name)) for number, name in enumerate([*ODD_NAMES, "other", "o.k"])]
    shorter = [HELLO, *(message for round_ in rounds[:4] for message in round_), UserMessage(content="on")]
    longer = [*shorter, *(message for round_ in rounds[4:] for message in round_), UserMessage(content="and on")]
    before, after = (
        json.dumps(wire.request(messages, tools=TOOLS)).replace(', "cache_control": {"type": "ephemeral"}', "")
        for messages in (shorter, longer)
    )
    upto = before.index('"on"')
    assert (wire.refusals(shorter, tools=TOOLS), wire.refusals(longer, tools=TOOLS)) == ([], [])
    assert after[:upto] == before[:upto]


def _sent_names(body: Any) -> list[str]:
    """Return the names of the declared tools in a body."""
    tools: list[Any] = [row for tool in body["tools"] for row in tool.get("functionDeclarations", [tool])]
    return [tool.get("function", tool)["name"] for tool in tools]


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES.values(), ids=sorted(WIRES, key=list(WIRES).index))
async def test_a_call_of_a_sent_name_is_mapped_to_the_original_name(wire: WireUnderTest) -> None:
    history = [
        HELLO,
        *call_round(("c1", "multi_tool_use.parallel"), ("c2", "files.read")),
        UserMessage(content="again"),
    ]
    body = wire.request(history, tools=TOOLS)
    assert wire.violations(body) == []
    sent = _sent_names(body)
    assert [sent[place] for place, name in enumerate(ODD_NAMES) if name == "files_read"] == ["files_read"]
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {wire.content_type}\r\n".encode()
    got: list[str] = []
    for name in sent:
        reply_body = REPLY_BODIES[wire.name](["call_1"]).replace(b'"look"', json.dumps(name).encode())
        async with chunk_server(lambda reply_body=reply_body: [reply_body], head=head) as server:
            model = wire.model(server.base_url)
            reply, error = await complete(model, ModelRequest(messages=history, tools=TOOLS))
            await close_model(model)
        assert error is None
        got += [call.name for call in reply.tool_calls]
    assert got == ODD_NAMES


@pytest.mark.parametrize("wire", WIRES.values(), ids=sorted(WIRES, key=list(WIRES).index))
def test_provider_state_is_replayed_if_a_tool_name_was_replaced(wire: WireUnderTest) -> None:
    request = ModelRequest(messages=[HELLO], tools=TOOLS)
    name = _sent_names(json.loads(wire.body(request, "m")))[0]
    parser = wire.parser("m")
    deltas = [
        *parser.feed(REPLY_BODIES[wire.name](["call_1"]).replace(b'"look"', json.dumps(name).encode())),
        *parser.end(),
    ]
    state = getattr(deltas[-1], "provider_state", None)
    assert isinstance(state, ProviderState)
    call = ToolCall(id="call_1", name="files.read", arguments='{"at": "call_1"}')
    if wire.name == "gemini":  # writes arguments in its own way
        call = call.model_copy(update={"arguments": '{"at":"call_1"}'})
    reply = AssistantMessage(content="Let me see.", reasoning="hm", tool_calls=(call,), provider_state=state)
    history = [HELLO, reply, ToolMessage(tool_call_id="call_1", name="files.read", content="seen")]
    body = wire.request(history, tools=TOOLS)
    assert wire.violations(body) == []
    text = json.dumps(body)
    assert ("c2VjcmV0IHNpZ25hdHVyZQ==" in text) or (wire.name == "ollama" and '"thinking"' in text)


# --- what each wire keeps -------------------------------------------------------------------------------------------


def chat_messages(*messages: Message, **dialect: Any) -> list[dict[str, Any]]:
    request = ModelRequest(messages=messages)
    body = json.loads(chat_body(request, **dialect))
    assert rules_chat.violations(body) == [] or "dotted_call_ids" in dialect
    return body["messages"]


def test_kimi_ids_with_dots_and_colons_are_sent_unchanged() -> None:
    rows = HELLO, *call_round(("functions.look:0", "look"))
    _, reply, result = chat_messages(*rows, dotted_call_ids=True)
    assert (reply["tool_calls"][0]["id"], result["tool_call_id"]) == ("functions.look:0",) * 2
    _, reply, result = chat_messages(*rows)
    assert reply["tool_calls"][0]["id"] == result["tool_call_id"] == "functions_look_0_ec000204"


def test_a_reasoning_detail_has_the_sent_id_of_its_call() -> None:
    """OpenRouter returns the signature of a Gemini call in a reasoning detail that has the call's id."""
    long = "tool_look_" + "x" * 60
    details = [{"type": "reasoning.encrypted", "data": "x", "id": long}, {"type": "reasoning.text", "id": "other"}]
    state = ProviderState(wire="openai-chat", model="m", payload={"details": details})
    _, reply, result = chat_messages(HELLO, *call_round((long, "look"), state=state), returns_reasoning=True)
    sent = reply["tool_calls"][0]["id"]
    assert sent == result["tool_call_id"] != long
    assert [detail["id"] for detail in reply["reasoning_details"]] == [sent, "other"]


def test_too_long_item_ids_of_a_gateway_are_omitted_except_for_reasoning() -> None:
    long = "x" * 400
    output = [
        {"type": "reasoning", "id": long, "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": long, "role": "assistant", "content": [], "status": "completed"},
        {"type": "function_call", "id": long, "call_id": long, "name": "look", "arguments": "{}"},
    ]
    output[1]["content"] = [{"type": "output_text", "text": "So.", "annotations": []}]
    state = ProviderState(wire="openai-responses", model="m", payload={"output": output})
    called, seen = call_round((long, "look"), state=state)
    body = WIRES["openai_responses"].request([HELLO, called.model_copy(update={"content": "So."}), seen])
    reasoning, message, call, result = body["input"][1:]
    assert message == {"type": "message", "role": "assistant", "content": "So."}
    assert (reasoning["id"], "id" in call, call["call_id"] == result["call_id"] != long) == (long, False, True)
    assert WIRES["openai_responses"].violations(body) == []


def test_a_web_search_call_with_an_invalid_id_is_left_out() -> None:
    search = {"type": "web_search_call", "id": "ws_" + "x" * 62, "status": "completed"}
    part = {"type": "output_text", "text": "Found.", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part], "status": "completed"}
    state = ProviderState(wire="openai-responses", model="m", payload={"output": [search, message]})
    body = WIRES["openai_responses"].request([HELLO, AssistantMessage(content="Found.", provider_state=state)])
    assert body["input"][1:] == [{"type": "message", "role": "assistant", "content": "Found."}]


def test_a_reply_with_an_invalid_server_tool_id_is_sent_as_text() -> None:
    block = {"type": "server_tool_use", "id": "srv|1", "name": "web_search", "input": {}}
    content = [block, {"type": "web_search_tool_result", "tool_use_id": "srv|1", "content": []}]
    payload = {"content": [*content, {"type": "text", "text": "Found."}]}
    state = ProviderState(wire="anthropic", model="m", payload=payload)
    body = WIRES["anthropic"].request([HELLO, AssistantMessage(content="Found.", provider_state=state)])
    assert [row["type"] for row in body["messages"][1]["content"]] == ["text"]


# --- models that are not ours, and tools in the prompt --------------------------------------------------------------


class DuckModel:
    """A model that calls the first of its tools."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def stream_with_tools(self, messages: list[Any], tools: list[Any]) -> Iterator[Any]:
        self.rows = messages
        function = {"name": tools[0]["function"]["name"], "arguments": "{}"}
        yield {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": function}]}}]}


@pytest.mark.anyio
async def test_a_duck_typed_model_gets_valid_names_and_its_calls_are_mapped_back() -> None:
    duck = DuckModel()
    history = [HELLO, *call_round(("x" * 41, "multi_tool_use.parallel"))]
    reply, error = await complete(adapt(duck), ModelRequest(messages=history, tools=TOOLS))
    assert error is None
    assert [call.name for call in reply.tool_calls] == ["files.read"]
    assert rules_chat.violations({"messages": duck.rows}) == []


class TextCallModel:
    """A model that calls the one tool of its prompt, in text."""

    name, context_window = "obliging", None
    tool_name = ""
    messages: Sequence[Message] = ()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.messages = request.messages
        self.tool_name = request.messages[0].content.split(": Does something.")[0].splitlines()[-1]
        yield [TextDelta(f"<function={self.tool_name}>\n<parameter=at>x</parameter>\n</function>")]
        yield [Finished("end", "stop")]


@pytest.mark.anyio
@pytest.mark.parametrize("name", [*ODD_NAMES, "a/b", "a>b", "mcp: read\nfile"])
async def test_a_model_with_tools_in_its_prompt_can_call_a_tool_of_any_name(name: str) -> None:
    """The prompt has a name that is valid in a tag; its call is mapped back to the original name."""
    history = [HELLO, *call_round(("c1", name)), UserMessage(content="again")]
    model = TextCallModel()
    reply, error = await complete(
        XmlToolModel(model), ModelRequest(messages=history, tools=[ToolSchema(name, "Does something.", AT)])
    )
    assert error is None
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [(name, {"at": "x"})]
    assert model.tool_name in model.messages[2].content
    assert f"<function_result={model.tool_name}>" in model.messages[3].content
