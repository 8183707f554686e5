"""Recovery of a turn whose process died: resumed where that is exact, else ended explicitly.

A turn that waits for the user's answer while no call is under way, except calls of idempotent tools, resumes: its call
runs once it is allowed. Any other turn is ended.

The log holds the events that were shown, the facts beside it the calls that had begun. A begun call without a result
may have taken effect, so its outcome is reported as unknown and it never runs again, unless its tool is idempotent and
its turn resumes. A call that had not begun is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolOutcome
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.runtime.resume import ResumedRequest, ResumedTurn, ResumePoint
from agenticx.runtime.sanitizing import OUTCOME_UNKNOWN
from agenticx.runtime.user_requests.edited_arguments import edited_arguments, with_edited_arguments
from agenticx.runtime.user_requests.kinds import kind_of_event
from agenticx.runtime.user_requests.requests import AnsweredBy, UserAnswer
from agenticx.sessions.log.events import asked_request, given_answer
from agenticx.sessions.log.records import CallBegan, Fact, RequestAnswered
from agenticx.sessions.log.turn_tree import LoggedTurn

__all__ = [
    "InterruptedTurn",
    "child_resume_point",
    "resume_point",
    "work_resume_point",
]

NOT_BEGUN = "Cancelled: the program ended before this call began to run."
_REPEATABLE = "[interrupted] This call has no recorded result: the turn was interrupted. You may repeat it."


@dataclass(frozen=True, slots=True)
class InterruptedTurn:
    """A turn of an earlier process: its events, and its facts.

    `begun_calls` are the ids of the calls that began, `answers` the stored answers by the ids of their requests.
    """

    session_id: str
    turn: LoggedTurn
    begun_calls: frozenset[str] = frozenset()
    answers: Mapping[str, UserAnswer] = field(default_factory=dict[str, UserAnswer])

    @classmethod
    def with_facts(cls, session_id: str, turn: LoggedTurn, facts: Iterable[Fact]) -> InterruptedTurn:
        """Return a turn with the contents of its facts."""
        own = [fact for fact in facts if fact.turn_id == turn.id]
        begun = frozenset(fact.call_id for fact in own if isinstance(fact, CallBegan))
        answers = {fact.key: fact.answer for fact in own if isinstance(fact, RequestAnswered)}
        return cls(session_id, turn, begun, answers)

    # --- resuming -----------------------------------------------------------------------------------------------------

    def open_requests(self, again: Collection[str] = ()) -> Iterator[tuple[str, ResumedRequest]]:
        """Yield call id and request for each call that may still begin, or begins `again`."""
        for resumed in map(self._resumed, self.turn.requests):
            call_id = resumed.request.tool_call_id
            if call_id in self.turn.open_calls and (call_id not in self.begun_calls or call_id in again):
                yield call_id, resumed

    def _resumed(self, id_: str) -> ResumedRequest:
        asked, response = self.turn.requests[id_], self.turn.responses.get(id_)
        return ResumedRequest(
            request=asked_request(asked, self.session_id),
            answer=self.answers.get(id_) if response is None else given_answer(response),
            asked_at=self.turn.asked_at.get(id_),
            is_response_logged=response is not None,
        )

    def work_requests(self) -> Mapping[str, ResumedRequest]:
        """Return the requests that the work of the turn has asked, by their ids, with their answers."""
        asked = map(self._resumed, self.turn.requests)
        return {resumed.request.id: resumed for resumed in asked if not resumed.request.tool_call_id}

    @property
    def waits_by_itself(self) -> bool:
        """True if the work of the turn waits for an answer, or has done nothing since it got one."""
        return bool(self.turn.open_requests) or self.turn.last_type == EventType.QUESTION_ANSWERED

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
        if self.turn.text and self.turn.message_id not in present:
            missing.append(AssistantMessage(content=self.turn.text, partial=True, message_id=self.turn.message_id))
        answered = _results(messages)
        for call_id, name in self.turn.open_calls.items():
            if call_id not in answered:
                text, outcome = self._call_outcome(call_id, idempotent)
                missing.append(ToolMessage(tool_call_id=call_id, name=name, content=text, outcome=outcome))
        return missing

    def closing_events(self, messages: Sequence[Message], code: str, text: str) -> list[RuntimeEvent]:
        """Return the events that end the turn; `messages` has the results of its open calls.

        Its open requests are closed by a stop if that is the `code`, else by a restart.
        """
        by: AnsweredBy = "stop" if code == "stopped" else "restart"
        events: list[RuntimeEvent] = []
        for id_ in self.turn.open_requests:
            kind = kind_of_event(self.turn.requests[id_].type)
            events.append(RuntimeEvent(kind.answered, {"id": id_, **kind.answer_data(kind.no_answer(by))}))
        for call_id, preview in self.turn.previews.items():
            events.append(RuntimeEvent(EventType.ARTIFACT, preview.dropped_data | {"tool_call_id": call_id}))
        results = _results(messages)
        events += (_result_event(results[call_id]) for call_id in self.turn.open_calls if call_id in results)
        if self.turn.state != "done":
            events.append(RuntimeEvent(EventType.STATE, {"state": "done"}))
        events.append(RuntimeEvent(EventType.ERROR, {"text": text, "code": code, "fatal": True}))
        return [replace(event, agent_id=self.turn.acting_agent_id) for event in events]

    def _call_outcome(self, call_id: str, idempotent: Callable[[str], bool]) -> tuple[str, ToolOutcome]:
        if call_id not in self.begun_calls:
            return NOT_BEGUN, "cancelled"
        text = _REPEATABLE if idempotent(self.turn.open_calls[call_id]) else OUTCOME_UNKNOWN
        edited = edited_arguments(self._confirmations(call_id))
        return text if edited is None else with_edited_arguments(text, edited), "unknown"

    def _confirmations(self, call_id: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Yield for each confirmation of a call the arguments that were shown, and those given instead, if any."""
        for id_, asked in self.turn.requests.items():
            if asked.type == EventType.CONFIRM_REQUIRED and asked.data["context"].get("tool_call_id") == call_id:
                response = self.turn.responses.get(id_)
                given = None if response is None else response.data.get("arguments")
                yield asked.data["context"]["arguments"], given


