"""The reply of an Ollama server (`/api/chat`): bytes in, deltas out, no I/O.

One JSON object per line; the end marker is `done`. A call comes whole, its arguments as an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenticx.llms._failures import complaint_in, stream_error
from agenticx.llms._json_events import JsonEvents
from agenticx.llms._json_reply import JsonReply
from agenticx.llms._lines import LineParser
from agenticx.llms._values import arguments_in, count_in, fields_in, items_in, text_in
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
from agenticx.messages import ProviderState

__all__ = ["WIRE", "OllamaReplyParser"]

WIRE = "ollama"

_STOPS: dict[str, StopKind] = {"": "end", "stop": "end", "length": "length"}
"""Any other word (`unload`, `load`) may mean that the reply broke off."""


class OllamaReplyParser(JsonReply):
    """One reply; nothing follows its end marker.

    `tool_names` has our names of the tools that the provider knows by another one.
    """

    def __init__(self, *, who: str, model: str, tool_names: Mapping[str, str] | None = None) -> None:
        super().__init__(JsonEvents(who=who, frames=LineParser(), arguments="arguments"), who=who, model=model)
        self._thought = False
        self._tool_names = tool_names or {}

    def _take_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        if "error" in event and (complaint := complaint_in(event)):
            raise stream_error(complaint, who=self._who)
        message = fields_in(event, "message")
        if thought := text_in(message, "thinking"):
            self._thought = True
            deltas.append(ThinkingDelta(thought))
        if text := text_in(message, "content"):
            deltas.append(TextDelta(text))
        for call in items_in(message, "tool_calls"):
            deltas.append(self._call(call))
        if event.get("done") is True:
            self._finish(event, deltas)

    def _call(self, call: dict[str, Any]) -> ToolCallDelta:
        number = self._size.allocate_call()
        function = fields_in(call, "function")
        arguments = arguments_in(function.get("arguments"))
        name = text_in(function, "name")
        return ToolCallDelta(number, text_in(call, "id"), self._tool_names.get(name, name), arguments)

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
        """Thoughts that led to calls go back with their results; the message itself has them."""
        if not (self._thought and self._size.calls):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload={"thinking": True})
