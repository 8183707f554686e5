"""The Chat Completions wire over real sockets: what is asked, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import ModelError, SettingsError
from agenticx.llms import ModelRequest, OpenAIProvider, Reply, TextDelta, ToolSchema, complete
from agenticx.llms._openai_chat_request import Dialect
from agenticx.llms.openai_chat import OpenAIChatModel
from agenticx.llms.scripted import call, say, usage
from agenticx.messages import (
    AssistantMessage,
    Message,
    ProviderState,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agenticx.testing.fake_openai import FakeOpenAIServer
from agenticx.testing.provider_replies import Body, as_json, body, hang_up, huge_line, no_streaming, reset, status
from tests.llms.pieces_server import pieces_server
from tests.llms.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recorded_errors, recordings

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def model_at(base_url: str, **options: Any) -> AsyncIterator[OpenAIChatModel]:
    model = OpenAIChatModel("m", base_url=base_url, **options)
    try:
        yield model
    finally:
        await model.aclose()


async def ask(*replies: Any, request: ModelRequest = HELLO, **options: Any) -> tuple[Reply, ModelError | None]:
    """One call of a fake server that plays these replies."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, **options) as model:
        return await complete(model, request)


async def failure(*replies: Any, **options: Any) -> ModelError:
    _, error = await ask(*replies, **options)
    assert error is not None
    return error


# --- replies ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("recording", recordings("chat"))
async def test_a_recorded_stream_over_a_socket_becomes_the_expected_reply(
    recording: Recording, chunking: Chunking
) -> None:
    size = 20_000 if chunking == "bytes" else len(recording.body)  # a socket write for each byte is slow
    head, tail = recording.body[:-size], recording.body[-size:]

    async with (
        pieces_server(lambda: [head, *pieces(tail, chunking)] if head else pieces(tail, chunking)) as server,
        model_at(server.base_url) as model,
    ):
        said = outcome(*await complete(model, HELLO))
    assert said == recording.judge(said)


async def test_a_scripted_reply_with_text_calls_and_usage_comes_through() -> None:
    reply, error = await ask([say("Let me add."), call("add", {"a": 1}, pieces=3), usage(7, 5)])
    assert error is None
    assert (reply.text, reply.stop, reply.complete) == ("Let me add.", "tool_calls", True)
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [("add", {"a": 1})]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 5)


async def test_all_events_of_one_read_are_one_batch() -> None:
    async with pieces_server(lambda: [EVENT * 3, STOP + DONE]) as server, model_at(server.base_url) as model:
        batches = [list(batch) async for batch in model.stream(HELLO)]
    assert batches[0][:3] == [TextDelta("hi")] * 3


async def test_a_whole_reply_to_a_request_for_streaming_is_understood() -> None:
    reply, error = await ask(as_json("all at once"))
    assert (reply.text, reply.complete, error) == ("all at once", True, None)


