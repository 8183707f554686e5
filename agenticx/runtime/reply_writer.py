"""The reply while it is being received: deltas are added to it and emitted, one event per delta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agenticx.llms.base import Attempt, Delta, Reply, ReplyBuilder, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from agenticx.messages import AssistantMessage, clean_text, new_id
from agenticx.runtime.events import EventType
from agenticx.runtime.turn import Turn

__all__ = ["ReplyWriter"]


class ReplyWriter:
    """A message of the model under construction.

    `attempt` is the latest `Attempt` among its deltas, until it is taken.
    """

    def __init__(self, turn: Turn) -> None:
        self.message_id = new_id("msg")
        self.attempt: Attempt | None = None
        self._turn = turn
        self._builder = ReplyBuilder()
        self._offset = 0
        self._thinking_offset = 0
        self._call_ids: dict[int, str] = {}

    def write(self, deltas: Sequence[Delta]) -> bool:
        """Add deltas and emit their events; return whether any of them was progress."""
        progress = False
        for delta in deltas:
            if isinstance(delta, TextDelta):
                progress = self._text(delta) or progress
            elif isinstance(delta, ThinkingDelta):
                progress = self._thinking(delta) or progress
            elif isinstance(delta, ToolCallDelta):
                progress = self._call(delta) or progress
            elif isinstance(delta, Attempt):
                self.attempt = delta
            else:
                self._builder.add(delta)
        return progress

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

    def record_usage(self, model_name: str) -> None:
        """Record the usage of the call; of a failed call only if the provider reported it."""
        reply = self._builder.reply()
        usage = reply.usage
        if reply.complete or usage.input_tokens is not None or usage.output_tokens is not None:
            self._turn.last_input_tokens = usage.total_input_tokens
            self._turn.record_usage(usage, model_name)

    def keep_partial(self) -> None:
        """Append the text that was shown of an incomplete reply to the history, without its calls."""
        reply = self._builder.reply()
        self._turn.last_text = reply.text
        if reply.text:
            message = AssistantMessage(
                content=reply.text, reasoning=reply.reasoning, partial=True, message_id=self.message_id
            )
            self._turn.append(message)

    def _text(self, delta: TextDelta) -> bool:
        text = clean_text(delta.text)
        if not text:
            return False
        turn = self._turn
        if turn.state != "responding":
            turn.enter("responding")
        self._builder.add(delta if text is delta.text else TextDelta(text))
        turn.emit(EventType.TOKEN, {"text": text, "message_id": self.message_id, "offset": self._offset})
        self._offset += len(text)
        return True

    def _thinking(self, delta: ThinkingDelta) -> bool:
        text = clean_text(delta.text)
        if not text:
            return False
        self._builder.add(delta if text is delta.text else ThinkingDelta(text))
        data = {"text": text, "message_id": self.message_id, "offset": self._thinking_offset}
        self._turn.emit(EventType.THINKING, data)
        self._thinking_offset += len(text)
        return True

    def _call(self, delta: ToolCallDelta) -> bool:
        self._builder.add(delta)
        new = False
        while len(self._call_ids) <= delta.index:
            index = len(self._call_ids)
            self._call_ids[index] = self._turn.session.assign_call_id(delta.id if index == delta.index else "")
            new = True
        if not (new or delta.arguments):
            return False
        _, name = self._builder.call_identity(delta.index)
        self._turn.emit(
            EventType.TOOL_CALL_DELTA,
            {
                "tool_call_id": self._call_ids[delta.index],
                "name": clean_text(name),
                "arguments_delta": clean_text(delta.arguments),
            },
        )
        return True
