"""Authorization of one call: the mode's verdict, the user's answer, and a check for changes since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, get_args

from agenticx import user_code
from agenticx.clocks import Clock, rfc3339
from agenticx.errors import AgenticXError, InvalidArguments, ToolError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import ToolOutcome, new_id
from agenticx.runtime.calls.concurrency import Slot
from agenticx.runtime.calls.result_rendering import jsonable
from agenticx.runtime.calls.validation import ValidatedArguments, validate_arguments
from agenticx.runtime.confirm import (
    AnsweredBy,
    ConfirmAnswer,
    ConfirmGate,
    ConfirmRequest,
    Remember,
    confirm_digest,
)
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.resume import ResumedQuestion
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Assessment, Tool, ToolContext
from agenticx.tools.permissions import Verdict, decide
from agenticx.tools.registry import FunctionTool
from agenticx.tools.shell.read_only_heuristic import seems_read_only

__all__ = ["CallAuthorizer", "CallRefused"]

_SHORTEST_SECONDS = 0.001
_GATE = "the confirm gate"

_log = get_logger(__name__)


class CallRefused(AgenticXError):
    """Raised when the call may not run; the model reads the message, `outcome` is the outcome of its result."""

    def __init__(self, message: str, outcome: ToolOutcome) -> None:
        super().__init__(message)
        self.outcome: ToolOutcome = outcome


@dataclass(frozen=True, slots=True)
class _BoundArguments:
    """The arguments of a call as JSON, and the digest of all that its question covers."""

    arguments: dict[str, Any]
    digest: str


@dataclass(slots=True)
class _ClosingAnswer:
    """The answer to emit if a question is cancelled, by default a denial; replaced by the emitted answer."""

    answer: ConfirmAnswer = field(default_factory=lambda: ConfirmAnswer(approved=False, by="stop"))


@dataclass(frozen=True, slots=True)
class _OpenQuestion:
    """A question from before a restart that is pending at the gate again."""

    task: asyncio.Task[ConfirmAnswer]
    closing: _ClosingAnswer

    async def close(self, answer: ConfirmAnswer) -> ConfirmAnswer:
        """Close the question with `answer`, unless it was answered already, and return the answer that counts."""
        if not self.task.done():
            self.closing.answer = answer
            await cancel_and_wait(self.task)
        return self.closing.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAuthorizer:
    """The checks before a call runs. `authorize` returns the arguments that may run, or raises `CallRefused`.

    The call's `slot` is released while the user is asked.
    """

    settings: Settings
    clock: Clock

    async def authorize(
        self, turn: Turn, tool: Tool, arguments: dict[str, Any], context: ToolContext, slot: Slot
    ) -> ValidatedArguments:
        """Return the arguments that may run; raise `CallRefused` if the call may not."""
        resumed = turn.resumed_questions.get(context.call_id)
        if resumed is not None:
            slot.mark_asked()  # the question was asked before the restart
        if resumed is None or resumed.answer is not None:
            return await self._authorize(turn, tool, arguments, context, slot, resumed, None)
        # Clients already show this question, so answers are accepted while its call is assessed again.
        closing = _ClosingAnswer()
        announcement = _Announcement(turn, resumed.request, slot, asked=resumed.asked)
        open_question = asyncio.create_task(self._ask_gate(turn, resumed.request, announcement, closing))
        del turn.resumed_questions[context.call_id]
        try:
            return await self._authorize(
                turn, tool, arguments, context, slot, resumed, _OpenQuestion(open_question, closing)
            )
        finally:
            await cancel_and_wait(open_question)
            resumed.asked.set()

    async def _authorize(
        self,
        turn: Turn,
        tool: Tool,
        arguments: dict[str, Any],
        context: ToolContext,
        slot: Slot,
        resumed: ResumedQuestion | None,
        open_question: _OpenQuestion | None,
    ) -> ValidatedArguments:
        repaired = False
        assessment = await self._assess(tool, arguments, context)
        if assessment.command is not None and seems_read_only(assessment.command):
            turn.read_only_calls.add(context.call_id)
        verdict = decide(turn.permission_mode, assessment)
        if verdict.decision != "ask":
            turn.resumed_questions.pop(context.call_id, None)
            await self._apply_verdict(turn, resumed, open_question, verdict)
            return ValidatedArguments(arguments)
        bound = await self._bind_arguments(tool, arguments, assessment)
        digest = bound.digest
        turn.resumed_questions.pop(context.call_id, None)
        if digest not in turn.allowed:
            await slot.release_to_ask()
            if resumed is None:
                request = self._request(turn, tool, bound, assessment, verdict, context.call_id)
                answer = await self._ask_gate(turn, request, _Announcement(turn, request, slot), _ClosingAnswer())
            else:
                answer = await self._ask_resumed(turn, resumed, open_question, digest)
            await slot.acquire()
            if not answer.approved:
                raise CallRefused(_denial_text(answer), "denied")
            if answer.arguments is not None:
                replaced = await _validate_replacement(tool, answer.arguments)
                arguments, repaired = replaced.arguments, replaced.repaired
                changed = await self._assess(tool, arguments, context)
                if decide(turn.permission_mode, changed).decision == "deny":
                    raise CallRefused("Denied: the changed arguments are not allowed in this mode.", "denied")
                digest = (await self._bind_arguments(tool, arguments, changed)).digest
            if answer.remember == "session":
                turn.allowed.add(digest)
        now = await self._assess(tool, arguments, context)
        if (await self._bind_arguments(tool, arguments, now)).digest != digest:
            raise CallRefused("Denied: the effect of the call changed after the user was asked; ask again.", "denied")
        return ValidatedArguments(arguments, repaired)

    async def _assess(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return the tool's assessment; raise `CallRefused` if it fails or returns anything else.

        The tool's code runs in a thread; a function without an assessor has its declared risk.
        """
        if isinstance(tool, FunctionTool) and tool.assessor is None:
            return tool.assess(arguments, context)
        what = f"the assessment of tool {tool.schema.name!r}"
        assessment: object = await self._in_thread(tool.assess, arguments, context, what=what)
        try:
            return checked_assessment(assessment, tool.schema.name)
        except ToolError as exc:
            raise CallRefused(str(exc), "error") from exc

    async def _bind_arguments(
        self, tool: Tool, arguments: Mapping[str, Any], assessment: Assessment
    ) -> _BoundArguments:
        what = f"the question about tool {tool.schema.name!r}"
        bound: _BoundArguments = await self._in_thread(_bind, tool, arguments, assessment, what=what)
        return bound

    async def _in_thread(self, function: Callable[..., Any], /, *args: Any, what: str) -> Any:
        """Call `function` in a thread that a stop abandons; any of its errors is raised as `CallRefused`."""
        try:
            limit = self.clock.real(self.settings.tool_timeout_seconds)
            return await user_code.call(function, *args, what=what, limit=limit)
        except CallRefused:
            raise
        except AgenticXError as exc:
            raise CallRefused(str(exc), "error") from exc

    async def _apply_verdict(
        self, turn: Turn, resumed: ResumedQuestion | None, open_question: _OpenQuestion | None, verdict: Verdict
    ) -> None:
        """Apply the mode's verdict, also to a question that was pending; raise `CallRefused` for a denial."""
        answer = ConfirmAnswer(approved=verdict.decision == "allow", by="policy")
        if open_question is not None:
            answer = await open_question.close(answer)
        elif resumed is not None and not resumed.is_response_logged:
            self._emit_response(turn, resumed.request, answer)
        if verdict.decision == "deny":
            raise CallRefused(f"Denied: {' '.join(verdict.reasons)}", "denied")
        if not answer.approved:  # the user answered before the mode's verdict closed the question
            raise CallRefused(_denial_text(answer), "denied")

    def _request(
        self,
        turn: Turn,
        tool: Tool,
        bound: _BoundArguments,
        assessment: Assessment,
        verdict: Verdict,
        call_id: str,
    ) -> ConfirmRequest:
        return ConfirmRequest(
            id=new_id("cnf"),
            question=assessment.question or f"Allow {tool.schema.name}?",
            context=_question_context(tool, bound, assessment, verdict, call_id),
            digest=bound.digest,
            expires_at=self.clock.now() + timedelta(seconds=self.settings.confirm_timeout_seconds),
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            agent_path=() if turn.context.parent is None else turn.agent_path,
        )

    async def _ask_resumed(
        self, turn: Turn, resumed: ResumedQuestion, open_question: _OpenQuestion | None, digest: str
    ) -> ConfirmAnswer:
        """Return the answer to a question from before the interruption; wait for it if it is pending."""
        answer = resumed.answer
        if resumed.request.digest != digest:
            changed = "the effect of the call changed while the program was down"
            answer = ConfirmAnswer(approved=False, by="restart", reason=changed)
        if open_question is not None:
            if answer is None:
                return await open_question.task
            await open_question.close(answer)
        elif answer is not None and not resumed.is_response_logged:
            self._emit_response(turn, resumed.request, answer)
        assert answer is not None
        return answer

    async def _ask_gate(
        self, turn: Turn, request: ConfirmRequest, announce: _Announcement, closing: _ClosingAnswer
    ) -> ConfirmAnswer:
        """Ask the gate and emit its events, also if the gate fails; if this is cancelled, `closing` is the answer."""
        limit = max((request.expires_at - self.clock.now()).total_seconds(), _SHORTEST_SECONDS)
        asked_at = self.clock.monotonic()
        answer: ConfirmAnswer | None = None
        try:
            with turn.waiting_for_person():
                answer = await user_code.call(
                    turn.gate.ask, request, announce, what=_GATE, limit=self.clock.real(limit)
                )
            if (problem := _answer_problem(answer)) is not None:
                answer, text = None, f"the gate {type(turn.gate).__name__} returned {problem}"
                raise UserCodeError(text, what=_GATE, kind="invalid_result")
        except AgenticXError as exc:
            if not isinstance(exc, UserCodeError) or (exc.kind, exc.what) != ("timed_out", _GATE):
                _log_failed_gate(request, exc)
                answer = ConfirmAnswer(approved=False, by="policy", reason=str(exc))
            elif (answer := _gate_decision(turn.gate, request)) is None:
                answer = ConfirmAnswer(approved=False, by="timeout")
                data = {"phase": "confirm", "elapsed_seconds": round(self.clock.monotonic() - asked_at, 3)}
                limit_seconds = self.settings.confirm_timeout_seconds
                turn.emit(EventType.STALL, {**data, "limit_seconds": limit_seconds, "action": "failed"})
        finally:
            answer = closing.answer = answer or _gate_decision(turn.gate, request) or closing.answer
            announce()
            self._emit_response(turn, request, answer)
        return answer

    def close_resumed(self, turn: Turn) -> None:
        """Close the questions of an interrupted turn that its calls have not taken up, as the turn ends."""
        for question in turn.resumed_questions.values():
            if not question.is_response_logged:
                answer = question.answer or ConfirmAnswer(approved=False, by="stop")
                self._emit_response(turn, question.request, answer)
            question.asked.set()
        turn.resumed_questions.clear()

    def _emit_response(self, turn: Turn, request: ConfirmRequest, answer: ConfirmAnswer) -> None:
        turn.emit(EventType.CONFIRM_RESPONSE, _response_data(request, answer))


