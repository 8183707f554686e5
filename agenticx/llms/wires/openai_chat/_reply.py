"""The reply of a Chat Completions server: bytes in, deltas out, no I/O.

Only choice 0 is read. The end marker is a finish reason or `[DONE]`; `Finished` comes once, after the usage that may
follow the finish reason. A server that answers a streaming request with one JSON object is understood as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

from agenticx.llms.base import Delta, Finished, StopKind, TextDelta, ThinkingDelta, Usage, UsageDelta
from agenticx.llms.call_fields import merge_fields
from agenticx.llms.json_values import cost_in, count_in, fields_in, first_count_in
from agenticx.llms.openai_rows import MESSAGE_FIELDS, WIRE
from agenticx.llms.transport.errors import find_error, stream_error
from agenticx.llms.wires.json_events import JsonEventParser, malformed_reply
from agenticx.llms.wires.json_reply import JsonReplyParser
from agenticx.llms.wires.openai_chat._calls import ToolCallAssembler
from agenticx.messages import ProviderState

__all__ = ["REASONING_FIELDS", "ChatReplyParser", "ReasoningDetails", "parse_usage", "plain_text"]

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""The fields for reasoning of compatible servers, in replies and requests."""

_FIRST_CHOICE = (None, 0, "0", "")  # how servers number the choice that is read
_PLAIN_DELTA_FIELDS = frozenset({"content", "role"})

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
"""Any other value may mean that the reply is incomplete."""


