"""The events of a turn as the messages of a participant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from agenticx.llms.base import Usage
from agenticx.messages import AssistantMessage, ToolCall
from agenticx.runtime import Session
from agenticx.runtime.budgets.usage_payload import usage_from_data
from agenticx.runtime.events import Event
from agenticx.runtime.events.payloads import ToolCallData, ToolResultData
from agenticx.teams.agents.spending import report_usage, request_usage, waiting_for_person
from agenticx.teams.messages import (
    BaseAgentEvent,
    FunctionExecutionResult,
    ModelClientStreamingChunkEvent,
    RequestUsage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)

__all__ = ["TurnMessages"]


class TurnMessages:
    """The messages of one turn.

    `calls` and `results` are of its last round; `texts` has the texts that came with calls, of all rounds.

    With `streams` the text of a reply comes in chunks too.
    """

    def __init__(self, source: str, session: Session, *, streams: bool) -> None:
        self._source = source
        self._session = session
        self._streams = streams
        self._thought: list[str] = []
        self._usage: Usage | None = None
        self._requests = _OpenRequests()
        self.calls: Sequence[ToolCall] = ()
        self.results: list[FunctionExecutionResult] = []
        self.texts: list[str] = []

    def read(self, event: Event) -> Iterator[BaseAgentEvent]:
        """Yield the messages that `event` completes."""
        self._requests.read(event)
        if event.type == "token" and self._streams and not self.results:  # else it is a summary of the results
            data = event.data
            yield ModelClientStreamingChunkEvent(
                content=data["text"], full_message_id=data["message_id"], source=self._source
            )
        elif event.type == "thinking":
            self._thought.append(event.data["text"])
        elif event.type == "usage":
            self._usage = usage_from_data(event.data)
            report_usage(self._usage)
        elif event.type == "tool_call":
            yield from self._thoughts()
            yield from self._announced(event.data)
        elif event.type == "tool_result":
            yield from self._add_result(event.data)
        elif event.type == "question_asked":
            data = event.data
            yield UserInputRequestedEvent(request_id=data["id"], content=data["text"], source=self._source)
        elif event.type == "round_start":
            yield from self._thoughts()
            self.calls, self.results = (), []
        elif event.type == "final":
            yield from self._thoughts()

    def close(self) -> None:
        """End the waits for answers; to be called when the turn is over."""
        self._requests.close()

    def _add_result(self, data: ToolResultData) -> Iterator[ToolCallExecutionEvent]:
        self.results.append(
            FunctionExecutionResult(
                content=data["result"], name=data["name"], call_id=data["tool_call_id"], is_error=data["is_error"]
            )
        )
        if len(self.results) == len(self.calls):
            yield ToolCallExecutionEvent(content=list(self.results), source=self._source)

    def take_usage(self) -> RequestUsage | None:
        """Return the tokens of the last model call, once."""
        usage, self._usage = request_usage(self._usage), None
        return usage

    def _thoughts(self) -> Iterator[ThoughtEvent]:
        if self._thought:
            text, self._thought = "".join(self._thought), []
            yield ThoughtEvent(content=text, source=self._source)

    def _announced(self, data: ToolCallData) -> Iterator[BaseAgentEvent]:
        """Yield the text and the calls of a reply; `data` announces its first call."""
        if any(call.id == data["tool_call_id"] for call in self.calls):
            return
        reply = self._announcing_reply(data)
        self.calls, self.results = reply.tool_calls, []
        if reply.content.strip():
            self.texts.append(reply.content)  # the id is the one that its chunks name
            yield ThoughtEvent(id=reply.message_id, content=reply.content, beside_calls=True, source=self._source)
        yield ToolCallRequestEvent(content=list(reply.tool_calls), models_usage=self.take_usage(), source=self._source)

    def _announcing_reply(self, data: ToolCallData) -> AssistantMessage:
        """Return the reply with all calls of its round; `data` announces the first call."""
        for message in reversed(self._session.messages):
            if isinstance(message, AssistantMessage) and any(
                call.id == data["tool_call_id"] for call in message.tool_calls
            ):
                return message
        call = ToolCall(id=data["tool_call_id"], name=data["name"], arguments=json.dumps(data["arguments"]))
        return AssistantMessage(tool_calls=(call,))


class _OpenRequests:
    """The unanswered requests of a turn to a person: confirmations and questions."""

    def __init__(self) -> None:
        self._waits: dict[str, ExitStack] = {}

    def read(self, event: Event) -> None:
        """Begin to wait at a request, and end at its answer."""
        if event.type == "confirm_required" or event.type == "question_asked":
            self._waits[event.data["id"]] = wait = ExitStack()
            wait.enter_context(waiting_for_person())
        elif event.type == "confirm_response" or event.type == "question_answered":
            self._waits.pop(event.data["id"], ExitStack()).close()

    def close(self) -> None:
        """End the waits for answers that did not come."""
        while self._waits:
            self._waits.popitem()[1].close()
