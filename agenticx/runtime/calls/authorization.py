"""Authorization of one call: the mode's verdict, the user's answer, and a check for changes since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, InvalidArguments, ToolError
from agenticx.messages import ToolOutcome, clean_text, new_id
from agenticx.runtime.calls.asking import Asker, ClosingAnswer, OpenRequest, question_request
from agenticx.runtime.calls.concurrency import Slot
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.calls.validation import CallOutcome, PendingCall, ValidatedArguments, validate_arguments
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.resume import ResumedRequest
from agenticx.runtime.turn import Turn
from agenticx.runtime.user_requests.confirm_digest import confirm_digest, jsonable
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, kind_of
from agenticx.runtime.user_requests.requests import (
    AnsweredBy,
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    UserRequest,
)
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Assessment, Tool, UserQuestion
from agenticx.tools.context import ToolContext
from agenticx.tools.permissions import Verdict, decide
from agenticx.tools.registry import FunctionTool
from agenticx.tools.shell.read_only_heuristic import seems_read_only
from agenticx.tools.whole_folders import deletion_reason, find_deleted_folder, names_deletion

__all__ = ["CallAuthorizer", "CallRefused"]


class CallRefused(AgenticXError):
    """Raised when the call may not run; the model reads the message, `outcome` is the outcome of its result.

    `sources` name the texts of others that the message quotes.
    """

    def __init__(self, message: str, outcome: ToolOutcome, sources: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: ToolOutcome = outcome
        self.sources = tuple(sources)


@dataclass(frozen=True, slots=True)
class _BoundArguments:
    """The arguments of a call as JSON, and the digest of all that its confirmation covers."""

    arguments: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAuthorizer:
    """The checks before a call runs. `authorize` returns the arguments that may run, or raises `CallRefused`.

    The call's `slot` is released while the user is asked.
    """

    settings: Settings
    clock: Clock

    async def authorize(
        self, turn: Turn, pending: PendingCall, context: ToolContext, slot: Slot
    ) -> ValidatedArguments | CallOutcome:
        """Return the arguments that may run, or the outcome of a call whose result is the user's answer.

        Raises `CallRefused` if the call may not run.
        """
        resumed = turn.resumed_requests.get(context.call_id)
        if resumed is not None:
            slot.mark_asked()  # the request was asked before the restart
        if resumed is None or resumed.answer is not None:
            return await self._permit_or_ask(turn, pending, context, slot, resumed, None)
        # Clients already show this request, so answers are accepted while its call is assessed again.
        open_request = self._asker(turn, resumed.request).ask_again(turn, resumed, resumed.request, slot)
        del turn.resumed_requests[context.call_id]
        try:
            await asyncio.sleep(0)  # a task that is cancelled before it begins does not close its request
            return await self._permit_or_ask(turn, pending, context, slot, resumed, open_request)
        finally:
            await cancel_and_wait(open_request.task)
            resumed.asked.set()

    async def _permit_or_ask(
        self,
        turn: Turn,
        pending: PendingCall,
        context: ToolContext,
        slot: Slot,
        resumed: ResumedRequest | None,
        open_request: OpenRequest[Any] | None,
    ) -> ValidatedArguments | CallOutcome:
        tool, arguments = pending.tool, pending.arguments
        assert tool is not None
        assert arguments is not None
        assessment = await self._assess(turn, tool, arguments, context)
        kind = CONFIRMATION if assessment.asks is None else QUESTION
        if resumed is not None and kind_of(resumed.request) is not kind:
            turn.resumed_requests.pop(context.call_id, None)
            asker = self._asker(turn, resumed.request)
            await asker.answer_again(turn, resumed, open_request, asker.kind.no_answer("restart"))
            raise CallRefused("Denied: the tool of the call was replaced while the program was down.", "denied")
        if assessment.asks is not None:
            return await self._ask_user(turn, pending, assessment.asks, slot, resumed, open_request)
        return await self._permit(turn, tool, arguments, context, assessment, slot, resumed, open_request)

    async def _permit(
        self,
        turn: Turn,
        tool: Tool,
        arguments: dict[str, Any],
        context: ToolContext,
        assessment: Assessment,
        slot: Slot,
        resumed: ResumedRequest | None,
        open_request: OpenRequest[Any] | None,
    ) -> ValidatedArguments:
        repaired = False
        if assessment.command is not None and seems_read_only(assessment.command):
            turn.read_only_calls.add(context.call_id)
        sources = () if assessment.risk == "read" else turn.foreign_sources
        verdict = decide(turn.permission_mode, assessment, has_gate=turn.has_gate, sources=sources)
        if verdict.decision != "ask":
            turn.resumed_requests.pop(context.call_id, None)
            await self._apply_verdict(turn, resumed, open_request, verdict)
            return ValidatedArguments(arguments)
        bound = await self._bind_arguments(tool, arguments, assessment)
        digest = bound.digest
        turn.resumed_requests.pop(context.call_id, None)
        if assessment.remembers or digest not in turn.allowed:
            await slot.release_to_ask()
            if resumed is None:
                request = self._request(turn, tool, bound, assessment, verdict, context.call_id)
                closing = ClosingAnswer(CONFIRMATION.no_answer("stop"))
                answer = await self._asker(turn, request).ask(turn, request, slot, closing)
            else:
                answer = await self._ask_resumed(turn, resumed, open_request, digest)
            await slot.acquire()
            if not answer.approved:
                raise CallRefused(_denial_text(answer), "denied")
            if answer.arguments is not None:
                replaced = await _validate_replacement(tool, answer.arguments)
                arguments, repaired = replaced.arguments, replaced.repaired
                changed = await self._assess(turn, tool, arguments, context)
                if decide(turn.permission_mode, changed).decision == "deny":
                    raise CallRefused("Denied: the changed arguments are not allowed in this mode.", "denied")
                digest = (await self._bind_arguments(tool, arguments, changed)).digest
            if answer.remember == "session" and not assessment.remembers:
                turn.allowed.add(digest)
        now = await self._assess(turn, tool, arguments, context)
        if (await self._bind_arguments(tool, arguments, now)).digest != digest:
            raise CallRefused("Denied: the effect of the call changed after the user was asked; ask again.", "denied")
        return ValidatedArguments(arguments, repaired)

    async def _ask_user(
        self,
        turn: Turn,
        pending: PendingCall,
        question: UserQuestion,
        slot: Slot,
        resumed: ResumedRequest | None,
        open_request: OpenRequest[Any] | None,
    ) -> CallOutcome:
        """Ask a question of the agent and return the answer, which is stored then, as the call's outcome."""
        asker, call_id = Asker(QUESTION, turn.gate, self.settings, self.clock), pending.call.id
        closing = ClosingAnswer(QUESTION.no_answer("stop")) if open_request is None else open_request.closing
        try:
            await slot.release_to_ask()
            turn.resumed_requests.pop(call_id, None)
            if resumed is None:
                answer = await asker.ask(turn, question_request(turn, call_id, question), slot, closing)
            else:
                answer = await asker.answer_again(turn, resumed, open_request, cast("Any", resumed.answer))
        finally:
            if closing.answer.by == "stop":
                pending.outcome = CallOutcome(_answer_text(closing.answer), "cancelled")
            elif closing.answer.answer:  # also if the turn is stopped in this very step
                pending.value.append(closing.answer.answer)
        await slot.acquire()
        await turn.channel.wait_until_written()
        text, truncated = truncate(clean_text(_answer_text(answer)), self.settings.tool_result_chars)
        return CallOutcome(text, truncated=truncated)

    def _asker(self, turn: Turn, request: UserRequest) -> Asker[Any, Any]:
        return Asker(kind_of(request), turn.gate_for(request), self.settings, self.clock)

    async def _assess(self, turn: Turn, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return the tool's assessment; raise `CallRefused` if it fails or returns anything else.

        The tool's code runs in a thread; a function without an assessor has its declared risk. A tool whose name says
        that it deletes is asked about as a protected path is if it would delete all of a folder that matters.
        """
        if isinstance(tool, FunctionTool) and tool.assessor is None:
            assessment = tool.assess(arguments, context)
        else:
            what = f"the assessment of tool {tool.schema.name!r}"
            given: object = await self._in_thread(tool.assess, arguments, context, what=what)
            try:
                assessment = checked_assessment(given, tool.schema.name)
            except ToolError as exc:
                raise CallRefused(str(exc), "error") from exc
        name, is_unasked = tool.schema.name, assessment.undeclared and not turn.has_gate
        if assessment.risk == "read" or is_unasked or not names_deletion(name):
            return assessment
        what = f"the paths of tool {name!r}"
        deleted = await self._in_thread(find_deleted_folder, arguments, context.workspace, what=what)
        if deleted is None:
            return assessment
        return replace(assessment, protected=True, reasons=(*assessment.reasons, deletion_reason(deleted)))

    async def _bind_arguments(
        self, tool: Tool, arguments: Mapping[str, Any], assessment: Assessment
    ) -> _BoundArguments:
        what = f"the confirmation of tool {tool.schema.name!r}"
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
            outcome: ToolOutcome = "invalid_arguments" if isinstance(exc, InvalidArguments) else "error"
            raise CallRefused(str(exc), outcome, exc.sources if isinstance(exc, ToolError) else ()) from exc

    async def _apply_verdict(
        self, turn: Turn, resumed: ResumedRequest | None, open_request: OpenRequest[Any] | None, verdict: Verdict
    ) -> None:
        """Apply the mode's verdict, also to a confirmation that was pending; raise `CallRefused` for a denial."""
        answer = ConfirmAnswer(approved=verdict.decision == "allow", by="policy")
        if open_request is not None:
            answer = await open_request.close(answer)
        elif resumed is not None and not resumed.is_response_logged:
            self._asker(turn, resumed.request).emit_answer(turn, resumed.request.id, answer)
        if verdict.decision == "deny":
            raise CallRefused(f"Denied: {' '.join(verdict.reasons)}", "denied")
        if not answer.approved:  # the user answered before the mode's verdict closed the confirmation
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
            question=turn.titled(assessment.question or f"Allow {tool.schema.name}?"),
            context=_confirm_context(tool, bound, assessment, verdict, call_id),
            digest=bound.digest,
            expires_at=self.clock.now() + timedelta(seconds=CONFIRMATION.timeout_seconds(self.settings)),
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            agent_path=turn.asking_path,
        )

    async def _ask_resumed(
        self, turn: Turn, resumed: ResumedRequest, open_request: OpenRequest[Any] | None, digest: str
    ) -> ConfirmAnswer:
        """Return the answer to a confirmation from before the interruption; wait for it if it is pending."""
        answer, request = cast("ConfirmAnswer | None", resumed.answer), cast("ConfirmRequest", resumed.request)
        if request.digest != digest:
            answer = CONFIRMATION.no_answer("restart", "the effect of the call changed while the program was down")
        return await self._asker(turn, request).answer_again(turn, resumed, open_request, answer)

    def close_resumed(self, turn: Turn, by: AnsweredBy = "stop", call_id: str | None = None) -> None:
        """Close the requests of an interrupted turn that its calls, or the named one, have not taken up."""
        for id_ in list(turn.resumed_requests) if call_id is None else [call_id]:
            if (resumed := turn.resumed_requests.pop(id_, None)) is None:
                continue
            if not resumed.is_response_logged:
                asker = self._asker(turn, resumed.request)
                asker.emit_answer(turn, resumed.request.id, resumed.answer or asker.kind.no_answer(by))
            resumed.asked.set()


def _confirm_context(
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


def _answer_text(answer: QuestionAnswer) -> str:
    """Return the result of the call that asked a question."""
    return answer.answer or _NO_ANSWER[answer.by]


_NO_ANSWER: dict[AnsweredBy, str] = {
    "user": "No answer: the user did not want to give one.",
    "policy": "No answer: nobody can be asked now. Go on without it, or say in your reply what you need to know.",
    "timeout": "No answer: none was given in time. Go on without it, or say in your reply what you need to know.",
    "stop": "No answer: the turn was stopped.",
    "restart": "No answer: the program was restarted before one was given.",
}


def _denial_text(answer: ConfirmAnswer) -> str:
    text = {
        "user": "Denied by the user.",
        "timeout": "Denied: no answer was given in time.",
        "policy": "Denied by policy.",
        "stop": "Denied: the turn was stopped.",
        "restart": "Denied: the program was restarted before an answer was given.",
    }[answer.by]
    return f"{text} Reason: {answer.reason}" if answer.reason else text