async def test_a_server_that_refuses_streaming_is_asked_without_it_from_then_on() -> None:
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
async def test_a_field_that_a_server_refuses_is_left_out_from_then_on(refusal: Body, field: str) -> None:
    request = ModelRequest(messages=HELLO.messages, max_output_tokens=9)
    async with FakeOpenAIServer([refusal, "first", "second"]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["first", "second"]
        assert [field in sent.json for sent in server.requests] == [True, False, False]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever() -> None:
    error = await failure(status(400, "stream_options"), status(400, "stream not supported"), status(400, "stream"))
    assert error.code == "provider.bad_request"


# --- requests -----------------------------------------------------------------------------------------------------


async def sent(request: ModelRequest, **options: Any) -> dict[str, Any]:
    async with FakeOpenAIServer(["ok"]) as server, model_at(server.base_url, **options) as model:
        await complete(model, request)
        return server.requests[0].json


async def test_messages_tools_and_limits_go_out_as_chat_completions_has_them() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    messages: list[Message] = [
        SystemMessage(content="be brief"),
        UserMessage(content="add"),
        AssistantMessage(content="", tool_calls=(ToolCall(id="c1", name="add", arguments='{"a":1}'),)),
        ToolMessage(tool_call_id="c1", name="add", content="2"),
        AssistantMessage(content="two"),
    ]
    request = ModelRequest(
        messages=messages, tools=[ToolSchema("add", "adds", schema)], tool_choice="required", max_output_tokens=9
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


async def test_lone_surrogates_do_not_keep_a_request_from_being_sent() -> None:
    body = await sent(ModelRequest(messages=[UserMessage(content="a\ud800b")]))
    assert body["messages"] == [{"role": "user", "content": "a\ufffdb"}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ('{"a":', '{"malformed_arguments": "{\\"a\\":"}'),
        ("[1]", '{"malformed_arguments": "[1]"}'),
    ],
)
async def test_arguments_in_the_history_are_always_an_object(arguments: str, expected: str) -> None:
    calls = (ToolCall(id="c", name="f", arguments=arguments),)
    body = await sent(ModelRequest(messages=[AssistantMessage(tool_calls=calls)]))
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == expected


async def test_a_dialect_shortens_ids_leaves_fields_out_and_hands_reasoning_back() -> None:
    def reply(model: str, payload: dict[str, Any]) -> AssistantMessage:
        state = ProviderState(wire="openai-chat", model=model, payload=payload)
        return AssistantMessage(reasoning="hm", tool_calls=(ToolCall(id="call_1", name="f"),), provider_state=state)

    messages = [
        reply("m", {"field": "reasoning_content"}),
        ToolMessage(tool_call_id="call_1", name="f", content="r"),
        reply("m", {"field": "reasoning", "details": [{"type": "reasoning.text"}]}),
        reply("another", {"field": "reasoning_content"}),
    ]
    dialect = Dialect(stream_options=False, short_call_ids=True, returns_reasoning=True)
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
        (status(400), "provider.bad_request", False),
        (status(401), "provider.auth", False),
        (status(403), "provider.auth", False),
        (status(404), "provider.bad_request", False),
        (status(413, "Payload too large"), "context_overflow", False),
        (status(408), "provider.overloaded", True),
        (status(422), "provider.bad_request", False),
        (status(429), "provider.rate_limited", True),
        (status(429, "pay", error_type="insufficient_quota"), "provider.rate_limited", False),
        (status(500), "provider.overloaded", True),
        (status(503), "provider.overloaded", True),
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
async def test_a_status_becomes_a_code(reply: Body, code: str, retryable: bool) -> None:
    error = await failure(reply)
    assert (error.code, error.retryable, error.status) == (code, retryable, reply.status)


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (
            b'{"error": {"message": "model not found", "type": "not_found_error", "code": null}}',
            "not_found_error",
            "model not found",
        ),
        (b'{"error": {"message": "m", "code": 404}}', "404", "m"),
        (b'{"error": "model \\"x\\" not found"}', None, 'model "x" not found'),
        (b'{"object": "error", "message": "m", "type": "NotFoundError", "code": 404}', "NotFoundError", "m"),
        (b'{"detail": [{"type": "missing", "msg": "Field required"}]}', None, "Field required"),
        (b'[{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}]', "INVALID_ARGUMENT", "m"),
        (b"<html><script>x</script><h1>Bad Gateway</h1></html>", None, "Bad Gateway"),
        (b"\xff\xfe plain \x1b[31m text", None, "plain"),
        (b"", None, "404"),
        (b"[" * 50_000, None, "404"),
    ],
)
async def test_a_complaint_is_quoted_whatever_its_form(content: bytes, kind: str | None, words: str) -> None:
    error = await failure(body(content, status=404, content_type="application/json"))
    assert (error.code, error.provider_type) == ("provider.bad_request", kind)
    assert words in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 1_000


async def test_a_404_says_how_base_urls_end() -> None:
    assert str(await failure(status(404))).endswith(
        "; are the base URL (usually ending in /v1) and the model's name right?"
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "100", "retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], seconds: float | None) -> None:
    error = await failure(Body(b"{}", 429, "application/json", headers))
    assert error.retry_after == seconds


async def test_a_connection_that_breaks_keeps_what_came_and_is_a_transport_error() -> None:
    for fault in (hang_up, reset):
        reply, error = await ask(fault([say("half a", pieces=2)]))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.retryable) == (
            "half a",
            False,
            "provider.transport",
            True,
        )


