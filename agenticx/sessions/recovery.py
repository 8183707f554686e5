"""What becomes of a turn whose process died: it goes on where that is exact, else it is ended in so many words.

The log says what was shown, the journal which calls had begun. A call that had begun and has no result may have taken
effect, so it is told as unknown and never run again, unless its tool is idempotent and its turn goes on; one that had
not begun is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from agenticx.llms.base import Usage
from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolOutcome
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, EventType, RuntimeEvent
from agenticx.runtime.resuming import Question, ResumePoint
from agenticx.runtime.sanitize import OUTCOME_UNKNOWN
from agenticx.sessions.base import JournalEntry, StoredEvent
from agenticx.sessions.damage import map_decode_errors

__all__ = ["CutTurn", "answer_data", "answer_of", "resume_point"]

NOT_BEGUN = "Cancelled: the program ended before this call began to run."


@dataclass(slots=True)
class CutTurn:
    """A turn as its log and its journal leave it; `began` and `answers` are of calls and of questions, by their ids."""

    session_id: str = ""
    state: str = "idle"
    round: int = 0
    usage: Usage | None = None
    message_id: str = ""
    text: str = ""
    ended: bool = False
    calls: dict[str, str] = field(default_factory=dict[str, str])  # those without a result: id → name
    questions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    responses: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    began: frozenset[str] = frozenset()
    answers: Mapping[str, ConfirmAnswer] = field(default_factory=dict[str, ConfirmAnswer])

    @classmethod
    def of(cls, events: Sequence[StoredEvent], journal: Sequence[JournalEntry]) -> CutTurn:
        """Fold the events of one turn and its journal; raises `Damaged`."""
        cut = cls()
        with map_decode_errors(f"the log of turn {events[0].turn_id if events else None!r}"):
            for event in events:
                cut.session_id = event.session_id
                cut.ended = cut.ended or event.terminal
                cut._take(event.type, json.loads(event.frame_json)["data"])
            cut.began = frozenset(entry.data["call_id"] for entry in journal if entry.kind == "began")
            cut.answers = {entry.key: answer_of(entry.data) for entry in journal if entry.kind == "answered"}
        return cut

    def _take(self, type_: str, data: dict[str, Any]) -> None:
        match type_:
            case "state":
                self.state = data["state"]
            case "round_start":
                self.round = data["round"]
            case "usage":
                spent = _usage(data)
                self.usage = spent if self.usage is None else self.usage + spent
            case "token" if data["text"]:
                before = self.text if data["message_id"] == self.message_id else ""
                self.message_id, self.text = data["message_id"], before + data["text"]
            case "tool_call":
                self.calls[data["tool_call_id"]] = data["name"]
            case "tool_result":
                self.calls.pop(data["tool_call_id"], None)
            case "confirm_required":
                self.questions[data["id"]] = data
            case "confirm_response":
                self.responses[data["id"]] = data
            case _:
                pass

    # --- going on -----------------------------------------------------------------------------------------------------

    def asked(self, again: Collection[str] = ()) -> Iterator[tuple[str, Question]]:
        """The questions of calls that may still begin, or begin `again`: call id and question."""
        for id_, data in self.questions.items():
            call_id, response = data["context"].get("tool_call_id", ""), self.responses.get(id_)
            if call_id in self.calls and (call_id not in self.began or call_id in again):
                answer = self.answers.get(id_) if response is None else answer_of(response)
                yield call_id, Question(request=self._request(data), answer=answer, said=response is not None)

    def _request(self, data: dict[str, Any]) -> ConfirmRequest:
        return ConfirmRequest(
            id=data["id"],
            question=data["question"],
            context=data["context"],
            digest=data["digest"],
            expires_at=datetime.fromisoformat(data["expires_at"]),
            session_id=self.session_id,
        )

    # --- ending -------------------------------------------------------------------------------------------------------

    def unsaid(self, messages: Sequence[Message]) -> list[Message]:
        """What the conversation lacks of what was shown: the text of a reply that was cut, results of its calls."""
        said = {message.message_id for message in messages if isinstance(message, AssistantMessage)}
        lacking: list[Message] = []
        if self.text and self.message_id not in said:
            lacking.append(AssistantMessage(content=self.text, partial=True, message_id=self.message_id))
        answered = _results(messages)
        for call_id, name in self.calls.items():
            if call_id not in answered:
                text, outcome = self._verdict(call_id)
                lacking.append(ToolMessage(tool_call_id=call_id, name=name, content=text, outcome=outcome))
        return lacking

    def ending(self, messages: Sequence[Message], code: str, text: str) -> list[RuntimeEvent]:
        """The events that end the turn; `messages` is the conversation with what `unsaid` added."""
        events: list[RuntimeEvent] = []
        for id_ in self.questions.keys() - self.responses.keys():
            no = {"id": id_, "approved": False, "by": "restart"}
            events.append(RuntimeEvent(EventType.CONFIRM_RESPONSE, no))
        results = _results(messages)
        events += (_result_event(results[call_id]) for call_id in self.calls if call_id in results)
        if self.state != "done":
            events.append(RuntimeEvent(EventType.STATE, {"state": "done"}))
        return [*events, RuntimeEvent(EventType.ERROR, {"text": text, "code": code, "fatal": True})]

    def _verdict(self, call_id: str) -> tuple[str, ToolOutcome]:
        return (OUTCOME_UNKNOWN, "unknown") if call_id in self.began else (NOT_BEGUN, "cancelled")


def resume_point(
    cut: CutTurn, messages: Sequence[Message], idempotent: Callable[[str], bool] = lambda _name: False
) -> ResumePoint | None:
    """Where the turn goes on: at a question to the person, if nothing is under way; None where that is not so.

    Calls under way beside the question are no hindrance if all of their tools, by name, are `idempotent`: they begin
    again, with the answers that were given for them.
    """
    under_way, calls = cut.began & cut.calls.keys(), _calls(messages)
    if not any(cut.asked()) or not cut.calls.keys() <= calls.keys():
        return None
    if not all(idempotent(cut.calls[call_id]) for call_id in under_way):
        return None
    questions = dict(cut.asked(under_way))
    return ResumePoint(
        round=cut.round,
        calls=tuple(calls[call_id] for call_id in cut.calls),
        questions=questions,
        state="executing",
        usage=cut.usage,
        last_text=cut.text,
    )


def _calls(messages: Sequence[Message]) -> dict[str, ToolCall]:
    """The calls of the last reply."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return {call.id: call for call in message.tool_calls}
    return {}


