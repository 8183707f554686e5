"""The reply of a Gemini server (`streamGenerateContent`): bytes in, deltas out, no I/O.

Only candidate 0 is read. The end marker is a finish reason; some models send one with every event, so the reply is
over when the body is. Calls come whole, or value by value (`partialArgs`) until a piece says that none will follow.

Known differences to the official client:

1. A prompt that is blocked (`promptFeedback.blockReason`) is an error of that type: the client returns a reply
   without candidates, like a truncated one.
2. Values of arguments in another order than the object is written in, or two strings in turns, produce arguments that
   do not parse: deltas that were sent cannot be revoked.

The provider state is the parts of the content, as received: `ProviderState.payload["parts"]`. Plain text that was
streamed is joined, and a call is stored there without its arguments, because the message has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

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
from agenticx.llms.call_fields import merge_fields, provider_fields
from agenticx.llms.json_values import arguments_json, count_in, fields_in, items_in, text_in
from agenticx.llms.memory_estimate import measure_bytes
from agenticx.llms.transport.errors import ErrorReport, blocked_prompt_error, find_error, stream_error
from agenticx.llms.wires.gemini._arguments import ArgumentsWriter
from agenticx.llms.wires.json_events import JsonEventParser
from agenticx.llms.wires.json_reply import JsonReplyParser
from agenticx.messages import ProviderState

__all__ = ["WIRE", "GeminiReplyParser"]

WIRE = "gemini"

_PART_BYTES = 256  # memory of a part in addition to its text

_STOPS: dict[str, StopKind] = {
    "STOP": "end",
    "FINISH_REASON_UNSPECIFIED": "end",
    "MAX_TOKENS": "length",
    # The text was withheld by the provider or must not be used:
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
"""Any other value may mean that the reply is incomplete."""

_UNREADABLE_CALL_REASONS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_NO_USAGE = Usage(output_excludes_reasoning=True)
_CALL_PART = frozenset({"functionCall"})
_CALL_FIELDS = frozenset({"name", "id", "args", "partialArgs", "willContinue"})
_PLAIN_TEXT_FIELDS = frozenset({"text", "thought"})


class GeminiReplyParser(JsonReplyParser):
    """A parser of one reply, `finishing` from its first finish reason on.

    `original_names` maps the sent names of tools to the original ones, where they differ.
    """

    def __init__(self, *, label: str, model: str, original_names: Mapping[str, str] | None = None) -> None:
        super().__init__(JsonEventParser(label=label, arguments_key="args"), label=label, model=model)
        self._original_names = original_names or {}
        self._finish_reason: str | None = None
        self._last_usage: object = None
        self._parts: list[dict[str, Any]] = []
        self._call_after_stop = False
        self._open_arguments: ArgumentsWriter | None = None
        self._open_call_id = ""
        self._latest_call: dict[str, Any] = {}

    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        for candidate in items_in(event, "candidates"):
            if not candidate.get("index"):
                self._handle_candidate(candidate, deltas)
        usage = event.get("usageMetadata")
        if usage != self._last_usage:  # most events repeat the counts
            self._last_usage = usage
            self._add_usage(fields_in(event, "usageMetadata"), deltas)
        if "promptFeedback" in event:
            self._raise_if_blocked(fields_in(event, "promptFeedback"))
        if "candidates" not in event and (report := find_error(event)):
            raise stream_error(report, label=self._label)

    def _raise_if_blocked(self, feedback: dict[str, Any]) -> None:
        if text_in(feedback, "blockReason"):
            blocked = {"status": feedback["blockReason"], "message": text_in(feedback, "blockReasonMessage")}
            raise blocked_prompt_error(find_error({"error": blocked}) or ErrorReport(), label=self._label)

    def _handle_candidate(self, candidate: dict[str, Any], deltas: list[Delta]) -> None:
        for part in items_in(fields_in(candidate, "content"), "parts"):
            self._handle_part(part, deltas)
        if reason := text_in(candidate, "finishReason"):
            self._finish_reason, self._call_after_stop = reason, False
            self.finishing = True

    def _handle_part(self, part: dict[str, Any], deltas: list[Delta]) -> None:
        if "functionCall" in part:
            self._handle_call(part, fields_in(part, "functionCall"), deltas)
            return
        if text := text_in(part, "text"):
            deltas.append(ThinkingDelta(text) if part.get("thought") else TextDelta(text))
        elif part.keys() <= _PLAIN_TEXT_FIELDS:
            return
        self._size.add_kept_bytes(_PART_BYTES if part.keys() <= _PLAIN_TEXT_FIELDS else measure_bytes(part))
        self._parts.append(part)

    def _add_usage(self, fields: dict[str, Any], deltas: list[Delta]) -> None:
        usage = Usage(
            input_tokens=count_in(fields, "promptTokenCount"),
            output_tokens=count_in(fields, "candidatesTokenCount"),
            cached_tokens=count_in(fields, "cachedContentTokenCount"),
            reasoning_tokens=count_in(fields, "thoughtsTokenCount"),
            output_excludes_reasoning=True,
        )
        if usage != _NO_USAGE:
            deltas.append(UsageDelta(usage))

    # --- calls

    def _handle_call(self, part: dict[str, Any], call: dict[str, Any], deltas: list[Delta]) -> None:
        """Add a whole call, or the next fragment of one; a fragment without a name belongs to the open call."""
        name, id_, arguments = text_in(call, "name"), text_in(call, "id"), call.get("args")
        continues = call.get("willContinue") is True
        if self._open_arguments is None or (name and not (id_ and id_ == self._open_call_id)):
            if not (name or arguments):
                self._extend_call(part, call)
                return
            self._begin_call(part, name, id_, deltas)
            if not continues and "partialArgs" not in call:
                deltas.append(ToolCallDelta(self._size.calls - 1, arguments=arguments_json(arguments)))
                return
            self._open_arguments, self._open_call_id = ArgumentsWriter(), id_
            deltas.append(ToolCallDelta(self._size.calls - 1, arguments=ArgumentsWriter.BEGIN))
        else:
            self._extend_call(part, call)
        self._write_arguments(self._open_arguments, call, continues, deltas)

    def _extend_call(self, part: dict[str, Any], call: dict[str, Any]) -> None:
        """Add a later fragment's other fields, for example a signature, to the part of the latest call."""
        others = provider_fields(part, _CALL_PART) | {"functionCall": provider_fields(call, _CALL_FIELDS)}
        if self._latest_call and others != {"functionCall": {}}:
            self._size.add_kept_json(others)
            merge_fields(self._latest_call, others)

    def _begin_call(self, part: dict[str, Any], name: str, id_: str, deltas: list[Delta]) -> None:
        """Begin a call; one still open stays incomplete, so that its arguments never parse and it is not run."""
        self._open_arguments = None
        number = self._size.allocate_call()
        self._call_after_stop = self.finishing
        identity = {"name": name, "id": id_} if id_ else {"name": name}
        stored = {
            **part,
            "functionCall": {**provider_fields(fields_in(part, "functionCall"), _CALL_FIELDS), **identity},
        }
        self._size.add_kept_json(stored)
        self._parts.append(stored)
        self._latest_call = stored
        deltas.append(ToolCallDelta(number, id_, self._original_names.get(name, name)))

    def _write_arguments(
        self, writer: ArgumentsWriter, call: dict[str, Any], continues: bool, deltas: list[Delta]
    ) -> None:
        fragments = [writer.add(partial_argument) for partial_argument in items_in(call, "partialArgs")]
        if isinstance(arguments := call.get("args"), dict) and arguments:
            fragments.append(writer.add_object(cast("dict[str, Any]", arguments)))
        if not continues:
            fragments.append(writer.close())
            self._open_arguments = None
        if text := "".join(fragments):
            deltas.append(ToolCallDelta(self._size.calls - 1, arguments=text))

    # --- the end

    def _handle_end(self, deltas: list[Delta]) -> None:
        if self._finish_reason is not None:
            self.done = True
            deltas.append(Finished(self._stop_kind(self._finish_reason), self._finish_reason, self._provider_state()))

    def _stop_kind(self, reason: str) -> StopKind:
        if reason in _UNREADABLE_CALL_REASONS and not self._size.calls:
            return "tool_calls"  # the model made a call that the provider could not parse, so there is none
        stop = "broken" if self._call_after_stop else _STOPS.get(reason, "broken")
        return "tool_calls" if stop == "end" and self._size.calls else stop

    def _provider_state(self) -> ProviderState | None:
        """Return the parts as provider state, None if they are only text."""
        if all(part.keys() <= _PLAIN_TEXT_FIELDS for part in self._parts):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload={"parts": _join_parts(self._parts)})


def _join_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts with adjacent plain text (or plain thoughts) joined; a signed part is not changed."""
    joined: list[tuple[dict[str, Any], list[str]]] = []
    for part in parts:
        plain = part.keys() <= _PLAIN_TEXT_FIELDS
        if plain and joined and joined[-1][1] and joined[-1][0].get("thought") == part.get("thought"):
            joined[-1][1].append(part["text"])
        else:
            joined.append((part, [part["text"]] if plain else []))
    return [{**part, "text": "".join(texts)} if texts else part for part, texts in joined]