async def test_a_body_that_ends_without_marker_is_incomplete_and_no_error() -> None:
    reply, error = await ask(body(EVENT))
    assert (reply.text, reply.complete, error) == ("hi", False, None)


async def test_nobody_listening_is_a_transport_error_that_names_the_address() -> None:
    async with pieces_server(list) as server:
        address = server.base_url
    async with model_at(address) as model:
        _, error = await complete(model, HELLO)
    assert error is not None
    assert error.code == "provider.transport"
    assert address.removeprefix("http://") in str(error)


async def test_silence_past_the_request_timeout_is_a_transport_error() -> None:
    request = ModelRequest(messages=HELLO.messages, timeout=0.05)
    async with pieces_server(lambda: [EVENT], then_silent=True) as server, model_at(server.base_url) as model:
        reply, error = await complete(model, request)
    assert error is not None
    assert (reply.text, error.code) == ("hi", "provider.transport")


async def test_a_redirect_is_not_followed() -> None:
    elsewhere = Body(b"", 307, "text/plain", {"Location": "http://127.0.0.1:9/v1"})
    error = await failure(elsewhere, api_key="sk-secret")
    assert (error.code, error.status) == ("provider.bad_request", 307)
    assert "http://127.0.0.1:9/v1" in str(error)


async def test_a_web_page_is_no_reply() -> None:
    error = await failure(body("<html>Welcome</html>", content_type="text/html"))
    assert error.code == "provider.bad_reply"
    assert "base URL" in str(error)


async def test_compressed_bytes_are_refused() -> None:
    bomb = Body(b"\x1f\x8b", 200, "text/event-stream", {"Content-Encoding": "gzip"})
    assert (await failure(bomb)).code == "provider.bad_reply"


async def test_a_line_without_end_is_given_up_at_the_cap() -> None:
    async with FakeOpenAIServer([huge_line(1_000_000_000)]) as server, model_at(server.base_url) as model:
        _, error = await complete(model, HELLO)
        await server.requests[0].client_gone.wait()
    assert error is not None
    assert (error.code, error.provider_type) == ("provider.bad_reply", "protocol_error")


async def test_an_endless_error_body_is_not_read_to_its_end() -> None:
    endless = Body(b"oh no ", 500, "text/plain", {}, fill=b"x" * 65_536, size=1_000_000_000)
    assert (await failure(endless)).code == "provider.overloaded"


KEY = "sk-canary-1234567890"


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "reply",
    [
        status(401, f"Incorrect API key provided: {KEY}."),
        body(f"no such key: {KEY}", status=403, content_type="text/plain"),
        reset(),
        body("<html></html>", content_type="text/html"),
    ],
)
async def test_no_error_quotes_the_key(reply: Any) -> None:
    async with FakeOpenAIServer([reply]) as server, model_at(server.base_url, api_key=KEY) as model:
        _, error = await complete(model, HELLO)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{error} {error!r} {model!r} {vars(error)}"


@pytest.mark.parametrize("key", ["x", "ne", "ollama", "lm-studio", "not-needed"])
async def test_a_placeholder_for_a_key_leaves_an_error_as_it_is(key: str) -> None:
    said = f"next time give {key} a model that exists"
    error = await failure(status(400, said), api_key=key)
    assert str(error) == f"openai-chat:m answered with HTTP 400: {said}"


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-ä", "sk a"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        OpenAIProvider(api_key=key, base_url="http://127.0.0.1:1/v1")
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "ftp://x/v1", "http://", "http://[::1", ""])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="base URL"):
        OpenAIChatModel("m", base_url=url)


@pytest.mark.parametrize("recorded", recorded_errors("chat"))
async def test_a_recorded_http_error_is_told_in_the_provider_s_words(recorded: dict[str, Any]) -> None:
    said = json.loads(recorded["body"])["error"]
    error = await failure(Body(recorded["body"].encode(), recorded["status"], recorded["content_type"]))
    assert (error.code, error.provider_type, error.status) == ("provider.bad_request", said["type"], recorded["status"])
    assert said["message"] in str(error)


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


