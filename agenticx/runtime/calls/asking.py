"""The questions of calls to the user: confirmations, and the agent's own (`ask_user`).

Both kinds are asked, limited, answered and resumed in the same way; the subclasses say how they differ.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args

from agenticx import user_code
from agenticx.clocks import Clock, rfc3339
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import clean_text, new_id
from agenticx.runtime.calls.concurrency import Slot
from agenticx.runtime.calls.result_rendering import jsonable
from agenticx.runtime.confirm import (
    ConfirmAnswer,
    ConfirmGate,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    Remember,
)
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.questions.user_question import AnsweredBy
from agenticx.runtime.resume import ResumedQuestion
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.tools.base import UserQuestion

__all__ = ["Asker", "ClosingAnswer", "ConfirmAsker", "OpenQuestion", "QuestionAsker"]

_SHORTEST_SECONDS = 0.001
_GATE = "the confirm gate"

_log = get_logger(__name__)


class _Request(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def expires_at(self) -> datetime: ...
    @property
    def agent_path(self) -> tuple[str, ...]: ...


RequestT = TypeVar("RequestT", bound=_Request)
AnswerT = TypeVar("AnswerT", ConfirmAnswer, QuestionAnswer)


@dataclass(slots=True)
class ClosingAnswer(Generic[AnswerT]):
    """The answer to emit if a question is cancelled; replaced by the emitted answer."""

    answer: AnswerT


@dataclass(frozen=True, slots=True)
class OpenQuestion(Generic[AnswerT]):
    """A question from before a restart that is pending at the gate again."""

    task: asyncio.Task[AnswerT]
    closing: ClosingAnswer[AnswerT]

    async def close(self, answer: AnswerT) -> AnswerT:
        """Close the question with `answer`, unless it was answered already, and return the answer that counts."""
        if not self.task.done():
            self.closing.answer = answer
            await cancel_and_wait(self.task)
        return self.closing.answer


@dataclass(frozen=True, slots=True)
class Asker(ABC, Generic[RequestT, AnswerT]):
    """A base class of those that ask questions of one kind."""

    gate: ConfirmGate
    settings: Settings
    clock: Clock

    async def ask(self, turn: Turn, request: RequestT, slot: Slot, closing: ClosingAnswer[AnswerT]) -> AnswerT:
        """Ask the gate and emit the events, also if the gate fails; if this is cancelled, `closing` is the answer."""
        type_, data = self._asked_event(request)
        return await self._ask(turn, request, _Announcement(slot, lambda: turn.emit(type_, data)), closing)

    def ask_again(self, turn: Turn, resumed: ResumedQuestion, request: RequestT, slot: Slot) -> OpenQuestion[AnswerT]:
        """Ask in a task what was asked before an interruption; clients show that question already."""
        closing = ClosingAnswer(self.no_answer("stop"))
        announce = _Announcement(slot, resumed.asked.set)
        since = 0.0 if resumed.asked_at is None else max((self.clock.now() - resumed.asked_at).total_seconds(), 0.0)
        return OpenQuestion(asyncio.create_task(self._ask(turn, request, announce, closing, since)), closing)

    async def answer_again(
        self, turn: Turn, resumed: ResumedQuestion, open_question: OpenQuestion[AnswerT] | None, answer: AnswerT | None
    ) -> AnswerT:
        """Return the `answer` to a question from before an interruption; wait for it if there is none."""
        if open_question is not None:
            if answer is None:
                return await open_question.task
            await open_question.close(answer)
        elif answer is not None and not resumed.is_response_logged:
            self.emit_answer(turn, resumed.request.id, answer)
        assert answer is not None
        return answer

    async def _ask(
        self,
        turn: Turn,
        request: RequestT,
        announce: Callable[[], None],
        closing: ClosingAnswer[AnswerT],
        seconds_before: float = 0.0,
    ) -> AnswerT:
        """Ask the gate, `seconds_before` after the question was first asked; return the answer."""
        limit = max((request.expires_at - self.clock.now()).total_seconds(), _SHORTEST_SECONDS)
        asked_at = self.clock.monotonic() - seconds_before
        answer: AnswerT | None = None
        try:
            with turn.waiting_for_person():
                real_limit = self.clock.real(limit)
                answer = await user_code.call(self._ask_gate, request, announce, what=_GATE, limit=real_limit)
            if (problem := self._problem(answer)) is not None:
                answer, text = None, f"the gate {type(self.gate).__name__} returned {problem}"
                raise UserCodeError(text, what=_GATE, kind="invalid_result")
        except AgenticXError as exc:
            if not isinstance(exc, UserCodeError) or (exc.kind, exc.what) != ("timed_out", _GATE):
                self._log_failed_gate(request, exc)
                answer = self.no_answer("policy", str(exc))
            elif (answer := self._decision(request)) is None:
                answer = self.no_answer("timeout")
                self._report_timeout(turn, round(self.clock.monotonic() - asked_at, 3))
        finally:
            answer = closing.answer = answer or self._decision(request) or closing.answer
            announce()
            self.emit_answer(turn, request.id, answer)
        return answer

    def _decision(self, request: RequestT) -> AnswerT | None:
        """Return the answer that the gate has got as it was cancelled."""
        try:
            answer: Any = user_code.call_sync(self._gate_decision, request.id, what=_GATE)
        except AgenticXError as exc:
            self._log_failed_gate(request, exc)
            return None
        return None if self._problem(answer) is not None else answer

    def _log_failed_gate(self, request: RequestT, failure: AgenticXError) -> None:
        """Log that a gate gave no answer, with the traceback if its own code raised."""
        has_raised = isinstance(failure, UserCodeError) and failure.kind == "raised"
        more = {"exc_info": failure} if has_raised else {}
        effect, fields = self._without_answer, self._call_fields(request)
        _log.error(f"the confirm gate failed; {effect}", **fields, reason=str(failure), **more)

    def emit_answer(self, turn: Turn, request_id: str, answer: AnswerT) -> None:
        """Emit the event with the answer."""
        type_, data = self._answered_event(answer)
        turn.emit(type_, {"id": request_id, **data})

    # --- differences between the kinds --------------------------------------------------------------------------------

    _without_answer: ClassVar[str]

    @property
    @abstractmethod
    def _ask_gate(self) -> Callable[[RequestT, Callable[[], None]], Awaitable[AnswerT]]: ...
    @property
    @abstractmethod
    def _gate_decision(self) -> Callable[[str], AnswerT | None]: ...
    @abstractmethod
    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> AnswerT:
        """Return the answer to a question that the user has not answered."""
        ...

    @abstractmethod
    def _problem(self, value: object) -> str | None:
        """Return a clause that says why a gate's return value is no answer, and what it must be; None for an answer."""
        ...

    @abstractmethod
    def _asked_event(self, request: RequestT) -> tuple[EventType, dict[str, Any]]: ...
    @abstractmethod
    def _answered_event(self, answer: AnswerT) -> tuple[EventType, dict[str, Any]]: ...
    @abstractmethod
    def _call_fields(self, request: RequestT) -> dict[str, Any]: ...
    def _report_timeout(self, turn: Turn, elapsed: float) -> None:
        return


