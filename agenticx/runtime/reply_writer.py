"""The reply while it is being received: deltas are added to it and emitted, one event per delta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agenticx.llms.base import Attempt, Delta, Reply, ReplyBuilder, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from agenticx.messages import AssistantMessage, clean_text, new_id
from agenticx.runtime.events import Event, EventType, ThinkingEvent, TokenEvent, ToolCallDeltaEvent
from agenticx.runtime.previews import Previews
from agenticx.runtime.turn import Turn

__all__ = ["ReplyWriter"]


class ReplyWriter:
    """A message of the model under construction.

    `attempt` is the latest `Attempt` among its deltas, until it is taken; `model_name` is the model that it calls, at
    first the one given.
    """

    def __init__(self, turn: Turn, model_name: str) -> None:
        self.message_id = new_id("msg")
        self.attempt: Attempt | None = None
        self.model_name = model_name
        self.previews = Previews(turn)
        self._turn = turn
        self._builder = ReplyBuilder()
        self._offset = 0
        self._thinking_offset = 0
        self._call_ids: dict[int, str] = {}
        self._call_names: dict[int, str] = {}

    def write(self, deltas: Sequence[Delta]) -> bool:
        """Add deltas and emit their events; return whether any of them was progress."""
        deltas = [_cleaned(delta) if isinstance(delta, _WITH_TEXT) else delta for delta in deltas]
        self._builder.add(*deltas)
        events: list[Event] = []
        grown: list[tuple[str, str]] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                if delta.text and self._turn.state != "responding":
                    self._turn.emit_deltas(events)
                    self._turn.enter("responding")
                    events = []
                self._text(delta.text, events)
            elif isinstance(delta, ThinkingDelta):
                self._thinking(delta.text, events)
            elif isinstance(delta, ToolCallDelta):
                grown.append(self._call(delta, events))
            elif isinstance(delta, Attempt):
                self._start_attempt(delta)
        self._turn.emit_deltas(events)
        for call_id, arguments in grown:
            self.previews.add(call_id, arguments)
        return bool(events)

    @property
    def has_output(self) -> bool:
        """True if anything of the reply was shown."""
        return bool(self._offset or self._thinking_offset or self._call_ids)

    @property
    def usage(self) -> Usage:
        """The token counts received so far."""
        return self._builder.usage

    def take_attempt(self) -> Attempt | None:
        """Return the latest `Attempt`, if any, and clear it."""
        attempt, self.attempt = self.attempt, None
        return attempt

    def emit_waiting(self, elapsed: float) -> None:
        """Emit an empty token that tells the client that the model has not answered for `elapsed` seconds."""
        data = {"text": "", "message_id": self.message_id, "offset": self._offset}
        self._turn.emit(EventType.TOKEN, {**data, "waiting": True, "elapsed_seconds": elapsed})

    def reply(self) -> Reply:
        """Return the reply so far; its calls have the ids that the session assigned to them."""
        reply = self._builder.reply()
        if not reply.tool_calls:
            return reply
        calls = tuple(
            call.model_copy(update={"id": self._call_ids[index], "arguments": clean_text(call.arguments)})
            for index, call in enumerate(reply.tool_calls)
        )
        return replace(reply, tool_calls=calls)

    def record_usage(self) -> None:
        """Record the usage of the call; of a failed call only if the provider reported it or a budget counts it."""
        usage = self._builder.usage
        if self._builder.complete or usage.input_tokens is not None or usage.output_tokens is not None:
            self._turn.last_input_tokens = self._turn.usage.record(usage, self.model_name)
        else:
            self._turn.usage.record_unreported(self.model_name)

    def keep_partial(self) -> None:
        """Append the text that was shown of an incomplete reply to the history, without its calls."""
        reply = self._builder.reply()
        self._turn.last_text = reply.text
        if reply.text:
            message = AssistantMessage(
                content=reply.text, reasoning=reply.reasoning, partial=True, message_id=self.message_id
            )
            self._turn.history.append(message)

    def _start_attempt(self, attempt: Attempt) -> None:
        """Take note of another attempt, and record the usage of the one that failed before."""
        if attempt.spent is not None:
            self._turn.usage.record(attempt.spent, self.model_name)
        self.attempt, self.model_name = attempt, attempt.model

    def _text(self, text: str, events: list[Event]) -> None:
        if text:
            data = {"text": text, "message_id": self.message_id, "offset": self._offset}
            events.append(TokenEvent(EventType.TOKEN, data, self._turn.agent_id, self._turn.id))
            self._offset += len(text)

    def _thinking(self, text: str, events: list[Event]) -> None:
        if text:
            data = {"text": text, "message_id": self.message_id, "offset": self._thinking_offset}
            events.append(ThinkingEvent(EventType.THINKING, data, self._turn.agent_id, self._turn.id))
            self._thinking_offset += len(text)

    def _call(self, delta: ToolCallDelta, events: list[Event]) -> tuple[str, str]:
        """Emit the event of a delta; return the id of its call, and what it adds to the arguments."""
        new = False
        while len(self._call_ids) <= delta.index:
            index = len(self._call_ids)
            self._call_ids[index] = self._turn.session.assign_call_id(delta.id if index == delta.index else "")
            new = True
        call_id, arguments = self._call_ids[delta.index], clean_text(delta.arguments)
        name = self._call_names[delta.index] = delta.name or self._call_names.get(delta.index, "")
        if delta.name:
            self.previews.begin(call_id, name)
        if new or delta.arguments:
            data = {"tool_call_id": call_id, "name": name, "arguments_delta": arguments}
            events.append(ToolCallDeltaEvent(EventType.TOOL_CALL_DELTA, data, self._turn.agent_id, self._turn.id))
        return call_id, arguments


_WITH_TEXT = (TextDelta, ThinkingDelta, ToolCallDelta)


def _cleaned(delta: TextDelta | ThinkingDelta | ToolCallDelta) -> TextDelta | ThinkingDelta | ToolCallDelta:
    """Return the delta with its text, or its id and name, as it can be stored; `reply` cleans the arguments."""
    if not isinstance(delta, ToolCallDelta):
        return delta if delta.text.isascii() else replace(delta, text=clean_text(delta.text))
    if not (delta.id or delta.name):  # all but the first of a call
        return delta
    return replace(delta, id=clean_text(delta.id), name=clean_text(delta.name))
