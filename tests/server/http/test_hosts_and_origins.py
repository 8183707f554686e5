"""Tests of the checks of Host, Origin and Sec-Fetch-Site on every route."""

from __future__ import annotations

import pytest
from starlette.types import Message, Receive, Scope, Send

from studio.http.guard import AccessMiddleware, AccessRules
from studio.routes.table import is_public
from tests.support.server.raw_http import (
    ALLOWED_ORIGIN,
    AUTHORIZED,
    ROUTES,
    raw_request,
    send_raw,
)
from tests.support.server.running_studio import TOKEN, RunningStudio, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]


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
@pytest.mark.cases(quick=6)
async def test_a_foreign_host_is_421_on_every_route(studio: RunningStudio, host: str) -> None:
    for method, path in ROUTES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, host=host))
        assert (path, answer.status) == (path, 421)


async def test_own_hosts_are_accepted(studio: RunningStudio) -> None:
    for host in ("127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "LOCALHOST:PORT"):
        assert (await send_raw(studio, raw_request("GET", "/api/health", host=host))).status == 200


async def test_a_missing_or_double_host_is_400(studio: RunningStudio) -> None:
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
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [host, host], "server": ("127.0.0.1", 1)}
    await AccessMiddleware(unreachable, lambda _: AccessRules(TOKEN), is_public)(scope, receive, send)
    assert sent[0]["status"] == 400


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
async def test_a_foreign_origin_is_403_on_every_route_and_gets_no_cors(studio: RunningStudio, origin: str) -> None:
    for method, path in ROUTES:
        answer = await send_raw(studio, raw_request(method, path, AUTHORIZED, f"Origin: {origin}"))
        assert (path, answer.status, answer.code) == (path, 403, "foreign_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_two_origins_are_403(studio: RunningStudio) -> None:
    own = "Origin: http://127.0.0.1:PORT"
    assert (await send_raw(studio, raw_request("GET", "/api/tools", AUTHORIZED, own, own))).status == 403


async def test_own_origins_pass_without_cors_headers(studio: RunningStudio) -> None:
    for origin in ("http://127.0.0.1:PORT", "http://localhost:PORT", "http://[::1]:PORT"):
        answer = await send_raw(studio, raw_request("GET", "/api/tools", AUTHORIZED, f"Origin: {origin}"))
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_an_allowed_origin_gets_cors_even_if_cross_site_or_unauthorized(studio: RunningStudio) -> None:
    headers = (f"Origin: {ALLOWED_ORIGIN}", "Sec-Fetch-Site: cross-site")
    for token, status in (((AUTHORIZED,), 200), ((), 401)):
        answer = await send_raw(studio, raw_request("GET", "/api/tools", *headers, *token))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, ALLOWED_ORIGIN)
        assert answer.headers["vary"] == "Origin"


async def test_a_preflight_of_an_allowed_origin_needs_no_token_and_any_other_is_refused(studio: RunningStudio) -> None:
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


async def test_cross_site_requests_are_403_except_navigations_to_the_page(studio: RunningStudio) -> None:
    cross = "Sec-Fetch-Site: cross-site"
    for method, path in ROUTES:
        assert (await send_raw(studio, raw_request(method, path, AUTHORIZED, cross))).status == 403
    navigation = (cross, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    assert (await send_raw(studio, raw_request("GET", "/", *navigation))).status == 200
    assert (await send_raw(studio, raw_request("GET", "/api/health", *navigation))).status == 403
