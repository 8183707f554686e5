"""Tests that fields which a provider adds to its calls go back with them, and to no other model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage, open_hub
from agenticx.core import Agent, AgentExecutor
from agenticx.llms import ModelRequest, OllamaModel, OpenAIChatModel, adapt, complete
from agenticx.llms.wires.provider_model import ProviderModel
from agenticx.messages import AssistantMessage, Message, ToolMessage, message_adapter
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.sessions import fork
from agenticx.settings import load_settings
from agenticx.testing import FakeOpenAIServer, ProviderRequest, RawReply, collect, say, status
from agenticx.tools import tool
from tests.support.wires.replies import sse
from tests.support.wires.served import ANTHROPIC
from tests.support.wires.wires import WIRES, read

pytestmark = pytest.mark.anyio

SIGNATURE = {"google": {"thought_signature": "EjQKMgEMOdbHJChLX75QUCJjyYlm"}}
FUNCTION = {"name": "look", "arguments": "{}"}
CALL = {"index": 0, "id": "c1", "type": "function", "function": FUNCTION}


@tool(risk="read")
def look() -> str:
    """Look."""
    return "a chair"


def streamed(*deltas: dict[str, Any]) -> RawReply:
    """Return a reply of these deltas that ends in calls."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return RawReply(sse(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"))


def whole(message: dict[str, Any]) -> RawReply:
    """Return a reply that is one JSON object."""
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    return RawReply(json.dumps(body).encode(), content_type="application/json")


def sent_reply(request: ProviderRequest) -> dict[str, Any]:
    """Return the assistant's row with calls in a request."""
    return next(row for row in request.json["messages"] if row.get("tool_calls"))


async def second_round(reply: RawReply, model: str = "gemini-3", then: str = "gemini-3") -> dict[str, Any]:
    """Return the row of this reply in the next request, which may be another model's."""
    async with FakeOpenAIServer([reply, say("A chair.")]) as server:
        first, second = (OpenAIChatModel(name, base_url=server.base_url) for name in (model, then))
        received, error = await complete(first, ModelRequest(messages=[UserMessage(content="Look.")]))
        assert error is None
        messages: list[Message] = [
            UserMessage(content="Look."),
            AssistantMessage(
                content=received.text, tool_calls=received.tool_calls, provider_state=received.provider_state
            ),
            *(ToolMessage(tool_call_id=call.id, name="look", content="a chair") for call in received.tool_calls),
        ]
        messages = [message_adapter().validate_json(message.model_dump_json()) for message in messages]  # as stored
        await complete(second, ModelRequest(messages=messages))
        for opened in (first, second):
            await opened.aclose()
        return sent_reply(server.requests[1])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(streamed({"tool_calls": [{**CALL, "extra_content": SIGNATURE}]}), {"extra_content": SIGNATURE}),
        pytest.param(
            streamed({"tool_calls": [CALL]}, {"tool_calls": [{"index": 0, "extra_content": SIGNATURE}]}),
            {"extra_content": SIGNATURE},
            id="in a later fragment",
        ),
        pytest.param(
            streamed({"tool_calls": [{k: v for k, v in CALL.items() if k != "index"}, {"extra_content": SIGNATURE}]}),
            {"extra_content": SIGNATURE},
            id="in a later fragment without an index",
        ),
        pytest.param(
            streamed(
                {"tool_calls": [{**CALL, "extra_content": {"google": {"a": 1}}}]},
                {"tool_calls": [{"index": 0, "extra_content": SIGNATURE}]},
            ),
            {"extra_content": {"google": {"a": 1, **SIGNATURE["google"]}}},
            id="in two fragments",
        ),
        pytest.param(
            whole({"content": None, "tool_calls": [{**CALL, "extra_content": SIGNATURE}]}),
            {"extra_content": SIGNATURE},
            id="in a whole reply",
        ),
        pytest.param(
            streamed({"tool_calls": [{**CALL, "provider_specific_fields": {"thought_signature": "s"}}]}),
            {"provider_specific_fields": {"thought_signature": "s"}},
            id="LiteLLM",
        ),
        pytest.param(
            streamed({"tool_calls": [{**CALL, "function": {**FUNCTION, "provider_specific_fields": {"a": "s"}}}]}),
            {"function": {**FUNCTION, "provider_specific_fields": {"a": "s"}}},
            id="LiteLLM, in the function",
        ),
        pytest.param(
            streamed({"tool_calls": [{**CALL, "id": "call_1__thought__" + "Es" * 300}]}),
            {"id": "call_1__thought__" + "Es" * 300},
            id="LiteLLM, in the id",
        ),
        pytest.param(
            streamed({"tool_calls": [{**CALL, "extra_content": None, "status": "", "audio": {}}]}), {}, id="nothing"
        ),
    ],
)
async def test_fields_of_a_call_go_back_to_the_same_model_only(reply: RawReply, expected: dict[str, Any]) -> None:
    call = {name: value for name, value in CALL.items() if name != "index"}
    assert (await second_round(reply))["tool_calls"] == [{**call, **expected}]
    other = (await second_round(reply, then="gpt-4o"))["tool_calls"][0]
    assert ({**other, "id": "c1"}, "__thought__Es" in other["id"] and len(other["id"]) > 40) == (call, False)


