"""The reply of a Responses server: bytes in, deltas out, no I/O.

The end marker is `response.completed`, `.incomplete` or `.failed`; the last becomes a `ModelError`. A server that
answers a streaming request with one JSON object is understood as well. Known differences to the official client:

1. Items are told apart by `output_index` and only without one by id: gateways send another id with each event.
2. Texts and arguments are taken from the deltas and, where a `done` event knows more, from that: some servers send
   whole items only. Arguments that contradict their deltas break the protocol: neither version may run.
"""

from __future__ import annotations

from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._failures import Complaint, complaint_in, stream_error
from agenticx.llms._json_events import JsonEvents, malformed
from agenticx.llms._openai_responses_items import Channel, OutputItem, OutputItems
from agenticx.llms._values import cost_in, count_in, fields_in, items_in, text_in
from agenticx.llms.base import Delta, Finished, StopKind, Usage, UsageDelta
from agenticx.messages import ProviderState

__all__ = ["MAX_REPLY_COST", "WIRE", "ResponsesReplyParser"]

WIRE = "openai-responses"

MAX_REPLY_COST = 32 * 1024 * 1024
"""Longest reply: its characters plus `_EVENT_COST` for each event, which is about what they take in memory."""

_EVENT_COST = 64
_TERMINAL = ("completed", "incomplete", "failed")

_DELTAS: dict[str, tuple[Channel, str]] = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
    "response.custom_tool_call_input.delta": ("input", ""),
}
_DONES: dict[str, tuple[Channel, str, str]] = {
    "response.output_text.done": ("text", "content_index", "text"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "summary_index", "text"),
    "response.reasoning_text.done": ("reasoning", "content_index", "text"),
    "response.function_call_arguments.done": ("arguments", "", "arguments"),
    "response.custom_tool_call_input.done": ("input", "", "input"),
}
_KINDS: dict[Channel, str] = {
    "text": "message",
    "refusal": "message",
    "summary": "reasoning",
    "reasoning": "reasoning",
    "arguments": "function_call",
    "input": "custom_tool_call",
}


class ResponsesReplyParser:
    """One reply. After each `feed` look at the state: `error` (raise it), `done` (stop reading).

    `who` names the provider in errors, `model` the model that the reply's provider state belongs to.
    """

    def __init__(self, *, who: str, model: str) -> None:
        self.error: ModelError | None = None
        self.done = False
        self._who = who
        self._model = model
        self._events = JsonEvents(who=who)
        self._items = OutputItems(who=who)
        self._spent = 0

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas of all events that `data` completes."""
        deltas: list[Delta] = []
        try:
            for event, size in self._events.feed(data):
                self._take(event, size, deltas)
                if self.done:
                    break
        except ModelError as exc:
            self.error = exc
        return deltas

    def end(self) -> list[Delta]:
        """What the clean end of the body completes. Without an end marker there is no `Finished` in it."""
        deltas: list[Delta] = []
        if self.done or self.error:
            return deltas
        try:
            for event, size in self._events.end():
                if self._events.is_whole:
                    self._take_whole(event, deltas)
                else:
                    self._take(event, size, deltas)
                if self.done:
                    break
        except ModelError as exc:
            self.error = exc
        return deltas

    # --- one event

    def _take(self, event: dict[str, Any], size: int, deltas: list[Delta]) -> None:
        kind = text_in(event, "type")
        self._spent += _EVENT_COST
        if found := _DELTAS.get(kind):
            self._take_delta(event, *found, deltas)
        elif done := _DONES.get(kind):
            channel, index_name, field = done
            item = self._item_of(event, channel, deltas)
            item.complete(channel, _index(event, index_name), text_in(event, field), deltas)
        elif kind == "response.output_item.added":
            self._items.add(event.get("output_index"), fields_in(event, "item"), deltas)
        elif kind == "response.output_item.done":
            self._spent += size
            self._items.close(event.get("output_index"), fields_in(event, "item"), deltas)
        elif kind.startswith("response.") and kind != "response.error":
            self._take_response(kind.removeprefix("response."), fields_in(event, "response"), deltas)
        else:
            self._take_complaint(kind, event)
        if self._spent + self._items.characters > MAX_REPLY_COST:
            raise malformed("it is longer than any reply may be", who=self._who)

    def _take_delta(self, event: dict[str, Any], channel: Channel, index_name: str, deltas: list[Delta]) -> None:
        if text := text_in(event, "delta"):
            self._item_of(event, channel, deltas).extend(channel, _index(event, index_name), text, deltas)

    def _item_of(self, event: dict[str, Any], channel: Channel, deltas: list[Delta]) -> OutputItem:
        return self._items.at(event.get("output_index"), event.get("item_id"), _KINDS[channel], deltas)

    def _take_response(self, moment: str, response: dict[str, Any], deltas: list[Delta]) -> None:
        """The whole response, which comes with its creation, its progress and its end."""
        if usage := fields_in(response, "usage"):
            deltas.append(UsageDelta(_usage(usage)))
        if moment in _TERMINAL:
            self._finish(text_in(response, "status"), moment, response, deltas)

    def _take_complaint(self, kind: str, event: dict[str, Any]) -> None:
        """`error` events, whose fields stand in the event or in its `error`, and what complains without a type."""
        is_error = kind in ("error", "response.error")
        if is_error and not event.get("error"):
            event = {"error": {name: value for name, value in event.items() if name != "type"}}
        complaint = complaint_in(event) if is_error or not kind or event.get("error") else None
        if is_error or complaint:
            raise stream_error(complaint or Complaint(), who=self._who)

    def _take_whole(self, response: dict[str, Any], deltas: list[Delta]) -> None:
        """A reply that did not come as a stream."""
        status = text_in(response, "status")
        if not status and (complaint := complaint_in(response)):
            raise stream_error(complaint, who=self._who)
        if status not in _TERMINAL:
            raise malformed("it is one JSON object without a final status", who=self._who)
        self._take_response(status, response, deltas)

    # --- the end

    def _finish(self, status: str, moment: str, response: dict[str, Any], deltas: list[Delta]) -> None:
        status = status if status in _TERMINAL else moment
        if status == "failed":
            complaint = complaint_in({"error": response.get("error")}) or Complaint(type=status)
            raise stream_error(complaint, who=self._who)
        self._items.settle(items_in(response, "output"), deltas)
        reason = text_in(fields_in(response, "incomplete_details"), "reason") if status == "incomplete" else ""
        word = f"{status}:{reason}" if reason else status
        self.done = True
        deltas.append(Finished(self._stop(status, reason), word, self._provider_state()))

    def _stop(self, status: str, reason: str) -> StopKind:
        if status == "incomplete":
            return "content_filter" if reason == "content_filter" else "length"
        return "tool_calls" if self._items.calls else "end"

    def _provider_state(self) -> ProviderState | None:
        output = self._items.final
        return ProviderState(wire=WIRE, model=self._model, payload={"output": output}) if output else None


def _index(event: dict[str, Any], name: str) -> int:
    value = event.get(name)
    return value if type(value) is int else 0


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_in(usage, "input_tokens"),
        output_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(fields_in(usage, "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_in(fields_in(usage, "output_tokens_details"), "reasoning_tokens"),
        cost_usd=cost_in(usage, "cost"),
        cache_write_tokens=count_in(fields_in(usage, "input_tokens_details"), "cache_write_tokens"),
    )
