"""Whether one call may run: the mode's verdict, the person's answer, and the proof that nothing changed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeGuard

from agenticx import foreign
from agenticx.clocks import Clock, rfc3339
from agenticx.errors import AgenticXError, InvalidArguments, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import ToolOutcome, new_id
from agenticx.runtime.call_reading import Validated, validated
from agenticx.runtime.confirm import ConfirmAnswer, ConfirmGate, ConfirmRequest, confirm_digest
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import ended
from agenticx.runtime.resuming import Question
from agenticx.runtime.slots import Slot
from agenticx.runtime.tool_output import jsonable
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, Tool, ToolContext
from agenticx.tools.looking import seems_to_look
from agenticx.tools.permissions import Verdict, decide
from agenticx.tools.registry import FunctionTool

__all__ = ["Permits", "Refused"]

_SHORTEST_SECONDS = 0.001
_GATE = "the confirm gate"

_log = get_logger(__name__)


class Refused(AgenticXError):
    """The call may not run; the message is what the model reads, `outcome` what the result says."""

    def __init__(self, message: str, outcome: ToolOutcome) -> None:
        super().__init__(message)
        self.outcome: ToolOutcome = outcome


@dataclass(frozen=True, slots=True)
class _Shown:
    """The arguments of a call as JSON, and the digest of all that its question covers."""

    arguments: dict[str, Any]
    digest: str


@dataclass(slots=True)
class _Closing:
    """The answer with which a question is closed that nobody answers; afterwards, the one it was closed with."""

    answer: ConfirmAnswer = field(default_factory=lambda: ConfirmAnswer(approved=False, by="stop"))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question of before a restart that waits at the gate again."""

    task: asyncio.Task[ConfirmAnswer]
    closing: _Closing

    async def close(self, answer: ConfirmAnswer) -> ConfirmAnswer:
        """Close the question with `answer`, or the one that it has been given by now, and return that."""
        if not self.task.done():
            self.closing.answer = answer
            await ended(self.task)
        return self.closing.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Permits:
    """Asks whoever must be asked. `obtain` returns the arguments that may run, or raises `Refused`.

    Its `slot` is given back while the person is asked.
    """

    gate: ConfirmGate
    settings: Settings
    clock: Clock

    async def obtain(
        self, turn: Turn, tool: Tool, arguments: dict[str, Any], context: ToolContext, slot: Slot
    ) -> Validated:
        asked = turn.asked.get(context.call_id)
        if asked is not None:
            slot.settle()  # it was put already
        if asked is None or asked.answer is not None:
            return await self._obtain(turn, tool, arguments, context, slot, asked, None)
        # Its readers know this question, so it takes answers while its call is still being looked at again.
        closing = _Closing()
        announced = _Announcement(turn, asked.request, slot, done=True)
        waiting = asyncio.create_task(self._put(turn, asked.request, announced, closing))
        del turn.asked[context.call_id]
        try:
            return await self._obtain(turn, tool, arguments, context, slot, asked, _Waiting(waiting, closing))
        finally:
            await ended(waiting)

    async def _obtain(
        self,
        turn: Turn,
        tool: Tool,
        arguments: dict[str, Any],
        context: ToolContext,
        slot: Slot,
        asked: Question | None,
        waiting: _Waiting | None,
    ) -> Validated:
        repaired = False
        assessment = await self._assess(tool, arguments, context)
        if assessment.command is not None and seems_to_look(assessment.command):
            turn.looking.add(context.call_id)
        verdict = decide(turn.session.permission_mode, assessment)
        if verdict.decision != "ask":
            turn.asked.pop(context.call_id, None)
            await self._settle(turn, asked, waiting, verdict)
            return Validated(arguments)
        shown = await self._shown(tool, arguments, assessment)
        digest = shown.digest
        turn.asked.pop(context.call_id, None)
        if digest not in turn.session.allowed:
            await slot.lend()
            if asked is None:
                request = self._request(turn, tool, shown, assessment, verdict, context.call_id)
                answer = await self._put(turn, request, _Announcement(turn, request, slot), _Closing())
            else:
                answer = await self._ask_on(turn, asked, waiting, digest)
            await slot.take()
            if not answer.approved:
                raise Refused(_denial(answer), "denied")
            if answer.arguments is not None:
                replaced = await _replaced(tool, answer.arguments)
                arguments, repaired = replaced.arguments, replaced.repaired
                changed = await self._assess(tool, arguments, context)
                if decide(turn.session.permission_mode, changed).decision == "deny":
                    raise Refused("Denied: the changed arguments are not allowed in this mode.", "denied")
                digest = (await self._shown(tool, arguments, changed)).digest
            if answer.remember == "session":
                turn.session.allowed.add(digest)
        now = await self._assess(tool, arguments, context)
        if (await self._shown(tool, arguments, now)).digest != digest:
            raise Refused("Denied: what would run changed after the person was asked; ask again.", "denied")
        return Validated(arguments, repaired)

    async def _assess(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return the tool's assessment; raises `Refused` for whatever else the tool does there.

        Code that assesses runs in a thread; a function without any has its declared risk.
        """
        if isinstance(tool, FunctionTool) and tool.assessor is None:
            return tool.assess(arguments, context)
        what = f"the assessment of tool {tool.schema.name!r}"
        assessment = await self._in_thread(tool.assess, arguments, context, what=what)
        if not isinstance(assessment, Assessment):
            raise Refused(f"{what} returned {type(assessment).__name__}, not an Assessment", "error")
        return assessment

    async def _shown(self, tool: Tool, arguments: Mapping[str, Any], assessment: Assessment) -> _Shown:
        what = f"the question about tool {tool.schema.name!r}"
        shown: _Shown = await self._in_thread(_shown, tool, arguments, assessment, what=what)
        return shown

    async def _in_thread(self, function: Callable[..., Any], /, *args: Any, what: str) -> Any:
        """Call `function` in a thread; a stop leaves it behind. Its errors of any kind are this call's alone."""
        try:
            limit = self.clock.real(self.settings.tool_timeout_seconds)
            return await foreign.call(function, *args, what=what, limit=limit)
        except Refused:
            raise
        except AgenticXError as exc:
            raise Refused(str(exc), "error") from exc

    async def _settle(self, turn: Turn, asked: Question | None, waiting: _Waiting | None, verdict: Verdict) -> None:
        """Go by the mode's verdict, also over a question that waited; raises `Refused` for a no."""
        answer = ConfirmAnswer(approved=verdict.decision == "allow", by="policy")
        if waiting is not None:
            answer = await waiting.close(answer)
        elif asked is not None and not asked.said:
            self._close(turn, asked.request, answer)
        if verdict.decision == "deny":
            raise Refused(f"Denied: {' '.join(verdict.reasons)}", "denied")
        if not answer.approved:  # the person was quicker
            raise Refused(_denial(answer), "denied")

    def _request(
        self,
        turn: Turn,
        tool: Tool,
        shown: _Shown,
        assessment: Assessment,
        verdict: Verdict,
        call_id: str,
    ) -> ConfirmRequest:
        return ConfirmRequest(
            id=new_id("cnf"),
            question=assessment.question or f"Allow {tool.schema.name}?",
            context=_question_context(tool, shown, assessment, verdict, call_id),
            digest=shown.digest,
            expires_at=self.clock.now() + timedelta(seconds=self.settings.confirm_timeout_seconds),
            session_id=turn.session.id,
            agent_id=turn.agent_id,
        )

    async def _ask_on(self, turn: Turn, asked: Question, waiting: _Waiting | None, digest: str) -> ConfirmAnswer:
        """Return the answer to a question that was put before the turn was cut off, once there is one."""
        answer = asked.answer
        if asked.request.digest != digest:
            changed = "what would run changed while the program was down"
            answer = ConfirmAnswer(approved=False, by="restart", reason=changed)
        if waiting is not None:
            if answer is None:
                return await waiting.task
            await waiting.close(answer)
        elif answer is not None and not asked.said:
            self._close(turn, asked.request, answer)
        assert answer is not None
        return answer

    async def _put(
        self, turn: Turn, request: ConfirmRequest, announce: _Announcement, closing: _Closing
    ) -> ConfirmAnswer:
        """Ask the gate and emit its events, whatever the gate does; if this is cancelled, `closing` is the answer."""
        limit = max((request.expires_at - self.clock.now()).total_seconds(), _SHORTEST_SECONDS)
        asked_at = self.clock.monotonic()
        answer: ConfirmAnswer | None = None
        try:
            answer = await foreign.call(self.gate.ask, request, announce, what=_GATE, limit=self.clock.real(limit))
            if not _is_answer(answer):
                raise UserCodeError(f"{_GATE} returned no ConfirmAnswer", what=_GATE, kind="junk")
        except AgenticXError as exc:
            if not isinstance(exc, UserCodeError) or (exc.kind, exc.what) != ("timed_out", _GATE):
                _log.error("the confirm gate failed, which counts as no", exc_info=exc)
                answer = ConfirmAnswer(approved=False, by="policy", reason=str(exc))
            elif (answer := self._decided(request)) is None:
                answer = ConfirmAnswer(approved=False, by="timeout")
                data = {"phase": "confirm", "elapsed_seconds": round(self.clock.monotonic() - asked_at, 3)}
                limit_seconds = self.settings.confirm_timeout_seconds
                turn.emit(EventType.STALL, {**data, "limit_seconds": limit_seconds, "action": "failed"})
        finally:
            answer = closing.answer = answer or self._decided(request) or closing.answer
            announce()
            self._close(turn, request, answer)
        return answer

    def _decided(self, request: ConfirmRequest) -> ConfirmAnswer | None:
        try:
            answer: object = foreign.call_sync(self.gate.decided, request.id, what=_GATE)
        except AgenticXError as exc:
            _log.error("the confirm gate failed, which counts as no", exc_info=exc)
            return None
        return answer if _is_answer(answer) else None

    def _close(self, turn: Turn, request: ConfirmRequest, answer: ConfirmAnswer) -> None:
        turn.emit(EventType.CONFIRM_RESPONSE, _response(request, answer))


def _is_answer(value: object) -> TypeGuard[ConfirmAnswer]:
    return isinstance(value, ConfirmAnswer) and type(value.approved) is bool


class _Announcement:
    """Emits `confirm_required` once, however often a gate announces."""

    def __init__(self, turn: Turn, request: ConfirmRequest, slot: Slot, *, done: bool = False) -> None:
        self._turn = turn
        self._request = request
        self._slot = slot
        self._done = done

    def __call__(self) -> None:
        self._slot.settle()
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
        self._turn.emit(EventType.CONFIRM_REQUIRED, data)


def _question_context(
    tool: Tool, shown: _Shown, assessment: Assessment, verdict: Verdict, call_id: str
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tool": tool.schema.name,
        "tool_call_id": call_id,
        "arguments": shown.arguments,
        "risk": assessment.risk,
        "reasons": list(verdict.reasons),
    }
    for key in ("command", "path", "diff"):
        if (value := getattr(assessment, key)) is not None:
            context[key] = value
    return context


def _response(request: ConfirmRequest, answer: ConfirmAnswer) -> dict[str, Any]:
    data: dict[str, Any] = {"id": request.id, "approved": answer.approved, "by": answer.by}
    if answer.by == "user":
        data["remember"] = answer.remember
    if answer.arguments is not None:
        data["arguments"] = jsonable(answer.arguments)
    if answer.reason is not None:
        data["reason"] = answer.reason
    return data


def _shown(tool: Tool, arguments: Mapping[str, Any], assessment: Assessment) -> _Shown:
    try:
        written = jsonable(arguments)
        return _Shown(written, confirm_digest(tool.schema.name, written, assessment.binding))
    except (TypeError, ValueError, RecursionError) as exc:
        raise Refused(
            f"the assessment of tool {tool.schema.name!r} is bound to what is not JSON: {exc}", "error"
        ) from exc


async def _replaced(tool: Tool, arguments: Mapping[str, Any]) -> Validated:
    try:
        return await run_in_thread(validated, tool, arguments, name="agx reading a call")
    except InvalidArguments as exc:
        raise Refused(f"Invalid arguments given with the confirmation: {exc}", "invalid_arguments") from exc


def _denial(answer: ConfirmAnswer) -> str:
    text = {
        "user": "Denied by the user.",
        "timeout": "Denied: nobody answered in time.",
        "policy": "Denied by policy.",
        "stop": "Denied: the turn was stopped.",
        "restart": "Denied: the program was restarted before anyone answered.",
    }[answer.by]
    return f"{text} Reason: {answer.reason}" if answer.reason else text