async def test_each_of_parallel_calls_gets_its_own_fields_back() -> None:
    calls = [{**CALL, "index": n, "id": f"c{n}", "extra_content": {"n": n}} for n in range(3)]
    row = await second_round(streamed({"tool_calls": calls}))
    assert [(call["id"], call["extra_content"]) for call in row["tool_calls"]] == [
        (f"c{n}", {"n": n}) for n in range(3)
    ]


async def test_fields_of_a_message_go_back_with_its_calls() -> None:
    blocks = [{"type": "thinking", "thinking": "h"}, {"type": "thinking", "thinking": "m", "signature": "s"}]
    row = await second_round(
        streamed(
            *({"thinking_blocks": [block]} for block in blocks),
            {"reasoning_opaque": "o", "provider_specific_fields": {"signatures": ["s"]}},
            {"tool_calls": [CALL], "annotations": ["x"]},
        )
    )
    assert {name: value for name, value in row.items() if name not in ("role", "content", "tool_calls")} == {
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        "provider_specific_fields": {"signatures": ["s"]},
        "reasoning_opaque": "o",
    }


async def test_reasoning_details_go_back_to_any_server_that_sent_them() -> None:
    details = [{"type": "reasoning.encrypted", "data": "s", "id": "c1", "index": 0}]
    row = await second_round(streamed({"reasoning": "hm", "reasoning_details": details}, {"tool_calls": [CALL]}))
    assert (row["reasoning_details"], "reasoning" in row) == (details, False)


async def test_a_reply_with_more_fields_than_a_reply_may_have_is_refused() -> None:
    fields = {"tool_calls": [{**CALL, "extra_content": {"data": "x" * 9_000_000}}]}
    async with FakeOpenAIServer([streamed(fields, fields, fields)]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        _, error = await complete(model, ModelRequest(messages=[UserMessage(content="Look.")]))
        await model.aclose()
    assert error is not None
    assert error.code == "provider.bad_reply"


async def test_a_server_that_refuses_fields_of_its_own_gets_the_calls_without_them() -> None:
    words = "[{'loc': ('body', 'messages', 1, 'tool_calls', 0, 'note'), 'msg': 'Extra inputs are not permitted'}]"
    replies = [streamed({"tool_calls": [{**CALL, "note": "x"}]}), status(422, words), say("A chair.")]
    async with FakeOpenAIServer(replies) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        assert (await collect(runtime.run_turn("Look.", tools=[look])))[-1].data["text"] == "A chair."
        await model.aclose()
        assert ["note" in sent_reply(request)["tool_calls"][0] for request in server.requests[1:]] == [True, False]


async def test_calls_of_another_model_get_a_stand_in_where_a_signature_is_required() -> None:
    words = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work."
    async with FakeOpenAIServer([streamed({"tool_calls": [CALL]}), status(400, words), say("a"), say("b")]) as server:
        session = Session()
        for name, text in (("gpt-4o", "a"), ("gemini-3", "b")):
            model = OpenAIChatModel(name, base_url=server.base_url)
            runtime = AgentRuntime(model, AutoApproveConfirmGate())
            assert (await collect(runtime.run_turn("Look.", session, tools=[look])))[-1].data["text"] == text
            await model.aclose()
        sent = [sent_reply(request)["tool_calls"][0].get("extra_content") for request in server.requests[1:]]
    stand_in = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert sent == [None, stand_in, None]


async def test_fields_of_ollama_s_calls_go_back_to_the_same_model_only() -> None:
    function: dict[str, Any] = {"name": "look", "arguments": {}, "thought_signature": "f"}
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": function, "thought_signature": "s"}],
    }
    lines = json.dumps({"message": message, "done": True, "done_reason": "stop"}).encode() + b"\n"
    end = json.dumps({"message": {"content": "ok"}, "done": True, "done_reason": "stop"}).encode() + b"\n"
    replies = [RawReply(content, content_type="application/x-ndjson") for content in (lines, end, end)]
    async with FakeOpenAIServer(replies) as server:
        session, models = Session(), list[ProviderModel[Any]]()
        for name in ("a", "b"):
            models.append(OllamaModel(name, base_url=server.base_url.removesuffix("/v1")))
            runtime = AgentRuntime(models[-1], AutoApproveConfirmGate())
            assert (await collect(runtime.run_turn("Look.", session, tools=[look])))[-1].type == "final"
            await models[-1].aclose()
        own, foreign = (sent_reply(request)["tool_calls"][0] for request in server.requests[1:])
    assert (own["thought_signature"], own["function"]["thought_signature"]) == ("s", "f")
    assert "thought_signature" not in json.dumps(foreign)


