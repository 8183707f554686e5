"""Replies of the Ollama parser, without a network."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.base import Reply, Usage
from agenticx.llms.reply_limits import MAX_CALLS
from agenticx.llms.transport.json_lines import LineParser
from agenticx.llms.wires.ollama._reply import OllamaReplyParser
from agenticx.messages import ProviderState
from tests.support.lanes import Count
from tests.support.wires.recorded import CHUNKINGS, pieces
from tests.support.wires.replies import read_with


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return read_with(OllamaReplyParser(label="test", model="m"), chunks)


def lines(*events: Any) -> bytes:
    return b"".join((e if isinstance(e, str) else json.dumps(e)).encode() + b"\n" for e in events)


def said(content: str = "", **fields: Any) -> dict[str, Any]:
    """Return a line as the server sends it."""
    message = {"role": "assistant", "content": content, **fields}
    return {"model": "m", "created_at": "2026-11-21T10:00:00Z", "message": message, "done": False}


def asked(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"index": 0, "name": name, "arguments": arguments}, **fields}


def end(reason: str | None = "stop", **counts: Any) -> dict[str, Any]:
    return {**said(), "done": True, "total_duration": 1, **({"done_reason": reason} if reason else {}), **counts}


WHOLE = lines(
    said(thinking="h"),
    said(thinking="m"),
    said("Let me "),
    said("look: ö"),
    said(tool_calls=[asked("look", {"at": "a"}, id="call_1"), asked("look", {"at": {"b": [1]}})]),
    said(tool_calls=[asked("wait", {})]),
    end(prompt_eval_count=10, eval_count=4),
)


def test_text_thoughts_and_calls_in_any_chunking() -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(WHOLE, chunking))
        assert (reply.text, reply.reasoning, reply.stop, error) == ("Let me look: ö", "hm", "tool_calls", None)
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
            ("call_1", "look", '{"at":"a"}'),
            ("", "look", '{"at":{"b":[1]}}'),
            ("", "wait", "{}"),
        ]
        assert (reply.finish_reason, reply.usage, reply.complete) == ("stop", Usage(10, 4), True)
        assert reply.provider_state == ProviderState(wire="ollama", model="m", payload={"thinking": True})


@pytest.mark.promise("C3")
def test_a_body_cut_between_lines_is_complete_only_with_its_end() -> None:
    rows = WHOLE.splitlines(keepends=True)
    for count in range(len(rows) + 1):
        reply, error = read([b"".join(rows[:count])])
        assert (reply.complete, error) == (count == len(rows), None)


@pytest.mark.promise("C3")
def test_a_line_that_was_cut_brings_nothing() -> None:
    reply, error = read([lines(said("a")) + lines(said("b"))[:-9]])
    assert (reply.text, reply.complete, error) == ("a", False, None)


def test_a_last_line_without_a_line_end_counts() -> None:
    assert read([lines(said("a"), end())[:-1]])[0].complete


@pytest.mark.parametrize(
    ("event", "finish_reason", "stop"),
    [
        (end(), "stop", "end"),
        (end("length"), "length", "length"),
        (end("load"), "load", "broken"),
        (end(None), None, "end"),
    ],
)
def test_a_done_reason_keeps_its_word_and_gets_ours(event: Any, finish_reason: str | None, stop: str) -> None:
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
def test_an_error_line_comes_behind_what_was_said(line: Any, code: str, type_: str | None) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(lines(said("a"), line, end()), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, type_)


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], {"content": 1, "thinking": [], "tool_calls": {}}, {"tool_calls": [1, None]}]
)
def test_messages_that_are_none_say_nothing(junk: Any) -> None:
    reply, error = read([lines({"message": junk, "done": False}, {}, "", said("a"), {**end(), "done": 1}, end())])
    assert (reply.text, reply.tool_calls, reply.complete, error) == ("a", (), True, None)


def test_arguments_that_are_text_stay_as_they_are() -> None:
    reply, _ = read([lines(said(tool_calls=[asked("look", '{"at": 1')]), end())])
    assert [call.arguments for call in reply.tool_calls] == ['{"at": 1']


def test_too_many_calls_are_refused() -> None:
    _, error = read([lines(said(tool_calls=[asked("a", {})] * (MAX_CALLS + 1)))])
    assert error is not None
    assert error.provider_type == "protocol_error"


def test_a_line_without_end_is_refused() -> None:
    parser = LineParser(max_line_bytes=10)
    assert (parser.feed(b"1234567890\n12345"), parser.overflowed) == ([b"1234567890"], False)
    assert (parser.feed(b"678901"), parser.overflowed, parser.feed(b"\n1\n"), parser.flush()) == ([], True, [], [])


def test_garbled_bytes_never_raise(count: Count) -> None:
    rng = random.Random(5)
    for _ in range(count(100, 300, 5_000)):
        garbled = bytearray(WHOLE)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(garbled))
            garbled[at : at + rng.randint(0, 9)] = rng.choice(
                [b"", b"\n", b"null", b'"', b"\\ud800", b"[", b"\xff", b"1e999"]
            )
        replies = [read(pieces(bytes(garbled), chunking, seed=rng.randrange(99))) for chunking in ("whole", "random")]
        assert repr(replies[0][0]) == repr(replies[1][0])
