"""Replies of N tokens as each wire's server streams them, with all fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

__all__ = ["chunked", "stream_for"]

Event = Mapping[str, Any]


def chunked(events: Iterable[bytes]) -> bytes:
    """Return a body in which each event is a chunk of its own, as sent by servers that flush each token."""
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def stream_for(path: str) -> tuple[str, bytes] | None:
    """Return the media type and body of the reply at a path of a wire other than Chat Completions, else None.

    The model is `burst:N`. The path is the request's own; `#MODEL` is appended if the wire sends the model in the body.
    """
    found = _PATHS.search(path)
    if found is None:
        return None
    kind = found.lastgroup or ""
    return _STREAMS[kind][0], _body(kind, int(path.partition("burst:")[2].partition(":")[0]))


@cache
def _body(kind: str, tokens: int) -> bytes:
    return chunked(_STREAMS[kind][1](tokens))


def _words(tokens: int) -> Iterator[str]:
    return (f"word{number % 7} " for number in range(tokens))


def _json(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _named(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), _json(event))


# --- the wires ------------------------------------------------------------------------------------------------------


def _responses(tokens: int) -> Iterator[bytes]:
    item = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    yield _named({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "output": []}})
    yield _named({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item})
    for number, word in enumerate(_words(tokens), 2):
        delta = {"type": "response.output_text.delta", "sequence_number": number, **place, "delta": word}
        yield _named({**delta, "logprobs": [], "obfuscation": "x8Yb2"})
    usage = {"input_tokens": 100, "output_tokens": tokens, "total_tokens": 100 + tokens}
    whole = {"id": "resp_1", "status": "completed", "output": [], "usage": usage}
    yield _named({"type": "response.completed", "sequence_number": tokens + 2, "response": whole})


def _anthropic(tokens: int) -> Iterator[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 100}}
    yield _named({"type": "message_start", "message": message})
    yield _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for word in _words(tokens):
        yield _named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})
    yield _named({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": ended, "usage": {"output_tokens": tokens}})
    yield _named({"type": "message_stop"})


def _gemini(tokens: int) -> Iterator[bytes]:
    for number, word in enumerate(_words(tokens), 1):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": word}], "role": "model"}, "index": 0}
        counts = {"promptTokenCount": 100, "candidatesTokenCount": number, "totalTokenCount": 100 + number}
        if number == tokens:
            candidate["finishReason"] = "STOP"
        event = {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "bench", "responseId": "r_1"}
        yield b"data: %b\r\n\r\n" % _json(event)


def _ollama(tokens: int) -> Iterator[bytes]:
    head = {"model": "bench", "created_at": "2026-11-21T10:00:00.123456789Z"}
    for word in _words(tokens):
        yield _json({**head, "message": {"role": "assistant", "content": word}, "done": False}) + b"\n"
    counts = {"prompt_eval_count": 100, "eval_count": tokens}
    message = {"role": "assistant", "content": ""}
    yield _json({**head, "message": message, "done": True, "done_reason": "stop", **counts}) + b"\n"


_STREAMS: dict[str, tuple[str, Callable[[int], Iterator[bytes]]]] = {
    "responses": ("text/event-stream", _responses),
    "anthropic": ("text/event-stream", _anthropic),
    "gemini": ("text/event-stream", _gemini),
    "ollama": ("application/x-ndjson", _ollama),
}
_PATHS = re.compile(
    r"(?P<responses>/responses\b)|(?P<anthropic>/messages\b)|(?P<gemini>:streamGenerateContent)|(?P<ollama>/api/chat\b)"
)
