"""One call of the model: its deltas become events as they come, its reply is kept however it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agenticx.errors import ClockExpired, ModelError
from agenticx.llms.base import (
    ChatModel,
    Delta,
    ModelRequest,
    Reply,
    ReplyBuilder,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from agenticx.messages import AssistantMessage, clean_text, new_id
from agenticx.runtime.deadlines import Deadlines, Expiry, ModelClocks, ModelStream
from agenticx.runtime.events import EventType
from agenticx.runtime.turn import Turn

__all__ = ["call_model"]


async def call_model(turn: Turn, model: ChatModel, request: ModelRequest, clocks: ModelClocks) -> tuple[Reply, str]:
    """Stream one reply under the four clocks; returns it with the id of its message.

    Raises `ModelError`: `ClockExpired` for a clock, `provider.truncated` for an end without an end marker,
    `provider.content_filter`. What was shown by then stays in the history as a partial message.
    """
    turn.enter("planning")
    writer = _ReplyWriter(turn)
    complete = False
    try:
        await _stream(turn, model, request, clocks, writer)
        reply = writer.reply()
        complete = reply.complete and reply.stop != "content_filter"
    finally:
        writer.account(model.name)
        if not complete:
            writer.keep_partial()
    if not reply.complete:
        raise ModelError(
            "the model's answer ended without its end marker, so nothing of it is acted upon",
            code="provider.truncated",
            retryable=True,
        )
    if reply.stop == "content_filter":
        raise ModelError("the provider's content filter ended the answer", code="provider.content_filter")
    return reply, writer.message_id


async def _stream(
    turn: Turn, model: ChatModel, request: ModelRequest, clocks: ModelClocks, writer: _ReplyWriter
) -> None:
    deadlines = Deadlines(clocks, turn.clock.monotonic())
    stream = ModelStream(model, request, turn.clock)
    try:
        while True:
            until, expiry = deadlines.next()
            deltas = await stream.receive(until)
            if deltas is None:
                _expired(turn, expiry, clocks, deadlines, writer)
            elif not deltas:
                return
            elif writer.write(deltas):
                deadlines.progress(turn.clock.monotonic())
                await turn.channel.room()
    finally:
        await stream.close()


def _expired(turn: Turn, expiry: Expiry, clocks: ModelClocks, deadlines: Deadlines, writer: _ReplyWriter) -> None:
    """Say that a clock ran out; the two that only inform return, the others raise `ClockExpired`."""
    now, limit = turn.clock.monotonic(), clocks.limit(expiry)
    silent = round(now - (deadlines.last_progress or deadlines.started), 3)
    total = round(now - deadlines.started, 3)
    match expiry:
        case "first_feedback":
            deadlines.notice()
            writer.waiting(total)
        case "slow":
            deadlines.notice()
            _stall(turn, "heartbeat", silent, clocks.heartbeat, "waiting")
        case "first_chunk":
            _stall(turn, "first_chunk", total, limit, "failed")
            raise ClockExpired(
                f"the model sent nothing within {limit:g} s (AGX_LLM_INVOKE_TIMEOUT_SECONDS)",
                code="timeout.first_chunk",
                elapsed_seconds=total,
                limit_seconds=limit,
            )
        case "heartbeat":
            _stall(turn, "heartbeat", silent, limit, "failed")
            raise ClockExpired(
                f"the model fell silent for {limit:g} s (AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS)",
                code="timeout.heartbeat",
                elapsed_seconds=silent,
                limit_seconds=limit,
            )
        case "hard":
            _stall(turn, "hard", total, limit, "failed")
            raise ClockExpired(
                f"the model call took longer than {limit:g} s (AGX_LLM_HARD_TIMEOUT_SECONDS)",
                code="timeout.hard",
                elapsed_seconds=total,
                limit_seconds=limit,
            )


def _stall(turn: Turn, phase: str, elapsed: float, limit: float, action: str) -> None:
    data = {"phase": phase, "elapsed_seconds": elapsed, "limit_seconds": limit, "action": action}
    turn.emit(EventType.STALL, data)


class _ReplyWriter:
    """Folds deltas into the reply and says each of them: the hot path, one event per delta."""

    def __init__(self, turn: Turn) -> None:
        self.message_id = new_id("msg")
        self._turn = turn
        self._builder = ReplyBuilder()
        self._offset = 0
        self._thinking_offset = 0
        self._call_ids: dict[int, str] = {}

    def write(self, deltas: Sequence[Delta]) -> bool:
        """Take deltas in; whether any of them was progress."""
        progress = False
        for delta in deltas:
            if isinstance(delta, TextDelta):
                progress = self._text(delta) or progress
            elif isinstance(delta, ThinkingDelta):
                progress = self._thinking(delta) or progress
            elif isinstance(delta, ToolCallDelta):
                progress = self._call(delta) or progress
            else:
                self._builder.add(delta)
        return progress

    def waiting(self, elapsed: float) -> None:
        data = {"text": "", "message_id": self.message_id, "offset": self._offset}
        self._turn.emit(EventType.TOKEN, {**data, "waiting": True, "elapsed_seconds": elapsed})

    def reply(self) -> Reply:
        """The reply so far, its calls under the ids that the session knows them by."""
        reply = self._builder.reply()
        if not reply.tool_calls:
            return reply
        calls = tuple(
            call.model_copy(update={"id": self._call_ids[index], "arguments": clean_text(call.arguments)})
            for index, call in enumerate(reply.tool_calls)
        )
        return replace(reply, tool_calls=calls)

    def account(self, model_name: str) -> None:
        """Say what the call cost; of a call that failed only if the provider said so."""
        reply = self._builder.reply()
        usage = reply.usage
        if reply.complete or usage.input_tokens is not None or usage.output_tokens is not None:
            self._turn.last_input_tokens = usage.total_input_tokens
            self._turn.spent(usage, model_name)

    def keep_partial(self) -> None:
        """Keep what was shown of a reply that did not come to its end; its calls are not part of that."""
        reply = self._builder.reply()
        self._turn.last_text = reply.text
        if reply.text:
            message = AssistantMessage(
                content=reply.text, reasoning=reply.reasoning, partial=True, message_id=self.message_id
            )
            self._turn.remember(message)

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
            self._call_ids[index] = self._turn.session.call_id(delta.id if index == delta.index else "")
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
