"""The reply of an Ollama server (`/api/chat`): bytes in, deltas out, no I/O.

One JSON object per line; the end marker is `done`. A call comes whole, its arguments as an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenticx.http.json_lines import LineParser
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
from agenticx.llms.call_fields import CallFields, call_states
from agenticx.llms.json_values import arguments_json, count_in, fields_in, items_in, text_in
from agenticx.llms.transport.errors import find_error, stream_error
from agenticx.llms.wires.json_events import JsonEventParser
from agenticx.llms.wires.json_reply import JsonReplyParser
from agenticx.messages import ProviderState

__all__ = ["WIRE", "OllamaReplyParser"]

WIRE = "ollama"

_STOPS: dict[str, StopKind] = {"": "end", "stop": "end", "length": "length"}
"""Any other value (`unload`, `load`) may mean that the reply is incomplete."""


class OllamaReplyParser(JsonReplyParser):
    """A parser of one reply; nothing follows its end marker.

    `original_names` maps the sent names of tools to the original ones, where they differ.
    """

    def __init__(self, *, label: str, model: str, original_names: Mapping[str, str] | None = None) -> None:
        super().__init__(
            JsonEventParser(label=label, frames=LineParser(), arguments_key="arguments"), label=label, model=model
        )
        self._has_thinking = False
        self._calls: list[tuple[str, CallFields]] = []
        self._original_names = original_names or {}

    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        if "error" in event and (report := find_error(event)):
            raise stream_error(report, label=self._label)
        message = fields_in(event, "message")
        if thought := text_in(message, "thinking"):
            self._has_thinking = True
            deltas.append(ThinkingDelta(thought))
        if text := text_in(message, "content"):
            deltas.append(TextDelta(text))
        for call in items_in(message, "tool_calls"):
            deltas.append(self._call_delta(call))
        if event.get("done") is True:
            self._finish(event, deltas)

    def _call_delta(self, call: dict[str, Any]) -> ToolCallDelta:
        number = self._size.allocate_call()
        function = fields_in(call, "function")
        fields = CallFields()
        if added := fields.add(call, function):
            self._size.add_kept_json(added)
        self._calls.append((text_in(call, "id"), fields))
        arguments = arguments_json(function.get("arguments"))
        name = text_in(function, "name")
        return ToolCallDelta(number, text_in(call, "id"), self._original_names.get(name, name), arguments)

    def _finish(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        usage = Usage(count_in(event, "prompt_eval_count"), count_in(event, "eval_count"))
        if usage != Usage():
            deltas.append(UsageDelta(usage))
        reason = text_in(event, "done_reason") or None
        stop = _STOPS.get(reason or "", "broken")
        if stop == "end" and self._size.calls:
            stop = "tool_calls"
        self.done = True
        deltas.append(Finished(stop, reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        """Return a state for a reply with calls: whether it has reasoning to send back, and its fields of the calls."""
        payload: dict[str, Any] = {"thinking": True} if self._has_thinking else {}
        if calls := call_states(self._calls):
            payload["calls"] = calls
        return ProviderState(wire=WIRE, model=self._model, payload=payload) if payload and self._calls else None
