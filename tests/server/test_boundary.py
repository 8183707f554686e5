"""Access control: every route of the table against every reason to refuse, over raw sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from agenticx.errors import SettingsError
from agenticx.settings import load_settings
from studio.access import TICKET_SECONDS, Tickets, load_or_create_token
from studio.http.guard import AccessMiddleware, OriginPolicy
from studio.http.openapi import EVENT_STREAM
from studio.routes import TABLE
from studio.routes.turns import StartTurnBody
from tests.support.patience import PATIENCE
from tests.support.server.running import TOKEN, Studio, StudioMaker, running_studio

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]

ALLOWED_ORIGIN = "app://desktop"
ROUTES = [
    (route.method, route.path.replace("{session_id}", "ses_x").replace("{request_id}", "cfm_x")) for route in TABLE
]
PROTECTED = [*((route.method, path) for route, (_, path) in zip(TABLE, ROUTES, strict=True) if not route.public)]
BODIES = [(route.method, path) for route, (_, path) in zip(TABLE, ROUTES, strict=True) if route.body is not None]


@dataclass(frozen=True)
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return json.loads(self.body)["code"]


@pytest.fixture(scope="module")
async def studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Studio]:
    async with running_studio(tmp_path_factory.mktemp("boundary"), allowed_origins=[ALLOWED_ORIGIN]) as running:
        yield running


async def send_raw(studio: Studio, request: str | bytes) -> RawResponse:
    """Send bytes unchanged (PORT replaced) and read one response, without its body if it is a stream."""
    raw = request.encode("latin-1") if isinstance(request, str) else request
    reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)
    writer.write(raw.replace(b"PORT", str(studio.port).encode()))
    try:
        async with asyncio.timeout(PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return RawResponse(int(head[0].split()[1]), headers, body)
    finally:
        writer.transport.abort()


def raw_request(method: str, path: str, *headers: str, host: str | None = "127.0.0.1:PORT", body: str = "") -> str:
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", body])


AUTHORIZED = f"Authorization: Bearer {TOKEN}"
JSON = "Content-Type: application/json"

# --- the token: 401 ---------------------------------------------------------------------------------------------------

INVALID_TOKENS: dict[str, Sequence[str]] = {
    "none": (),
    "wrong": (f"Authorization: Bearer {'x' * len(TOKEN)}",),
    "short": (f"Authorization: Bearer {TOKEN[:-1]}",),
    "long": (f"Authorization: Bearer {TOKEN}x",),
    "empty": ("Authorization: Bearer ",),
    "without scheme": (f"Authorization: {TOKEN}",),
    "other scheme": (f"Authorization: Basic {TOKEN}",),
    "doubled header": (AUTHORIZED, AUTHORIZED),
    "doubled value": (f"Authorization: Bearer {TOKEN}, Bearer {TOKEN}",),
    "not ascii": ("Authorization: Bearer \xe4\xff",),
    "cookie": (f"Cookie: token={TOKEN}",),
}


@pytest.mark.parametrize("reason", INVALID_TOKENS)
async def test_every_route_without_the_valid_token_is_401(studio: Studio, reason: str) -> None:
    for method, path in [*PROTECTED, ("GET", "/api"), ("GET", "/api/nothing"), ("TRACE", "/api/sessions")]:
        answer = await send_raw(studio, raw_request(method, path, *INVALID_TOKENS[reason]))
        assert (path, answer.status, answer.code) == (path, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_token_in_the_query_is_ignored(studio: Studio) -> None:
    for name in ("token", "access_token", "authorization", "ticket"):
        assert (await send_raw(studio, raw_request("GET", f"/api/sessions?{name}={TOKEN}"))).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/API/sessions",
        "/api/Sessions",
        "/%61pi/sessions",
        "/api/%73essions",
        "/api%2Fsessions",
        "//api/sessions",
        "/api//sessions",
        "/api/sessions/",
        "/api/./sessions",
        "/x/../api/sessions",
        "/api/health/",
        "/api/health%00",
        "/api/health/../sessions",
        "/api/ticket%2f..%2fsessions",
        "/openapi.json",
        "/nothing",
        "http://127.0.0.1:PORT/api/sessions",
    ],
)
async def test_no_spelling_of_a_path_bypasses_the_token(studio: Studio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path))).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/%61pi/ready",
        "/api%2Fready",
        "/api/read%79",
        "/API/ready",
        "/api/Ready",
        "/api/ready%00",
        "/api/confirms/cfm%5Fx",
        "/api/sessions/%ff",
        "/api/sessions/%c3%a9",
        "/api/sessions/%zz",
        "/%61pi/health",
        "/assets/%61pp.js",
        "/%2F",
    ],
)
async def test_only_the_canonical_spelling_of_a_path_is_served(studio: Studio, path: str) -> None:
    answer = await send_raw(studio, raw_request("GET", path, AUTHORIZED))
    assert (answer.status, answer.code) == (404, "not_found")


async def test_an_id_may_be_encoded_where_it_must_be(studio: Studio) -> None:
    answer = await send_raw(studio, raw_request("GET", "/api/sessions/%C3%A9%20x", AUTHORIZED))
    assert (answer.status, answer.code) == (404, "session_not_found")
    session_id = (await studio.session()).replace("s", "%73")
    assert (
        await send_raw(studio, raw_request("GET", f"/api/confirms?session_id={session_id}", AUTHORIZED))
    ).status == 200


@pytest.mark.parametrize(
    "path", ["/assets/../api/sessions", "/assets/%2e%2e/api/sessions", "/assets/%2e%2e%2fserver.py"]
)
async def test_asset_paths_cannot_leave_the_assets_folder(studio: Studio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path))).status in (401, 404)


@pytest.mark.parametrize("path", ["/assets", "/assets/", "/assets/app.js/", "/assets//app.js", "/assets/./app.js"])
async def test_an_asset_has_one_path(studio: Studio, path: str) -> None:
    assert (await send_raw(studio, raw_request("GET", path, AUTHORIZED))).status == 404


async def test_a_401_comes_before_the_body_is_read(studio: Studio) -> None:
    head = raw_request("POST", "/api/sessions", JSON, "Content-Length: 1000000000")
    assert (await send_raw(studio, head)).status == 401


async def test_public_paths_need_no_token(studio: Studio) -> None:
    for path in ("/", "/api/health", "/assets/app.js"):
        assert (await send_raw(studio, raw_request("GET", path))).status == 200


# --- Host: 400, 421 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0:PORT",
        "localhost.:PORT",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:0PORT",
        "127.0.0.2:PORT",
        "127.1:PORT",
        "2130706433:PORT",
        "[::]:PORT",
        "evil.example:PORT",
        "evil.example",
        "127.0.0.1:PORT.evil.example",
        "user@127.0.0.1:PORT",
    ],
)
async def test_a_foreign_host_is_421_on_every_route(studio: Studio, host: str) -> None:
    for method, path in ROUTES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, host=host))
        assert (path, answer.status) == (path, 421)


async def test_own_hosts_are_accepted(studio: Studio) -> None:
    for host in ("127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "LOCALHOST:PORT"):
        assert (await send_raw(studio, raw_request("GET", "/api/health", host=host))).status == 200


async def test_a_missing_or_double_host_is_400(studio: Studio) -> None:
    for method, path in ROUTES:
        for headers in ((), ("Host: 127.0.0.1:PORT", "Host: 127.0.0.1:PORT")):
            answer = await send_raw(
                studio, raw_request(method, path, AUTHORIZED, *headers, "Connection: close", host=None)
            )
            assert (path, answer.status) == (path, 400)
    assert (await send_raw(studio, "GET /api/health HTTP/1.0\r\n\r\n")).status == 400


async def test_two_hosts_are_400_even_if_the_http_server_accepts_them() -> None:
    sent: list[Message] = []

    async def unreachable(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("the middleware passed the request on")

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    host = (b"host", b"localhost:1")
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [host, host]}
    await AccessMiddleware(unreachable, OriginPolicy.for_port(1), TOKEN)(scope, receive, send)
    assert sent[0]["status"] == 400


async def test_a_body_with_two_lengths_is_400_and_closes_the_connection(studio: Studio) -> None:
    for headers in (
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
    ):
        head = raw_request("POST", "/api/sessions", AUTHORIZED, JSON, *headers)
        answer = await send_raw(studio, head + "2\r\n{}\r\n0\r\n\r\n")
        assert (answer.status, answer.code, answer.headers["connection"]) == (400, "two_lengths", "close")


# --- Origin: 403, CORS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "file://",
        "http://evil.example",
        "https://127.0.0.1:PORT",
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        "http://127.0.0.1:PORT.evil.example",
        "http://127.0.0.1:PORT/",
        "http://localhost.:PORT",
        "app://desktop2",
        "APP://desktop",
        "",
    ],
)
async def test_a_foreign_origin_is_403_on_every_route_and_gets_no_cors(studio: Studio, origin: str) -> None:
    for method, path in ROUTES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, f"Origin: {origin}"))
        assert (path, answer.status, answer.code) == (path, 403, "foreign_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_two_origins_are_403(studio: Studio) -> None:
    own = "Origin: http://127.0.0.1:PORT"
    assert (await send_raw(studio, raw_request("GET", "/api/tools", AUTHORIZED, own, own))).status == 403


async def test_own_origins_pass_without_cors_headers(studio: Studio) -> None:
    for origin in ("http://127.0.0.1:PORT", "http://localhost:PORT", "http://[::1]:PORT"):
        answer = await send_raw(studio, raw_request("GET", "/api/tools", AUTHORIZED, f"Origin: {origin}"))
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_an_allowed_origin_gets_cors_even_if_cross_site_or_unauthorized(studio: Studio) -> None:
    headers = (f"Origin: {ALLOWED_ORIGIN}", "Sec-Fetch-Site: cross-site")
    for token, status in (((AUTHORIZED,), 200), ((), 401)):
        answer = await send_raw(studio, raw_request("GET", "/api/tools", *headers, *token))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, ALLOWED_ORIGIN)
        assert answer.headers["vary"] == "Origin"


async def test_a_preflight_of_an_allowed_origin_needs_no_token_and_any_other_is_refused(studio: Studio) -> None:
    asks = "Access-Control-Request-Method: POST"
    answer = await send_raw(studio, raw_request("OPTIONS", "/api/sessions", f"Origin: {ALLOWED_ORIGIN}", asks))
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert "authorization" in answer.headers["access-control-allow-headers"]
    for origin in ("Origin: http://evil.example", "Origin: null"):
        assert (await send_raw(studio, raw_request("OPTIONS", "/api/sessions", origin, asks))).status == 403
    assert (await send_raw(studio, raw_request("OPTIONS", "/api/sessions", asks))).status == 401


async def test_the_null_origin_passes_only_if_it_is_allowed(make_studio: StudioMaker) -> None:
    async with make_studio(allowed_origins=["null"]) as studio:
        answer = await send_raw(studio, raw_request("GET", "/api/tools", AUTHORIZED, "Origin: null"))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "null")


async def test_cross_site_requests_are_403_except_navigations_to_the_page(studio: Studio) -> None:
    cross = "Sec-Fetch-Site: cross-site"
    for method, path in ROUTES:
        assert (await send_raw(studio, raw_request(method, path, AUTHORIZED, cross))).status == 403
    navigation = (cross, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    assert (await send_raw(studio, raw_request("GET", "/", *navigation))).status == 200
    assert (await send_raw(studio, raw_request("GET", "/api/health", *navigation))).status == 403


# --- bodies -----------------------------------------------------------------------------------------------------------

DEEP = '{"a":' * 40 + "1" + "}" * 40
BAD_BODIES = {
    "not JSON by its type": ("Content-Type: text/plain", "{}", 415),
    "a form": ("Content-Type: application/x-www-form-urlencoded", "a=1", 415),
    "no type": ("X-None: 1", "{}", 415),
    "two types": ("Content-Type: application/json\r\nContent-Type: application/json", "{}", 415),
    "another charset": ("Content-Type: application/json; charset=utf-16", "{}", 415),
    "not JSON": (JSON, "{", 400),
    "not UTF-8": (JSON, '{"a":"\xff"}', 400),
    "a BOM": (JSON, "\xef\xbb\xbf{}", 400),
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
async def test_every_route_with_a_body_refuses_a_bad_one(studio: Studio, what: str) -> None:
    header, body, status = BAD_BODIES[what]
    for method, path in BODIES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, header, body=body))
        assert (path, answer.status) == (path, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body)["detail"].endswith(".")


async def test_a_body_over_the_limit_is_413_with_or_without_a_declared_length(studio: Studio) -> None:
    most = {"/api/ticket": 1024, "/api/confirms/cfm_x": 4 << 20, "/api/sessions/ses_x/turns": StartTurnBody.max_bytes}
    for method, path in BODIES:
        announced = raw_request(method, path, AUTHORIZED, JSON, f"Content-Length: {most.get(path, 64 << 10) + 1}")
        assert (path, (await send_raw(studio, announced)).status) == (path, 413)
    chunk = b"%x\r\n%b\r\n" % (16 * 1024, b" " * 16 * 1024)
    head = raw_request("POST", "/api/sessions", AUTHORIZED, JSON, "Transfer-Encoding: chunked").encode()
    assert (await send_raw(studio, head + chunk * 5)).status == 413


MANY = ",".join(f'"{number}":0' for number in range(200_000))
HEAVY_BODIES = {
    "unknown names": f"{{{MANY}}}",
    "double names": f'{{{MANY},"199999":0}}',
    "a long list": '{"input":[' + ",".join(["{}"] * 800_000) + "]}",
    "many lists": '{"input":[' + ",".join([f"[{'5,' * 900}5]"] * 900) + "]}",
}


@pytest.mark.parametrize("what", HEAVY_BODIES)
async def test_an_expensive_body_is_refused_in_about_the_time_of_reading_it(studio: Studio, what: str) -> None:
    session_id = await studio.session()
    began = time.process_time()
    json.loads(HEAVY_BODIES[what])
    on_this_machine = time.process_time() - began
    began = time.process_time()
    answer = await studio.client.post(
        f"/api/sessions/{session_id}/turns",
        content=HEAVY_BODIES[what],
        headers={"Content-Type": "application/json"},
    )
    assert time.process_time() - began < 2 + 100 * on_this_machine
    assert answer.status_code in (400, 422)
    assert len(answer.content) < 1000


async def test_a_missing_body_is_an_empty_object_only_where_no_field_is_required(studio: Studio) -> None:
    document = (await studio.client.get("/openapi.json")).json()
    for route, (method, path) in zip(TABLE, ROUTES, strict=True):
        if route.body is None:
            continue
        documented = document["paths"][route.path][method.lower()]["requestBody"]["required"]
        required = any(field.is_required() for field in route.body.model_fields.values())
        untyped = await send_raw(studio, raw_request(method, path, AUTHORIZED, "Content-Length: 0"))
        typed = await send_raw(studio, raw_request(method, path, AUTHORIZED, JSON, "Content-Length: 0"))
        assert (path, documented, untyped.status == 415, typed.status == 400) == (path, required, required, required)


async def test_a_body_that_is_not_an_object_gets_an_error_without_schema_names(studio: Studio) -> None:
    for method, path in BODIES:
        for body in ("[]", "null", '"a"', "1"):
            problem = json.loads((await send_raw(studio, raw_request(method, path, AUTHORIZED, JSON, body=body))).body)
            assert (problem["status"], problem["detail"]) == (422, "The body must be a JSON object.")
    path = f"/api/sessions/{await studio.session()}/turns"
    answer = await studio.client.post(path, json={"input": "a", "attachments": [1]})
    assert (answer.status_code, answer.json()["detail"]) == (422, "'attachments.0' must be a JSON object.")


async def test_without_a_body_any_content_type_is_accepted(studio: Studio) -> None:
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


async def test_head_is_get_without_the_body_and_options_lists_the_allowed_methods(studio: Studio) -> None:
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


async def test_a_schema_error_is_422_with_the_field_and_a_sentence(studio: Studio) -> None:
    session_id = await studio.session()
    for path, body, field, detail in (
        ("turns", {}, "input", "'input' is required."),
        ("turns", {"input": ""}, "input", "'input': String should have at least 1 character."),
        ("turns", {"input": 1}, "input", "'input' must be a valid string."),
        ("turns", {"input": "a", "x": 1}, "x", None),
        ("turns", {"input": "a", "when_busy": "now"}, "when_busy", None),
    ):
        answer = await studio.client.post(f"/api/sessions/{session_id}/{path}", json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["field"]) == (422, "invalid_body", field)
        assert detail is None or problem["detail"] == detail


# --- routes -----------------------------------------------------------------------------------------------------------


async def test_unknown_paths_and_wrong_methods_are_problems(studio: Studio) -> None:
    missing = await studio.client.get("/api/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    wrong = await studio.client.put("/api/sessions")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert {method.strip() for method in wrong.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}


async def test_every_response_has_the_security_headers(studio: Studio) -> None:
    for path in ("/", "/api/health", "/api/nothing", "/assets/app.js"):
        headers = (await studio.client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "server" not in headers


# --- the token and its tickets ----------------------------------------------------------------------------------------


async def test_a_ticket_gives_the_token_once(studio: Studio) -> None:
    fresh = await studio.client.post("/api/tickets")
    assert fresh.status_code == 201
    body = json.dumps({"ticket": fresh.json()["ticket"]})
    answers = [await send_raw(studio, raw_request("POST", "/api/ticket", JSON, body=body)) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 401]
    assert json.loads(answers[0].body) == {"token": TOKEN}
    assert answers[1].code == "bad_ticket"


def test_a_ticket_expires_after_ten_minutes() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    early, late = tickets.issue(), tickets.issue()
    clock.seconds = TICKET_SECONDS - 1
    assert tickets.redeem(early)
    clock.seconds = TICKET_SECONDS
    assert not tickets.redeem(late)
    assert not tickets.redeem("")


class ManualClock:
    """A clock whose time a test sets."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_the_token_is_made_at_first_start_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    token = load_or_create_token(settings)
    path = tmp_path / "home" / "token"
    assert len(token) >= 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_token(settings) == token


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        ("a" * 31, 0o600, "at least 32"),
        ("a" * 31 + "+", 0o600, "at least 32"),
        ("a" * 32 + " " + "a" * 32, 0o600, "at least 32"),
        ("", 0o600, "at least 32"),
        ("ä" * 40, 0o600, "cannot be read"),
        ("a" * 40, 0o640, "0640"),
        ("a" * 40, 0o604, "0604"),
    ],
)
def test_an_invalid_token_file_is_refused_without_quoting_it(
    tmp_path: Path, content: str, mode: int, complaint: str
) -> None:
    path = tmp_path / "mine"
    path.write_text(content)
    path.chmod(mode)
    settings = load_settings({"home": tmp_path / "home", "token_file": path}, environ={})
    with pytest.raises(SettingsError, match=complaint) as caught:
        load_or_create_token(settings)
    assert not content or content not in str(caught.value)


def test_a_token_file_is_read_stripped_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    settings = load_settings({"home": tmp_path / "home", "token_file": path}, environ={})
    with pytest.raises(SettingsError, match="mine"):
        load_or_create_token(settings)
    path.write_text(f"\n  {'Ab-_' * 8} \n")
    path.chmod(0o600)
    assert load_or_create_token(settings) == "Ab-_" * 8