ITEM = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "look",
    "status": "completed",
    "arguments": "{}",
}
BLOCK = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
ENDED = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


def block_events(fields: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a call over Anthropic's wire."""
    start = {"type": "content_block_start", "index": 0, "content_block": {**BLOCK, **fields}}
    return [start, *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas), *ENDED]


def gemini_events(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a reply over Gemini's wire, one for each part."""
    events = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return [*events, {"candidates": [{"finishReason": "STOP"}]}]


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        ("openai_responses", [{"type": "response.output_item.done", "output_index": 0, "item": {**ITEM, "x": "MARK"}}]),
        ("anthropic", block_events({"caller": {"type": "MARK"}})),
        ("anthropic", block_events({"caller": None}, {"type": "signature_delta", "signature": "MARK"})),
        ("gemini", gemini_events({"functionCall": {"name": "look", "args": {}, "x": "MARK"}})),
        ("gemini", gemini_events({"functionCall": {"name": "look", "args": {}}}, {"thoughtSignature": "MARK"})),
        (
            "gemini",
            gemini_events(
                {"functionCall": {"name": "look", "willContinue": True}},
                {"functionCall": {"willContinue": True, "x": 1}, "thoughtSignature": "MARK"},
                {"functionCall": {}},
            ),
        ),
    ],
)
def test_fields_of_calls_of_other_wires_go_back_to_the_same_model_only(wire: str, events: list[Any]) -> None:
    if wire == "openai_responses":
        events = [*events, {"type": "response.completed", "response": {"status": "completed"}}]
    reply, error = read(WIRES[wire].parser("m"), [sse(*events)])
    assert (error, [call.name for call in reply.tool_calls]) == (None, ["look"])
    message = AssistantMessage(tool_calls=reply.tool_calls, provider_state=reply.provider_state)
    result = ToolMessage(tool_call_id=reply.tool_calls[0].id, name="look", content="a chair")
    sent = [
        json.dumps(WIRES[wire].request([UserMessage(content="Look."), message, result], model=model))
        for model in ("m", "m2")
    ]
    assert ["MARK" in body for body in sent] == [True, False]
    assert '"caller": null' not in sent[0]


async def test_anthropic_s_calls_are_sent_without_fields_that_are_refused() -> None:
    words = "messages.1.content.0.tool_use.caller: Extra inputs are not permitted"
    replies = [
        ANTHROPIC.body(sse(*block_events({"caller": {"type": "direct"}}))),
        ANTHROPIC.refusal(400, words),
        ANTHROPIC.body(ANTHROPIC.hi, ANTHROPIC.end),
    ]
    async with FakeOpenAIServer(replies) as server, ANTHROPIC.open_model(server.base_url) as model:
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        assert (await collect(runtime.run_turn("Look.", tools=[look])))[-1].data["text"] == "hi"
        assert ["caller" in request.body.decode() for request in server.requests[1:]] == [True, False]


async def test_fields_of_a_duck_typed_model_s_calls_go_back_to_it() -> None:
    class Gateway:
        model = "gemini/gemini-3"

        def __init__(self) -> None:
            self.rows: list[Any] = []

        def invoke(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
            self.rows = messages
            call = {**CALL, "provider_specific_fields": {"thought_signature": "s"}}
            message = {"content": "A chair."} if len(messages) > 1 else {"content": None, "tool_calls": [call]}
            return {"choices": [{"message": message, "finish_reason": "stop"}]}

    gateway = Gateway()
    runtime = AgentRuntime(adapt(gateway), AutoApproveConfirmGate())
    assert (await collect(runtime.run_turn("Look.", tools=[look])))[-1].data["text"] == "A chair."
    assert gateway.rows[1]["tool_calls"][0]["provider_specific_fields"] == {"thought_signature": "s"}


async def test_fields_of_a_call_survive_a_restart_a_fork_and_a_rewind(tmp_path: Path) -> None:
    signed = streamed({"tool_calls": [{**CALL, "extra_content": SIGNATURE}]})
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    async with FakeOpenAIServer([signed, *map(say, "abcd")]) as server:
        ids: list[str] = []
        for step in ("begin", "restart", "fork", "rewind"):
            model = OpenAIChatModel("gemini-3", base_url=server.base_url)
            async with open_hub(
                f"sqlite:///{tmp_path}/chat.db", model=model, tools=[look], workspace=tmp_path, settings=settings
            ) as hub:
                if step == "begin":
                    ids.append((await hub.create(name="Notes")).id)
                elif step == "fork":
                    ids.append((await fork(hub.store, ids[0], now="2026-11-26T14:00:00Z")).id)
                elif step == "rewind":
                    await hub.rewind(ids[-1], (await hub.messages(ids[-1]))[3]["message_id"])
                events = await collect(hub.run_turn(ids[-1], "Look."))
                assert events[-1].type == "final", events[-1].data
            await model.aclose()
        calls = [sent_reply(request)["tool_calls"][0] for request in server.requests[1:]]
    assert [call["extra_content"] for call in calls] == [SIGNATURE] * 4


SIGNED_CALL = {"id": "c1", "type": "function", "extra_content": SIGNATURE, "function": {**FUNCTION, "note": "n"}}
DETAILS = [{"type": "reasoning.encrypted", "data": "s", "id": "c1", "index": 0}]
MESSAGE_FIELDS = {
    "reasoning_details": DETAILS,
    "thinking_blocks": [{"type": "thinking", "thinking": "h", "signature": "s"}],
    "provider_specific_fields": {"signatures": ["s"]},
    "reasoning_opaque": "o",
}
SIGNED_ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [SIGNED_CALL], **MESSAGE_FIELDS},
    {"role": "tool", "tool_call_id": "c1", "content": "a chair"},
    {"role": "assistant", "content": "A chair."},
]


