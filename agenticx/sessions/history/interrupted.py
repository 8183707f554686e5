"""Recovery of a turn whose process died: resumed where that is exact, else ended explicitly.

A turn that waits for the user's answer while no call is under way, except calls of idempotent tools, resumes: its call
runs once it is allowed. Any other turn is ended.

The log holds the events that were shown, the facts beside it the calls that had begun. A begun call without a result
may have taken effect, so its outcome is reported as unknown and it never runs again, unless its tool is idempotent and
its turn resumes. A call that had not begun is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from agenticx.llms.base import Usage
from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolOutcome
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, EventType, RuntimeEvent
from agenticx.runtime.budgets.usage_payload import usage_from_data
from agenticx.runtime.confirm import QuestionAnswer, QuestionRequest
from agenticx.runtime.events import (
    ArtifactEvent,
    ConfirmRequiredEvent,
    ConfirmResponseEvent,
    Event,
    QuestionAnsweredEvent,
    QuestionAskedEvent,
    RoundStartEvent,
    StateEvent,
    TokenEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnState,
    UsageEvent,
)
from agenticx.runtime.events.payloads import ArtifactData, ToolResultData
from agenticx.runtime.questions.user_question import AnsweredBy
from agenticx.runtime.resume import ResumedQuestion, ResumedTurn, ResumePoint
from agenticx.runtime.sanitize import OUTCOME_UNKNOWN
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.entries import (
    CallBegan,
    Fact,
    QuestionAnswered,
    SessionEvent,
    StoredEvent,
    answer_from_data,
    decode,
)
from agenticx.tools.session_files import ArtifactPreview

__all__ = [
    "InterruptedTurn",
    "child_resume_point",
    "confirm_request",
    "question_request",
    "resume_point",
    "work_resume_point",
]

NOT_BEGUN = "Cancelled: the program ended before this call began to run."
_REPEATABLE = "[interrupted] This call has no recorded result: the turn was interrupted. You may repeat it."


@dataclass(slots=True)
class InterruptedTurn:
    """The state of a turn in its log and its facts.

    `agent_id` is the agent that began the turn, `acting_agent_id` that of the last round. `questions` and `responses`
    hold payloads by the ids of their questions, which are confirmations or questions of the agent; `answers` the stored
    answers in the same way; `begun_calls` the ids of calls. `results` are those of the last round, `askers` the agents
    that asked, and `last_type` is the type of the last event.
    """

    session_id: str = ""
    agent_id: str = "meta"
    acting_agent_id: str = "meta"
    state: str = "idle"
    round: int = 0
    usage: Usage | None = None
    message_id: str = ""
    text: str = ""
    ended: bool = False
    open_calls: dict[str, str] = field(default_factory=dict[str, str])  # calls without a result: id → name
    previews: dict[str, ArtifactPreview] = field(default_factory=dict[str, ArtifactPreview])  # by call, not stored yet
    questions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    asked_at: dict[str, datetime] = field(default_factory=dict[str, datetime])
    responses: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    results: dict[str, ToolMessage] = field(default_factory=dict[str, ToolMessage])
    askers: set[str] = field(default_factory=set[str])
    last_type: str = ""
    begun_calls: frozenset[str] = frozenset()
    answers: Mapping[str, ConfirmAnswer | QuestionAnswer] = field(
        default_factory=dict[str, ConfirmAnswer | QuestionAnswer]
    )

    @classmethod
    def from_log(cls, events: Sequence[StoredEvent], facts: Sequence[Fact]) -> InterruptedTurn:
        """Fold the events and the facts of one turn; raises `DamagedData`."""
        turn = cls()
        with map_decode_errors(f"the log of turn {events[0].turn_id if events else None!r}"):
            for stored in events:
                turn._apply(stored.session_id, decode(stored))
            turn.begun_calls = frozenset(fact.call_id for fact in facts if isinstance(fact, CallBegan))
            turn.answers = {fact.key: fact.answer for fact in facts if isinstance(fact, QuestionAnswered)}
        return turn

    def _apply(self, session_id: str, entry: SessionEvent) -> None:
        event = entry.event
        if not self.session_id:
            self.session_id, self.agent_id, self.acting_agent_id = session_id, event.agent_id, event.agent_id
        self.ended, self.last_type = self.ended or event.terminal, event.type
        match event:
            case StateEvent(data=data):
                self.state = data["state"]
            case RoundStartEvent(data=data):
                self.round, self.acting_agent_id = data["round"], event.agent_id
                self.results.clear()
            case UsageEvent(data=data):
                usage = usage_from_data(data)
                self.usage = usage if self.usage is None else self.usage + usage
            case TokenEvent(data=data) if data["text"]:
                before = self.text if data["message_id"] == self.message_id else ""
                self.message_id, self.text = data["message_id"], before + data["text"]
            case ArtifactEvent(data=data):
                self._apply_artifact(data)
            case ToolCallEvent(data=data):
                self.open_calls[data["tool_call_id"]] = data["name"]
            case ToolResultEvent(data=data):
                self.open_calls.pop(data["tool_call_id"], None)
                self.results[data["tool_call_id"]] = _result_message(data)
            case _:
                self._apply_question(event, entry.ts)

    def _apply_question(self, event: Event, ts: str) -> None:
        match event:
            case ConfirmRequiredEvent() | QuestionAskedEvent():
                id_ = event.data["id"]
                self.questions[id_] = {**event.data}
                self.askers.add(event.agent_id)
                self.asked_at[id_] = datetime.fromisoformat(ts)
            case ConfirmResponseEvent() | QuestionAnsweredEvent():
                self.responses[event.data["id"]] = {**event.data}
            case _:
                pass

    def _apply_artifact(self, data: ArtifactData) -> None:
        call_id = data.get("tool_call_id", "")
        if data["final"]:
            self.previews.pop(call_id, None)
        elif "revision" in data:  # it has none where a tool of the application shows something
            self.previews[call_id] = ArtifactPreview(data["path"], data["revision"], "")

    @property
    def has_handed_over(self) -> bool:
        """True if another agent acts than the one with which the turn began."""
        return self.acting_agent_id != self.agent_id

    # --- resuming -----------------------------------------------------------------------------------------------------

    def open_questions(self, again: Collection[str] = ()) -> Iterator[tuple[str, ResumedQuestion]]:
        """Yield call id and question for each call that may still begin, or begins `again`."""
        for id_, data in self.questions.items():
            call_id = _call_id(data)
            if call_id in self.open_calls and (call_id not in self.begun_calls or call_id in again):
                yield call_id, self._resumed(id_)

    def _resumed(self, id_: str) -> ResumedQuestion:
        data, response = self.questions[id_], self.responses.get(id_)
        return ResumedQuestion(
            request=(confirm_request if "context" in data else question_request)(
                data, self.session_id, self.acting_agent_id
            ),
            answer=self.answers.get(id_) if response is None else answer_from_data(response),
            asked_at=self.asked_at.get(id_),
            is_response_logged=response is not None,
        )

    def asked_questions(self) -> Mapping[str, ResumedQuestion]:
        """Return the questions that the work of the turn has asked, by their ids, with their answers."""
        return {id_: self._resumed(id_) for id_, data in self.questions.items() if not _call_id(data)}

    @property
    def waits_by_itself(self) -> bool:
        """True if the work of the turn waits for an answer, or has done nothing since it got one."""
        return bool(self.questions.keys() - self.responses.keys()) or self.last_type == EventType.QUESTION_ANSWERED

    # --- ending -------------------------------------------------------------------------------------------------------

    def missing_messages(
        self, messages: Sequence[Message], idempotent: Callable[[str], bool] = lambda _name: False
    ) -> list[Message]:
        """Return the messages that were shown and are not in `messages`.

        These are the text of an interrupted reply and the results of its calls. That of a call under way whose tool, by
        name, is `idempotent` says that it may be repeated.
        """
        present = {message.message_id for message in messages if isinstance(message, AssistantMessage)}
        missing: list[Message] = []
        if self.text and self.message_id not in present:
            missing.append(AssistantMessage(content=self.text, partial=True, message_id=self.message_id))
        answered = _results(messages)
        for call_id, name in self.open_calls.items():
            if call_id not in answered:
                text, outcome = self._call_outcome(call_id, idempotent)
                missing.append(ToolMessage(tool_call_id=call_id, name=name, content=text, outcome=outcome))
        return missing

    def closing_events(self, messages: Sequence[Message], code: str, text: str) -> list[RuntimeEvent]:
        """Return the events that end the turn; `messages` has the results of its open calls.

        Its open questions are closed by a stop if that is the `code`, else by a restart.
        """
        by: AnsweredBy = "stop" if code == "stopped" else "restart"
        events: list[RuntimeEvent] = []
        for id_ in self.questions.keys() - self.responses.keys():
            if "context" in self.questions[id_]:
                events.append(RuntimeEvent(EventType.CONFIRM_RESPONSE, {"id": id_, "approved": False, "by": by}))
            else:
                events.append(RuntimeEvent(EventType.QUESTION_ANSWERED, {"id": id_, "answer": "", "by": by}))
        for call_id, preview in self.previews.items():
            events.append(RuntimeEvent(EventType.ARTIFACT, preview.dropped_data | {"tool_call_id": call_id}))
        results = _results(messages)
        events += (_result_event(results[call_id]) for call_id in self.open_calls if call_id in results)
        if self.state != "done":
            events.append(RuntimeEvent(EventType.STATE, {"state": "done"}))
        events.append(RuntimeEvent(EventType.ERROR, {"text": text, "code": code, "fatal": True}))
        return [replace(event, agent_id=self.acting_agent_id) for event in events]

    def _call_outcome(self, call_id: str, idempotent: Callable[[str], bool]) -> tuple[str, ToolOutcome]:
        if call_id not in self.begun_calls:
            return NOT_BEGUN, "cancelled"
        return _REPEATABLE if idempotent(self.open_calls[call_id]) else OUTCOME_UNKNOWN, "unknown"


def resume_point(
    turn: InterruptedTurn, messages: Sequence[Message], idempotent: Callable[[str], bool] = lambda _name: False
) -> ResumePoint | None:
    """Return where the turn resumes: at a question to the user while no call is under way; None if impossible.

    Calls under way beside the question do not prevent it if all of their tools, by name, are `idempotent`: they begin
    again, with the answers that were given for them.
    """
    under_way, calls = turn.begun_calls & turn.open_calls.keys(), _calls(messages)
    if not any(turn.open_questions()) or not turn.open_calls.keys() <= calls.keys():
        return None
    if not all(idempotent(turn.open_calls[call_id]) for call_id in under_way):
        return None
    questions = dict(turn.open_questions(under_way))
    return ResumePoint(
        round=turn.round,
        calls=tuple(calls[call_id] for call_id in turn.open_calls),
        questions=questions,
        state="executing",
        usage=turn.usage,
        last_text=turn.text,
        handed_over_to=turn.acting_agent_id if turn.has_handed_over else None,
        previews=turn.previews,
    )


def child_resume_point(turn: InterruptedTurn, messages: list[Message]) -> ResumePoint | None:
    """Return where a turn below another one resumes, as `resume_point` does; None if impossible.

    `messages` are its conversation at some time since its last reply; they become those that the log has.
    """
    if turn.askers != {turn.agent_id}:
        return None
    while messages and isinstance(messages[-1], ToolMessage):
        messages.pop()
    messages += turn.results.values()
    return resume_point(turn, messages)


def work_resume_point(turn: InterruptedTurn, children: Sequence[ResumedTurn]) -> ResumePoint | None:
    """Return where a turn with work resumes: where it, or one of the `children`, waits for a person; None if none do.

    The `children` are all turns that are open below it.
    """
    if turn.round or turn.open_calls or not (children or turn.waits_by_itself):
        return None
    return ResumePoint(
        round=0,
        calls=(),
        questions=turn.asked_questions(),
        state=cast("TurnState", turn.state),
        usage=turn.usage,
        children=children,
    )


def _call_id(question: Mapping[str, Any]) -> str:
    """Return the id of the call that asks, "" for a question of the turn's work."""
    return question.get("context", question).get("tool_call_id", "")