@pytest.mark.parametrize(("scheme", "reads_certificates"), [("https", True), ("http", False)])
def test_what_a_call_needs_is_loaded_before_any_clock_runs(scheme: str, reads_certificates: bool) -> None:
    assert set_up(f"{scheme}://127.0.0.1:9/v1") == f"True {reads_certificates}\n"


def test_certificates_that_cannot_be_read_are_a_matter_of_settings() -> None:
    said = set_up("https://127.0.0.1:9/v1", SSL_CERT_FILE="/nowhere.pem")
    assert said.startswith("the certificates for https cannot be read")
    assert "SSL_CERT_FILE" in said


# --- connections --------------------------------------------------------------------------------------------------


@pytest.mark.promise("C8")
async def test_closing_the_iterator_closes_the_socket_at_once() -> None:
    async with pieces_server(lambda: [EVENT], then_silent=True) as server, model_at(server.base_url) as model:
        async with aclosing(model.stream(HELLO)) as batches:
            assert list(await anext(batches)) == [TextDelta("hi")]
            began = time.monotonic()
        await asyncio.wait_for(server.client_gone.wait(), 1)
        assert time.monotonic() - began < 0.2


@pytest.mark.promise("C8")
@pytest.mark.parametrize("before", ["the head", "the body"])
async def test_cancelling_a_waiting_call_closes_the_socket_at_once(before: str) -> None:
    head = b"HTTP/1.1 200 OK\r\n" if before == "the body" else b""
    async with (
        pieces_server(lambda: [EVENT], head=head, then_silent=True) as server,
        model_at(server.base_url) as model,
    ):
        call = asyncio.create_task(complete(model, HELLO))
        while not server.requests:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        assert call.cancelled()
        await asyncio.wait_for(server.client_gone.wait(), 1)


async def test_a_reply_that_is_whole_does_not_wait_for_a_connection_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agenticx.llms.openai_chat._TAIL_SECONDS", 0.05)
    for tail in ([EVENT, STOP], [EVENT, STOP, DONE]):
        async with (
            pieces_server(lambda tail=tail: tail, then_silent=True) as server,
            model_at(server.base_url) as model,
        ):
            reply, error = await complete(model, HELLO)
        assert (reply.text, reply.complete, error) == ("hi", True, None)


async def test_one_connection_serves_calls_that_follow_each_other() -> None:
    async with pieces_server(lambda: [EVENT, STOP, DONE]) as server, model_at(server.base_url) as model:
        for _ in range(3):
            assert (await complete(model, HELLO))[0].complete
        assert (server.connections, len(server.requests)) == (1, 3)


def test_a_model_can_be_used_in_one_event_loop_after_another() -> None:
    models: list[OpenAIChatModel] = []

    async def once(port: int) -> int:
        async with pieces_server(lambda: [EVENT, STOP, DONE], port=port) as server:
            if not models:
                models.append(OpenAIChatModel("m", base_url=server.base_url))
            reply, error = await complete(models[0], HELLO)
            await models[0].aclose()
            assert (reply.text, error) == ("hi", None)
            return int(server.base_url.rpartition(":")[2])

    port = asyncio.run(once(0))
    assert [asyncio.run(once(port)) for _ in range(2)] == [port, port]


async def test_nothing_is_left_behind_when_calls_end_in_every_way() -> None:
    async def abandoned(model: OpenAIChatModel) -> None:
        async with aclosing(model.stream(HELLO)) as batches:
            await anext(batches)

    before = asyncio.all_tasks()
    ways: list[Callable[[OpenAIChatModel], Any]] = [abandoned, lambda model: complete(model, HELLO)]
    async with pieces_server(lambda: [EVENT] * 3 + [STOP, DONE]) as server:
        for way in ways * 5:
            async with model_at(server.base_url) as model:
                await way(model)
    gc.collect()
    assert asyncio.all_tasks() == before


# --- the provider of the published example -------------------------------------------------------------------------


async def test_openai_provider_takes_key_and_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer(["hello"]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = OpenAIProvider(model="gpt-4o")
        reply, error = await complete(model, HELLO)
        await model.aclose()
        request = server.requests[0]
    assert (reply.text, error, model.name) == ("hello", None, "openai-chat:gpt-4o")
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert request.headers["accept-encoding"] == "identity"
