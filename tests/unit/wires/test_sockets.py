"""Tests of all wires over real sockets: replies, failed calls, kept connections, secrets."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError, SettingsError
from agenticx.llms import ModelRequest, TextDelta, complete
from agenticx.llms.wires.provider_model import ProviderModel
from agenticx.testing import FakeOpenAIServer, RawReply, body, hang_up, huge_line, reset
from tests.support.timeouts import PATIENCE
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.recorded import (
    CHUNKINGS,
    Chunking,
    Recording,
    outcome,
    recorded_errors,
    recordings,
    split_body,
)
from tests.support.wires.served import HELLO, KEY, OLLAMA, SERVED_WIRES, ServedWire

pytestmark = pytest.mark.anyio


@pytest.fixture(params=SERVED_WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> ServedWire:
    return request.param


def of_each_wire(found: Callable[[str], list[Any]]) -> list[Any]:
    """Return parameters of two values: each wire with recorded streams, and each value that `found` has for them."""
    return [
        pytest.param(wire, *param.values, marks=param.marks, id=f"{wire.name}-{param.id}")
        for wire in SERVED_WIRES
        if wire.streams
        for param in found(wire.streams)
    ]


# --- replies ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(("wire", "recording"), of_each_wire(recordings))
@pytest.mark.cases(quick=24)
async def test_a_recorded_stream_becomes_the_expected_reply(
    wire: ServedWire, recording: Recording, chunking: Chunking
) -> None:
    size = 5_000 if chunking == "bytes" else len(recording.body)  # a socket write for each byte is slow
    head, tail = recording.body[:-size], recording.body[-size:]
    split = [piece for piece in (head, *split_body(tail, chunking)) if piece]
    async with wire.serve_chunks(*split) as server, wire.open_model(server.base_url) as model:
        actual = outcome(*await complete(model, HELLO))
    assert actual == recording.closest_outcome(actual)


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
async def test_chunking_makes_no_difference(wire: ServedWire, chunking: Chunking) -> None:
    async with (
        wire.serve_chunks(*split_body(wire.hi * 3 + wire.end, chunking)) as server,
        wire.open_model(server.base_url) as model,
    ):
        deltas = [delta async for batch in model.stream(HELLO) for delta in batch]
    assert deltas == [*[TextDelta("hi")] * 3, wire.finished]


async def test_all_events_of_one_read_are_one_batch(wire: ServedWire) -> None:
    async with (
        wire.serve_chunks(wire.hi * 3, wire.end) as server,
        wire.open_model(server.base_url) as model,
        aclosing(model.stream(HELLO)) as batches,
    ):
        assert list(await anext(batches))[:3] == [TextDelta("hi")] * 3


@pytest.mark.promise("C3")
async def test_a_body_without_end_marker_is_incomplete_without_an_error(wire: ServedWire) -> None:
    reply, error = await wire.ask(wire.body(wire.hi))
    assert (reply.text, reply.finish_reason, reply.complete, error) == ("hi", None, False, None)


@pytest.mark.parametrize("ending", ["then_silent", "then_closed", "then_reset"])
async def test_a_reply_is_complete_whatever_follows_its_end_marker(wire: ServedWire, ending: str) -> None:
    request = ModelRequest(messages=HELLO.messages, timeout=0.5 if ending == "then_silent" else None)
    async with (
        wire.serve_chunks(wire.hi, wire.end, **{ending: True}) as server,
        wire.open_model(server.base_url) as model,
    ):
        reply, error = await complete(model, request)
    assert (reply.text, reply.complete, error) == ("hi", True, None)


# --- requests -----------------------------------------------------------------------------------------------------


async def test_a_request_has_the_path_of_the_wire_the_key_and_the_given_headers(wire: ServedWire) -> None:
    async with FakeOpenAIServer([wire.body(wire.hi, wire.end)]) as server:
        async with wire.open_model(server.base_url, api_key=KEY, headers={"X-Title": "t"}) as model:
            await complete(model, HELLO)
        (request,) = server.requests
    wanted = {
        **dict([wire.key_header(KEY)]),
        "accept": wire.content_type,
        "accept-encoding": "identity",
        "content-type": "application/json",
        "x-title": "t",
    }
    assert (request.path, request.headers | wanted) == (wire.path, request.headers)
    assert sum(KEY in value for value in request.headers.values()) == 1


async def test_lone_surrogates_in_a_request_are_replaced(wire: ServedWire) -> None:
    async with FakeOpenAIServer([wire.body(wire.hi, wire.end)]) as server, wire.open_model(server.base_url) as model:
        reply, error = await complete(model, ModelRequest(messages=[UserMessage(content="a\ud800b")]))
        assert (reply.text, error) == ("hi", None)
        assert '"a\ufffdb"' in json.dumps(server.requests[0].json, ensure_ascii=False)


def test_a_model_has_the_given_name_and_context_window(wire: ServedWire) -> None:
    named = wire.model("m", base_url="http://box:9", name="mine:m", context_window=9)
    assert (named.name, named.context_window) == ("mine:m", 9)
    assert repr(named) == f"{type(named).__name__}('mine:m', host='box:9')"
    assert (unnamed := wire.model("m", base_url="http://box:9")).name == f"{wire.name}:m"
    assert unnamed.context_window is None


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "provider.bad_request", False),
        (401, "provider.auth", False),
        (403, "provider.auth", False),
        (404, "provider.bad_request", False),
        (408, "provider.overloaded", True),
        (413, "context_overflow", False),
        (422, "provider.bad_request", False),
        (429, "provider.rate_limited", True),
        (500, "provider.overloaded", True),
        (503, "provider.overloaded", True),
        (529, "provider.overloaded", True),
    ],
)
async def test_each_status_has_an_error_code(wire: ServedWire, status: int, code: str, retryable: bool) -> None:
    error = await wire.failure(wire.refusal(status, "not today"))
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    assert "not today" in str(error)


@pytest.mark.parametrize(("wire", "recorded"), of_each_wire(recorded_errors))
async def test_a_recorded_http_error_has_the_provider_s_message(wire: ServedWire, recorded: dict[str, Any]) -> None:
    sent_error = json.loads(recorded["body"])["error"]
    error = await wire.failure(RawReply(recorded["body"].encode(), recorded["status"], recorded["content_type"]))
    assert (error.code, error.status) == ("provider.bad_request", recorded["status"])
    assert error.provider_type == (sent_error.get("status") or sent_error["type"])
    assert sent_error["message"] in str(error)


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
async def test_an_error_body_of_any_form_is_quoted(
    wire: ServedWire, content: bytes, kind: str | None, words: str
) -> None:
    error = await wire.failure(body(content, status=404, content_type="application/json"))
    assert (error.code, error.provider_type) == ("provider.bad_request", kind)
    assert words in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 1_000


async def test_a_404_error_states_the_form_of_the_base_url(wire: ServedWire) -> None:
    error = await wire.failure(wire.refusal(404, "no such thing"))
    assert str(error).endswith(f"no such thing; are the base URL{wire.base_hint} and the model's name right?")


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
async def test_retry_after_is_read_as_seconds_or_date(
    wire: ServedWire, headers: dict[str, str], seconds: float | None
) -> None:
    error = await wire.failure(RawReply(b"{}", 429, "application/json", headers))
    assert error.retry_after == seconds


async def test_a_redirect_is_not_followed(wire: ServedWire) -> None:
    elsewhere = RawReply(b"", 307, "text/plain", {"Location": "http://127.0.0.1:9/v1"})
    error = await wire.failure(elsewhere, api_key=KEY)
    assert (error.code, error.status) == ("provider.bad_request", 307)
    assert "http://127.0.0.1:9/v1" in str(error)


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("file:///etc/passwd", "this one points to no base URL"),
        ("javascript:alert(1)", "this one points to no base URL"),
        ("http://[", "this one points to no base URL"),
        ("/v2/chat", "this one points to no base URL"),
        ("http://127.0.0.1:9/" + "v" * 30_000, "this one points to no base URL"),
        ("http://127.0.0.1:9/\x1b[2Jv1", "this one points to no base URL"),
        ("https://me:hunter2@box:9/v1?key=1#x", "set the base URL to where it points: https://box:9/v1"),
    ],
)
async def test_the_error_for_a_redirect_quotes_only_a_possible_base_url(
    wire: ServedWire, location: str, hint: str
) -> None:
    error = await wire.failure(RawReply(b"", 307, "text/plain", {"Location": location}))
    assert str(error) == f"{wire.name}:m answered with HTTP 307; redirects are not followed, {hint}"


async def test_the_error_for_a_compressed_error_body_has_only_its_status(wire: ServedWire) -> None:
    error = await wire.failure(RawReply(b"\x1f\x8b\x08 oh", 400, "application/json", {"Content-Encoding": "gzip"}))
    reason = "(the body is compressed although the request forbids it, so the reason is unknown)"
    assert str(error) == f"{wire.name}:m answered with HTTP 400: {reason}"


async def test_an_endless_error_body_is_read_up_to_a_limit(wire: ServedWire) -> None:
    endless = RawReply(b"oh no ", 500, "text/plain", {}, fill=b"x" * 65_536, size=1_000_000_000)
    assert (await wire.failure(endless)).code == "provider.overloaded"


async def test_a_web_page_is_an_error_that_names_the_server(wire: ServedWire) -> None:
    page = body("<html>Welcome</html>", content_type="text/html")
    async with FakeOpenAIServer([page]) as server, wire.open_model(server.base_url) as model:
        _, error = await complete(model, HELLO)
        address = server.base_url.removeprefix("http://").removesuffix("/v1")
    assert error is not None
    assert error.code == "provider.bad_reply"
    assert f"{wire.name}:m at {address}" in str(error)
    assert "base URL" in str(error)


async def test_a_compressed_reply_is_refused(wire: ServedWire) -> None:
    bomb = RawReply(b"\x1f\x8b", 200, wire.content_type, {"Content-Encoding": "gzip"})
    assert (await wire.failure(bomb)).code == "provider.bad_reply"


@pytest.mark.cases(quick=2)
async def test_an_endless_line_is_ended_at_a_limit(wire: ServedWire) -> None:
    async with FakeOpenAIServer([huge_line(1_000_000_000)]) as server, wire.open_model(server.base_url) as model:
        _, error = await complete(model, HELLO)
        await server.requests[0].client_gone.wait()
    assert error is not None
    assert (error.code, error.provider_type) == ("provider.bad_reply", "protocol_error")


# --- connections that break ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["then_closed", "then_reset"])
async def test_a_broken_connection_is_a_transport_error_and_keeps_the_content_before_it(
    wire: ServedWire, ending: str
) -> None:
    for chunks, text in ([], ""), ([wire.hi], "hi"):
        async with wire.serve_chunks(*chunks, **{ending: True}) as server, wire.open_model(server.base_url) as model:
            reply, error = await complete(model, HELLO)
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.retryable) == (text, False, "provider.transport", True)


async def test_a_refused_connection_is_a_transport_error_that_names_the_address(wire: ServedWire) -> None:
    async with chunk_server(list) as server:
        address = server.base_url
    async with wire.open_model(address) as model:
        _, error = await complete(model, HELLO)
    assert error is not None
    assert error.code == "provider.transport"
    assert address.removeprefix("http://") in str(error)


@pytest.mark.parametrize("head", [True, False])
async def test_silence_past_the_request_timeout_is_a_transport_error(wire: ServedWire, head: bool) -> None:
    request = ModelRequest(messages=HELLO.messages, timeout=0.3)
    silent = (
        wire.serve_chunks(wire.hi, then_silent=True) if head else wire.serve_chunks(head=b"HTTP/1.1 ", then_silent=True)
    )
    async with silent as server, wire.open_model(server.base_url) as model:
        reply, error = await complete(model, request)
    assert error is not None
    assert (reply.text, error.code) == ("hi" if head else "", "provider.transport")


# --- keys and addresses -------------------------------------------------------------------------------------------


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "reply",
    [
        lambda wire: wire.refusal(401, f"Incorrect API key provided: {KEY}."),
        lambda _: body(f"no such key: {KEY}", status=403, content_type="text/plain"),
        lambda _: hang_up(),
        lambda _: reset(),
        lambda _: body("<html></html>", content_type="text/html"),
        lambda _: body(json.dumps({"error": {"message": "no", "type": KEY, "code": KEY}}), status=401),
        lambda wire: wire.refusal(401, f"{'a ' * 285}key={KEY}"),
        lambda wire: wire.refusal(401, f"{' ' * 4_790}{KEY}"),
        lambda wire: wire.refusal(401, f"{'no' * 290} {KEY[:-1]} {KEY}"),
        lambda wire: wire.body(wire.hi, wire.event({"error": {"message": f"bad key {KEY}", "type": KEY}})),
        lambda wire: wire.body(wire.event({"error": {"message": "", "type": KEY}})),
        lambda _: RawReply(b"", 302, "text/plain", {"Location": f"http://{KEY}@127.0.0.1/{KEY}?key={KEY}"}),
        lambda _: RawReply(b"", 200, f"text/html; {KEY}", {"Content-Encoding": KEY}),
    ],
)
async def test_no_error_quotes_the_key(wire: ServedWire, reply: Callable[[ServedWire], Any]) -> None:
    async with FakeOpenAIServer([reply(wire)]) as server, wire.open_model(server.base_url, api_key=KEY) as model:
        _, error = await complete(model, HELLO)
    assert isinstance(error, ModelError)
    assert KEY[:12] not in f"{error} {error!r} {model!r} {vars(error)}"


@pytest.mark.promise("I1")
async def test_a_key_in_an_error_text_is_masked(wire: ServedWire) -> None:
    refused = await wire.failure(wire.refusal(401, f"not {KEY}, not {KEY}"), api_key=KEY)
    assert str(refused) == f"{wire.name}:m answered with HTTP 401: not [key], not [key]"
    error_event = wire.event({"error": {"message": f"bad key {KEY}", "type": KEY}})
    broken = await wire.failure(wire.body(error_event), api_key=KEY)
    assert (str(broken).partition("its reply: ")[2], broken.provider_type) == ("bad key [key]", "[key]")


@pytest.mark.promise("I1")
@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", b""])
async def test_a_truncated_long_key_is_masked(wire: ServedWire, start: bytes) -> None:
    key = KEY + "0123456789" * 9
    head = start + b"no such key as ever: " + key.encode() + b"\r\n"
    async with chunk_server(list, head=head) as server, wire.open_model(server.base_url, api_key=key) as model:
        _, error = await complete(model, HELLO)
    assert error is not None
    assert KEY[:12] not in str(error)


@pytest.mark.promise("I1")
@pytest.mark.parametrize("before", [595, 4_795])
async def test_a_short_key_at_the_cut_of_an_error_text_is_masked(wire: ServedWire, before: int) -> None:
    key = "k7-hunter2-9"
    error = await wire.failure(wire.refusal(401, f"{'no ' * 9}{' ' * (before - 27)}{key} {'no ' * 300}"), api_key=key)
    assert "k7-" not in str(error)
    error = await wire.failure(wire.refusal(401, f"{'no ' * 198}{key} {'no ' * 300}"), api_key=key)
    assert str(error).endswith("no no no…")


@pytest.mark.promise("I1")
async def test_no_error_quotes_a_secret_of_the_headers_or_the_base_url(wire: ServedWire) -> None:
    other, third = "0123456789abcdef", "fedcba9876543210"
    async with FakeOpenAIServer([wire.refusal(401, f"{other}? {third}? {KEY}?")]) as server:
        where = server.base_url.replace("http://", f"http://me:{third}@") + f"/v1?api_key={KEY}&v=2024-10-21"
        async with wire.open_model(where, headers={"X-Proxy-Token": f"Bearer {other}"}) as model:
            _, error = await complete(model, HELLO)
    assert str(error) == f"{wire.name}:m answered with HTTP 401: [key]? [key]? [key]?"


@pytest.mark.parametrize("key", ["x", "ne", "ollama", "lm-studio", "not-needed"])
async def test_a_placeholder_key_is_not_masked(wire: ServedWire, key: str) -> None:
    message = f"next time give {key} a model that exists"
    error = await wire.failure(wire.refusal(400, message), api_key=key)
    assert str(error) == f"{wire.name}:m answered with HTTP 400: {message}"


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-ä", "sk a"])
def test_a_key_that_is_no_header_value_is_refused_without_quoting_it(wire: ServedWire, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        wire.model("m", api_key=key, base_url="http://127.0.0.1:1/v1")
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://[::1"])
def test_an_invalid_base_url_is_refused(wire: ServedWire, url: str) -> None:
    with pytest.raises(SettingsError, match="base URL"):
        wire.model("m", base_url=url)


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "http://", ""])
@pytest.mark.parametrize("wire", [wire for wire in SERVED_WIRES if wire is not OLLAMA], ids=lambda wire: wire.name)
def test_only_the_ollama_wire_accepts_a_host_without_scheme(wire: ServedWire, url: str) -> None:
    with pytest.raises(SettingsError, match="base URL"):
        wire.model("m", base_url=url)
    assert OLLAMA.model("m", base_url=url)


# --- connections --------------------------------------------------------------------------------------------------


@pytest.mark.promise("C8")
async def test_closing_the_iterator_closes_the_socket_at_once(wire: ServedWire) -> None:
    async with wire.serve_chunks(wire.hi, then_silent=True) as server, wire.open_model(server.base_url) as model:
        async with aclosing(model.stream(HELLO)) as batches:
            assert list(await anext(batches)) == [TextDelta("hi")]
            began = asyncio.get_running_loop().time()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)
        assert asyncio.get_running_loop().time() == began


@pytest.mark.promise("C8")
@pytest.mark.parametrize("before", ["the head", "the body"])
async def test_cancelling_a_waiting_call_closes_the_socket_at_once(wire: ServedWire, before: str) -> None:
    head = b"HTTP/1.1 200 OK\r\n" if before == "the body" else b""
    async with (
        wire.serve_chunks(wire.hi, head=head, then_silent=True) as server,
        wire.open_model(server.base_url) as model,
    ):
        call = asyncio.create_task(complete(model, HELLO))
        while not server.requests:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        assert call.cancelled()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)


async def test_a_connection_is_reused_for_the_next_call(wire: ServedWire) -> None:
    async with wire.serve_chunks(wire.hi, wire.end) as server, wire.open_model(server.base_url) as model:
        for _ in range(3):
            assert (await complete(model, HELLO))[0].complete
        assert (server.connections, len(server.requests)) == (1, 3)


async def test_closing_a_model_closes_its_connection_and_the_next_call_opens_another(
    wire: ServedWire,
) -> None:
    async with wire.serve_chunks(wire.hi, wire.end) as server, wire.open_model(server.base_url) as model:
        await complete(model, HELLO)
        assert not server.client_gone.is_set()
        await model.aclose()
        await asyncio.wait_for(server.client_gone.wait(), PATIENCE)
        reply, error = await complete(model, HELLO)
        assert (reply.text, error, server.connections) == ("hi", None, 2)


def test_a_model_can_be_used_in_one_event_loop_after_another(wire: ServedWire) -> None:
    models: list[ProviderModel] = []

    async def once(port: int) -> int:
        async with wire.serve_chunks(wire.hi, wire.end, port=port) as server:
            if not models:
                models.append(wire.model("m", base_url=server.base_url))
            reply, error = await complete(models[0], HELLO)
            await models[0].aclose()
            assert (reply.text, error) == ("hi", None)
            return int(server.base_url.rpartition(":")[2])

    port = asyncio.run(once(0))
    assert [asyncio.run(once(port)) for _ in range(2)] == [port, port]


@pytest.mark.cases(quick=2)
async def test_calls_leave_no_task_or_connection_however_they_end(wire: ServedWire) -> None:
    async def abandoned(model: ProviderModel) -> None:
        async with aclosing(model.stream(HELLO)) as batches:
            await anext(batches)

    before = asyncio.all_tasks()
    ways: list[Callable[[ProviderModel], Any]] = [abandoned, lambda model: complete(model, HELLO)]
    async with wire.serve_chunks(*[wire.hi] * 3, wire.end) as server:
        for way in ways * 5:
            async with wire.open_model(server.base_url) as model:
                await way(model)
    gc.collect()
    assert asyncio.all_tasks() == before
