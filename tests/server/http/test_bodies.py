"""Request bodies: too large ones are refused early, large ones are read without blocking the loop."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.types import Message

from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.routes.turns import StartTurnBody
from studio.routes.user_requests import ConfirmAnswerBody
from tests.support.timeouts import longest_hold

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]

MAX_HOLD_SECONDS = 0.15
"""CPU seconds for which the loop may be blocked; without the limits these bodies blocked it for seconds."""

HEADERS = [(b"content-type", b"application/json")]


def request(body: bytes, *types: str) -> Request:
    """Return a request of these content types, JSON by default, whose body arrives in chunks, as from a socket."""
    starts = iter(range(0, len(body), 65_536))

    async def receive() -> Message:
        start = next(starts)
        end = start + 65_536
        return {"type": "http.request", "body": body[start:end], "more_body": end < len(body)}

    headers = [(b"content-type", type_.encode()) for type_ in types] or HEADERS
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def turn(more: str) -> bytes:
    return f'{{"input":"x","a":{more}}}'.encode()


TOO_MANY: dict[str, tuple[type[RequestBody], Callable[[], bytes]]] = {
    "objects": (StartTurnBody, lambda: turn("[" + "{}," * 5_000_000 + "1]")),
    "lists": (StartTurnBody, lambda: turn("[" + "[]," * 5_000_000 + "1]")),
    "lists of lists": (StartTurnBody, lambda: turn("[" + ("[" + "[]," * 999 + "[]],") * 6_000 + "1]")),
    "numbers": (StartTurnBody, lambda: turn("[" + "1," * 8_000_000 + "1]")),
    "quotes": (StartTurnBody, lambda: turn("[" + '"",' * 5_000_000 + "1]")),
    "arguments": (
        ConfirmAnswerBody,
        lambda: b'{"approved":true,"digest":"x","arguments":{"a":[' + b"{}," * 1_300_000 + b"1]}}",
    ),
}


@pytest.mark.parametrize("family", TOO_MANY)
@pytest.mark.cases(quick=2)
async def test_a_body_of_too_many_values_is_refused_before_parsing_without_blocking_the_loop(family: str) -> None:
    schema, make = TOO_MANY[family]
    sent = request(make())
    async with longest_hold() as hold:
        with pytest.raises(Problem, match="it holds more than 10000 values") as caught:
            await read_body(sent, schema)
    assert (caught.value.status, caught.value.code) == (400, "malformed_json")
    assert hold.longest < MAX_HOLD_SECONDS


LONG: dict[str, Callable[[], tuple[bytes, str]]] = {
    "half characters": lambda: (b"\\ud83d" * 600_000, "\ufffd" * 600_000),
    "quotes and brackets": lambda: (b'\\"[,' * 900_000, '"[,' * 900_000),
    "line breaks": lambda: (b"\\n" * 3_000_000, "\n" * 3_000_000),
    "not ASCII": lambda: ("ü".encode() * 3_000_000, "ü" * 3_000_000),
}


@pytest.mark.parametrize("family", LONG)
@pytest.mark.cases(quick=2)
async def test_a_long_text_is_read_without_blocking_the_loop(family: str) -> None:
    written, text = LONG[family]()
    sent = request(b'{"input":"' + written + b'"}')
    async with longest_hold() as hold:
        body = await read_body(sent, StartTurnBody)
    assert body.input == text
    assert hold.longest < MAX_HOLD_SECONDS


async def test_invalid_utf_8_is_refused_at_any_position() -> None:
    for text in (b'\xff"}', b"x" * 3_000_000 + b'\xc3"}', b"x" * 99 + b"\xc3"):
        with pytest.raises(Problem, match="it is not UTF-8"):
            await read_body(request(b'{"input":"' + text), StartTurnBody)


@pytest.mark.parametrize(
    "type_",
    [
        "application/json; charset=utf8",
        'Application/JSON;charset="UTF-8"',
        "application/json;charset=utf-8;x=y",
        "application/json; x=y; CHARSET = utf_8 ;",
        "text/json",
        "application/vnd.x+json",
        "application/problem+json; profile=a",
        "application/x-json",
        "Text/X-JSON; charset=utf-8",
    ],
)
async def test_json_is_read_by_any_of_its_types_with_or_without_a_byte_order_mark(type_: str) -> None:
    for mark in ("", "\ufeff"):
        body = await read_body(request(f'{mark}{{"input":"ü"}}'.encode(), type_), StartTurnBody)
        assert body.input == "ü"


@pytest.mark.parametrize(
    "types",
    [
        *(["text/plain"], ["text/plain; charset=application/json"], ["application/x-www-form-urlencoded"]),
        *(["multipart/form-data; boundary=x"], ["text/plain, application/json"], ["application/jsonx"], ["+json"]),
        *(["application/json", "text/plain"], ["application/json", "application/json"], [""]),
    ],
)
async def test_a_body_of_another_type_is_refused(types: list[str]) -> None:
    with pytest.raises(Problem) as caught:
        await read_body(request(b'{"input":"x"}', *types), StartTurnBody)
    assert (caught.value.status, caught.value.code) == (415, "not_json")


@pytest.mark.parametrize("charset", ["latin-1", '"UTF-16"', "utf-8-sig", "", "utf-8; charset=ascii"])
async def test_a_charset_that_is_not_utf_8_is_named(charset: str) -> None:
    with pytest.raises(Problem, match=r"The charset .* cannot be read; send the body as JSON in UTF-8") as caught:
        await read_body(request(b'{"input":"x"}', f"application/json; charset={charset}"), StartTurnBody)
    assert (caught.value.status, caught.value.code) == (415, "not_json")


async def test_a_body_in_ascii_is_read_and_other_bytes_in_it_are_refused() -> None:
    for type_ in ("application/json; charset=us-ascii", 'text/x-json; charset="ASCII"'):
        body = await read_body(request(b'{"input":"\\u00fc"}', type_), StartTurnBody)
        assert body.input == "\u00fc"
        with pytest.raises(Problem, match="it is not in ASCII, the charset of its Content-Type") as caught:
            await read_body(request('{"input":"\u00fc"}'.encode(), type_), StartTurnBody)
        assert (caught.value.status, caught.value.code) == (400, "malformed_json")


async def test_a_character_split_between_two_decoded_chunks_is_read() -> None:
    for shift in range(4):
        text = "x" * (1024 * 1024 - 12 + shift) + "😀" * 4
        body = await read_body(request(json.dumps({"input": text}, ensure_ascii=False).encode()), StartTurnBody)
        assert body.input == text


async def test_lone_surrogates_in_a_text_are_replaced() -> None:
    body = await read_body(request(b'{"input":"a\\ud800"}'), StartTurnBody)
    assert body.input == "a\ufffd"