def _gate_decision(gate: ConfirmGate, request: ConfirmRequest) -> ConfirmAnswer | None:
    try:
        answer: object = user_code.call_sync(gate.decided, request.id, what=_GATE)
    except AgenticXError as exc:
        _log_failed_gate(request, exc)
        return None
    return answer if isinstance(answer, ConfirmAnswer) and _answer_problem(answer) is None else None


def _answer_problem(value: object) -> str | None:
    """Return a clause that says why a gate's return value is no answer, and what it must be; None for an answer."""
    if not isinstance(value, ConfirmAnswer):
        return f"{type(value).__name__}; it must return a ConfirmAnswer"
    answer: Any = value  # made by user code, which may have used values of any type
    expected: dict[str, tuple[bool, str]] = {
        "approved": (isinstance(answer.approved, bool), "True or False"),
        "by": (answer.by in get_args(AnsweredBy), "one of " + ", ".join(get_args(AnsweredBy))),
        "remember": (answer.remember in get_args(Remember), "one of " + ", ".join(get_args(Remember))),
        "arguments": (answer.arguments is None or isinstance(answer.arguments, Mapping), "a mapping or None"),
        "reason": (answer.reason is None or isinstance(answer.reason, str), "a text or None"),
    }
    for name, (is_valid, right) in expected.items():
        if not is_valid:
            return f"an answer whose {name} is {type(getattr(answer, name)).__name__}; it must be {right}"
    return None