@pytest.mark.parametrize("way", ["session", "executor"])
async def test_fields_of_a_call_go_through_rows_and_back(way: str) -> None:
    signed = streamed({"tool_calls": [{**SIGNED_CALL, "index": 0}], **MESSAGE_FIELDS})
    async with FakeOpenAIServer([signed, say("A chair."), say("Blue.")]) as server:
        rows: list[dict[str, Any]] = []
        for text in ("Look.", "Which colour?"):
            model = OpenAIChatModel("gemini-3", base_url=server.base_url)
            rows = json.loads(json.dumps(rows))  # as an application stores them
            if way == "session":
                session = Session(messages=rows)
                await AgentRuntime(model, AutoApproveConfirmGate(), tools=[look]).run(text, session)
                rows = session.to_openai()
            else:
                rows.append({"role": "user", "content": text})
                rows += (await AgentExecutor(model).achat(Agent(name="eye", tools=[look]), rows)).messages
            await model.aclose()
        sent = sent_reply(server.requests[2])
    assert [{name: row[name] for name in SIGNED_ROWS[1]} for row in (rows[1], sent)] == [SIGNED_ROWS[1]] * 2


async def test_rows_are_given_back_with_their_fields_and_no_copy_is_shared() -> None:
    session = Session(messages=SIGNED_ROWS)
    session.to_openai()[1]["tool_calls"][0]["extra_content"].clear()
    assert session.to_openai() == SIGNED_ROWS


async def test_an_id_in_rows_that_holds_a_signature_is_sent_unchanged() -> None:
    id_ = "call_1__thought__" + "E" * 60
    rows = json.loads(json.dumps(SIGNED_ROWS[:3]).replace("c1", id_))
    rows[1] = {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "function": FUNCTION}]}
    async with FakeOpenAIServer([say("A chair.")]) as server:
        model = OpenAIChatModel("gemini-3", base_url=server.base_url)
        await complete(model, ModelRequest(messages=Session(messages=rows).messages))
        await model.aclose()
        sent = server.requests[0].json["messages"]
    assert (sent[1]["tool_calls"][0]["id"], sent[2]["tool_call_id"]) == (id_, id_)


async def test_a_server_that_refuses_fields_of_rows_gets_the_calls_without_them() -> None:
    words = "Invalid value: 'messages[1].tool_calls[0].extra_content': Extra inputs are not permitted"
    async with FakeOpenAIServer([status(422, words), say("Blue.")]) as server:
        model = OpenAIChatModel("other", base_url=server.base_url)
        result = await AgentRuntime(model, AutoApproveConfirmGate()).run("Which?", Session(messages=SIGNED_ROWS))
        await model.aclose()
        assert result.text == "Blue."
        assert ["extra_content" in sent_reply(request)["tool_calls"][0] for request in server.requests] == [True, False]


@pytest.mark.parametrize("value", [{"data": object()}, {"number": float("nan")}, "x" * 17_000_000, "deep"])
def test_fields_of_rows_that_could_not_be_stored_are_a_type_error_with_their_place(value: Any) -> None:
    if value == "deep":
        for _ in range(150):
            value = [value]
    row = {**SIGNED_ROWS[1], "tool_calls": [{**SIGNED_CALL, "extra_content": value}]}
    with pytest.raises(TypeError, match=r"messages\[1\]: fields that a provider added"):
        Session(messages=[SIGNED_ROWS[0], row])
