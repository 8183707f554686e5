"""The reply of an Anthropic Messages server: bytes in, deltas out, no I/O.

The end marker is `message_stop`. Calls are the `tool_use` blocks; the tools that the provider runs itself
(`server_tool_use` and the like) produce no delta. Blocks that are complete in `message_start`, or in a message that is
not streamed at all, are read like streamed ones.

A stream has one message. Some servers send its `message_start` twice before the first block; any other second
start, of a message or of a block that is still open, violates the protocol: neither version may run. A call that
begins after the stop reason does not run either. Text for a block that has ended is added like any other.

The provider state is the content of the message, block by block: `ProviderState.payload["content"]`, present when
there is more in it than text and calls. A call is stored there without id, name and input, because the message has
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import from_json

from agenticx.llms.base import (
    Delta,
    Finished,
    StopKind,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from agenticx.llms.call_fields import provider_fields
from agenticx.llms.json_values import count_in, fields_in, items_in, json_text, text_in
from agenticx.llms.reply_limits import MAX_ITEMS
from agenticx.llms.transport.errors import ErrorReport, find_error, stream_error
from agenticx.llms.wires.json_events import JsonEventParser, malformed_reply
from agenticx.llms.wires.json_reply import JsonReplyParser
from agenticx.messages import ProviderState

__all__ = ["WIRE", "AnthropicReplyParser"]

WIRE = "anthropic"

_STOPS: dict[str, StopKind] = {
    "": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Any other value may mean that the reply is incomplete."""

_IGNORED_DELTA_FIELDS = frozenset(
    {"type", "citation", "id", "name", "input"}
)  # no unknown delta carries a part of a call
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_IMPLIED_BLOCK_TYPES = {"text_delta": "text", "thinking_delta": "thinking"}


@dataclass(slots=True)
class _StreamedBlock:
    """A content block as received so far. `fragments` is the streamed text, thinking, or JSON of an input."""

    fields: dict[str, Any]
    fragments: list[str] = field(default_factory=list[str])
    citations: list[Any] = field(default_factory=list[Any])
    call: int | None = None
    closed: bool = False

    @property
    def type(self) -> object:
        return self.fields.get("type")

    def for_replay(self) -> dict[str, Any] | None:
        """Return the block to send back, None for a thought without a signature, because the API refuses it."""
        streamed = "".join(self.fragments)
        match self.type:
            case "text":
                own = {name: value for name, value in self.fields.items() if name != "citations"}
                cited = self.citations or items_in(self.fields, "citations")
                return {**own, "text": streamed} | ({"citations": cited} if cited else {})
            case "thinking":
                return {**self.fields, "thinking": streamed} if text_in(self.fields, "signature") else None
            case "tool_use":
                return {"type": "tool_use", **provider_fields(self.fields, _CALL_FIELDS)}
            case _:
                return {**self.fields, "input": _parse_object(streamed)} if streamed else self.fields


