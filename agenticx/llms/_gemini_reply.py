"""The reply of a Gemini server (`streamGenerateContent`): bytes in, deltas out, no I/O.

Only candidate 0 is read. The end marker is a finish reason; some models send one with every event, so the reply is
over when the body is. Calls come whole, or value by value (`partialArgs`) until a piece says that none will follow.

What the provider wants back are the parts of the content, as they came: `ProviderState.payload["parts"]`. Plain text
that was streamed in pieces is joined, and a call stands there without its arguments, which the message has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._failures import complaint_in, stream_error
from agenticx.llms._gemini_arguments import ArgumentsWriter
from agenticx.llms._json_events import JsonEvents, malformed
from agenticx.llms._values import count_in, fields_in, items_in, text_in
from agenticx.llms.base import Delta, Finished, StopKind, TextDelta, ThinkingDelta, ToolCallDelta, Usage, UsageDelta
from agenticx.messages import ProviderState

__all__ = ["MAX_CALLS", "MAX_REPLY_COST", "WIRE", "GeminiReplyParser"]

WIRE = "gemini"

MAX_CALLS = 256
"""Calls of one reply; real models ask for a few dozen at most."""

MAX_REPLY_COST = 32 * 1024 * 1024
"""Longest reply, in bytes of its events plus `_PART_COST` for each part, which is about what it takes in memory."""

_PART_COST = 256  # what the object of a part takes beside its text

_STOPS: dict[str, StopKind] = {
    "MAX_TOKENS": "length",
    # The model asked for a call that nobody could read, so there is none:
    "MALFORMED_FUNCTION_CALL": "tool_calls",
    "UNEXPECTED_TOOL_CALL": "tool_calls",
    # What was said is withheld, or is not to be used:
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
_NOTHING_COUNTED = Usage(output_excludes_reasoning=True)
_PLAIN_TEXT = frozenset({"text", "thought"})


class GeminiReplyParser:
    """One reply. After each `feed` look at the state: `error` (raise it), `finishing` (a finish reason was seen).

    `who` names the provider in errors, `model` the model that the reply's provider state belongs to. `tool_names` has
    our names of the tools that the provider knows by another one.
    """

    def __init__(self, *, who: str, model: str, tool_names: Mapping[str, str] | None = None) -> None:
        self.error: ModelError | None = None
        self.done = False
        self._who = who
        self._model = model
        self._tool_names = tool_names or {}
        self._events = JsonEvents(who=who)
        self._finish_reason: str | None = None
        self._counted: object = None
        self._parts: list[dict[str, Any]] = []
        self._calls = 0
        self._open: ArgumentsWriter | None = None
        self._open_id = ""
        self._spent = 0

    @property
    def finishing(self) -> bool:
        """Whether the reply is whole as far as it came."""
        return self._finish_reason is not None and self.error is None and not self.done

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas of all events that `data` completes."""
        return self._take(self._events.feed(data))

    def end(self) -> list[Delta]:
        """What the end of the body completes. Without a finish reason there is no `Finished` in it."""
        if self.done or self.error:
            return []
        deltas = self._take(self._events.end())
        if self.finishing:
            self._finish(deltas)
        return deltas

    def _take(self, events: Iterator[tuple[dict[str, Any], int]]) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event, size in events:
                self._spent += size
                if self._spent > MAX_REPLY_COST:
                    raise malformed("it is longer than any reply may be", who=self._who)
                self._take_event(event, deltas)
        except ModelError as exc:
            self.error = exc
        except RecursionError:
            self.error = malformed("an event is nested too deeply", who=self._who)
        return deltas

    def _take_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        for candidate in items_in(event, "candidates"):
            if not candidate.get("index"):
                self._take_candidate(candidate, deltas)
        usage = event.get("usageMetadata")
        if usage != self._counted:  # most events repeat the counts
            self._counted = usage
            self._count(fields_in(event, "usageMetadata"), deltas)
        if "promptFeedback" in event:
            self._check_prompt(fields_in(event, "promptFeedback"))
        if "candidates" not in event and (complaint := complaint_in(event)):
            raise stream_error(complaint, who=self._who)

    def _check_prompt(self, feedback: dict[str, Any]) -> None:
        reason, message = text_in(feedback, "blockReason"), text_in(feedback, "blockReasonMessage")
        if reason:
            raise ModelError(
                f"{self._who} refuses the prompt ({reason}){': ' if message else ''}{message}",
                code="provider.content_filter",
                provider_type=reason,
            )

    def _take_candidate(self, candidate: dict[str, Any], deltas: list[Delta]) -> None:
        for part in items_in(fields_in(candidate, "content"), "parts"):
            self._take_part(part, deltas)
        self._finish_reason = text_in(candidate, "finishReason") or self._finish_reason

    def _take_part(self, part: dict[str, Any], deltas: list[Delta]) -> None:
        if "functionCall" in part:
            self._take_call(part, fields_in(part, "functionCall"), deltas)
            return
        if text := text_in(part, "text"):
            deltas.append(ThinkingDelta(text) if part.get("thought") else TextDelta(text))
        elif part.keys() <= _PLAIN_TEXT:
            return
        self._spent += _PART_COST
        self._parts.append(part)

    def _count(self, fields: dict[str, Any], deltas: list[Delta]) -> None:
        usage = Usage(
            input_tokens=count_in(fields, "promptTokenCount"),
            output_tokens=count_in(fields, "candidatesTokenCount"),
            cached_tokens=count_in(fields, "cachedContentTokenCount"),
            reasoning_tokens=count_in(fields, "thoughtsTokenCount"),
            output_excludes_reasoning=True,
        )
        if usage != _NOTHING_COUNTED:
            deltas.append(UsageDelta(usage))

    # --- calls

    def _take_call(self, part: dict[str, Any], call: dict[str, Any], deltas: list[Delta]) -> None:
        """A whole call, or the next piece of one; a piece without a name belongs to the call that is open."""
        name, id_, arguments = text_in(call, "name"), text_in(call, "id"), call.get("args")
        goes_on = call.get("willContinue") is True
        if self._open is None or (name and not (id_ and id_ == self._open_id)):
            if not (name or arguments):
                return
            self._begin(part, name, id_, deltas)
            if not goes_on and "partialArgs" not in call:
                deltas.append(ToolCallDelta(self._calls - 1, arguments=_json_text(arguments)))
                return
            self._open, self._open_id = ArgumentsWriter(), id_
            deltas.append(ToolCallDelta(self._calls - 1, arguments=ArgumentsWriter.BEGIN))
        self._write(self._open, call, goes_on, deltas)

    def _begin(self, part: dict[str, Any], name: str, id_: str, deltas: list[Delta]) -> None:
        """The head of a call. One that was open stays so: its text does not parse, and nothing runs on it."""
        if self._calls >= MAX_CALLS:
            raise malformed(f"it asks for more than {MAX_CALLS} tool calls", who=self._who)
        self._open = None
        self._calls += 1
        identity = {"name": name, "id": id_} if id_ else {"name": name}
        self._parts.append({**part, "functionCall": identity})
        deltas.append(ToolCallDelta(self._calls - 1, id_, self._tool_names.get(name, name)))

    def _write(self, writer: ArgumentsWriter, call: dict[str, Any], goes_on: bool, deltas: list[Delta]) -> None:
        pieces = [writer.add(piece) for piece in items_in(call, "partialArgs")]
        if arguments := fields_in(call, "args"):
            pieces.append(writer.add_whole(arguments))
        if not goes_on:
            pieces.append(writer.close())
            self._open = None
        if text := "".join(pieces):
            deltas.append(ToolCallDelta(self._calls - 1, arguments=text))

    # --- the end

    def _finish(self, deltas: list[Delta]) -> None:
        stop = _STOPS.get(self._finish_reason or "", "end")
        if stop == "end" and self._calls:
            stop = "tool_calls"
        self.done = True
        deltas.append(Finished(stop, self._finish_reason, self._provider_state()))

    def _provider_state(self) -> ProviderState | None:
        """The parts, if there is more to them than text."""
        if all(part.keys() <= _PLAIN_TEXT for part in self._parts):
            return None
        return ProviderState(wire=WIRE, model=self._model, payload={"parts": _joined(self._parts)})


def _json_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":"))


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts, with neighbours that are plain text (or plain thought) put together; a signed part stays as it is."""
    joined: list[tuple[dict[str, Any], list[str]]] = []
    for part in parts:
        plain = part.keys() <= _PLAIN_TEXT
        if plain and joined and joined[-1][1] and joined[-1][0].get("thought") == part.get("thought"):
            joined[-1][1].append(part["text"])
        else:
            joined.append((part, [part["text"]] if plain else []))
    return [{**part, "text": "".join(texts)} if texts else part for part, texts in joined]
