"""The reply of a Chat Completions server: bytes in, deltas out, no I/O.

Only choice 0 is read. The end marker is a finish reason or `[DONE]`; `Finished` comes once, after the usage that may
follow the finish reason. A server that answers a streaming request with one JSON object is understood as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from agenticx.llms._failures import complaint_in, stream_error
from agenticx.llms._json_events import JsonEvents, malformed
from agenticx.llms._json_reply import JsonReply
from agenticx.llms._values import fields_in
from agenticx.llms.base import Delta, Finished, StopKind, TextDelta, ThinkingDelta, UsageDelta
from agenticx.llms.openai_chat._calls import CallSorter
from agenticx.llms.openai_chat._parts import ReasoningDetails, plain_text, usage_of
from agenticx.messages import ProviderState

__all__ = ["REASONING_FIELDS", "WIRE", "ChatReplyParser"]

WIRE = "openai-chat"

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Where compatible servers put what a model thought, and where they want it back."""

_FIRST = (None, 0, "0", "")  # how servers number the choice that is read
_PLAIN_DELTA = frozenset({"content", "role"})

_STOPS: dict[str, StopKind] = {
    "": "end",
    "stop": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "eos": "end",
    "eos_token": "end",
    "complete": "end",
    "completed": "end",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_completion_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "error": "failed",
    "abort": "failed",
    "network_error": "failed",
    "insufficient_system_resource": "failed",
}
"""Any other word may mean that the reply broke off."""


class ChatReplyParser(JsonReply):
    """One reply, `finishing` from its finish reason on: only usage may follow.

    `tool_names` has our names of the tools that the provider knows by another one.
    """

    def __init__(self, *, who: str, model: str, tool_names: Mapping[str, str] | None = None) -> None:
        super().__init__(JsonEvents(who=who, closes=True, arguments="arguments"), who=who, model=model)
        self._calls = CallSorter(self._size)
        self._tool_names = tool_names or {}
        self._finish_reason: str | None = None
        self._answered = False
        self._call_behind_end = False
        self._reasoning_field = ""
        self._reasoning_details = ReasoningDetails()

    def take(self, chunk: dict[str, Any]) -> list[Delta]:
        """The deltas of one event that came parsed, as from a model that is a Python object; raises `ModelError`."""
        deltas: list[Delta] = []
        self._take_event(chunk, deltas)
        return deltas

    def finish(self) -> list[Delta]:
        """The end, where something else than a marker says that the reply is whole; raises `ModelError`."""
        deltas: list[Delta] = []
        self._finish(deltas)
        return deltas

    # --- one event

    def _take_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        choices = event.get("choices")
        if choices:
            if type(choices) is not list:
                raise malformed(f"choices is {type(choices).__name__}, not a list", who=self._who)
            for choice in cast("list[object]", choices):
                if type(choice) is not dict:
                    raise malformed(f"a choice is {type(choice).__name__}, not an object", who=self._who)
                self._take_choice(cast("dict[str, Any]", choice), deltas)
        if "x_groq" in event:
            self._count(fields_in(event, "x_groq").get("usage"), deltas)
        if usage := event.get("usage"):
            self._count(usage, deltas)
        if (not choices or "error" in event) and (complaint := complaint_in(event)):
            raise stream_error(complaint, who=self._who)

    def _take_choice(self, choice: dict[str, Any], deltas: list[Delta]) -> None:
        if choice.get("index") not in _FIRST:
            return
        delta = choice.get("delta")
        if delta is None and not self._answered:
            delta = choice.get("message")
        if type(delta) is dict:
            self._take_delta(cast("dict[str, Any]", delta), deltas)
        if (reason := choice.get("finish_reason")) and isinstance(reason, str):
            self._finish_reason, self._call_behind_end = reason, False
            self.finishing = True
        if "usage" in choice:  # Moonshot puts it here
            self._count(choice["usage"], deltas)
        if "error" in choice and (complaint := complaint_in({"error": choice["error"]})):
            raise stream_error(complaint, who=self._who)

    # --- the parts of a delta

    def _take_delta(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        plain = delta.keys() <= _PLAIN_DELTA
        if not plain:
            self._take_reasoning(delta, deltas)
        text = delta.get("content")
        if type(text) is str:
            if text:
                self._answered = True
                deltas.append(TextDelta(text))
        elif text:
            self._take_parts(text, deltas)
        if not plain:
            self._show(plain_text(delta.get("refusal")), deltas)
            self._take_calls(delta, deltas)

    def _take_calls(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        pieces: object = delta.get("tool_calls") or []
        if function := delta.get("function_call"):
            pieces = {"index": "function_call", "function": function}
        for piece in cast("list[object]", pieces if isinstance(pieces, list) else [pieces]):
            if (call := self._calls.sort(piece)) is not None:
                self._answered = True
                self._call_behind_end = self.finishing
                ours = self._tool_names.get(call.name)
                deltas.append(call if ours is None else replace(call, name=ours))

    def _take_reasoning(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        """Servers may send the same text in several fields: the first that is filled counts."""
        details: object = delta.get("reasoning_details")
        if isinstance(details, list):
            self._size.count_kept_json(cast("list[object]", details))
            self._reasoning_details.add(cast("list[object]", details))
        for name in REASONING_FIELDS:
            if text := plain_text(delta.get(name)):
                self._reasoning_field = self._reasoning_field or name
                self._think(text, deltas)
                return
        self._think(plain_text(cast("object", details)), deltas)

    def _take_parts(self, parts: object, deltas: list[Delta]) -> None:
        """Content as a list of parts, as Mistral sends it."""
        for part in cast("list[Any]", parts if isinstance(parts, list) else [parts]):
            kind = cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else "text"
            text = plain_text(cast("object", part))
            if kind in ("thinking", "reasoning"):
                self._think(text, deltas)
            elif kind in (None, "text", "output_text", "refusal"):
                self._show(text, deltas)

    def _count(self, usage: object, deltas: list[Delta]) -> None:
        if (counts := usage_of(usage)) is not None:
            deltas.append(UsageDelta(counts))

    def _show(self, text: str, deltas: list[Delta]) -> None:
        if text:
            self._answered = True
            deltas.append(TextDelta(text))

    def _think(self, text: str, deltas: list[Delta]) -> None:
        if text:
            deltas.append(ThinkingDelta(text))

    # --- the end

    def _conclude(self, deltas: list[Delta]) -> None:
        whole = self._events.is_whole
        if whole and not (self._answered or self.finishing):
            raise malformed("it has no choices", who=self._who)
        if whole or self.finishing or self._events.closed:
            self._finish(deltas)

    def _finish(self, deltas: list[Delta]) -> None:
        reason = self._finish_reason
        stop = "broken" if self._call_behind_end else _STOPS.get((reason or "").lower(), "broken")
        if stop == "end" and len(self._calls):
            stop = "tool_calls"
        self._calls.close(deltas)
        self.done = True
        deltas.append(Finished(stop, reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        """Reasoning that some providers want back with the results of the calls it led to."""
        payload: dict[str, Any] = {}
        if self._reasoning_field:
            payload["field"] = self._reasoning_field
        if details := self._reasoning_details.joined():
            payload["details"] = details
        if not payload or not len(self._calls):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload=payload)
