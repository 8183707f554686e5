"""Tests that every route refuses invalid bodies, unknown paths and wrong methods as documented."""

from __future__ import annotations

import json
import time

import pytest

from studio.http.openapi import EVENT_STREAM
from studio.routes.queue import ChangeQueuedBody
from studio.routes.sessions import ChangeSessionBody, CreateSessionBody
from studio.routes.subagents import MessageSubagentBody
from studio.routes.table import TABLE
from studio.routes.turns import StartTurnBody
from studio.routes.user_requests import QuestionAnswerBody
from tests.support.server.raw_http import (
    AUTHORIZED,
    BODIES,
    JSON,
    ROUTES,
    raw_request,
    send_raw,
)
from tests.support.server.running_studio import RunningStudio

LIMIT = "'limit' must be a whole number from 1 to 200."

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]


# --- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_body_with_two_lengths_is_400_and_closes_the_connection(studio: RunningStudio) -> None:
    for headers in (
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
    ):
        head = raw_request("POST", "/api/sessions", AUTHORIZED, JSON, *headers)
        answer = await send_raw(studio, head + "2\r\n{}\r\n0\r\n\r\n")
        assert (answer.status, answer.code, answer.headers["connection"]) == (400, "two_lengths", "close")


DEEP = '{"a":' * 40 + "1" + "}" * 40


BAD_BODIES = {
    "not JSON by its type": ("Content-Type: text/plain", "{}", 415),
    "a form": ("Content-Type: application/x-www-form-urlencoded", "a=1", 415),
    "no type": ("X-None: 1", "{}", 415),
    "two types": ("Content-Type: application/json\r\nContent-Type: application/json", "{}", 415),
    "another charset": ("Content-Type: application/json; charset=utf-16", "{}", 415),
    "compressed": (f"{JSON}\r\nContent-Encoding: gzip", "{}", 415),
    "two encodings": (f"{JSON}\r\nContent-Encoding: identity, br", "{}", 415),
    "encoded as it is": (f"{JSON}\r\nContent-Encoding: identity", "{", 400),
    "not JSON": (JSON, "{", 400),
    "not UTF-8": (JSON, '{"a":"\xff"}', 400),
    "two BOMs": (JSON, 2 * "\xef\xbb\xbf" + "{}", 400),
    "duplicate keys": (JSON, '{"a":1,"a":1}', 400),
    "NaN": (JSON, '{"a":NaN}', 400),
    "infinity": (JSON, '{"a":1e999}', 400),
    "a huge number": (JSON, '{"a":' + "9" * 900 + "}", 400),
    "deep": (JSON, DEEP, 400),
    "very deep": (JSON, "[" * 1000, 400),
    "no object": (JSON, "[]", 422),
    "an unknown field": (JSON, '{"unheard_of":1}', 422),
}


@pytest.mark.parametrize("what", BAD_BODIES)
async def test_every_route_with_a_body_refuses_a_bad_one(studio: RunningStudio, what: str) -> None:
    header, body, status = BAD_BODIES[what]
    for method, path in BODIES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, header, body=body))
        assert (path, answer.status) == (path, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body)["detail"].endswith(".")


async def test_a_body_over_the_limit_is_413_with_or_without_a_declared_length(studio: RunningStudio) -> None:
    most = {
        "/api/ticket": 1024,
        "/api/confirms/cfm_x": 4 << 20,
        "/api/permissions": 4 << 20,
        "/api/permissions/explain": 4 << 20,
        "/api/questions/qst_x": QuestionAnswerBody.max_bytes,
        "/api/sessions": CreateSessionBody.max_bytes,
        "/api/sessions/ses_x": ChangeSessionBody.max_bytes,
        "/api/sessions/ses_x/queue/msg_x": ChangeQueuedBody.max_bytes,
        "/api/sessions/ses_x/turns": StartTurnBody.max_bytes,
        "/api/sessions/ses_x/subagents/a/message": MessageSubagentBody.max_bytes,
    }
    for method, path in BODIES:
        announced = raw_request(method, path, AUTHORIZED, JSON, f"Content-Length: {most.get(path, 64 << 10) + 1}")
        assert (path, (await send_raw(studio, announced)).status) == (path, 413)
    chunk = b"%x\r\n%b\r\n" % (16 * 1024, b" " * 16 * 1024)
    head = raw_request("POST", "/api/sessions", AUTHORIZED, JSON, "Transfer-Encoding: chunked").encode()
    assert (await send_raw(studio, head + chunk * 33)).status == 413