def _log_failed_gate(request: ConfirmRequest, failure: AgenticXError) -> None:
    """Log that a gate gave no answer, with the traceback if its own code raised."""
    has_raised = isinstance(failure, UserCodeError) and failure.kind == "raised"
    fields = {"tool_name": request.context.get("tool"), "call_id": request.context.get("tool_call_id")}
    _log.error(
        "the confirm gate failed; the call is denied",
        **fields,
        reason=str(failure),
        **({"exc_info": failure} if has_raised else {}),
    )


class _Announcement:
    """A callback that emits `confirm_required` once, however often a gate calls it.

    For a question of before an interruption it sets `asked` instead: clients show that question already.
    """

    def __init__(self, turn: Turn, request: ConfirmRequest, slot: Slot, *, asked: asyncio.Event | None = None) -> None:
        self._turn = turn
        self._request = request
        self._slot = slot
        self._done = asked is not None
        self._asked = asked

    def __call__(self) -> None:
        self._slot.mark_asked()
        if self._asked is not None:
            self._asked.set()
        if self._done:
            return
        self._done = True
        request = self._request
        data = {
            "id": request.id,
            "question": request.question,
            "context": dict(request.context),
            "digest": request.digest,
            "expires_at": rfc3339(request.expires_at),
        }
        path = {"agent_path": list(request.agent_path)} if request.agent_path else {}
        self._turn.emit(EventType.CONFIRM_REQUIRED, data | path)


