"""Tests of the Chat Completions wire over real sockets; `test_sockets` has those of all wires."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ChatDialect, ModelRequest, OpenAIChatModel, Sampling, ToolSchema, complete
from agenticx.messages import AssistantMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from agenticx.testing import FakeOpenAIServer, RawReply, as_json, call, no_streaming, say, status, usage
from tests.support.timeouts import PATIENCE
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.replies import sse
from tests.support.wires.served import CHAT, HELLO, KEY

pytestmark = pytest.mark.anyio

model_at, ask, failure = CHAT.open_model, CHAT.ask, CHAT.failure
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
CALL_AND_STOP = (
    sse({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "add"}}]}}]}),
    STOP,
)


# --- replies ------------------------------------------------------------------------------------------------------


async def test_a_scripted_reply_with_text_calls_and_usage_is_received() -> None:
    reply, error = await ask([say("Let me add."), call("add", {"a": 1}, pieces=3), usage(7, 5)])
    assert error is None
    assert (reply.text, reply.stop, reply.complete) == ("Let me add.", "tool_calls", True)
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [("add", {"a": 1})]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 5)


async def test_an_unstreamed_reply_to_a_streaming_request_is_read() -> None:
    reply, error = await ask(as_json("all at once"))
    assert (reply.text, reply.complete, error) == ("all at once", True, None)


async def test_after_a_refusal_of_streaming_requests_are_not_streamed() -> None:
    async with (
        FakeOpenAIServer([no_streaming("first"), "second"]) as server,
        model_at(server.base_url) as model,
    ):
        replies = [(await complete(model, HELLO))[0].text for _ in range(2)]
        assert (replies, [request.json["stream"] for request in server.requests]) == (
            ["first", "second"],
            [True, False, False],
        )


@pytest.mark.parametrize(
    "refusal",
    [
        "'stream' is not supported for this model",
        "Unsupported value: 'stream' does not support true with this model.",
        "Streaming completion is not support yet, please remove 'stream' key value in the request payload.",
        "Streaming is not supported in v1.0",
        "This server doesn't support streaming.",
        "Cannot use tools with stream",
        "Your organization must be verified to stream this model.",
    ],
)
async def test_refusals_of_streaming_are_recognised(refusal: str) -> None:
    reply, error = await ask(status(400, refusal), "whole")
    assert (reply.text, error) == ("whole", None)


@pytest.mark.parametrize(
    ("refusal", "field"),
    [
        (status(422, "[{'type': 'extra_forbidden', 'loc': ['body', 'stream_options']}]"), "stream_options"),
        (status(400, "Unrecognized request argument supplied: stream_options"), "stream_options"),
        (status(400, "'max_tokens' is not supported; use 'max_completion_tokens' instead."), "max_tokens"),
    ],
)
async def test_a_refused_field_is_left_out_from_then_on(refusal: RawReply, field: str) -> None:
    request = ModelRequest(messages=HELLO.messages, sampling=Sampling(max_output_tokens=9))
    async with FakeOpenAIServer([refusal, "first", "second"]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        assert [field in sent.json for sent in server.requests] == [True, False, False]


async def test_a_refused_field_is_left_out_of_both_of_two_concurrent_calls() -> None:
    both_asked = asyncio.Barrier(2)
    field_sent: list[bool] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        field_sent.append(b"stream_options" in await reader.readexactly(length))
        reply, status = STOP, b"200 OK\r\nContent-Type: text/event-stream"
        if field_sent[-1]:
            await both_asked.wait()
            reply, status = b'{"error": {"message": "what is stream_options?"}}', b"400 Bad Request"
        writer.write(b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (status, len(reply), reply))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        model = OpenAIChatModel("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        done = await asyncio.gather(complete(model, HELLO), complete(model, HELLO))
        await model.aclose()
    assert [error for _, error in done] == [None, None]
    assert field_sent == [True, True, False, False]


async def test_a_server_that_refuses_every_request_is_asked_a_bounded_number_of_times() -> None:
    error = await failure(status(400, "stream_options"), status(400, "stream not supported"), status(400, "stream"))
    assert error.code == "provider.bad_request"


# --- requests -----------------------------------------------------------------------------------------------------


async def sent(request: ModelRequest, **options: Any) -> dict[str, Any]:
    async with FakeOpenAIServer(["ok"]) as server, model_at(server.base_url, **options) as model:
        await complete(model, request)
        return server.requests[0].json


async def test_messages_tools_and_limits_in_the_form_of_chat_completions() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    messages: list[Message] = [
        SystemMessage(content="be brief"),
        UserMessage(content="add"),
        AssistantMessage(content="", tool_calls=(ToolCall(id="c1", name="add", arguments='{"a":1}'),)),
        ToolMessage(tool_call_id="c1", name="add", content="2"),
        AssistantMessage(content="two"),
    ]
    request = ModelRequest(
        messages=messages,
        tools=[ToolSchema("add", "adds", schema)],
        tool_choice="required",
        sampling=Sampling(max_output_tokens=9),
    )
    assert await sent(request) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "add"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "assistant", "content": "two"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "add", "description": "adds", "parameters": schema}},
        ],
        "tool_choice": "required",
        "max_tokens": 9,
    }


@pytest.mark.parametrize(
    "refusal",
    [
        "Thinking mode does not support this tool_choice",
        "deepseek-reasoner does not support this `tool_choice`",
        "The tool_choice parameter does not support being set to required or object in thinking mode",
        "tool_choice 'specified' is incompatible with thinking enabled",
        "Only tool_choice auto is supported; tool_choice must be auto",
        "Unsupported tool_choice: type='function'. Expected 'auto' or 'none'.",
        "Function calling mode `ANY` is not enabled for api version v1beta",
        "Model x does not support tool_choice",
        "Unrecognized request argument supplied: tool_choice",
    ],
)
async def test_a_call_is_no_longer_required_once_the_server_has_refused_that(refusal: str) -> None:
    request = replace(HELLO, tools=[ToolSchema("look", "", {"type": "object"})], tool_choice="required")
    async with FakeOpenAIServer([status(400, refusal), "a", "b"]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["a", "b"]
        assert ["tool_choice" in sent.json for sent in server.requests] == [True, False, False]
        assert all(sent.json["tools"] for sent in server.requests)


async def test_a_request_without_calls_has_no_tools_once_the_server_has_refused_the_choice() -> None:
    request = replace(HELLO, tools=[ToolSchema("look", "", {"type": "object"})], tool_choice="none")
    refusal = status(400, "Model x does not support tool_choice")
    async with FakeOpenAIServer([refusal, "a", "b"]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, sent))[0].text for sent in (request, replace(request, tool_choice="auto"))] == [
            "a",
            "b",
        ]
        assert [("tools" in sent.json, sent.json.get("tool_choice")) for sent in server.requests] == [
            (True, "none"),
            (False, None),
            (True, None),
        ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ('{"a":', '{"malformed_arguments": "{\\"a\\":"}'),
        ("[1]", '{"malformed_arguments": "[1]"}'),
    ],
)
async def test_arguments_in_the_history_are_sent_as_an_object(arguments: str, expected: str) -> None:
    calls = (ToolCall(id="c", name="f", arguments=arguments),)
    body = await sent(ModelRequest(messages=[AssistantMessage(tool_calls=calls)]))
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == expected


async def test_a_dialect_shortens_ids_omits_fields_and_returns_reasoning() -> None:
    def reply(model: str, payload: dict[str, Any]) -> AssistantMessage:
        state = ProviderState(wire="openai-chat", model=model, payload=payload)
        return AssistantMessage(reasoning="hm", tool_calls=(ToolCall(id="call_1", name="f"),), provider_state=state)

    messages = [
        reply("m", {"field": "reasoning_content"}),
        ToolMessage(tool_call_id="call_1", name="f", content="r"),
        reply("m", {"field": "reasoning", "details": [{"type": "reasoning.text"}]}),
        reply("another", {"field": "reasoning_content"}),
    ]
    dialect = ChatDialect(stream_options=False, short_call_ids=True, returns_reasoning=True)
    body = await sent(ModelRequest(messages=messages), dialect=dialect)
    first, result, second, third = body["messages"]
    assert "stream_options" not in body
    assert (len(result["tool_call_id"]), result["tool_call_id"]) == (9, first["tool_calls"][0]["id"])
    assert first["reasoning_content"] == "hm"
    assert second["reasoning_details"] == [{"type": "reasoning.text"}]
    assert sorted(third) == ["content", "role", "tool_calls"]


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (status(429, "pay", error_type="insufficient_quota"), "provider.rate_limited", False),
        (status(400, "This model's maximum context length is 8192 tokens."), "context_overflow", False),
        (status(400, "m", error_type="exceed_context_size_error"), "context_overflow", False),
        (
            status(413, "Request too large on tokens per minute", error_type="rate_limit_exceeded"),
            "provider.rate_limited",
            True,
        ),
        (status(400, "m", error_type="content_filter"), "provider.content_filter", False),
    ],
)
async def test_the_text_of_an_error_determines_its_code(reply: RawReply, code: str, retryable: bool) -> None:
    error = await failure(reply)
    assert (error.code, error.retryable, error.status) == (code, retryable, reply.status)


# --- setting up ---------------------------------------------------------------------------------------------------

SET_UP = """
import sys
from agenticx.errors import SettingsError
from agenticx.llms import OpenAIChatModel
try:
    OpenAIChatModel("m", base_url=sys.argv[1])