class AnthropicReplyParser(JsonReplyParser):
    """A parser of one reply; nothing follows its end marker.

    `original_names` maps the sent names of tools to the original ones, where they differ.
    """

    def __init__(self, *, label: str, model: str, original_names: Mapping[str, str] | None = None) -> None:
        super().__init__(JsonEventParser(label=label, arguments_key="input"), label=label, model=model)
        self._original_names = original_names or {}
        self._head: dict[str, Any] | None = None
        self._call_after_stop = False
        self._blocks: list[_StreamedBlock] = []
        self._by_index: dict[int, _StreamedBlock] = {}
        self._stop_reason: str | None = None

    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._extend_block(event, deltas)
            case "content_block_start":
                self._open_block(_index(event), self._required_object(event, "content_block"), deltas)
            case "content_block_stop":
                if block := self._by_index.get(_index(event)):
                    self._close_block(block, deltas)
            case "message_start":
                self._start_message(self._required_object(event, "message"), deltas)
            case "message_delta":
                self._handle_message_delta(self._required_object(event, "delta"), event.get("usage"), deltas)
            case "message_stop":
                self._finish(deltas)
            case "message":
                self._start_message(event, deltas)
                self._finish(deltas)
            case kind:
                self._raise_if_error(kind, event)

    def _handle_end(self, deltas: list[Delta]) -> None:
        """Add an incomplete `Finished` if a stop reason came without the end marker."""
        if self._stop_reason is not None:
            self.done = True
            deltas.append(Finished("broken", self._stop_reason, complete=False))

    def _raise_if_error(self, kind: object, event: dict[str, Any]) -> None:
        """Raise `ModelError` for an event that reports an error; ignore any other unknown event."""
        if kind == "error" or kind is None or "error" in event:
            report = find_error(event)
            if report is None and kind == "error":
                report = ErrorReport(type="error")
            if report is not None:
                raise stream_error(report, label=self._label)

    # --- the message

    def _start_message(self, message: dict[str, Any], deltas: list[Delta]) -> None:
        """Start the message; raise `ModelError` if another one has begun."""
        if self._head is not None or self._blocks:
            if self._head is None or self._blocks or not _repeats_head(message, self._head):
                raise malformed_reply("another message begins in it", label=self._label)
            return
        self._head = message
        blocks = message.get("content")
        if isinstance(blocks, list):
            for index, fields in enumerate(cast("list[object]", blocks)):
                if not isinstance(fields, dict):
                    raise malformed_reply(
                        f"a content block is {type(fields).__name__}, not an object", label=self._label
                    )
                self._close_block(self._open_block(index, cast("dict[str, Any]", fields), deltas), deltas)
        self._handle_message_delta(message, message.get("usage"), deltas)

    def _handle_message_delta(self, delta: dict[str, Any], usage: object, deltas: list[Delta]) -> None:
        if isinstance(reason := delta.get("stop_reason"), str):
            self._stop_reason, self._call_after_stop = reason, False
        if isinstance(usage, dict):
            deltas.append(UsageDelta(_parse_usage(cast("dict[str, Any]", usage))))

    def _finish(self, deltas: list[Delta]) -> None:
        stop = _STOPS.get(self._stop_reason or "", "broken")
        if self._call_after_stop or any(block.call is not None and not block.closed for block in self._blocks):
            stop = "broken"
        for block in self._blocks:
            self._close_block(block, deltas)
        if stop == "end" and self._size.calls:
            stop = "tool_calls"
        self.done = True
        deltas.append(Finished(stop, self._stop_reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        content = [replay for block in self._blocks if (replay := block.for_replay()) is not None]
        if all(block["type"] == "text" or block == {"type": "tool_use"} for block in content):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload={"content": content})

    # --- its blocks

    def _open_block(self, index: int, fields: dict[str, Any], deltas: list[Delta]) -> _StreamedBlock:
        if len(self._blocks) >= MAX_ITEMS:
            raise malformed_reply(f"it has more than {MAX_ITEMS} content blocks", label=self._label)
        if (before := self._by_index.get(index)) is not None and not before.closed:
            raise malformed_reply(f"block {index} begins again before its end", label=self._label)
        self._size.add_kept_json(fields)
        block = self._by_index[index] = _StreamedBlock(fields)
        self._blocks.append(block)
        match fields.get("type"):
            case "text":
                self._add_text(block, text_in(fields, "text"), deltas)
            case "thinking":
                self._add_thinking(block, text_in(fields, "thinking"), deltas)
            case "tool_use":
                block.call = self._size.allocate_call()
                self._call_after_stop = self._stop_reason is not None
                name = text_in(fields, "name")
                deltas.append(ToolCallDelta(block.call, text_in(fields, "id"), self._original_names.get(name, name)))
            case str():
                pass
            case kind:
                raise malformed_reply(f"a content block has the type {kind!r}", label=self._label)
        return block

    def _extend_block(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        delta = self._required_object(event, "delta")
        kind, index = text_in(delta, "type"), _index(event)
        block = self._by_index.get(index)
        if block is None:
            if kind not in _IMPLIED_BLOCK_TYPES:
                raise malformed_reply(f"block {index} continues before its start", label=self._label)
            block = self._open_block(index, {"type": _IMPLIED_BLOCK_TYPES[kind]}, deltas)
        match kind:
            case "text_delta":
                self._add_text(block, text_in(delta, "text"), deltas)
            case "thinking_delta":
                self._add_thinking(block, text_in(delta, "thinking"), deltas)
            case "input_json_delta":
                self._add_input(block, _json_text(delta.get("partial_json")), deltas)
            case _:
                self._add_extra(block, delta)

    def _add_text(self, block: _StreamedBlock, text: str, deltas: list[Delta]) -> None:
        if text:
            block.fragments.append(text)
            deltas.append(TextDelta(text))

    def _add_thinking(self, block: _StreamedBlock, text: str, deltas: list[Delta]) -> None:
        if text:
            block.fragments.append(text)
            deltas.append(ThinkingDelta(text))

    def _add_input(self, block: _StreamedBlock, fragment: str, deltas: list[Delta]) -> None:
        """Add a fragment of an input; streamed input replaces the input of the block's start."""
        if not fragment:
            return
        if block.closed and block.call is not None:
            raise malformed_reply("the input of a call continues after its end", label=self._label)
        block.fields.pop("input", None)
        if block.call is None:
            self._size.add_kept_json(fragment)
            block.fragments.append(fragment)
        else:
            deltas.append(ToolCallDelta(block.call, arguments=fragment))

    def _add_extra(self, block: _StreamedBlock, delta: dict[str, Any]) -> None:
        """Store fields of the block that produce no delta: its signature, a citation, the result of a compaction."""
        self._size.add_kept_json(delta)
        for name, value in delta.items():
            if name == "citation" and isinstance(value, dict):
                block.citations.append(value)
            elif name not in _IGNORED_DELTA_FIELDS:
                block.fields[name] = value

    def _close_block(self, block: _StreamedBlock, deltas: list[Delta]) -> None:
        """End a block; an input that came whole with its start, and was not streamed, becomes the call's arguments."""
        block.closed = True
        if block.call is not None and (arguments := _json_text(block.fields.pop("input", None))):
            deltas.append(ToolCallDelta(block.call, arguments=arguments))

    def _required_object(self, event: dict[str, Any], name: str) -> dict[str, Any]:
        value = event.get(name)
        if not isinstance(value, dict):
            raise malformed_reply(f"{name} of an event is {type(value).__name__}, not an object", label=self._label)
        return cast("dict[str, Any]", value)


def _parse_usage(fields: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_in(fields, "input_tokens"),
        output_tokens=count_in(fields, "output_tokens"),
        cached_tokens=count_in(fields, "cache_read_input_tokens"),
        cache_write_tokens=count_in(fields, "cache_creation_input_tokens"),
        reasoning_tokens=count_in(fields_in(fields, "output_tokens_details"), "thinking_tokens"),
        input_excludes_cached=True,
    )


def _repeats_head(message: dict[str, Any], head: dict[str, Any]) -> bool:
    """Return whether the head of a message only repeats `head`, as some servers do before its first block."""
    return message.get("id") == head.get("id") and not message.get("content")


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1


def _json_text(value: object) -> str:
    """Return an input as text; a missing or empty one is `""`, as providers start a streamed input with `{}`."""
    if isinstance(value, str):
        return value
    return json_text(value) if value else ""


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
