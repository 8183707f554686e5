"""The reply of a Responses server: bytes in, deltas out, no I/O.

The end marker is `response.completed`, `.incomplete` or `.failed`; the last becomes a `ModelError`. A server that
answers a streaming request with one JSON object is understood as well. Known differences to the official client:

1. Items are distinguished by id, else by call id, else by `output_index`: gateways send another id with each event, and
   the end of an item under another index than its beginning.
2. Texts and arguments are taken from the deltas and, where a `done` event has more, from that: some servers send
   whole items only, or list some only at the end. Arguments that contradict their deltas violate the protocol: neither
   version is run. A text that contradicts its deltas stays as it was streamed.
3. `response.done` is an end marker too if its response has a final status: gateways end with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenticx.llms.base import Delta, Finished, StopKind, Usage, UsageDelta
from agenticx.llms.json_values import cost_in, count_in, fields_in, items_in, text_in
from agenticx.llms.transport.errors import ErrorReport, find_error, stream_error
from agenticx.llms.wires.json_events import JsonEventParser, malformed_reply
from agenticx.llms.wires.json_reply import JsonReplyParser
from agenticx.llms.wires.openai_responses._item import TextKind, part_text
from agenticx.llms.wires.openai_responses._items import OutputItems, reconcile_output
from agenticx.messages import ProviderState

__all__ = ["WIRE", "ResponsesReplyParser"]

WIRE = "openai-responses"

_TERMINAL = ("completed", "incomplete", "failed")

_DELTA_EVENTS: dict[str, tuple[TextKind, str]] = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
    "response.custom_tool_call_input.delta": ("input", ""),
}
_DONE_EVENTS: dict[str, tuple[TextKind, str, str]] = {
    "response.output_text.done": ("text", "content_index", "text"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "summary_index", "text"),
    "response.reasoning_text.done": ("reasoning", "content_index", "text"),
    "response.function_call_arguments.done": ("arguments", "", "arguments"),
    "response.custom_tool_call_input.done": ("input", "", "input"),
}


class ResponsesReplyParser(JsonReplyParser):
    """A parser of one reply; nothing follows its end marker.

    `original_names` maps the sent names of tools to the original ones, where they differ.
    """

    def __init__(self, *, label: str, model: str, original_names: Mapping[str, str] | None = None) -> None:
        super().__init__(JsonEventParser(label=label), label=label, model=model)
        self._items = OutputItems(label=label, size=self._size, original_names=original_names or {})

    # --- one event

    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        kind = text_in(event, "type")
        if self._events.is_json_body:
            self._handle_json_body(event, deltas)
        elif found := _DELTA_EVENTS.get(kind):
            self._handle_delta(event, *found, deltas)
        elif done := _DONE_EVENTS.get(kind):
            text_kind, index_name, field = done
            if type(event.get(field)) is not str:
                self._items.find_or_begin(event, text_kind, deltas)
            else:
                self._items.complete(event, text_kind, _index(event, index_name), text_in(event, field), deltas)
        elif kind == "response.content_part.done":
            self._handle_part(event, deltas)
        elif kind == "response.output_item.added":
            self._items.begin(event.get("output_index"), fields_in(event, "item"), deltas)
        elif kind == "response.output_item.done":
            self._items.close(event.get("output_index"), fields_in(event, "item"), deltas)
        elif kind.startswith("response.") and kind != "response.error":
            self._handle_response(kind.removeprefix("response."), fields_in(event, "response"), deltas)
        else:
            self._raise_if_error(kind, event)

    def _handle_delta(self, event: dict[str, Any], text_kind: TextKind, index_name: str, deltas: list[Delta]) -> None:
        if text := text_in(event, "delta"):
            self._items.extend(event, text_kind, _index(event, index_name), text, deltas)

    def _handle_part(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        if found := part_text(fields_in(event, "part")):
            text_kind, text = found
            self._items.complete(event, text_kind, _index(event, "content_index"), text, deltas)

    def _handle_response(self, stage: str, response: dict[str, Any], deltas: list[Delta]) -> None:
        """Handle a response object; the server sends it at the creation, the progress and the end of a reply.

        Its id is ignored: gateways send another one with each event.
        """
        if stage == "created" and self._items.ordered:
            raise malformed_reply("another response begins in it", label=self._label)
        if usage := fields_in(response, "usage"):
            deltas.append(UsageDelta(_parse_usage(usage)))
        status = text_in(response, "status")
        if stage in _TERMINAL or (stage == "done" and status in _TERMINAL):
            self._finish(status, stage, response, deltas)

    def _raise_if_error(self, kind: str, event: dict[str, Any]) -> None:
        """Raise `ModelError` for an `error` event, with its fields or an `error` object, or an error without a type."""
        is_error = kind in ("error", "response.error")
        if is_error and not event.get("error"):
            event = {"error": {name: value for name, value in event.items() if name != "type"}}
        report = find_error(event) if is_error or not kind or event.get("error") else None
        if is_error or report:
            raise stream_error(report or ErrorReport(), label=self._label)

    def _handle_json_body(self, response: dict[str, Any], deltas: list[Delta]) -> None:
        """Handle a reply that is one JSON object instead of a stream."""
        status = text_in(response, "status")
        if not status and (report := find_error(response)):
            raise stream_error(report, label=self._label)
        if status not in _TERMINAL:
            raise malformed_reply("it is one JSON object without a final status", label=self._label)
        self._handle_response(status, response, deltas)

    # --- the end

    def _finish(self, status: str, stage: str, response: dict[str, Any], deltas: list[Delta]) -> None:
        status = status if status in (*_TERMINAL, "cancelled") else stage
        if status == "failed":
            report = find_error({"error": response.get("error")}) or ErrorReport(type=status)
            raise stream_error(report, label=self._label)
        reconcile_output(self._items, items_in(response, "output"), deltas)
        reason = text_in(fields_in(response, "incomplete_details"), "reason") if status == "incomplete" else ""
        stop_reason = f"{status}:{reason}" if reason else status
        self.done = True
        deltas.append(Finished(self._stop_kind(status, reason), stop_reason, self._provider_state()))

    def _stop_kind(self, status: str, reason: str) -> StopKind:
        if status == "incomplete":
            return "content_filter" if reason == "content_filter" else "length"
        if status == "cancelled" or self._items.has_open_calls:
            return "broken"
        return "tool_calls" if self._size.calls else "end"

    def _provider_state(self) -> ProviderState | None:
        output = self._items.finished
        return ProviderState(wire=WIRE, model=self._model, payload={"output": output}) if output else None


def _index(event: dict[str, Any], name: str) -> int:
    value = event.get(name)
    return value if type(value) is int else 0


def _parse_usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_in(usage, "input_tokens"),
        output_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(fields_in(usage, "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_in(fields_in(usage, "output_tokens_details"), "reasoning_tokens"),
        cost_usd=cost_in(usage, "cost"),
        cache_write_tokens=count_in(fields_in(usage, "input_tokens_details"), "cache_write_tokens"),
    )
