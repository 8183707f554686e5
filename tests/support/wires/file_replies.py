"""Replies of the five wires in which a model makes a file of the session, changes it, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from agenticx.llms import ChatDialect, OpenAIChatModel
from tests.support.wires import anthropic_events as anthropic
from tests.support.wires import chat_chunks as chat
from tests.support.wires import gemini_events as gemini
from tests.support.wires import ollama_lines as ollama
from tests.support.wires import responses_events as responses
from tests.support.wires.chunk_server import ChunkServer, chunk_server
from tests.support.wires.replies import sse
from tests.support.wires.wires import WIRES

__all__ = ["FILE_WIRES", "FileCall", "FileWire", "pieces_of"]

SIGNATURE = "c2lnbmF0dXJl"
"""What the provider signs or encrypts, and expects back unchanged."""


@dataclass(frozen=True)
class FileCall:
    """A reply with a thought, a text and one call; its last argument comes in pieces of five characters."""

    id: str
    name: str
    arguments: Mapping[str, str]
    thought: str = "hm"
    text: str = "I begin."


class FileReply(NamedTuple):
    """The bytes of a reply: the pieces of its call's last argument, and what is around them."""

    before: bytes
    pieces: Sequence[bytes]
    after: bytes

    @property
    def chunks(self) -> list[bytes]:
        """The reply in one chunk for each piece."""
        begun = [self.before + self.pieces[0], *self.pieces[1:]]
        return [*begun[:-1], begun[-1] + self.after]


@dataclass(frozen=True, kw_only=True)
class FileWire:
    """A wire whose model calls tools for files; `streams_arguments` is False if its calls come in one piece.

    A request has its conversation in the field `rows`, which ends with the `call_rows` of a call and its result.
    """

    name: str
    wire: str
    model: Callable[[str], Any]
    reply: Callable[[FileCall], FileReply]
    answer: Callable[[str], bytes]
    rows: str
    call_rows: Callable[[FileCall, str], list[dict[str, Any]]]
    streams_arguments: bool = True

    def serve(
        self, chunks: Callable[[], Sequence[bytes]], *, seconds_between: float = 0.0
    ) -> AbstractAsyncContextManager[ChunkServer]:
        """Return a server that answers each request with the chunks that are returned for it."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {WIRES[self.wire].content_type}\r\n".encode()
        return chunk_server(chunks, head=head, seconds_between=seconds_between)


def pieces_of(text: str) -> list[str]:
    """Return a text in pieces of five characters."""
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _json_text(call: FileCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


def _json_pieces(call: FileCall) -> tuple[str, list[str], str]:
    """Return the arguments as JSON text: what is before the last string's characters, those in pieces, and the rest."""
    text, last = _json_text(call), [*call.arguments.values()][-1]
    begin = text.rindex(f'"{last}"') + 1
    return text[:begin], pieces_of(last), text[begin + len(last) :]


# --- Chat Completions -------------------------------------------------------------------------------------------------


def _chat_reply(call: FileCall) -> FileReply:
    first, pieces, last = _json_pieces(call)
    return FileReply(
        sse(
            chat.delta(role="assistant", reasoning_content=call.thought),
            chat.delta(content=call.text),
            chat.call_chunk(index=0, id=call.id, type="function", name=call.name, arguments=first),
        ),
        [sse(chat.call_chunk(index=0, arguments=piece)) for piece in pieces],
        sse(chat.call_chunk(index=0, arguments=last), chat.delta("tool_calls"), chat.DONE),
    )


def _chat_rows(call: FileCall, result: str) -> list[dict[str, Any]]:
    function = {"name": call.name, "arguments": _json_text(call)}
    called = {"id": call.id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": call.text, "tool_calls": [called], "reasoning_content": call.thought},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


# --- Responses --------------------------------------------------------------------------------------------------------


def _responses_output(call: FileCall) -> list[dict[str, Any]]:
    return [
        {
            "type": "reasoning",
            "id": f"rs_{call.id}",
            "summary": [{"type": "summary_text", "text": call.thought}],
            "encrypted_content": SIGNATURE,
        },
        {
            "type": "message",
            "id": f"msg_{call.id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": call.text, "annotations": []}],
        },
        responses.function_call(call.name, call.id, _json_text(call), id=f"fc_{call.id}", status="completed"),
    ]


def _responses_reply(call: FileCall) -> FileReply:
    reasoning, message, function = output = _responses_output(call)
    begun = [{**reasoning, "summary": []}, {**message, "content": []}, {**function, "arguments": ""}]
    added = [responses.item_added(index, **item) for index, item in enumerate(begun)]
    done = [responses.item_done(index, **item) for index, item in enumerate(output)]
    thought = responses.event("reasoning_summary_text.delta", 0, summary_index=0, delta=call.thought)
    text = responses.text_delta(call.text, 1)
    created = {"type": "response.created", "response": {"status": "in_progress", "output": []}}
    first, pieces, last = _json_pieces(call)

    def arguments(piece: str) -> dict[str, Any]:
        return responses.arguments_delta(piece, 2, item_id=function["id"])

    return FileReply(
        sse(created, added[0], thought, done[0], added[1], text, done[1], added[2], arguments(first)),
        [sse(arguments(piece)) for piece in pieces],
        sse(arguments(last), done[2], responses.response_ended(output=output)),
    )


def _responses_rows(call: FileCall, result: str) -> list[dict[str, Any]]:
    output = {"type": "function_call_output", "call_id": call.id, "output": result}
    return [*_responses_output(call), output]


# --- Anthropic --------------------------------------------------------------------------------------------------------


