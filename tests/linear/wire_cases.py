"""Rows for the wires: each one's reply parser and its request body for a history."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from agenticx.http.json_lines import LineParser
from agenticx.http.sse import SseParser
from agenticx.llms import ChatDialect, ModelRequest, ToolSchema
from agenticx.llms.wires.anthropic import _request as anthropic_request
from agenticx.llms.wires.anthropic._reply import AnthropicReplyParser
from agenticx.llms.wires.gemini import _request as gemini_request
from agenticx.llms.wires.gemini._reply import GeminiReplyParser
from agenticx.llms.wires.json_events import JsonEventParser
from agenticx.llms.wires.ollama import _request as ollama_request
from agenticx.llms.wires.ollama._reply import OllamaReplyParser
from agenticx.llms.wires.openai_chat import _request as openai_chat_request
from agenticx.llms.wires.openai_chat._reply import ChatReplyParser
from agenticx.llms.wires.openai_chat._roles import alternating_rows, rows_without_system
from agenticx.llms.wires.openai_responses import _request as openai_responses_request
from agenticx.llms.wires.openai_responses._reply import ResponsesReplyParser
from tests.linear.case import LinearCase, Make
from tests.linear.histories import HISTORIES
from tests.linear.texts import JSON, TEXTS, repeated
from tests.support.wires.wires import WIRES

__all__ = ["WIRE_CASES"]

READ_BYTES = 32 * 1024
"""The most bytes that one read of the socket returns."""

Event = Callable[[str], Any]
"""Makes an event that contains the text."""


def _chat(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def _chat_call(arguments: str, **call: Any) -> dict[str, Any]:
    return _chat(tool_calls=[{"index": 0, **call, "function": {"name": "look", "arguments": arguments}}])


def _gemini(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}}]}


def _value(text: str) -> Any:
    """Return the text parsed as JSON, for servers that parse the model's output; else an object that contains it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"text": text}


_TEXT: dict[str, Event] = {
    "openai_chat": lambda text: _chat(content=text),
    "openai_responses": lambda text: {"type": "response.output_text.delta", "output_index": 0, "delta": text},
    "anthropic": lambda text: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    },
    "gemini": lambda text: _gemini({"text": text}),
    "ollama": lambda text: {"message": {"content": text}},
}
_THOUGHT: dict[str, Event] = {
    "openai_chat": lambda text: _chat(reasoning_content=text, reasoning_details=[{"type": "t", "text": text}]),
    "openai_responses": lambda text: {
        "type": "response.reasoning_summary_text.delta",
        "output_index": 0,
        "summary_index": 0,
        "delta": text,
    },
    "anthropic": lambda text: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": text},
    },
    "gemini": lambda text: _gemini({"text": text, "thought": True}),
    "ollama": lambda text: {"message": {"thinking": text}},
}
_CALL: dict[str, Event] = {
    "openai_chat": lambda text: _chat_call(text, id="a"),
    "openai_responses": lambda text: {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "function_call", "id": "i", "call_id": "a", "name": "look", "arguments": text},
    },
    "anthropic": lambda text: {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "a", "name": "look", "input": _value(text)},
    },
    "gemini": lambda text: _gemini({"functionCall": {"name": "look", "args": _value(text)}}),
    "ollama": lambda text: {"message": {"tool_calls": [{"function": {"name": "look", "arguments": _value(text)}}]}},
}
_PIECE: dict[str, Event] = {
    "openai_chat": _chat_call,
    "openai_responses": lambda text: {
        "type": "response.function_call_arguments.delta",
        "output_index": 0,
        "delta": text,
    },
    "anthropic": lambda text: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": text},
    },
    "gemini": lambda text: _gemini(
        {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": text}], "willContinue": True}}
    ),
    "ollama": _CALL["ollama"],
}
_OPENING: dict[str, list[Any]] = {
    "openai_chat": [_chat_call('{"a":"', id="a")],
    "openai_responses": [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "function_call", "id": "i", "call_id": "a", "name": "look", "arguments": ""},
        }
    ],
    "anthropic": [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "look", "input": {}},
        }
    ],
    "gemini": [_gemini({"functionCall": {"name": "look", "willContinue": True}})],
    "ollama": [],
}
_WHOLE: dict[str, Event] = {
    "openai_chat": lambda text: {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]},
    "openai_responses": lambda text: {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
    },
    "anthropic": lambda text: {"type": "message", "content": [{"type": "text", "text": text}]},
    "gemini": _TEXT["gemini"],
    "ollama": lambda text: {"message": {"content": text}, "done": True},
}


def _framed(wire: str, event: Any) -> bytes:
    text = json.dumps(event, separators=(",", ":")).encode()
    return text + b"\n" if WIRES[wire].ending == "ndjson" else b"data: " + text + b"\n\n"