def _question_context(
    tool: Tool, bound: _BoundArguments, assessment: Assessment, verdict: Verdict, call_id: str
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tool": tool.schema.name,
        "tool_call_id": call_id,
        "arguments": bound.arguments,
        "risk": assessment.risk,
        "reasons": list(verdict.reasons),
    }
    for key in ("command", "path", "diff"):
        if (value := getattr(assessment, key)) is not None:
            context[key] = value
    return context


def _response_data(request: ConfirmRequest, answer: ConfirmAnswer) -> dict[str, Any]:
    data: dict[str, Any] = {"id": request.id, "approved": answer.approved, "by": answer.by}
    if answer.by == "user" or answer.remember != "once":
        data["remember"] = answer.remember
    if answer.arguments is not None:
        data["arguments"] = jsonable(answer.arguments)
    if answer.reason is not None:
        data["reason"] = answer.reason
    return data


def _bind(tool: Tool, arguments: Mapping[str, Any], assessment: Assessment) -> _BoundArguments:
    try:
        json_arguments = jsonable(arguments)
        return _BoundArguments(json_arguments, confirm_digest(tool.schema.name, json_arguments, assessment.binding))
    except (TypeError, ValueError, RecursionError) as exc:
        raise CallRefused(
            f"the assessment of tool {tool.schema.name!r} has a binding that is not JSON: {exc}", "error"
        ) from exc


async def _validate_replacement(tool: Tool, arguments: Mapping[str, Any]) -> ValidatedArguments:
    try:
        return await run_in_thread(validate_arguments, tool, arguments, name="agx reading a call")
    except InvalidArguments as exc:
        raise CallRefused(f"Invalid arguments given with the confirmation: {exc}", "invalid_arguments") from exc


def _denial_text(answer: ConfirmAnswer) -> str:
    text = {
        "user": "Denied by the user.",
        "timeout": "Denied: no answer was given in time.",
        "policy": "Denied by policy.",
        "stop": "Denied: the turn was stopped.",
        "restart": "Denied: the program was restarted before an answer was given.",
    }[answer.by]
    return f"{text} Reason: {answer.reason}" if answer.reason else text