def many_names() -> str:
    return ",".join(f'"{number}":0' for number in range(200_000))


HEAVY_BODIES = {
    "unknown names": lambda: f"{{{many_names()}}}",
    "double names": lambda: f'{{{many_names()},"199999":0}}',
    "a long list": lambda: '{"input":[' + ",".join(["{}"] * 800_000) + "]}",
    "many lists": lambda: '{"input":[' + ",".join([f"[{'5,' * 900}5]"] * 900) + "]}",
}


@pytest.mark.parametrize("what", HEAVY_BODIES)
@pytest.mark.cases(quick=2)
async def test_an_expensive_body_is_refused_in_about_the_time_of_reading_it(studio: RunningStudio, what: str) -> None:
    session_id, body = await studio.session(), HEAVY_BODIES[what]()
    began = time.process_time()
    json.loads(body)
    on_this_machine = time.process_time() - began
    began = time.process_time()
    answer = await studio.client.post(
        f"/api/sessions/{session_id}/turns",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert time.process_time() - began < 2 + 100 * on_this_machine
    assert answer.status_code in (400, 422)
    assert len(answer.content) < 1000


async def test_a_missing_body_is_an_empty_object_only_where_no_field_is_required(studio: RunningStudio) -> None:
    document = (await studio.client.get("/openapi.json")).json()
    for route, (method, path) in zip(TABLE, ROUTES, strict=True):
        if route.body is None:
            continue
        documented = document["paths"][route.path][method.lower()]["requestBody"]["required"]
        required = any(field.is_required() for field in route.body.model_fields.values())
        untyped = await send_raw(studio, raw_request(method, path, AUTHORIZED, "Content-Length: 0"))
        typed = await send_raw(studio, raw_request(method, path, AUTHORIZED, JSON, "Content-Length: 0"))
        assert (path, documented, untyped.status == 415, typed.status == 400) == (path, required, required, required)


async def test_a_body_that_is_not_an_object_gets_an_error_without_schema_names(studio: RunningStudio) -> None:
    for method, path in BODIES:
        for body in ("[]", "null", '"a"', "1"):
            problem = json.loads((await send_raw(studio, raw_request(method, path, AUTHORIZED, JSON, body=body))).body)
            assert (problem["status"], problem["detail"]) == (422, "The body must be a JSON object.")
    path = f"/api/sessions/{await studio.session()}/turns"
    answer = await studio.client.post(path, json={"input": "a", "attachments": [1]})
    assert (answer.status_code, answer.json()["detail"]) == (422, "'attachments.0' must be a JSON object.")


async def test_without_a_body_any_content_type_is_accepted(studio: RunningStudio) -> None:
    path = f"/api/sessions/{await studio.session()}/stop"
    for headers in (
        (),
        (JSON,),
        ("Content-Length: 0",),
        ("Content-Type: application/x-www-form-urlencoded", "Content-Length: 0"),
        ("Transfer-Encoding: chunked",),
    ):
        empty = "0\r\n\r\n" if "Transfer-Encoding: chunked" in headers else ""
        answer = await send_raw(studio, raw_request("POST", path, AUTHORIZED, *headers) + empty)
        assert (headers, answer.status, answer.body) == (headers, 202, b'{"turn_id":null}')


async def test_a_schema_error_is_422_with_the_field_and_a_sentence(studio: RunningStudio) -> None:
    session_id = await studio.session()
    for path, body, field, detail in (
        ("turns", {}, "input", "'input' is required."),
        ("turns", {"input": ""}, "input", "'input' must not be empty."),
        ("turns", {"input": 1}, "input", "'input' must be a text."),
        ("turns", {"input": "a", "x": 1}, "x", None),
        (
            "turns",
            {"input": "a", "when_busy": "now"},
            "when_busy",
            "'when_busy' must be 'reject', 'queue', 'steer' or 'interrupt'.",
        ),
        (
            "turns",
            {"input": "a", "client_turn_id": "i" * 201},
            "client_turn_id",
            "'client_turn_id' must have at most 200 characters.",
        ),
        ("turns", {"input": "a", "attachments": {}}, "attachments", "'attachments' must be a list."),
        ("fork", {"message_id": 5}, "message_id", "'message_id' must be a text."),
    ):
        answer = await studio.client.post(f"/api/sessions/{session_id}/{path}", json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["field"]) == (422, "invalid_body", field)
        assert detail is None or problem["detail"] == detail


async def test_an_invalid_body_is_logged_with_its_route_and_field_and_no_class_names(
    studio: RunningStudio, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="studio")
    session_id = await studio.session()
    await studio.client.post(f"/api/sessions/{session_id}/turns", json={"input": "a", "when_busy": "now"})
    (line,) = [text for record in caplog.records if (text := record.getMessage()).startswith("invalid request body")]
    problem = "'when_busy' must be 'reject', 'queue', 'steer' or 'interrupt'."
    assert line == (
        f"invalid request body method='POST' path='/api/sessions/{session_id}/turns' field='when_busy' {problem=}"
    )


# --- paths and methods ------------------------------------------------------------------------------------------------


async def test_head_is_get_without_the_body_and_options_lists_the_allowed_methods(studio: RunningStudio) -> None:
    for path, route in zip((path for _, path in ROUTES), TABLE, strict=True):
        allowed = {method for other in TABLE if other.path == route.path for method in (other.method,)}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        options = await studio.client.options(path)
        assert (path, options.status_code) == (path, 405)
        assert {method.strip() for method in options.headers["allow"].split(",")} == allowed
        if route.method == "GET":
            streams = route.responses[0].media_type == EVENT_STREAM
            got = 200 if streams else (await studio.client.get(path)).status_code
            head = await studio.client.head(path)
            assert (path, head.status_code, head.content) == (path, 404 if "ses_x" in path else got, b"")


async def test_unknown_paths_and_wrong_methods_are_problems(studio: RunningStudio) -> None:
    missing = await studio.client.get("/api/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    wrong = await studio.client.put("/api/sessions")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert {method.strip() for method in wrong.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}


async def test_every_response_has_the_security_headers(studio: RunningStudio) -> None:
    for path in ("/", "/api/health", "/api/nothing", "/assets/main.js"):
        headers = (await studio.client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("no-cache" if path in {"/", "/assets/main.js"} else "no-store")
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert policy.endswith("; require-trusted-types-for 'script'; trusted-types 'none'")
        assert "server" not in headers


@pytest.mark.parametrize(
    ("url", "code", "detail"),
    [
        *((f"/api/sessions?limit={text}", "bad_limit", LIMIT) for text in ("", "0", "201", "0x1", "+5", "5.0", "%205")),
        ("/api/sessions?limit=1&limit=2", "repeated_parameter", "'limit' must be given once, not several times."),
        ("/api/events?cursor=a&cursor=a", "repeated_parameter", "'cursor' must be given once, not several times."),
        (f"/api/sessions?q=+{'a' * 501}", "bad_query", "'q' must have at most 500 characters."),
        ("/api/sessions?archived=", "bad_archived", "'archived' must be 'true', 'false' or 'all'."),
        ("/api/sessions?before=ses_x", "bad_before", "'before' must be the id of an existing session."),
        ("/api/usage?since=20260101", "bad_day", "'since' must be a date such as '2026-11-21'."),
        ("/api/usage?until=2026-02-30", "bad_day", "'until' must be a date such as '2026-11-21'."),
        ("/api/sessions/{}/export?format=pdf", "bad_format", "'format' must be 'jsonl' or 'markdown'."),
        ("/api/sessions/{}/export?after=-1", "bad_after", "'after' must be a whole number of at least 0."),
        ("/api/sessions/{}/events?limit=501", "bad_limit", "'limit' must be a whole number from 1 to 500."),
        ("/api/sessions/{}/artifacts?option=0", "bad_option", "'option' must be a whole number of at least 1."),
        ("/api/sessions/{}/artifacts/a?revision=x", "bad_revision", "'revision' must be a whole number of at least 1."),
    ],
)
async def test_an_invalid_parameter_is_refused_with_what_it_must_be(
    studio: RunningStudio, url: str, code: str, detail: str
) -> None:
    answer = await studio.client.get(url.format(await studio.session()))
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["detail"]) == (422, code, detail)
    assert f"{problem['field']}=" in url


@pytest.mark.parametrize(
    "query", [f"q={'+' * 600}a{'+' * 600}", "limit=007", "limit=200&_=1&_=2", "q=", "archived=all"]
)
async def test_a_valid_parameter_is_accepted(studio: RunningStudio, query: str) -> None:
    assert (await studio.client.get(f"/api/sessions?{query}")).status_code == 200


async def test_an_export_begins_after_any_event_of_a_long_log(studio: RunningStudio) -> None:
    answer = await studio.client.get(f"/api/sessions/{await studio.session()}/export?after={10**15 - 1}")
    assert (answer.status_code, answer.content) == (200, b"")
