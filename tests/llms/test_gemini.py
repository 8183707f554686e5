"""The Gemini wire over real sockets: what is asked, what comes back, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import ModelError, SettingsError
from agenticx.llms import Finished, GeminiModel, ModelRequest, Reply, TextDelta, ToolSchema, complete, resolve_model
from agenticx.messages import SystemMessage, UserMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing.fake_openai import FakeOpenAIServer
from agenticx.testing.provider_replies import Body, ProviderRequest, body, hang_up, reset
from tests.llms.pieces_server import pieces_server
from tests.llms.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recorded_errors, recordings
from tests.llms.rules_gemini import violations
from tests.llms.test_gemini_reply import called, said, sse

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
HI, STOP = said({"text": "hi"}), said(finish="STOP")
KEY = "AIza-canary-1234567890"


@asynccontextmanager
async def model_at(base_url: str, model: str = "m", **options: Any) -> AsyncIterator[GeminiModel]:
    opened = GeminiModel(model, base_url=base_url, **options)
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


def refusal(status: int, word: str, message: str = "m", *details: dict[str, Any], as_list: bool = False) -> Body:
    error = {"error": {"code": status, "message": message, "status": word, "details": list(details)}}
    return Body(json.dumps([error] if as_list else error).encode(), status, "application/json")


# --- replies ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("recording", recordings("gemini"))
async def test_a_recorded_stream_over_a_socket_becomes_the_expected_reply(
    recording: Recording, chunking: Chunking
) -> None:
    size = 5_000 if chunking == "bytes" else len(recording.body)  # a socket write for each byte is slow
    head, tail = recording.body[:-size], recording.body[-size:]
    async with (
        pieces_server(lambda: [head, *pieces(tail, chunking)] if head else pieces(tail, chunking)) as server,
        model_at(server.base_url) as model,
    ):
        heard = outcome(*await complete(model, HELLO))
    assert heard == recording.judge(heard)


async def test_all_events_of_one_read_are_one_batch() -> None:
    async with pieces_server(lambda: [sse(HI, HI, STOP)]) as server, model_at(server.base_url) as model:
        batches = [list(batch) async for batch in model.stream(HELLO)]
    assert batches == [[TextDelta("hi"), TextDelta("hi")], [Finished("end", "STOP")]]


@pytest.mark.promise("C3")
async def test_a_body_that_ends_without_a_finish_reason_is_incomplete_and_no_error() -> None:
    reply, error = await ask(body(sse(HI)))
    assert (reply.text, reply.finish_reason, reply.complete, error) == ("hi", None, False, None)


async def test_a_connection_that_breaks_behind_the_finish_reason_takes_nothing_from_the_reply() -> None:
    async with (
        pieces_server(lambda: [sse(HI, STOP)], then_gone=True) as server,
        model_at(server.base_url) as model,
    ):
        reply, error = await complete(model, HELLO)
    assert (reply.text, reply.finish_reason, reply.complete, error) == ("hi", "STOP", True, None)


async def test_connections_are_kept_between_calls() -> None:
    async with pieces_server(lambda: [sse(HI, STOP)]) as server, model_at(server.base_url) as model:
        assert [(await complete(model, HELLO))[0].text for _ in range(2)] == ["hi", "hi"]
        assert server.connections == 1


async def test_closing_the_iterator_closes_the_socket() -> None:
    async with (
        pieces_server(lambda: [sse(HI)], then_silent=True) as server,
        model_at(server.base_url) as model,
    ):
        async with aclosing(model.stream(HELLO)) as batches:
            await anext(batches)
        await server.client_gone.wait()


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "model", "path"),
    [
        ("", "gemini-x", "/v1beta/models/gemini-x:streamGenerateContent"),
        ("/", "gemini-x", "/v1beta/models/gemini-x:streamGenerateContent"),
        ("/v1beta", "models/gemini-x", "/v1beta/models/gemini-x:streamGenerateContent"),
        ("/v1/", "tunedModels/x", "/v1/tunedModels/x:streamGenerateContent"),
        (
            "/v1beta1/projects/p/locations/l/publishers/google",
            "gemini-x",
            "/v1beta1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent",
        ),
        ("/slug/whole", "a b?c", "/slug/whole/v1beta/models/a%20b%3Fc:streamGenerateContent"),
    ],
)
async def test_the_address_is_the_base_url_a_version_and_the_model(ending: str, model: str, path: str) -> None:
    async with FakeOpenAIServer([body(sse(HI, STOP))]) as server:
        async with model_at(server.base_url.removesuffix("/v1") + ending, model, api_key=KEY) as opened:
            await complete(opened, HELLO)
        (request,) = server.requests
    assert request.path == f"{path}?alt=sse"
    assert (request.headers["x-goog-api-key"], "authorization" in request.headers) == (KEY, False)


@pytest.mark.parametrize(
    ("model", "thinks"), [("gemini-2.5-pro", True), ("gemini-2.0-flash", False), ("gemma-3", False)]
)
async def test_only_models_that_think_are_asked_for_thoughts(model: str, thinks: bool) -> None:
    async with FakeOpenAIServer([body(sse(HI, STOP))]) as server, model_at(server.base_url, model) as opened:
        await complete(opened, HELLO)
        assert ("generationConfig" in server.requests[0].json) is thinks


async def test_what_a_model_refuses_is_left_out_from_then_on() -> None:
    replies = [
        refusal(400, "INVALID_ARGUMENT", "Thinking is not enabled for this model", as_list=True),
        refusal(400, "INVALID_ARGUMENT", "Developer instruction is not enabled for models/m"),
        *[body(sse(HI, STOP))] * 2,
    ]
    request = ModelRequest(messages=[SystemMessage(content="Be brief."), *HELLO.messages])
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url) as model:
        assert [(await complete(model, request))[0].text for _ in range(2)] == ["hi", "hi"]
        assert [sorted(asked.json) for asked in server.requests] == [
            ["contents", "generationConfig", "systemInstruction"],
            ["contents", "systemInstruction"],
            ["contents"],
            ["contents"],
        ]


# --- a turn -------------------------------------------------------------------------------------------------------


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is there"


CALLS = [
    said({"text": "hm", "thought": True}, usageMetadata={"promptTokenCount": 9, "thoughtsTokenCount": 7}),
    said({"text": "Let me look."}),
    said({**called("look", args={"at": "a"}, id="f1"), "thoughtSignature": "s"}),
    said(called("look", args={"at": "b"}, id="f2"), finish="STOP", usageMetadata={"candidatesTokenCount": 3}),
]
BACK = [
    {"text": "hm", "thought": True},
    {"text": "Let me look."},
    {"functionCall": {"name": "look", "id": "f1", "args": {"at": "a"}}, "thoughtSignature": "s"},
    {"functionCall": {"name": "look", "id": "f2", "args": {"at": "b"}}},
]
RESULTS = [
    {"functionResponse": {"name": "look", "response": {"output": "a is there"}, "id": "f1"}},
    {"functionResponse": {"name": "look", "response": {"output": "b is there"}, "id": "f2"}},
]


async def turn(*replies: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The events of a turn that these replies make, and what was asked for them."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, "gemini-3-pro") as model:
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        events = [event async for event in runtime.run_turn("go", Session(), tools=[look])]
        bodies = [request.json for request in server.requests]
    assert [violations(body, signed=True) for body in bodies] == [[]] * len(bodies)
    return events, bodies


async def test_a_turn_gives_parts_back_as_they_came_with_the_results_of_their_calls() -> None:
    events, (_, second) = await turn(body(sse(*CALLS)), body(sse(HI, STOP)))
    assert events[-1].data["text"] == "hi"
    assert next(event.data for event in events if event.type == "usage") | {"model": ""} == {
        "input_tokens": 9,
        "output_tokens": 10,
        "reasoning_tokens": 7,
        "model": "",
    }
    assert second["contents"][1:] == [{"role": "model", "parts": BACK}, {"role": "user", "parts": RESULTS}]


async def test_a_signature_that_is_refused_is_left_out() -> None:
    refused = refusal(400, "INVALID_ARGUMENT", "Thought signature is not valid.")
    events, bodies = await turn(body(sse(*CALLS)), refused, body(sse(HI, STOP)))
    assert events[-1].data["text"] == "hi"
    assert bodies[2]["contents"][1]["parts"] == [
        {"text": "Let me look."},
        {
            "functionCall": {"name": "look", "args": {"at": "a"}},
            "thoughtSignature": "skip_thought_signature_validator",
        },
        {"functionCall": {"name": "look", "args": {"at": "b"}}},
    ]


async def test_a_tool_keeps_its_name_where_the_provider_needs_another() -> None:
    def called_as_declared(request: ProviderRequest) -> Body:
        (row,) = request.json["tools"][0]["functionDeclarations"]
        return body(sse(said(called(row["name"]), finish="STOP")))

    reply, error = await ask(
        called_as_declared, request=ModelRequest(messages=HELLO.messages, tools=[ToolSchema("3d", "", {})])
    )
    assert ([call.name for call in reply.tool_calls], error) == (["3d"], None)


# --- failures -----------------------------------------------------------------------------------------------------

BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
LATER = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


@pytest.mark.parametrize(
    ("reply", "code", "retry_after"),
    [
        (refusal(400, "INVALID_ARGUMENT"), "provider.bad_request", None),
        (refusal(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), "provider.auth", None),
        (
            refusal(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            "context_overflow",
            None,
        ),
        (refusal(403, "PERMISSION_DENIED"), "provider.auth", None),
        (refusal(404, "NOT_FOUND"), "provider.bad_request", None),
        (refusal(429, "RESOURCE_EXHAUSTED", "slow down", {"x": 1}, LATER), "provider.rate_limited", 34.5),
        (refusal(500, "INTERNAL"), "provider.overloaded", None),
        (refusal(503, "UNAVAILABLE", as_list=True), "provider.overloaded", None),
    ],
)
async def test_a_status_becomes_a_code(reply: Body, code: str, retry_after: float | None) -> None:
    error = await failure(reply)
    assert (error.code, error.status, error.retry_after) == (code, reply.status, retry_after)
    assert error.retryable is (code in ("provider.rate_limited", "provider.overloaded"))


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("recorded", recorded_errors("gemini"))
async def test_a_recorded_http_error_is_told_in_the_provider_s_words(recorded: dict[str, Any], as_list: bool) -> None:
    heard = json.loads(recorded["body"])
    error = await failure(
        Body(json.dumps([heard] if as_list else heard).encode(), recorded["status"], recorded["content_type"])
    )
    assert (error.code, error.status) == ("provider.bad_request", recorded["status"])
    assert error.provider_type == heard["error"]["status"]
    assert heard["error"]["message"] in str(error)


async def test_a_connection_that_breaks_is_a_transport_error() -> None:
    for fault in (hang_up, reset):
        error = await failure(fault())
        assert (error.code, error.retryable) == ("provider.transport", True)
    async with (
        pieces_server(lambda: [sse(HI)], then_gone=True) as server,
        model_at(server.base_url) as model,
    ):
        reply, error = await complete(model, HELLO)
    assert (reply.text, reply.complete, error and error.code) == ("hi", False, "provider.transport")


async def test_a_web_page_is_no_reply() -> None:
    error = await failure(body("<html>Welcome</html>", content_type="text/html"))
    assert error.code == "provider.bad_reply"
    assert "base URL" in str(error)


@pytest.mark.promise("I1")
async def test_no_error_quotes_the_key() -> None:
    refused = refusal(400, "INVALID_ARGUMENT", f"API key not valid: {KEY}", BAD_KEY)
    async with FakeOpenAIServer([refused]) as server, model_at(server.base_url, api_key=KEY) as model:
        _, error = await complete(model, HELLO)
    assert KEY not in f"{error} {error!r} {model!r} {vars(error)}"


# --- its name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_the_catalog_names_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="GEMINI_API_KEY"):
        resolve_model("gemini:gemini-2.5-pro")
    monkeypatch.setenv(variable, KEY)
    model = resolve_model("gemini:gemini-2.5-pro")
    assert repr(model) == "GeminiModel('gemini:gemini-2.5-pro', host='generativelanguage.googleapis.com')"


async def test_the_base_url_can_be_moved_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer([body(sse(HI, STOP))]) as server:
        monkeypatch.setenv("GEMINI_BASE_URL", server.base_url)
        reply, error = await complete(resolve_model("gemini:m"), HELLO)
    assert (reply.text, error) == ("hi", None)