except SettingsError as error:
    print(error)
print("httpx" in sys.modules, "certifi" in sys.modules)
"""


def set_up(base_url: str, **environ: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT")}
    program = [sys.executable, "-c", SET_UP, base_url]
    return subprocess.run(program, env={**kept, **environ}, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("base_url", "proxied", "reads_certificates"),
    [
        ("https://127.0.0.1:9/v1", False, True),
        ("http://127.0.0.1:9/v1", False, False),
        ("https://llm.example/v1", True, True),
    ],
)
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_modules_and_certificates_of_a_call_are_loaded_when_the_model_is_made(
    base_url: str, proxied: bool, reads_certificates: bool
) -> None:
    assert set_up(base_url, HTTPS_PROXY="http://127.0.0.1:9") == f"{proxied} {reads_certificates}\n"


async def test_a_call_through_a_proxy_names_the_whole_url(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer([say("hi"), status(429, "not today")]) as server:
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        async with CHAT.open_model("http://llm.example/v1", api_key=KEY) as model:
            replies = [await complete(model, HELLO) for _ in range(2)]
    assert [(reply.text, getattr(error, "code", None)) for reply, error in replies] == [
        ("hi", None),
        ("", "provider.rate_limited"),
    ]
    (first, _) = server.requests
    assert (first.path, first.headers["host"]) == ("http://llm.example/v1/chat/completions", "llm.example")


async def test_an_unreachable_proxy_is_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with CHAT.open_model("http://llm.example/v1") as model:
        _, error = await complete(model, HELLO)
    assert error is not None
    assert (error.code, error.retryable) == ("provider.transport", True)
    assert str(error).startswith("openai-chat:m at llm.example could not be reached: ")


@pytest.mark.ci_lane
def test_unreadable_certificates_are_a_settings_error() -> None:
    output = set_up("https://127.0.0.1:9/v1", SSL_CERT_FILE="/nowhere.pem")
    assert output.startswith("the certificates for https cannot be read")
    assert "SSL_CERT_FILE" in output


# --- connections --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["then_silent", "then_closed", "then_reset"])
async def test_a_finish_reason_ends_the_reply_if_nothing_follows(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenAIChatModel, "_tail_seconds", 0.05)
    async with CHAT.serve_chunks(CHAT.hi, STOP, **{ending: True}) as server, model_at(server.base_url) as model:
        reply, error = await complete(model, HELLO)
    assert (reply.text, reply.complete, error) == ("hi", True, None)


async def test_a_reply_ends_if_only_pings_follow_the_finish_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenAIChatModel, "_tail_seconds", 0.05)
    endless = chunk_server(lambda: taking_time(chain([CHAT.hi, STOP], repeat(b": ping\n\n"))))
    async with asyncio.timeout(PATIENCE), endless as server, model_at(server.base_url) as model:
        reply, error = await complete(model, HELLO)
    assert (reply.text, reply.complete, error) == ("hi", True, None)


def taking_time(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks, each 0.1 ms of the loop's time after the previous one."""
    loop: Any = asyncio.get_running_loop()
    for piece in pieces:
        loop.advance(0.0001)
        yield piece


@pytest.mark.promise("C3")
async def test_a_finish_reason_in_every_chunk_does_not_end_the_reply_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenAIChatModel, "_tail_seconds", 0.1)
    chunk = sse({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]})
    slow = chunk_server(lambda: taking_time([chunk] * 20_000))
    async with slow as server, model_at(server.base_url) as model:
        began = asyncio.get_running_loop().time()
        reply, error = await complete(model, HELLO)
        assert asyncio.get_running_loop().time() - began > 0.1
    assert (reply.text, reply.complete, error) == ("hi" * 20_000, True, None)


@pytest.mark.promise("C4")
@pytest.mark.parametrize(("ending", "stop"), [("then_closed", "broken"), ("then_reset", "broken"), ("", "tool_calls")])
async def test_calls_before_a_broken_connection_are_not_run(ending: str, stop: str) -> None:
    how = {ending: True} if ending else {}
    async with CHAT.serve_chunks(*CALL_AND_STOP, **how) as server, model_at(server.base_url) as model:
        reply, error = await complete(model, HELLO)
    assert ([call.name for call in reply.tool_calls], reply.stop, reply.complete, error) == (["add"], stop, True, None)