def _reads(body: bytes, size: int = READ_BYTES) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def _many(wire: str, opening: Sequence[Any], event: Any) -> Make:
    """Return a maker of reads that are full of the same small event."""
    head, one = b"".join(_framed(wire, each) for each in opening), _framed(wire, event)
    return lambda size: _reads(head + one * (size // len(one)))


def _one(wire: str, event: Event, text: Make) -> Make:
    """Return a maker of a body with one large event."""
    return lambda size: [_framed(wire, event(text(size)))]


def _whole(wire: str, text: Make) -> Make:
    """Return a maker of a reply that is not streamed."""
    return lambda size: [json.dumps(_WHOLE[wire](text(size))).encode()]


def _fed(wire: str, chunks: Sequence[bytes]) -> Generator[None]:
    parser = WIRES[wire].parser("m")
    for chunk in chunks:
        parser.feed(chunk)
        yield
        if parser.done or parser.error:
            return
    parser.end()
    yield


_PARSERS: dict[str, Callable[..., Any]] = {
    "openai_chat": ChatReplyParser,
    "openai_responses": ResponsesReplyParser,
    "anthropic": AnthropicReplyParser,
    "gemini": GeminiReplyParser,
    "ollama": OllamaReplyParser,
}
_SAID = ("words", "one word", "lines", "not ASCII", "lone surrogates", "quotes", "backslashes", "controls", "mixed")


def _replies(wire: str) -> list[LinearCase]:
    small = {
        "text in letters": _many(wire, [], _TEXT[wire]("a")),
        "text in words": _many(wire, [], _TEXT[wire]("lorem ipsum dolor sit amet ")),
        "thoughts in letters": _many(wire, [], _THOUGHT[wire]("a")),
        "arguments in letters": _many(wire, _OPENING[wire], _PIECE[wire]("a")),
        "arguments in braces": _many(wire, _OPENING[wire], _PIECE[wire]("}")),
        "the same call": _many(wire, [], _CALL[wire]("{}")),
        "unknown events": _many(wire, [], {"type": "x", "x": 1}),
        "empty events": _many(wire, [], {}),
    }
    if wire == "openai_chat":
        small["fields of a call"] = _many(wire, _OPENING[wire], _chat_call("", extra_content={"a": {"b": [1]}}))
    large = {f"text, {name}": _one(wire, _TEXT[wire], TEXTS[name]) for name in _SAID}
    large |= {f"call, {name}": _one(wire, _CALL[wire], make) for name, make in JSON.items()}
    large |= {f"no stream, {name}": _whole(wire, TEXTS[name]) for name in ("words", "not ASCII", "mixed")}
    of, run = _PARSERS[wire], partial(_fed, wire)
    return [
        LinearCase(of=of, variant="reads of small events", run=run, inputs=small),
        LinearCase(of=of, variant="one large event", run=run, inputs=large, where="thread"),
    ]


# --- bodies cut into events -------------------------------------------------------------------------------------------


def _all_fed(make: Callable[[], Any], chunks: Sequence[bytes]) -> Generator[None]:
    frames = make()
    for chunk in chunks:
        list(frames.feed(chunk))
        yield
    list(frames.flush() if hasattr(frames, "flush") else frames.end())
    yield


def _bytes(make: Make, size_of_read: int = READ_BYTES) -> Make:
    return lambda size: _reads(make(size).encode(), size_of_read)


_BODIES: dict[str, Make] = {
    "one line": _bytes(repeated("a", head="data: ")),
    "a line in small reads": _bytes(repeated("a", head="data: "), 64),
    "lines": _bytes(repeated("data: {}\n")),
    "events": _bytes(repeated("data: {}\n\n")),
    "events in small reads": _bytes(repeated("data: {}\n\n"), 16),
    "carriage returns": _bytes(repeated("\r")),
    "both ends": _bytes(repeated("data: {}\r\n\r\n")),
    "stray lines": _bytes(repeated('{"a":1}\n')),
    "comments": _bytes(repeated(":\n")),
    "empty lines": _bytes(repeated("\n")),
    "blanks": _bytes(repeated(" ")),
    "objects": _bytes(repeated('{"message":{"content":"a"}}\n')),
}


# --- requests ---------------------------------------------------------------------------------------------------------


def _request(messages: Any) -> ModelRequest:
    return ModelRequest(messages=messages, tools=[ToolSchema("look", "", {"type": "object"})])


def _body(wire: str, messages: Any) -> bytes:
    return WIRES[wire].body(_request(messages), "m")


def _alternating_body(messages: Any) -> bytes:
    return openai_chat_request.request_body(
        _request(messages), model="m", dialect=ChatDialect(system_rows=False), stream=True
    )


_REQUESTS: dict[str, Callable[..., Any]] = {
    "openai_chat": openai_chat_request.request_body,
    "openai_responses": openai_responses_request.request_body,
    "anthropic": anthropic_request.request_body,
    "gemini": gemini_request.request_body,
    "ollama": ollama_request.request_body,
}

WIRE_CASES = [
    LinearCase(of=SseParser, run=partial(_all_fed, SseParser), inputs=_BODIES),
    LinearCase(of=LineParser, run=partial(_all_fed, LineParser), inputs=_BODIES),
    LinearCase(
        of=JsonEventParser,
        run=partial(_all_fed, lambda: JsonEventParser(label="test", arguments_key="arguments")),
        inputs={"events": _BODIES["events"], "both ends": _BODIES["both ends"], "comments": _BODIES["comments"]},
    ),
    *(case for wire in WIRES for case in _replies(wire)),
    *(LinearCase(of=_REQUESTS[wire], run=partial(_body, wire), inputs=HISTORIES, where="thread") for wire in WIRES),
    LinearCase(
        of=alternating_rows, run=_alternating_body, inputs=HISTORIES, where="thread", also=(rows_without_system,)
    ),
]
