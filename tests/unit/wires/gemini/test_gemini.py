"""Tests of the Gemini wire over real sockets; `test_sockets` has those of all wires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import ModelRequest, ToolSchema, complete, resolve_wire
from agenticx.messages import SystemMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import FakeOpenAIServer, ProviderRequest, RawReply, body
from tests.support.wires.gemini_events import call_part, content_event, sse
from tests.support.wires.rules_gemini import violations
from tests.support.wires.served import GEMINI, HELLO, KEY

pytestmark = pytest.mark.anyio

model_at, ask, failure = GEMINI.open_model, GEMINI.ask, GEMINI.failure
HI, STOP = content_event({"text": "hi"}), content_event(finish="STOP")


def refusal(status: int, word: str, message: str = "m", *details: dict[str, Any], as_list: bool = False) -> RawReply:
    error = {"error": {"code": status, "message": message, "status": word, "details": list(details)}}
    return RawReply(json.dumps([error] if as_list else error).encode(), status, "application/json")


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
async def test_reasoning_is_requested_only_from_reasoning_models(model: str, thinks: bool) -> None:
    async with FakeOpenAIServer([body(sse(HI, STOP))]) as server, model_at(server.base_url, model) as opened:
        await complete(opened, HELLO)
        assert ("generationConfig" in server.requests[0].json) is thinks


async def test_a_field_that_a_model_refuses_is_left_out_from_then_on() -> None:
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
    content_event({"text": "hm", "thought": True}, usageMetadata={"promptTokenCount": 9, "thoughtsTokenCount": 7}),
    content_event({"text": "Let me look."}),
    content_event({**call_part("look", args={"at": "a"}, id="f1"), "thoughtSignature": "s"}),
    content_event(
        call_part("look", args={"at": "b"}, id="f2"), finish="STOP", usageMetadata={"candidatesTokenCount": 3}
    ),
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
    """Return the events of a turn with these replies, and the requests for them."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, "gemini-3-pro") as model:
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        events = [event async for event in runtime.run_turn("go", Session(), tools=[look])]
        bodies = [request.json for request in server.requests]
    assert [violations(body, signed=True) for body in bodies] == [[]] * len(bodies)
    return events, bodies


async def test_a_turn_replays_parts_unchanged_with_the_results_of_their_calls() -> None:
    events, (_, second) = await turn(body(sse(*CALLS)), body(sse(HI, STOP)))
    assert events[-1].data["text"] == "hi"
    assert next(event.data for event in events if event.type == "usage") | {"model": ""} == {
        "input_tokens": 9,
        "output_tokens": 10,
        "reasoning_tokens": 7,
        "model": "",
    }
    assert second["contents"][1:] == [{"role": "model", "parts": BACK}, {"role": "user", "parts": RESULTS}]


async def test_a_refused_signature_is_left_out() -> None:
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


async def test_the_call_of_a_renamed_tool_has_its_original_name() -> None:
    def called_as_declared(request: ProviderRequest) -> RawReply:
        (row,) = request.json["tools"][0]["functionDeclarations"]
        return body(sse(content_event(call_part(row["name"]), finish="STOP")))

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
        (refusal(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), "provider.auth", None),
        (
            refusal(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            "context_overflow",
            None,
        ),
        (refusal(429, "RESOURCE_EXHAUSTED", "slow down", {"x": 1}, LATER), "provider.rate_limited", 34.5),
        (refusal(503, "UNAVAILABLE", as_list=True), "provider.overloaded", None),
    ],
)
async def test_the_details_of_an_error_determine_its_code_and_retry_time(
    reply: RawReply, code: str, retry_after: float | None
) -> None:
    error = await failure(reply)
    assert (error.code, error.status, error.retry_after) == (code, reply.status, retry_after)
    assert error.retryable is (code in ("provider.rate_limited", "provider.overloaded"))


# --- its name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_the_catalog_resolves_the_model_and_needs_its_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="GEMINI_API_KEY"):
        resolve_wire("gemini:gemini-2.5-pro")
    monkeypatch.setenv(variable, KEY)
    model = resolve_wire("gemini:gemini-2.5-pro")
    assert repr(model) == "GeminiModel('gemini:gemini-2.5-pro', host='generativelanguage.googleapis.com')"


async def test_the_base_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer([body(sse(HI, STOP))]) as server:
        monkeypatch.setenv("GEMINI_BASE_URL", server.base_url)
        reply, error = await complete(resolve_wire("gemini:m"), HELLO)
    assert (reply.text, error) == ("hi", None)