def resume_point(
    interrupted: InterruptedTurn, messages: Sequence[Message], idempotent: Callable[[str], bool] = lambda _name: False
) -> ResumePoint | None:
    """Return where the turn resumes: at a request to the user while no call is under way; None if impossible.

    Calls under way beside the request do not prevent it if all of their tools, by name, are `idempotent`: they begin
    again, with the answers that were given for them.
    """
    under_way, calls = interrupted.begun_calls & interrupted.turn.open_calls.keys(), _calls(messages)
    if not any(interrupted.open_requests()) or not interrupted.turn.open_calls.keys() <= calls.keys():
        return None
    if not all(idempotent(interrupted.turn.open_calls[call_id]) for call_id in under_way):
        return None
    requests = dict(interrupted.open_requests(under_way))
    return ResumePoint(
        round=interrupted.turn.round,
        calls=tuple(calls[call_id] for call_id in interrupted.turn.open_calls),
        requests=requests,
        state="executing",
        usage=interrupted.turn.usage,
        last_text=interrupted.turn.text,
        acting_agent=interrupted.turn.acting_agent_id,
        previews=interrupted.turn.previews,
        has_auto_consent=interrupted.turn.has_auto_consent,
    )


def child_resume_point(interrupted: InterruptedTurn, messages: list[Message]) -> ResumePoint | None:
    """Return where a child turn resumes, as `resume_point` does; None if impossible.

    `messages` are its conversation at some time since its last reply; they are completed from the log.
    """
    if interrupted.turn.askers != {interrupted.turn.agent_id}:
        return None
    while messages and isinstance(messages[-1], ToolMessage):
        messages.pop()
    messages += interrupted.turn.results.values()
    return resume_point(interrupted, messages)


def work_resume_point(interrupted: InterruptedTurn, children: Sequence[ResumedTurn]) -> ResumePoint | None:
    """Return where a turn with work resumes: where it, or one of the `children`, waits for a person; None if none do.

    The `children` are all of its open child turns, at any depth.
    """
    if interrupted.turn.round or interrupted.turn.open_calls or not (children or interrupted.waits_by_itself):
        return None
    return ResumePoint(
        round=0,
        calls=(),
        requests=interrupted.work_requests(),
        state=interrupted.turn.state,
        usage=interrupted.turn.usage,
        children=children,
        has_auto_consent=interrupted.turn.has_auto_consent,
    )


def _calls(messages: Sequence[Message]) -> dict[str, ToolCall]:
    """Return the calls of the last reply by their ids."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return {call.id: call for call in message.tool_calls}
    return {}


def _results(messages: Sequence[Message]) -> dict[str, ToolMessage]:
    return {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}


def _result_event(message: ToolMessage) -> RuntimeEvent:
    data: dict[str, Any] = {
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "result": message.content,
        "is_error": message.outcome != "ok",
        "outcome": message.outcome,
    }
    if message.attachments:
        data["attachments"] = [dict(file.summary) for file in message.attachments]
    if message.sources:
        data |= {"untrusted": True, "sources": list(message.sources)}
    return RuntimeEvent(EventType.TOOL_RESULT, data)
