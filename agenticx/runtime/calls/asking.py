"""Requests to the user: confirmations of calls, questions of the agent (`ask_user`), and questions of work.

All are asked, limited, answered and resumed in the same way; see `RequestKind` for how the kinds differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from agenticx import user_code
from agenticx.argument_types import check_sequence
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import clean_text, new_id
from agenticx.runtime.calls.concurrency import Slot, slots
from agenticx.runtime.events import EventType
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.resume import ResumedRequest
from agenticx.runtime.turn import Turn, current_turn
from agenticx.runtime.user_requests.kinds import QUESTION, AnswerT, RequestKind, RequestT
from agenticx.runtime.user_requests.requests import QuestionAnswer, QuestionRequest
from agenticx.settings import Settings
from agenticx.tools.base import UserQuestion

__all__ = ["Asker", "ClosingAnswer", "OpenRequest", "ask_person", "question_request"]

_SHORTEST_SECONDS = 0.001
_GATE = "the confirm gate"

_log = get_logger(__name__)


@dataclass(slots=True)
class ClosingAnswer(Generic[AnswerT]):
    """The answer to emit if a request is cancelled; replaced by the emitted answer."""

    answer: AnswerT


@dataclass(frozen=True, slots=True)
class OpenRequest(Generic[AnswerT]):
    """A request from before a restart that is pending at the gate again."""

    task: asyncio.Task[AnswerT]
    closing: ClosingAnswer[AnswerT]

    async def close(self, answer: AnswerT) -> AnswerT:
        """Close the request with `answer`, unless it was answered already, and return the answer that counts."""
        if not self.task.done():
            self.closing.answer = answer
            await cancel_and_wait(self.task)
        return self.closing.answer


@dataclass(frozen=True, slots=True)
class Asker(Generic[RequestT, AnswerT]):
    """An asker of requests of one kind."""

    kind: RequestKind[RequestT, AnswerT]
    gate: ConfirmGate
    settings: Settings
    clock: Clock

    async def ask(self, turn: Turn, request: RequestT, slot: Slot, closing: ClosingAnswer[AnswerT]) -> AnswerT:
        """Ask the gate and emit the events, also if the gate fails; if this is cancelled, `closing` is the answer."""
        data = self.kind.request_data(request)
        return await self._ask(turn, request, _Announcement(slot, lambda: turn.emit(self.kind.asked, data)), closing)

    def ask_again(self, turn: Turn, resumed: ResumedRequest, request: RequestT, slot: Slot) -> OpenRequest[AnswerT]:
        """Ask a request from before an interruption again, in a task; clients show it already."""
        closing = ClosingAnswer(self.kind.no_answer("stop"))
        announce = _Announcement(slot, resumed.asked.set)
        since = 0.0 if resumed.asked_at is None else max((self.clock.now() - resumed.asked_at).total_seconds(), 0.0)
        return OpenRequest(asyncio.create_task(self._ask(turn, request, announce, closing, since)), closing)

    async def answer_again(
        self, turn: Turn, resumed: ResumedRequest, open_request: OpenRequest[AnswerT] | None, answer: AnswerT | None
    ) -> AnswerT:
        """Return the `answer` to a request from before an interruption; wait for it if there is none."""
        if open_request is not None:
            if answer is None:
                return await open_request.task
            await open_request.close(answer)
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
        """Ask the gate, `seconds_before` after the request was first asked; return the answer."""
        limit = max((request.expires_at - self.clock.now()).total_seconds(), _SHORTEST_SECONDS)
        asked_at = self.clock.monotonic() - seconds_before
        answer: AnswerT | None = None
        try:
            with turn.waiting_for_person():
                ask, real_limit = self.kind.ask_method(self.gate), self.clock.real(limit)
                answer = await user_code.call(ask, request, announce, what=_GATE, limit=real_limit)
            if (problem := self.kind.problem(answer)) is not None:
                answer, text = None, f"the gate {type(self.gate).__name__} returned {problem}"
                raise UserCodeError(text, what=_GATE, kind="invalid_result")
        except AgenticXError as exc:
            if not isinstance(exc, UserCodeError) or (exc.kind, exc.what) != ("timed_out", _GATE):
                self._log_failed_gate(request, exc)
                answer = self.kind.no_answer("policy", str(exc))
            elif (answer := self._decision(request)) is None:
                answer = self.kind.no_answer("timeout")
                if self.kind.stall_phase is not None:
                    self._report_timeout(turn, self.kind.stall_phase, round(self.clock.monotonic() - asked_at, 3))
        finally:
            answer = closing.answer = answer or self._decision(request) or closing.answer
            announce()
            self.emit_answer(turn, request.id, answer)
        return answer

    def _decision(self, request: RequestT) -> AnswerT | None:
        """Return the answer that the gate got while it was cancelled."""
        try:
            answer: Any = user_code.call_sync(self.kind.decided, self.gate, request.id, what=_GATE)
        except AgenticXError as exc:
            self._log_failed_gate(request, exc)
            return None
        return None if self.kind.problem(answer) is not None else answer

    def _log_failed_gate(self, request: RequestT, failure: AgenticXError) -> None:
        """Log that a gate gave no answer, with the traceback if its own code raised."""
        has_raised = isinstance(failure, UserCodeError) and failure.kind == "raised"
        more = {"exc_info": failure} if has_raised else {}
        effect, fields = self.kind.without_answer, self.kind.call_fields(request)
        _log.error(f"the confirm gate failed; {effect}", **fields, reason=str(failure), **more)

    def emit_answer(self, turn: Turn, request_id: str, answer: AnswerT) -> None:
        """Emit the event with the answer."""
        turn.emit(self.kind.answered, {"id": request_id, **self.kind.answer_data(answer)})

    def _report_timeout(self, turn: Turn, phase: str, elapsed: float) -> None:
        limit = self.kind.timeout_seconds(self.settings)
        data = {"phase": phase, "elapsed_seconds": elapsed, "limit_seconds": limit, "action": "failed"}
        turn.emit(EventType.STALL, data)


def question_request(turn: Turn, call_id: str, question: UserQuestion) -> QuestionRequest:
    """Return the request for a question that a call asks, or with the id "" the work of the turn."""
    return QuestionRequest(
        id=new_id("qst"),
        text=turn.with_title(clean_text(question.text)),
        options=tuple(map(clean_text, question.options)),
        expires_at=turn.clock.now() + timedelta(seconds=QUESTION.timeout_seconds(turn.settings)),
        session_id=turn.session_id,
        agent_id=turn.agent_id,
        tool_call_id=call_id,
        agent_path=turn.asking_path,
    )


async def ask_person(text: str, options: Sequence[str] = ()) -> QuestionAnswer:
    """Put a question to the user, who may choose one of `options` or answer in other words, and return the answer.

    Only the `work` of a turn (`TurnContext`) may call it. The turn's gate is asked, and the question is the event
    `question_asked` of the turn. If the answer has no text, its `by` says why: `timeout` after
    `question_timeout_seconds`, `policy` if nobody can be asked. In a session of a hub the question is stored, and
    answered once: work that runs again after a restart and asks the same gets that answer. A stop of the turn cancels
    the caller.

    Raises `AgenticXError` outside of such work, and `TypeError` for one text as `options`.
    """
    check_sequence("options", options, "texts")
    turn = current_turn()
    if turn is None or turn.context.work is None or not turn.accepts_children:
        raise AgenticXError("ask_person must be called by the work of a turn that runs; a tool asks by its assessment")
    asker = Asker(QUESTION, turn.gate, turn.settings, turn.clock)
    question = UserQuestion(clean_text(text), tuple(map(clean_text, options)))
    if (resumed := _resumed_question(turn, question)) is not None:
        answer = await _answer_resumed(turn, asker, resumed)
    else:
        closing = ClosingAnswer(QUESTION.no_answer("stop"))
        answer = await asker.ask(turn, question_request(turn, "", question), slots(1)[0], closing)
    await turn.channel.wait_until_written()
    return answer


def _resumed_question(turn: Turn, question: UserQuestion) -> ResumedRequest | None:
    """Remove and return the first such question that an earlier process asked, None if there is none."""
    for id_, resumed in turn.resumed_requests.items():
        asked = resumed.request
        if isinstance(asked, QuestionRequest) and UserQuestion(asked.text, asked.options) == question:
            return turn.resumed_requests.pop(id_)
    return None


async def _answer_resumed(
    turn: Turn, asker: Asker[QuestionRequest, QuestionAnswer], resumed: ResumedRequest
) -> QuestionAnswer:
    assert isinstance(resumed.request, QuestionRequest)
    if isinstance(resumed.answer, QuestionAnswer):
        return await asker.answer_again(turn, resumed, None, resumed.answer)
    open_request = asker.ask_again(turn, resumed, resumed.request, slots(1)[0])
    try:
        return await open_request.task
    finally:
        await cancel_and_wait(open_request.task)
        resumed.asked.set()


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
