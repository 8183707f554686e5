"""Requests through the proxies of the environment: which host uses which, and what cannot be used."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.http.url import Url
from agenticx.llms import complete
from agenticx.llms.transport.proxy_settings import find_proxy, proxy_problems, read_proxies
from agenticx.testing._accepted import AcceptedConnections
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.served import CHAT, HELLO

pytestmark = pytest.mark.anyio

needs_socks = pytest.mark.skipif(find_spec("socksio") is None, reason="the extra socks is not installed")
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
PROXY, OTHER = "http://proxy:3128", "http://other:8080"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def proxy_host(url: str) -> str | None:
    proxy = find_proxy(Url.parse(url))
    return proxy and proxy.host


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, "https://a.example", None),
        ({"NO_PROXY": "fd00::/8,[::1]"}, "https://a.example", None),
        ({"HTTPS_PROXY": PROXY}, "https://a.example", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://a.example", None),
        ({"HTTP_PROXY": PROXY}, "http://a.example", PROXY),
        ({"HTTP_PROXY": PROXY, "ALL_PROXY": OTHER}, "http://a.example", PROXY),
        ({"HTTP_PROXY": PROXY, "ALL_PROXY": OTHER}, "https://a.example", OTHER),
        ({"HTTP_PROXY": PROXY, "ALL_PROXY": "socks4://x:1"}, "http://a.example", PROXY),
        ({"ALL_PROXY": "socks4://x:1", "NO_PROXY": "a.example"}, "http://a.example", None),
        ({"HTTPS_PROXY": OTHER, "https_proxy": PROXY}, "https://a.example", PROXY),
        ({"HTTPS_PROXY": PROXY, "https_proxy": ""}, "https://a.example", None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "b.example", "no_proxy": "a.example"}, "https://a.example", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "https://a.example", PROXY),
        ({"HTTPS_PROXY": "http://me:s%40cret@proxy:3128/"}, "https://a.example", PROXY),
        ({"HTTPS_PROXY": "https://[fd00::1]:3128"}, "https://a.example", "https://[fd00::1]:3128"),
    ],
)
def test_the_proxy_of_a_url_is_that_of_its_scheme_else_of_all(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_host(url) == expected


@pytest.mark.parametrize(
    ("no_proxy", "direct", "proxied"),
    [
        ("*", ["https://a.example", "http://10.0.0.1"], []),
        ("example.com", ["https://example.com", "https://api.Example.com."], ["https://badexample.com"]),
        (".example.com", ["https://example.com", "https://api.example.com"], ["https://badexample.com"]),
        ("*.example.com", ["https://api.example.com"], ["https://badexample.com"]),
        ("a.example, b.example c.example", [f"https://{name}.example" for name in "abc"], ["https://d.example"]),
        ("a.example:8443", ["https://a.example:8443"], ["https://a.example", "https://a.example:84"]),
        ("a.example:443", ["https://a.example"], ["http://a.example"]),
        ("https://a.example", ["https://a.example"], ["http://a.example"]),
        ("10.0.0.0/8", ["http://10.1.2.3:8000"], ["http://11.0.0.1", "http://box"]),
        ("10.1.2.3/8", ["http://10.9.9.9"], []),
        ("192.168.1.7", ["http://192.168.1.7"], ["http://192.168.1.70"]),
        ("fd00::/8", ["http://[fd12::1]:8000"], ["http://[fe80::1]", "http://10.0.0.1"]),
        ("[fd00::]/8", ["http://[fd12::1]"], ["http://[fe80::1]"]),
        ("[2001:db8::1]", ["http://[2001:DB8:0::1]:8000"], ["http://[2001:db8::2]"]),
        ("2001:db8::1", ["http://[2001:db8::1]"], ["http://[2001:db8::2]"]),
        ("[2001:db8::1]:8000", ["http://[2001:db8::1]:8000"], ["http://[2001:db8::1]"]),
        ("10.0.0.0/8", ["http://[::ffff:10.0.0.1]"], []),
        ("bücher.example", ["https://api.bücher.example"], ["https://bucher.example"]),
        ("[::1], fd00::/8, 10.0.0.0/99, a.example", ["https://a.example"], ["https://b.example"]),
    ],
)
def test_hosts_and_nets_of_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, direct: list[str], proxied: list[str]
) -> None:
    monkeypatch.setenv("ALL_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert {url: proxy_host(url) for url in (*direct, *proxied)} == {
        **dict.fromkeys(direct),
        **dict.fromkeys(proxied, PROXY),
    }


@pytest.mark.parametrize("value", ["socks4://me:s3cret@x:1", "http://me:s3cret", "http://me:s3cret@"])
def test_a_proxy_that_cannot_be_used_is_named_once_without_its_login(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    monkeypatch.setenv("NO_PROXY", f"a.example,10.0.0.0/9{len(value)}")
    with caplog.at_level(logging.WARNING):
        CHAT.model("m", base_url="https://a.example/v1")
        for _ in range(2):
            with pytest.raises(
                SettingsError, match=r"HTTPS_PROXY is .*; correct it, or name b\.example in NO_PROXY"
            ) as e:
                CHAT.model("m", base_url="https://b.example/v1")
    problems = proxy_problems()
    assert [sum(problem in record.getMessage() for record in caplog.records) for problem in problems] == [1, 1]
    assert "s3cret" not in f"{e.value} {problems} {caplog.text}"
    assert read_proxies() == []


async def test_a_request_goes_through_the_proxy_with_its_login_which_no_error_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
    async with chunk_server(lambda: [b'{"error": {"message": "not with p@ss-w0rd-1234"}}'], head=head) as server:
        monkeypatch.setenv("HTTP_PROXY", server.base_url.replace("//", "//me:p%40ss-w0rd-1234@"))
        monkeypatch.setenv("ALL_PROXY", "socks4://unused:1")
        async with CHAT.open_model("http://provider.example/v1") as model:
            _, error = await complete(model, HELLO)
    login = b64encode(b"me:p@ss-w0rd-1234")
    assert server.requests[0].startswith(b"POST http://provider.example/v1/chat/completions HTTP/1.1\r\n")
    assert b"proxy-authorization: basic " + login.lower() in server.requests[0].lower()
    assert str(error).endswith("HTTP 400: not with [key]")


async def test_a_tunnel_that_the_proxy_refuses_is_an_error_of_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    async with chunk_server(lambda: [b""], head=head, then_closed=True) as server:
        monkeypatch.setenv("HTTPS_PROXY", server.base_url.replace("//", "//me:p%40ss-w0rd-1234@"))
        async with CHAT.open_model("https://provider.example/v1") as model:
            _, error = await complete(model, HELLO)
    assert server.requests[0].startswith(b"CONNECT provider.example:443 HTTP/1.1\r\n")
    assert error is not None
    assert (error.code, "through the proxy: 407" in str(error), "ss-w0rd" in str(error)) == (
        "provider.transport",
        True,
        False,
    )


@asynccontextmanager
async def socks_server(reply: bytes) -> Any:
    """Serve SOCKS 5 without a login; yield the port and the addresses that were asked for, which all send `reply`."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        await reader.readexactly(4)
        (length,) = await reader.readexactly(1)
        asked.append(await reader.readexactly(length))
        await reader.readexactly(2)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await writer.drain()
        writer.close()

    accepted = AcceptedConnections(serve)
    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        await accepted.end(server)


@needs_socks
@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks"])
async def test_a_request_goes_through_a_socks_proxy(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    body = CHAT.hi + CHAT.end
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with socks_server(reply) as (port, asked):
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:{port}")
        async with CHAT.open_model("http://provider.example/v1") as model:
            answer, error = await complete(model, HELLO)
    assert (answer.text, error, asked) == ("hi", None, [b"provider.example"])


def test_a_socks_proxy_without_the_extra_is_refused_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenticx.llms.transport.proxy_settings.find_spec", lambda _name: None)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:s3cret@proxy:1080")
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "a.example")
    CHAT.model("m", base_url="http://a.example/v1")
    CHAT.model("m", base_url="https://b.example/v1")
    with pytest.raises(SettingsError, match=r"'socks5://proxy:1080', and SOCKS needs the extra `socks`"):
        CHAT.model("m", base_url="http://b.example/v1")