@dataclass(frozen=True, slots=True)
class ConfirmAsker(Asker[ConfirmRequest, ConfirmAnswer]):
    """The asker for confirmations; one without an answer is a denial."""

    _without_answer = "the call is denied"

    @property
    def _ask_gate(self) -> Callable[[ConfirmRequest, Callable[[], None]], Awaitable[ConfirmAnswer]]:
        return self.gate.ask

    @property
    def _gate_decision(self) -> Callable[[str], ConfirmAnswer | None]:
        return self.gate.decided

    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> ConfirmAnswer:
        return ConfirmAnswer(approved=False, by=by, reason=reason)

    def _problem(self, value: object) -> str | None:
        if not isinstance(value, ConfirmAnswer):
            return f"{type(value).__name__}; it must return a ConfirmAnswer"
        answer: Any = value  # made by user code, which may have used values of any type
        return _wrong_field(
            answer,
            {
                "approved": (isinstance(answer.approved, bool), "True or False"),
                "by": (answer.by in get_args(AnsweredBy), "one of " + ", ".join(get_args(AnsweredBy))),
                "remember": (answer.remember in get_args(Remember), "one of " + ", ".join(get_args(Remember))),
                "arguments": (answer.arguments is None or isinstance(answer.arguments, Mapping), "a mapping or None"),
                "reason": (answer.reason is None or isinstance(answer.reason, str), "a text or None"),
            },
        )

    def _asked_event(self, request: ConfirmRequest) -> tuple[EventType, dict[str, Any]]:
        data = {
            "id": request.id,
            "question": request.question,
            "context": dict(request.context),
            "digest": request.digest,
            "expires_at": rfc3339(request.expires_at),
        }
        return EventType.CONFIRM_REQUIRED, data | _agent_path(request)

    def _answered_event(self, answer: ConfirmAnswer) -> tuple[EventType, dict[str, Any]]:
        data: dict[str, Any] = {"approved": answer.approved, "by": answer.by}
        if answer.by == "user" or answer.remember != "once":
            data["remember"] = answer.remember
        if answer.arguments is not None:
            data["arguments"] = jsonable(answer.arguments)
        if answer.reason is not None:
            data["reason"] = answer.reason
        return EventType.CONFIRM_RESPONSE, data

    def _call_fields(self, request: ConfirmRequest) -> dict[str, Any]:
        return {"tool_name": request.context.get("tool"), "call_id": request.context.get("tool_call_id")}

    def _report_timeout(self, turn: Turn, elapsed: float) -> None:
        limit = self.settings.confirm_timeout_seconds
        data = {"phase": "confirm", "elapsed_seconds": elapsed, "limit_seconds": limit, "action": "failed"}
        turn.emit(EventType.STALL, data)


