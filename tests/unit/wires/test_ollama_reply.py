"""Tests of the Ollama parser without a network."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agenticx.http.json_lines import LineParser
from agenticx.llms import Usage
from agenticx.llms.reply_limits import MAX_CALLS
from agenticx.messages import ProviderState
from tests.support.lanes import Count
from tests.support.wires.ollama_lines import last_line, lines, message_line, read, tool_call
from tests.support.wires.recorded import CHUNKINGS, split_body

WHOLE = lines(
    message_line(thinking="h"),
    message_line(thinking="m"),
    message_line("Let me "),
    message_line("look: ö"),
    message_line(tool_calls=[tool_call("look", {"at": "a"}, id="call_1"), tool_call("look", {"at": {"b": [1]}})]),
    message_line(tool_calls=[tool_call("wait", {})]),
    last_line(prompt_eval_count=10, eval_count=4),
)


def test_text_reasoning_and_calls_in_any_chunking() -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(WHOLE, chunking))
        assert (reply.text, reply.reasoning, reply.stop, error) == ("Let me look: ö", "hm", "tool_calls", None)
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
            ("call_1", "look", '{"at":"a"}'),
            ("", "look", '{"at":{"b":[1]}}'),
            ("", "wait", "{}"),
        ]
        assert (reply.finish_reason, reply.usage, reply.complete) == ("stop", Usage(10, 4), True)
        assert reply.provider_state == ProviderState(wire="ollama", model="m", payload={"thinking": True})


@pytest.mark.promise("C3")
def test_a_body_cut_between_lines_is_complete_only_with_its_last_line() -> None:
    rows = WHOLE.splitlines(keepends=True)
    for count in range(len(rows) + 1):
        reply, error = read([b"".join(rows[:count])])
        assert (reply.complete, error) == (count == len(rows), None)


@pytest.mark.promise("C3")
def test_a_truncated_line_is_ignored() -> None:
    reply, error = read([lines(message_line("a")) + lines(message_line("b"))[:-9]])
    assert (reply.text, reply.complete, error) == ("a", False, None)


def test_a_last_line_without_line_end_is_read() -> None:
    assert read([lines(message_line("a"), last_line())[:-1]])[0].complete


@pytest.mark.parametrize(
    ("event", "finish_reason", "stop"),
    [
        (last_line(), "stop", "end"),
        (last_line("length"), "length", "length"),
        (last_line("load"), "load", "broken"),
        (last_line(None), None, "end"),
    ],
)
def test_the_done_reason_is_kept_and_mapped(event: Any, finish_reason: str | None, stop: str) -> None:
    reply, error = read([lines(event)])
    assert (reply.finish_reason, reply.stop, reply.complete, error) == (finish_reason, stop, True, None)
    assert (reply.usage, reply.provider_state) == (Usage(), None)


@pytest.mark.parametrize(
    ("line", "code", "type_"),
    [
        ({"error": "model runner has unexpectedly stopped"}, "provider.bad_reply", None),
        ({"error": "the prompt is too long: context length exceeded"}, "context_overflow", None),
        ("[1]", "provider.bad_reply", "protocol_error"),
        ("{", "provider.bad_reply", "protocol_error"),
        ("[" * 5000 + "]" * 5000, "provider.bad_reply", "protocol_error"),
    ],
)
def test_an_error_line_keeps_the_content_before_it(line: Any, code: str, type_: str | None) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(lines(message_line("a"), line, last_line()), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, type_)


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], {"content": 1, "thinking": [], "tool_calls": {}}, {"tool_calls": [1, None]}]
)
def test_malformed_messages_are_ignored(junk: Any) -> None:
    reply, error = read(
        [lines({"message": junk, "done": False}, {}, "", message_line("a"), {**last_line(), "done": 1}, last_line())]
    )
    assert (reply.text, reply.tool_calls, reply.complete, error) == ("a", (), True, None)


def test_arguments_that_are_text_are_unchanged() -> None:
    reply, _ = read([lines(message_line(tool_calls=[tool_call("look", '{"at": 1')]), last_line())])
    assert [call.arguments for call in reply.tool_calls] == ['{"at": 1']


def test_too_many_calls_are_refused() -> None:
    _, error = read([lines(message_line(tool_calls=[tool_call("a", {})] * (MAX_CALLS + 1)))])
    assert error is not None
    assert error.provider_type == "protocol_error"


def test_a_line_over_the_limit_is_refused() -> None:
    parser = LineParser(max_line_bytes=10)
    assert (parser.feed(b"1234567890\n12345"), parser.overflowed) == ([b"1234567890"], False)
    assert (parser.feed(b"678901"), parser.overflowed, parser.feed(b"\n1\n"), parser.flush()) == ([], True, [], [])


@pytest.mark.promise("C1", "C2")
def test_garbled_bytes_raise_nothing(count: Count) -> None:
    rng = random.Random(5)
    for _ in range(count(100, 300, 5_000)):
        garbled = bytearray(WHOLE)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(garbled))
            garbled[at : at + rng.randint(0, 9)] = rng.choice(
                [b"", b"\n", b"null", b'"', b"\\ud800", b"[", b"\xff", b"1e999"]
            )
        replies = [
            read(split_body(bytes(garbled), chunking, seed=rng.randrange(99))) for chunking in ("whole", "random")
        ]
        assert repr(replies[0][0]) == repr(replies[1][0])
