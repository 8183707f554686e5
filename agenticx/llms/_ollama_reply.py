"""The reply of an Ollama server (`/api/chat`): bytes in, deltas out, no I/O.

One JSON object per line; the end marker is `done`. A call comes whole, its arguments as an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._failures import complaint_in, stream_error
from agenticx.llms._json_events import JsonEvents, malformed
from agenticx.llms._lines import LineParser
from agenticx.llms._values import count_in, fields_in, items_in, text_in
from agenticx.llms.base import Delta, Finished, TextDelta, ThinkingDelta, ToolCallDelta, Usage, UsageDelta
from agenticx.messages import ProviderState

__all__ = ["MAX_CALLS", "MAX_REPLY_COST", "WIRE", "OllamaReplyParser"]

WIRE = "ollama"

MAX_CALLS = 256
"""Calls of one reply; real models ask for a few dozen at most."""

MAX_REPLY_COST = 32 * 1024 * 1024
"""Longest reply, in bytes of its lines, which is more than it takes in memory."""


class OllamaReplyParser:
    """One reply. After each `feed` look at the state: `error` (raise it), `done` (stop reading).

    `who` names the provider in errors, `model` the model that the reply's provider state belongs to.
    """

    def __init__(self, *, who: str, model: str) -> None:
        self.error: ModelError | None = None
        self.done = False
        self._who = who
        self._model = model
        self._events = JsonEvents(who=who, frames=LineParser())
        self._calls = 0
        self._thought = False
        self._spent = 0

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas of all lines that `data` completes."""
        return [] if self.done or self.error else self._take(self._events.feed(data))

    def end(self) -> list[Delta]:
        """What the clean end of the body completes. Without `done` there is no `Finished` in it."""
        return [] if self.done or self.error else self._take(self._events.end())

    def _take(self, events: Iterator[tuple[dict[str, Any], int]]) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event, size in events:
                self._spent += size
                if self._spent > MAX_REPLY_COST:
                    raise malformed("it is longer than any reply may be", who=self._who)
                self._take_event(event, deltas)
                if self.done:
                    break
        except ModelError as exc:
            self.error = exc
        except RecursionError:
            self.error = malformed("a line is nested too deeply", who=self._who)
        return deltas

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
        if self._calls >= MAX_CALLS:
            raise malformed(f"it asks for more than {MAX_CALLS} tool calls", who=self._who)
        self._calls += 1
        function = fields_in(call, "function")
        arguments = _json_text(function.get("arguments"))
        return ToolCallDelta(self._calls - 1, text_in(call, "id"), text_in(function, "name"), arguments)

    def _finish(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        usage = Usage(count_in(event, "prompt_eval_count"), count_in(event, "eval_count"))
        if usage != Usage():
            deltas.append(UsageDelta(usage))
        reason = text_in(event, "done_reason") or None
        stop = "length" if reason == "length" else "tool_calls" if self._calls else "end"
        self.done = True
        deltas.append(Finished(stop, reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        """Thoughts that led to calls go back with their results; the message itself has them."""
        if not (self._thought and self._calls):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload={"thinking": True})


def _json_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":"))
