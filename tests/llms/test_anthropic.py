"""The Anthropic wire over real sockets: what is asked, what comes back, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import ModelError, SettingsError
from agenticx.llms import AnthropicModel, Finished, ModelRequest, Reply, TextDelta, complete, resolve_model
from agenticx.messages import UserMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing.fake_openai import FakeOpenAIServer
from agenticx.testing.provider_replies import Body, body, hang_up, reset
from tests.llms.pieces_server import pieces_server
from tests.llms.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recorded_errors, recordings
from tests.llms.rules_anthropic import violations
from tests.llms.test_anthropic_reply import END, block, failed, piece, signed, sse, start, stop, text, thought

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
HI = [start(input_tokens=3), *block(0, "text", text("hi"), text=""), stop(output_tokens=1)]
KEY = "sk-ant-canary-1234567890"


@asynccontextmanager
async def model_at(base_url: str, model: str = "m", **options: Any) -> AsyncIterator[AnthropicModel]:
    opened = AnthropicModel(model, base_url=base_url, **options)
    try:
        yield opened
    finally:
        await opened.aclose()


async def ask(*replies: Any, request: ModelRequest = HELLO, **options: Any) -> tuple[Reply, ModelError | None]:
    """One call of a server that answers with these."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, **options) as model:
        return await complete(model, request)


async def failure(*replies: Any, **options: Any) -> ModelError:
    _, error = await ask(*replies, **options)
    assert error is not None
    return error


def refusal(status: int, type_: str, message: str = "m") -> Body:
    return Body(json.dumps(failed(type_, message)).encode(), status, "application/json")


# --- replies ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("recording", recordings("anthropic"))
async def test_a_recorded_stream_over_a_socket_becomes_the_expected_reply(
    recording: Recording, chunking: Chunking
) -> None:
    size = 5_000 if chunking == "bytes" else len(recording.body)  # a socket write for each byte is slow
    head, tail = recording.body[:-size], recording.body[-size:]
    async with (
        pieces_server(lambda: [head, *pieces(tail, chunking)] if head else pieces(tail, chunking)) as server,
        model_at(server.base_url) as model,
    ):
        said = outcome(*await complete(model, HELLO))
    assert said == recording.judge(said)


async def test_all_events_of_one_read_are_one_batch() -> None:
    events = block(0, "text", *[text("hi")] * 3)
    async with pieces_server(lambda: [sse(*events, END)]) as server, model_at(server.base_url) as model:
        batches = [list(batch) async for batch in model.stream(HELLO)]
    assert batches == [[*[TextDelta("hi")] * 3, Finished("end", None)]]


@pytest.mark.promise("C3")
async def test_a_body_that_ends_without_marker_is_incomplete_and_no_error() -> None:
    reply, error = await ask(body(sse(*HI)))
    assert (reply.text, reply.finish_reason, reply.complete, error) == ("hi", None, False, None)


async def test_connections_are_kept_between_calls() -> None:
    async with pieces_server(lambda: [sse(*HI, END)]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, HELLO))[0].text for _ in range(2)] == ["hi", "hi"]
        assert server.connections == 1


async def test_closing_the_iterator_closes_the_socket() -> None:
    async with (
        pieces_server(lambda: [sse(*HI)], then_silent=True) as server,
        model_at(server.base_url) as model,
    ):
        async with aclosing(model.stream(HELLO)) as batches:
            await anext(batches)
        await server.client_gone.wait()


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_a_base_url_may_end_in_v1_or_not(ending: str) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server:
        async with model_at(server.base_url.removesuffix("/v1") + ending, api_key=KEY) as model:
            await complete(model, HELLO)
        (request,) = server.requests
    assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert (request.headers["anthropic-version"], "authorization" in request.headers) == ("2023-06-01", False)


@pytest.mark.parametrize(
    ("model", "options", "asked", "sent"),
    [
        ("m", {}, None, 8192),
        ("m", {}, 9, 9),
        ("m", {"max_output_tokens": 500}, None, 500),
        ("claude-3-haiku-20240307", {}, None, 4096),
        ("claude-3-5-haiku-latest", {}, None, 8192),
        ("claude-3-7-sonnet-latest", {}, None, 32_000),
        ("claude-sonnet-4-5-20250929", {}, None, 32_000),
        ("claude-sonnet-4-5-20250929", {}, 64_000, 64_000),
    ],
)
async def test_the_output_limit_is_the_requests_or_a_usual_one(
    model: str, options: dict[str, Any], asked: int | None, sent: int
) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server, model_at(server.base_url, model, **options) as opened:
        await complete(opened, ModelRequest(messages=HELLO.messages, max_output_tokens=asked))
        assert server.requests[0].json["max_tokens"] == sent


async def test_an_output_limit_that_is_too_high_is_lowered_to_the_models_from_then_on() -> None:
    too_many = refusal(
        400, "invalid_request_error", "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"
    )
    replies = [too_many, *[body(sse(*HI, END))] * 2]
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url) as model:
        assert [(await complete(model, HELLO))[0].text for _ in range(2)] == ["hi", "hi"]
        assert [request.json["max_tokens"] for request in server.requests] == [8192, 4096, 4096]