class ChatReplyParser(JsonReplyParser):
    """A parser of one reply, `finishing` from its finish reason on: only usage may follow.

    `original_names` maps the sent names of tools to the original ones, where they differ.
    """

    def __init__(self, *, label: str, model: str, original_names: Mapping[str, str] | None = None) -> None:
        super().__init__(
            JsonEventParser(label=label, done_marker_ends=True, arguments_key="arguments"), label=label, model=model
        )
        self._calls = ToolCallAssembler(self._size)
        self._original_names = original_names or {}
        self._finish_reason: str | None = None
        self._has_content = False
        self._call_after_stop = False
        self._reasoning_field = ""
        self._reasoning_details = ReasoningDetails()
        self._thinking_blocks = ReasoningDetails()
        self._message_fields: dict[str, Any] = {}

    def feed_chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        """Return the deltas of one event that is parsed already, as from a Python model; raise `ModelError`."""
        deltas: list[Delta] = []
        self._handle_event(chunk, deltas)
        return deltas

    def finish(self) -> list[Delta]:
        """Return the deltas of the end of a reply that is complete without an end marker; raise `ModelError`."""
        deltas: list[Delta] = []
        self._finish(deltas)
        return deltas

    # --- one event

    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        choices = event.get("choices")
        if choices:
            if type(choices) is not list:
                raise malformed_reply(f"choices is {type(choices).__name__}, not a list", label=self._label)
            for choice in cast("list[object]", choices):
                if type(choice) is not dict:
                    raise malformed_reply(f"a choice is {type(choice).__name__}, not an object", label=self._label)
                self._handle_choice(cast("dict[str, Any]", choice), deltas)
        if "x_groq" in event:
            self._add_usage(fields_in(event, "x_groq").get("usage"), deltas)
        if usage := event.get("usage"):
            self._add_usage(usage, deltas)
        if (not choices or "error" in event) and (report := find_error(event)):
            raise stream_error(report, label=self._label)

    def _handle_choice(self, choice: dict[str, Any], deltas: list[Delta]) -> None:
        if choice.get("index") not in _FIRST_CHOICE:
            return
        delta = choice.get("delta")
        if delta is None and not self._has_content:
            delta = choice.get("message")
        if type(delta) is dict:
            self._handle_delta(cast("dict[str, Any]", delta), deltas)
        if (reason := choice.get("finish_reason")) and isinstance(reason, str):
            self._finish_reason, self._call_after_stop = reason, False
            self.finishing = True
        if "usage" in choice:  # Moonshot puts it here
            self._add_usage(choice["usage"], deltas)
        if "error" in choice and (report := find_error({"error": choice["error"]})):
            raise stream_error(report, label=self._label)

    # --- the parts of a delta

    def _handle_delta(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        plain = delta.keys() <= _PLAIN_DELTA_FIELDS
        if not plain:
            self._keep_message_fields(delta)
            self._handle_reasoning(delta, deltas)
        text = delta.get("content")
        if type(text) is str:
            if text:
                self._has_content = True
                deltas.append(TextDelta(text))
        elif text:
            self._handle_parts(text, deltas)
        if not plain:
            if refusal := delta.get("refusal"):
                self._add_text(plain_text(refusal), deltas)
            self._handle_calls(delta, deltas)

    def _handle_calls(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        fragments: object = delta.get("tool_calls") or []
        if function := delta.get("function_call"):
            fragments = {"index": "function_call", "function": function}
        for fragment in cast("list[object]", fragments if isinstance(fragments, list) else [fragments]):
            if (call := self._calls.add(fragment)) is not None:
                self._has_content = True
                self._call_after_stop = self.finishing
                original = self._original_names.get(call.name)
                deltas.append(call if original is None else replace(call, name=original))

    def _keep_message_fields(self, delta: dict[str, Any]) -> None:
        for name in MESSAGE_FIELDS:
            if value := delta.get(name):
                self._size.add_kept_json(value)
                if name == "thinking_blocks" and isinstance(value, list):
                    self._thinking_blocks.add(cast("list[object]", value))
                else:
                    merge_fields(self._message_fields, {name: value})

    def _handle_reasoning(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        """Add the reasoning of a delta; if servers send it in several fields, the first non-empty one counts."""
        details: object = delta.get("reasoning_details")
        if isinstance(details, list):
            self._size.add_kept_json(cast("list[object]", details))
            self._reasoning_details.add(cast("list[object]", details))
        for name in REASONING_FIELDS:
            if (value := delta.get(name)) and (text := plain_text(value)):
                self._reasoning_field = self._reasoning_field or name
                self._add_thinking(text, deltas)
                return
        if details:
            self._add_thinking(plain_text(cast("object", details)), deltas)

    def _handle_parts(self, parts: object, deltas: list[Delta]) -> None:
        """Add content that is a list of parts, as Mistral sends it."""
        for part in cast("list[Any]", parts if isinstance(parts, list) else [parts]):
            kind = cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else "text"
            text = plain_text(cast("object", part))
            if kind in ("thinking", "reasoning"):
                self._add_thinking(text, deltas)
            elif kind in (None, "text", "output_text", "refusal"):
                self._add_text(text, deltas)

    def _add_usage(self, usage: object, deltas: list[Delta]) -> None:
        if (counts := parse_usage(usage)) is not None:
            deltas.append(UsageDelta(counts))

    def _add_text(self, text: str, deltas: list[Delta]) -> None:
        if text:
            self._has_content = True
            deltas.append(TextDelta(text))

    def _add_thinking(self, text: str, deltas: list[Delta]) -> None:
        if text:
            deltas.append(ThinkingDelta(text))

    # --- the end

    def _handle_end(self, deltas: list[Delta]) -> None:
        is_json_body = self._events.is_json_body
        if is_json_body and not (self._has_content or self.finishing):
            raise malformed_reply("it has no choices", label=self._label)
        if is_json_body or self.finishing or self._events.closed:
            self._finish(deltas)

    def _finish(self, deltas: list[Delta]) -> None:
        reason = self._finish_reason
        stop = "broken" if self._call_after_stop else _STOPS.get((reason or "").lower(), "broken")
        if stop == "end" and len(self._calls):
            stop = "tool_calls"
        self._calls.close(deltas)
        self.done = True
        deltas.append(Finished(stop, reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        """Return the parts of the reply that some providers expect back with its results: reasoning, own fields."""
        payload: dict[str, Any] = {}
        if self._reasoning_field:
            payload["field"] = self._reasoning_field
        if details := self._reasoning_details.joined():
            payload["details"] = details
        if calls := self._calls.states():
            payload["calls"] = calls
        if blocks := self._thinking_blocks.joined():
            self._message_fields["thinking_blocks"] = blocks
        if self._message_fields:
            payload["message"] = self._message_fields
        if not payload or not len(self._calls):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload=payload)


# --- parts, reasoning details and usage -------------------------------------------------------------------------------


def plain_text(value: object) -> str:
    """Return the text in a string, a part, or a list of parts; encrypted and redacted parts have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(plain_text(part) for part in cast("list[object]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        names = ("text", "thinking", "summary", "refusal", "content")
        return next((text for name in names if (text := plain_text(fields.get(name)))), "")
    return ""


class ReasoningDetails:
    """Streamed `reasoning_details` or `thinking_blocks`: adjacent fragments of one type and index are one detail."""

    def __init__(self) -> None:
        self._details: list[tuple[dict[str, Any], dict[str, list[str]]]] = []

    def add(self, fragments: list[object]) -> None:
        """Add the fragments of one delta."""
        for fragment in fragments:
            if isinstance(fragment, dict):
                self._add(cast("dict[str, Any]", fragment))

    def _add(self, fragment: dict[str, Any]) -> None:
        if not self._details or any(self._details[-1][0].get(name) != fragment.get(name) for name in ("type", "index")):
            self._details.append(({}, {}))
        fields, texts = self._details[-1]
        for name, value in fragment.items():
            if name in ("text", "summary", "data", "thinking") and isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif value not in (None, "") or name not in fields:
                fields[name] = value

    def joined(self) -> list[dict[str, Any]]:
        """Return the details, each with its fragments joined."""
        return [
            {**fields, **{name: "".join(fragments) for name, fragments in texts.items()}}
            for fields, texts in self._details
        ]


def parse_usage(usage: object) -> Usage | None:
    """Return the counts in a `usage` object, None if it is none.

    xAI does not count reasoning as output; its total count shows that.
    """
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    prompt, completion = fields_in(fields, "prompt_tokens_details"), fields_in(fields, "completion_tokens_details")
    tokens_in, tokens_out = count_in(fields, "prompt_tokens"), count_in(fields, "completion_tokens")
    thought = first_count_in((completion, "reasoning_tokens"), (fields, "reasoning_tokens"))
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=first_count_in(
            (prompt, "cached_tokens"), (fields, "cached_tokens"), (fields, "prompt_cache_hit_tokens")
        ),
        reasoning_tokens=thought,
        cost_usd=_reported_cost(fields),
        cache_write_tokens=count_in(prompt, "cache_write_tokens"),
        output_excludes_reasoning=bool(thought)
        and count_in(fields, "total_tokens") == (tokens_in or 0) + (tokens_out or 0) + (thought or 0),
    )


def _reported_cost(fields: dict[str, Any]) -> Decimal | None:
    """Return the cost that the provider reports in dollars: OpenRouter in dollars, xAI in 10⁻¹⁰ dollars."""
    ticks = count_in(fields, "cost_in_usd_ticks")
    return cost_in(fields, "cost") if ticks is None else Decimal(ticks).scaleb(-10)