@dataclass(frozen=True, slots=True)
class QuestionAsker(Asker[QuestionRequest, QuestionAnswer]):
    """The asker for the agent's own questions; without an answer the model is told why there is none."""

    _without_answer = "the question has no answer"

    @property
    def _ask_gate(self) -> Callable[[QuestionRequest, Callable[[], None]], Awaitable[QuestionAnswer]]:
        return self.gate.ask_question

    @property
    def _gate_decision(self) -> Callable[[str], QuestionAnswer | None]:
        return self.gate.answered

    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> QuestionAnswer:
        return QuestionAnswer(by=by)

    def _problem(self, value: object) -> str | None:
        if not isinstance(value, QuestionAnswer):
            return f"{type(value).__name__}; it must return a QuestionAnswer"
        answer: Any = value
        return _wrong_field(
            answer,
            {
                "answer": (isinstance(answer.answer, str), "a text"),
                "by": (answer.by in get_args(AnsweredBy), "one of " + ", ".join(get_args(AnsweredBy))),
            },
        )

    def request(self, turn: Turn, call_id: str, question: UserQuestion) -> QuestionRequest:
        """Return the request for a question that a call asks, or with the id "" the work of the turn."""
        return QuestionRequest(
            id=new_id("qst"),
            text=turn.titled(clean_text(question.text)),
            options=tuple(map(clean_text, question.options)),
            expires_at=self.clock.now() + timedelta(seconds=self.settings.question_timeout_seconds),
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            tool_call_id=call_id,
            agent_path=turn.asking_path,
        )

    def _asked_event(self, request: QuestionRequest) -> tuple[EventType, dict[str, Any]]:
        data: dict[str, Any] = {"id": request.id, "text": request.text}
        if request.options:
            data["options"] = list(request.options)
        data["expires_at"] = rfc3339(request.expires_at)
        if request.tool_call_id:
            data["tool_call_id"] = request.tool_call_id
        return EventType.QUESTION_ASKED, data | _agent_path(request)

    def _answered_event(self, answer: QuestionAnswer) -> tuple[EventType, dict[str, Any]]:
        return EventType.QUESTION_ANSWERED, {"answer": clean_text(answer.answer), "by": answer.by}

    def _call_fields(self, request: QuestionRequest) -> dict[str, Any]:
        return {"call_id": request.tool_call_id}


def _wrong_field(answer: object, expected: Mapping[str, tuple[bool, str]]) -> str | None:
    for name, (is_valid, right) in expected.items():
        if not is_valid:
            return f"an answer whose {name} is {type(getattr(answer, name)).__name__}; it must be {right}"
    return None


def _agent_path(request: _Request) -> dict[str, Any]:
    return {"agent_path": list(request.agent_path)} if request.agent_path else {}


class _Announcement:
    """A callback that runs `emit` once, however often a gate calls it."""

    def __init__(self, slot: Slot, emit: Callable[[], None]) -> None:
        self._slot = slot
        self._emit = emit
        self._done = False

    def __call__(self) -> None:
        self._slot.mark_asked()
        if not self._done:
            self._done = True
            self._emit()
