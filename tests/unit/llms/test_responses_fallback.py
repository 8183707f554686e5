"""Gateways without Responses: recognised by their refusals and used with Chat Completions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import (
    ChatModel,
    ModelRequest,
    OpenAIResponsesModel,
    OutputSchema,
    Reply,
    close_model,
    complete,
    resolve_model,
    resolve_wire,
    takes_output_schema,
)
from agenticx.settings import Settings
from agenticx.testing import FakeOpenAIServer, RawReply, body, say, status

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
SWITCHED = "the server has no Responses; using Chat Completions from now on"


async def ask(model: ChatModel, request: ModelRequest = HELLO) -> tuple[Reply, ModelError | None]:
    """Make a call that leaves no connection behind."""
    try:
        return await complete(model, request)
    finally:
        await close_model(model)


def answer(code: int, content: object) -> RawReply:
    return body(json.dumps(content), status=code, content_type="application/json")


@pytest.mark.parametrize(
    "refusal",
    [
        answer(404, {"detail": "Not Found"}),
        answer(404, {"error": {"message": "Invalid URL (POST /v1/responses)", "type": "invalid_request_error"}}),
        answer(404, {"message": "no Route matched with those values"}),
        answer(404, {"error": {"message": "The model is not served at /v1/responses, use /v1/chat/completions"}}),
        body("404 page not found\n", status=404, content_type="text/plain"),
        body("<html><h1>404 Not Found</h1></html>", status=404, content_type="text/html"),
        body("", status=404, content_type="text/plain"),
        answer(405, {"detail": "Method Not Allowed"}),
        status(501, "Not implemented"),
        status(400, "Unknown endpoint: /v1/responses"),
        status(400, "unsupported request path /openai/v1/responses"),
        status(400, "The Responses API is not supported by this deployment"),
        status(400, "Cannot POST /v1/responses"),
    ],
    ids=range(13),
)
async def test_a_gateway_without_responses_is_used_with_chat_completions(
    refusal: RawReply, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeOpenAIServer([refusal, say("hi"), say("again")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = resolve_model("openai:my-model", settings=Settings.model_validate({"llm_attempts": 1}))
        replies = [(await ask(model))[0].text for _ in range(2)]
        paths = [request.path.removeprefix("/v1") for request in server.requests]
    assert (replies, model.name) == (["hi", "again"], "openai:my-model")
    assert paths == ["/responses", "/chat/completions", "/chat/completions"]
    (switched,) = [record.getMessage() for record in caplog.records if SWITCHED in record.getMessage()]
    assert switched.endswith(f"model='openai:my-model' answer='HTTP {refusal.status}'")


@pytest.mark.parametrize(
    "refusal",
    [
        answer(404, {"error": {"message": "no", "type": "invalid_request_error", "code": "model_not_found"}}),
        answer(404, {"error": {"message": "The model `gpt-5.5` does not exist or you do not have access to it."}}),
        answer(404, {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError"}),
        status(400, "Invalid image URL: not found"),
        status(400, "Unsupported parameter: 'store'. See https://a.example/docs/api-reference/responses."),
        status(401, "Incorrect API key provided"),
        status(403, "no access to this route"),
    ],
    ids=range(7),
)
async def test_any_other_refusal_is_the_answer(refusal: RawReply, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeOpenAIServer([refusal]) as server:
        model = resolve_wire("openai:gpt-5.5", api_key="sk-x", base_url=server.base_url)
        _, error = await ask(model)
        assert [request.path for request in server.requests] == ["/v1/responses"]
    assert error is not None
    assert SWITCHED not in caplog.text


async def test_a_server_that_lacks_both_endpoints_is_reported_and_nothing_is_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = [status(404, "Not Found"), status(404, "Also not found"), status(404, "Not Found"), say("hi")]
    async with FakeOpenAIServer(replies) as server:
        model = resolve_wire("openai:m", api_key="sk-x", base_url=server.base_url)
        _, error = await ask(model)
        assert SWITCHED not in caplog.text
        reply, _ = await ask(model)
        paths = [request.path.removeprefix("/v1") for request in server.requests]
    assert "answered with HTTP 404: Not Found; are the base URL (usually ending in /v1)" in str(error)
    assert (reply.text, paths) == ("hi", ["/responses", "/chat/completions"] * 2)


async def test_a_failure_of_chat_completions_is_the_answer_and_nothing_is_remembered() -> None:
    async with FakeOpenAIServer([status(404, "Not Found"), status(401, "Incorrect API key"), say("no")]) as server:
        model = resolve_wire("openai:m", api_key="sk-x", base_url=server.base_url)
        _, error = await ask(model)
        assert (error and error.code) == "provider.auth"
        await ask(model)
        assert server.requests[2].path == "/v1/responses"


def test_openai_itself_and_a_provider_of_the_user_s_own_are_used_as_they_are() -> None:
    for base_url in (None, "https://api.openai.com/v1", " https://api.openai.com:443/v1/"):
        assert isinstance(resolve_wire("openai:gpt-5.4", api_key="sk-x", base_url=base_url), OpenAIResponsesModel)
    gateway = resolve_wire("openai:gpt-5.4", base_url="http://127.0.0.1:9/v1")
    assert repr(gateway) == "OpenAIResponsesModel('openai:gpt-5.4', host='127.0.0.1:9')"


async def test_a_schema_that_chat_completions_cannot_take_is_left_out() -> None:
    output = OutputSchema("city", {"type": "object", "properties": {}, "required": [], "additionalProperties": False})
    async with FakeOpenAIServer([status(404, "Not Found"), say("{}")]) as server:
        model = resolve_wire("openai:gpt-5.4", api_key="sk-x", base_url=server.base_url)
        before = takes_output_schema(model, output, with_tools=False)
        await ask(model, replace(HELLO, output_schema=output))
        assert (before, takes_output_schema(model, output, with_tools=False)) == (True, False)
        assert ["text" in server.requests[0].json, "response_format" in server.requests[1].json] == [True, False]
