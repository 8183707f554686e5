"""Tests of the SSE parser: the same events at any chunking of the bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.http.sse import IdentifiedEvent, SseParser


def events(*pieces: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.flush()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="line feeds"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="carriage returns"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="both"),
        pytest.param(b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"], id="mixed"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="byte order mark"),
        pytest.param(b"data:a\n\ndata:  b\n\n", [b"a", b" b"], id="one blank belongs to the field"),
        pytest.param(b"data: a\ndata: b\ndata\n\n", [b"a\nb\n"], id="several lines are one event"),
        pytest.param(b": ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"], id="other fields are ignored"),
        pytest.param(b"event: ping\n\n\n\n: only comments\n\n", [], id="events without data do not count"),
        pytest.param(b"databases: x\ndata-x: y\n data: z\n\n", [], id="only the field of that name"),
        pytest.param(b"data: \xc3\xa4\xe2\x80\xa8\xf0\x9f\x8c\x9f\n\n", ["ä\u2028🌟".encode()], id="UTF-8"),
        pytest.param(b"data: a\x0b\x0c\x1c\x85b\n\n", [b"a\x0b\x0c\x1c\x85b"], id="only CR and LF end lines"),
        pytest.param(b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"], id="the end of the body ends the last event"),
        pytest.param(b'error: {"code":500}\n\n', [b'{"code":500}'], id="llama.cpp's error field"),
        pytest.param(b'data: a\n\n{"x":1}\n', [b"a", b'{"x":1}'], id="bare JSON at the end"),
        pytest.param(b'{"x":1}\ndata: a\n\n', [b'{"x":1}', b"a"], id="bare JSON before an event"),
        pytest.param(b'data: a\n{"x":1}\n\n', [b"a", b'{"x":1}'], id="bare JSON behind an event"),
        pytest.param(b'[{\n  "x": 1\n}]\n: c\n"y": 2\n\n', [b'[{\n  "x": 1\n}]'], id="bare JSON on several lines"),
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n\r\r\n\n", [], id="blank lines"),
    ],
)
def test_the_events_of_a_body_at_any_chunking(body: bytes, expected: list[bytes]) -> None:
    assert events(body) == expected
    assert events(*(body[i : i + 1] for i in range(len(body)))) == expected
    for cut in range(len(body)):
        assert events(body[:cut], body[cut:]) == expected


LINES = st.sampled_from(
    [b"data: x", b"data:", b"data", b": c", b"event: e", b"error: y", b"data: \xef\xbb\xbf", b"{", b"}", b""]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@pytest.mark.promise("C2")
@given(
    st.lists(st.tuples(LINES, ENDS), max_size=12).map(lambda lines: b"".join(line + end for line, end in lines))
    | st.binary(max_size=60),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_chunking_makes_no_difference(body: bytes, cuts: list[int]) -> None:
    marks = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    assert events(*(body[a:b] for a, b in pairwise(marks))) == events(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"data: " + b"x" * 200, id="one line"),
        pytest.param(b"x" * 200 + b"\n\n", id="a line that is no data"),
        pytest.param(b"data: xxxxxxxxxx\n" * 20, id="many lines"),
        pytest.param(b"data\n" * 200, id="many empty lines"),
    ],
)
def test_an_event_over_the_limit_ends_parsing_and_keeps_the_events_before_it(body: bytes) -> None:
    for size in (1, 7, 10_000):
        parser = SseParser(max_event_bytes=100)
        whole = b"data: first\n\n" + body + b"\n\ndata: late\n\n"
        found = [event for i in range(0, len(whole), size) for event in parser.feed(whole[i : i + size])]
        assert (found, parser.overflowed) == ([b"first"], True)


def test_endless_comments_are_no_overflow() -> None:
    parser = SseParser(max_event_bytes=1000)
    for _ in range(10_000):
        assert parser.feed(b": ping\n") == []
    assert parser.feed(b"data: a\n\n") == [b"a"]


@given(st.lists(st.integers(1, 9), max_size=20))
def test_an_id_belongs_to_its_own_event_only(sizes: list[int]) -> None:
    body, parser = b"id: 7\ndata: a\n\ndata: b\n\ndata: c\nid:8\n\nid: 9\n\ndata: d\n\n", SseParser()
    found: list[bytes] = []
    for size in [*sizes, len(body)]:
        piece, body = body[:size], body[size:]
        found += parser.feed(piece)
    ids = [event.id if isinstance(event, IdentifiedEvent) else None for event in found]
    assert (found, ids) == ([b"a", b"b", b"c", b"d"], [b"7", None, b"8", None])