def _results(messages: Sequence[Message]) -> dict[str, ToolMessage]:
    return {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}


def _result_event(message: ToolMessage) -> RuntimeEvent:
    data = {
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "result": message.content,
        "is_error": message.outcome != "ok",
        "outcome": message.outcome,
    }
    return RuntimeEvent(EventType.TOOL_RESULT, data)


def answer_of(data: Mapping[str, Any]) -> ConfirmAnswer:
    """An answer as the journal or a `confirm_response` tells it."""
    return ConfirmAnswer(
        approved=data["approved"],
        by=data.get("by", "user"),
        remember=data.get("remember", "once"),
        arguments=data.get("arguments"),
        reason=data.get("reason"),
    )


def answer_data(answer: ConfirmAnswer) -> dict[str, Any]:
    """An answer as the journal keeps it."""
    data = {"approved": answer.approved, "by": answer.by, "remember": answer.remember, "reason": answer.reason}
    return data if answer.arguments is None else data | {"arguments": dict(answer.arguments)}


def _usage(data: Mapping[str, Any]) -> Usage:
    cost = data.get("cost_usd")
    return Usage(
        data["input_tokens"],
        data["output_tokens"],
        data.get("cached_tokens"),
        data.get("reasoning_tokens"),
        None if cost is None else Decimal(cost),
    )
