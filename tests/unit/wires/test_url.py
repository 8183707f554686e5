"""Tests of URLs: the same requests as httpx makes of the same base URL."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.http.url import Url

HOSTS = ["a", "Box", "a_b", "127.0.0.1", "[::1]", "[FE80::1]", "straße.de", "中国.example", "1.2.3", "a%20b", 'a"']
USERS = ["", "me@", "me:pw@", "m%40e:p%3Aw@", "a:b@c@", " u:ü@"]
PORTS = ["", ":", ":80", ":443", ":8080"]
PATHS = ["", "/", "/v1", "/v1/", "/a b/ü", "/%20x", "/a%", "/{x}", "/a[b]", "/x@y:z;k=v,w", "/a//", "/`"]
QUERIES = ["", "?", "?a=b", "?a=b&a=c&d=", "?k=a b", "?ä=ö", "?a=%zz&b", "?a;b", "?a=1#f"]
ADDED_PATHS = ["/chat/completions", "/models/gpt 5:x", "/models/ü", "/m/a%2Fb"]
ADDED_QUERIES = [{}, {"alt": "sse"}, {"a": "x y", "z": "ü"}]


@given(
    st.tuples(*map(st.sampled_from, [["http://", "https://"], USERS, HOSTS, PORTS, PATHS, QUERIES])).map("".join),
    st.sampled_from(ADDED_PATHS),
    st.sampled_from(ADDED_QUERIES),
)
def test_a_request_has_the_host_and_target_that_httpx_sends(text: str, path: str, query: dict[str, str]) -> None:
    base, url = httpx.URL(text), Url.parse(text)
    expected = base.copy_with(path=base.path.rstrip("/") + path)
    expected = expected.copy_merge_params(query) if query else expected
    added = url.with_path(path, query)
    assert (added.netloc, added.target) == (expected.netloc.decode(), expected.raw_path.decode())
    assert added.origin == (
        expected.raw_host.decode(),
        expected.port or {"http": 80, "https": 443}[expected.scheme],
        expected.scheme == "https",
    )
    assert (url.password, set(url.parameters)) == (base.password, set(base.params))
    assert httpx.URL(str(added)).raw_path == expected.raw_path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a:x", "Invalid port: 'x'"),
        ("http://a:65536", "Invalid port: '65536'"),
        ("http://[::1", "Invalid port: ':1'"),
        ("http://[::x]", r"Invalid IPv6 address: '\[::x\]'"),
        ("http://999.1.1.1", "Invalid IPv4 address"),
        ("http://-ä", "Invalid IDNA hostname"),
        ("http://a/\x1b[2J", "Invalid non-printable ASCII character in URL"),
        ("http://a/" + "b" * 65_536, "URL too long"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Url.parse(text)
