"""The fake provider, from the client's side of its socket."""

from __future__ import annotations

import asyncio
import gc
import json
import socket

import httpx
import pytest

from agenticx import Agent, resolve_model
from agenticx.clocks import ScaledClock
from agenticx.testing import (
    FakeOpenAIServer,
    as_json,
    body,
    call,
    cut,
    drip,
    hang,
    hang_up,
    huge_line,
    no_streaming,
    pings,
    reset,
    say,
    silence,
    status,
    think,
    usage,
)
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

STREAM = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as client:
        yield client


async def post(client, server, **changes):
    return await client.post(f"{server.base_url}/chat/completions", json={**STREAM, **changes})


def events(text):
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


async def test_a_reply_is_streamed_as_chat_completion_chunks(client):
    reply = [think("Hm."), say("Hi"), call("add", {"a": 1}, pieces=2), usage(3, 4)]
    async with FakeOpenAIServer([reply]) as server:
        answer = await post(client, server)
    assert answer.headers["content-type"] == "text/event-stream"
    *chunks, last = events(answer.text)
    assert last == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in map(json.loads, chunks[:-1])] == [
        {"role": "assistant", "reasoning_content": "Hm."},
        {"content": "Hi"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {},
    ]
    assert json.loads(chunks[-2])["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(chunks[-1])["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_a_request_without_streaming_gets_one_object(client):
    async with FakeOpenAIServer([[say("Hi"), call("add", {"a": 1})]]) as server:
        answer = (await post(client, server, stream=False)).json()
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hi",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
                ],
            },
            "finish_reason": "tool_calls",
        }
    ]


async def test_requests_are_recorded(client):
    async with FakeOpenAIServer(["hi"]) as server:
        await client.post(f"{server.base_url}/chat/completions", json=STREAM, headers={"Authorization": "Bearer k"})
        request = await server.received()
    assert (request.method, request.path, request.headers["authorization"]) == (
        "POST",
        "/v1/chat/completions",
        "Bearer k",
    )
    assert request.json == STREAM


async def test_a_reply_can_depend_on_the_request(client):
    async with FakeOpenAIServer([lambda request: as_json(request.json["model"])]) as server:
        answer = await post(client, server, model="mine")
    assert answer.json()["choices"][0]["message"]["content"] == "mine"


async def test_models_are_listed_without_using_up_a_reply(client):
    async with FakeOpenAIServer(model="tiny") as server:
        answer = await client.get(f"{server.base_url}/models")
    assert [model["id"] for model in answer.json()["data"]] == ["tiny"]


async def test_a_scripted_reply_is_kept_for_chat_completions_when_responses_are_requested(client):
    async with FakeOpenAIServer([say("hi")]) as server:
        refused = await client.post(f"{server.base_url}/responses", json=STREAM)
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            404,
            "the fake provider has no /v1/responses, only Chat Completions",
        )
        model = resolve_model("openai:m", api_key="key", base_url=server.base_url)
        assert (await Agent(model=model).run("go")).output == "hi"
        assert [request.path for request in server.requests] == ["/v1/responses"] * 2 + ["/v1/chat/completions"]


async def test_a_status_comes_with_retry_after_and_openai_s_error_body(client):
    async with FakeOpenAIServer([status(429, "slow down", error_type="rate_limit", retry_after=1.5)]) as server:
        answer = await post(client, server)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1.5")
    assert answer.json()["error"]["message"] == "slow down"


async def test_streaming_requests_can_be_refused(client):
    async with FakeOpenAIServer([no_streaming("hi")]) as server:
        refused = await post(client, server)
        answer = await post(client, server, stream=False)
    assert (refused.status_code, answer.json()["choices"][0]["message"]["content"]) == (400, "hi")


@pytest.mark.parametrize("reply", [say("hi"), drip([say("hi")]), drip(say("hi"), size=7)])
async def test_dripping_changes_no_byte(client, reply):
    async with FakeOpenAIServer([reply]) as server:
        answer = await post(client, server)
    assert [json.loads(event)["choices"][0]["delta"] for event in events(answer.text)[:-1]] == [
        {"role": "assistant", "content": "hi"},
        {},
    ]


async def test_a_cut_stream_ends_cleanly_without_an_end_marker(client):
    async with FakeOpenAIServer([[say("hi"), cut()]]) as server:
        answer = await post(client, server)
    assert len(events(answer.text)) == 1


@pytest.mark.parametrize("reply", [hang_up(say("hi")), reset(say("hi"))])
async def test_a_connection_can_break_in_the_middle(client, reply):
    async with FakeOpenAIServer([reply]) as server:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await post(client, server)


async def test_bytes_are_sent_unchanged(client):
    async with FakeOpenAIServer([body(b"\xff\x00", content_type="text/plain"), huge_line(100_000)]) as server:
        assert (await post(client, server)).content == b"\xff\x00"
        assert len((await post(client, server)).content) > 100_000


async def test_pings_are_sent_repeatedly(client):
    async with (
        FakeOpenAIServer([pings(say("hi"))], clock=ScaledClock(1000)) as server,
        client.stream("POST", f"{server.base_url}/chat/completions", json=STREAM) as answer,
    ):
        lines = answer.aiter_lines()
        seen = [await anext(lines) for _ in range(6)]
    assert seen[2::2] == [": ping", ": ping"]


@pytest.mark.parametrize("reply", [silence(), hang(), pings()])
async def test_a_client_disconnect_is_detected(reply):
    async with FakeOpenAIServer([reply]) as server, httpx.AsyncClient(timeout=PATIENCE, verify=False) as client:
        asking = asyncio.create_task(post(client, server))
        request = await server.received()
        assert not request.client_gone.is_set()
        asking.cancel()
        async with asyncio.timeout(PATIENCE):
            await request.client_gone.wait()


async def test_missing_and_extra_requests_fail_the_test(client):
    with pytest.raises(AssertionError, match="1 replies were never asked for"):
        async with FakeOpenAIServer(["hi"]):
            pass
    with pytest.raises(AssertionError, match="got 1 requests, 1 of them beyond its replies"):
        async with FakeOpenAIServer() as server:
            assert (await post(client, server)).status_code == 500


async def test_a_connection_that_arrives_as_the_provider_ends_leaves_no_socket_open():
    for iterations in range(6):  # of the event loop, between the arrival and the end
        async with FakeOpenAIServer([]) as server:
            client = socket.create_connection(("127.0.0.1", httpx.URL(server.base_url).port))
            for _ in range(iterations):
                await asyncio.sleep(0)
        client.close()
    gc.collect()  # reports each open socket, which fails the test