def _anthropic_reply(call: FileCall) -> FileReply:
    signed = [anthropic.thinking_delta(call.thought), anthropic.signature_delta(SIGNATURE)]
    first, pieces, last = _json_pieces(call)
    deltas = map(anthropic.json_delta, [first, *pieces, last])
    start, begun, *grown, ended, stop = anthropic.content_block(
        2, "tool_use", *deltas, id=call.id, name=call.name, input={}
    )
    return FileReply(
        sse(
            anthropic.message_start(),
            *anthropic.content_block(0, "thinking", *signed, thinking="", signature=""),
            *anthropic.content_block(1, "text", anthropic.text_delta(call.text), text=""),
            *(start, begun),
        ),
        [sse(event) for event in grown],
        sse(ended, stop, anthropic.message_delta("tool_use"), anthropic.END),
    )


def _anthropic_rows(call: FileCall, result: str) -> list[dict[str, Any]]:
    blocks = [
        {"type": "thinking", "thinking": call.thought, "signature": SIGNATURE},
        {"type": "text", "text": call.text},
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments},
    ]
    answer = {"type": "tool_result", "tool_use_id": call.id, "content": result}
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [answer]}]


# --- Gemini -----------------------------------------------------------------------------------------------------------


def _gemini_sse(*parts: dict[str, Any]) -> bytes:
    return gemini.sse(*map(gemini.content_event, parts))


def _gemini_reply(call: FileCall) -> FileReply:
    part = {**gemini.call_part(call.name, id=call.id, args=call.arguments), "thoughtSignature": SIGNATURE}
    before = _gemini_sse({"text": call.thought, "thought": True}, {"text": call.text})
    return FileReply(before, [_gemini_sse(part)], gemini.sse(gemini.STOP))


def _gemini_streamed_reply(call: FileCall) -> FileReply:
    *firsts, (name, text) = call.arguments.items()
    begun = {**gemini.call_part(call.name, id=call.id, willContinue=True), "thoughtSignature": SIGNATURE}
    arguments = [gemini.argument_part(f"$.{first}", value, more=False) for first, value in firsts]
    return FileReply(
        _gemini_sse({"text": call.thought, "thought": True}, {"text": call.text}, begun, *arguments),
        [_gemini_sse(gemini.argument_part(f"$.{name}", piece)) for piece in pieces_of(text)],
        _gemini_sse(gemini.call_part()) + gemini.sse(gemini.STOP),
    )


def _gemini_rows(call: FileCall, result: str) -> list[dict[str, Any]]:
    function_call = {"name": call.name, "id": call.id, "args": call.arguments}
    parts = [
        {"text": call.thought, "thought": True},
        {"text": call.text},
        {"functionCall": function_call, "thoughtSignature": SIGNATURE},
    ]
    response = {"name": call.name, "id": call.id, "response": {"output": result}}
    return [{"role": "model", "parts": parts}, {"role": "user", "parts": [{"functionResponse": response}]}]


# --- Ollama -----------------------------------------------------------------------------------------------------------


def _ollama_reply(call: FileCall) -> FileReply:
    before = ollama.lines(ollama.message_line(thinking=call.thought), ollama.message_line(call.text))
    called = ollama.tool_call(call.name, call.arguments, id=call.id)
    return FileReply(before, [ollama.lines(ollama.message_line(tool_calls=[called]))], ollama.lines(ollama.last_line()))


def _ollama_rows(call: FileCall, result: str) -> list[dict[str, Any]]:
    function = {"index": 0, "name": call.name, "arguments": call.arguments}
    called = {"id": call.id, "function": function}
    return [
        {"role": "assistant", "content": call.text, "thinking": call.thought, "tool_calls": [called]},
        {"role": "tool", "tool_name": call.name, "tool_call_id": call.id, "content": result},
    ]


def _gemini(name: str, reply: Callable[[FileCall], FileReply], *, streams_arguments: bool) -> FileWire:
    return FileWire(
        name=name,
        wire="gemini",
        model=WIRES["gemini"].model,
        reply=reply,
        answer=lambda text: gemini.sse(gemini.content_event({"text": text}, finish="STOP")),
        rows="contents",
        call_rows=_gemini_rows,
        streams_arguments=streams_arguments,
    )


FILE_WIRES = (
    FileWire(
        name="openai_chat",
        wire="openai_chat",
        model=lambda url: OpenAIChatModel("m", base_url=f"{url}/v1", dialect=ChatDialect(returns_reasoning=True)),
        reply=_chat_reply,
        answer=lambda text: sse(chat.delta(content=text), chat.STOP, chat.DONE),
        rows="messages",
        call_rows=_chat_rows,
    ),
    FileWire(
        name="openai_responses",
        wire="openai_responses",
        model=WIRES["openai_responses"].model,
        reply=_responses_reply,
        answer=lambda text: sse(responses.text_delta(text), responses.END),
        rows="input",
        call_rows=_responses_rows,
    ),
    FileWire(
        name="anthropic",
        wire="anthropic",
        model=WIRES["anthropic"].model,
        reply=_anthropic_reply,
        answer=lambda text: sse(
            anthropic.message_start(),
            *anthropic.content_block(0, "text", anthropic.text_delta(text), text=""),
            anthropic.message_delta(),
            anthropic.END,
        ),
        rows="messages",
        call_rows=_anthropic_rows,
    ),
    _gemini("gemini", _gemini_reply, streams_arguments=False),
    _gemini("gemini, streamed", _gemini_streamed_reply, streams_arguments=True),
    FileWire(
        name="ollama",
        wire="ollama",
        model=WIRES["ollama"].model,
        reply=_ollama_reply,
        answer=lambda text: ollama.lines(ollama.message_line(text), ollama.last_line()),
        rows="messages",
        call_rows=_ollama_rows,
        streams_arguments=False,
    ),
)