async def test_a_server_that_refuses_every_limit_is_not_asked_for_ever() -> None:
    too_many = refusal(400, "invalid_request_error", "max_tokens: 8192 > 4096")
    assert (await failure(too_many, too_many)).code == "provider.bad_request"


# --- a turn -------------------------------------------------------------------------------------------------------


async def test_a_turn_gives_thoughts_and_calls_back_with_their_results() -> None:
    thinks = [
        start(input_tokens=10, cache_read_input_tokens=90),
        *block(0, "thinking", thought("hm"), signed("s"), thinking="", signature=""),
        *block(1, "redacted_thinking", data="x"),
        *block(2, "text", text("Let me look."), text=""),
        *block(3, "tool_use", piece('{"at": '), piece('"a"}'), id="toolu_1", name="look", input={}),
        *block(4, "tool_use", piece('{"at": "b"}'), id="toolu_2", name="look", input={}),
        stop("tool_use", output_tokens=5),
        END,
    ]

    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is there"

    session = Session()
    async with (
        FakeOpenAIServer([body(sse(*thinks)), body(sse(*HI, END))]) as server,
        model_at(server.base_url, thinking={"type": "adaptive"}) as model,
    ):
        events = [
            event async for event in AgentRuntime(model, AutoApproveConfirmGate()).run_turn("go", session, tools=[look])
        ]
        first, second = [request.json for request in server.requests]
    assert events[-1].data["text"] == "hi"
    assert [event.data["input_tokens"] for event in events if event.type == "usage"] == [100, 3]
    assert (violations(first), violations(second)) == ([], [])
    assert second["messages"][-2:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a is there"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "b is there",
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        },
    ]
    assert second["thinking"] == {"type": "adaptive"}


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (refusal(400, "invalid_request_error"), "provider.bad_request", False),
        (refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context_overflow", False),
        (refusal(401, "authentication_error"), "provider.auth", False),
        (refusal(403, "permission_error"), "provider.auth", False),
        (refusal(404, "not_found_error"), "provider.bad_request", False),
        (refusal(413, "request_too_large", "Request exceeds the maximum size"), "context_overflow", False),
        (refusal(429, "rate_limit_error"), "provider.rate_limited", True),
        (refusal(500, "api_error"), "provider.overloaded", True),
        (refusal(529, "overloaded_error"), "provider.overloaded", True),
    ],
)
async def test_a_status_becomes_a_code(reply: Body, code: str, retryable: bool) -> None:
    error = await failure(reply)
    assert (error.code, error.retryable, error.status) == (code, retryable, reply.status)


async def test_a_404_asks_after_the_base_url_without_another_wire_s_ending() -> None:
    error = await failure(refusal(404, "not_found_error"))
    assert str(error).endswith("; are the base URL and the model's name right?")


@pytest.mark.parametrize("recorded", recorded_errors("anthropic"))
async def test_a_recorded_http_error_is_told_in_the_provider_s_words(recorded: dict[str, Any]) -> None:
    said = json.loads(recorded["body"])["error"]
    error = await failure(Body(recorded["body"].encode(), recorded["status"], recorded["content_type"]))
    assert (error.code, error.provider_type, error.status) == ("provider.bad_request", said["type"], recorded["status"])
    assert said["message"] in str(error)


async def test_a_connection_that_breaks_is_a_transport_error() -> None:
    for fault in (hang_up, reset):
        error = await failure(fault([]))
        assert (error.code, error.retryable) == ("provider.transport", True)


async def test_a_web_page_is_no_reply() -> None:
    error = await failure(body("<html>Welcome</html>", content_type="text/html"))
    assert error.code == "provider.bad_reply"
    assert "base URL" in str(error)


async def test_compressed_bytes_are_refused() -> None:
    bomb = Body(b"\x1f\x8b", 200, "text/event-stream", {"Content-Encoding": "gzip"})
    assert (await failure(bomb)).code == "provider.bad_reply"


@pytest.mark.promise("I1")
async def test_no_error_quotes_the_key() -> None:
    refused = refusal(401, "authentication_error", f"invalid x-api-key {KEY}")
    async with FakeOpenAIServer([refused]) as server, model_at(server.base_url, api_key=KEY) as model:
        _, error = await complete(model, HELLO)
    assert KEY not in f"{error} {error!r} {model!r} {vars(error)}"


# --- its name -----------------------------------------------------------------------------------------------------


def test_the_catalog_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        resolve_model("anthropic:claude-sonnet-4-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model = resolve_model("anthropic:claude-sonnet-4-5")
    assert (model.name, model.context_window) == ("anthropic:claude-sonnet-4-5", 200_000)
    assert repr(model) == "AnthropicModel('anthropic:claude-sonnet-4-5', host='api.anthropic.com')"


async def test_the_base_url_can_be_moved_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        reply, error = await complete(resolve_model("anthropic:m"), HELLO)
    assert (reply.text, error) == ("hi", None)