def _calls(messages: Sequence[Message]) -> dict[str, ToolCall]:
    """Return the calls of the last reply by their ids."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return {call.id: call for call in message.tool_calls}
    return {}


def _results(messages: Sequence[Message]) -> dict[str, ToolMessage]:
    return {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}


def _result_message(data: ToolResultData) -> ToolMessage:
    outcome = data.get("outcome", "error" if data["is_error"] else "ok")
    return ToolMessage(
        tool_call_id=data["tool_call_id"],
        name=data["name"],
        content=data["result"],
        outcome=outcome,
        sources=tuple(data.get("sources", ())),
    )


def _result_event(message: ToolMessage) -> RuntimeEvent:
    data = {
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "result": message.content,
        "is_error": message.outcome != "ok",
        "outcome": message.outcome,
    }
    if message.sources:
        data |= {"untrusted": True, "sources": list(message.sources)}
    return RuntimeEvent(EventType.TOOL_RESULT, data)


def confirm_request(data: Mapping[str, Any], session_id: str, agent_id: str = "meta") -> ConfirmRequest:
    """Return the question of the data of a `confirm_required`."""
    return ConfirmRequest(
        id=data["id"],
        question=data["question"],
        context=data["context"],
        digest=data["digest"],
        expires_at=datetime.fromisoformat(data["expires_at"]),
        session_id=session_id,
        agent_id=agent_id,
        agent_path=tuple(data.get("agent_path", ())),
    )


def question_request(data: Mapping[str, Any], session_id: str, agent_id: str = "meta") -> QuestionRequest:
    """Return the question of the data of a `question_asked`."""
    return QuestionRequest(
        id=data["id"],
        text=data["text"],
        options=tuple(data.get("options", ())),
        expires_at=datetime.fromisoformat(data["expires_at"]),
        session_id=session_id,
        agent_id=agent_id,
        tool_call_id=data.get("tool_call_id", ""),
        agent_path=tuple(data.get("agent_path", ())),
    )
