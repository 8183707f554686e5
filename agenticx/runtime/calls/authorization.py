"""Authorization of one call: the mode's verdict, the user's answer, and a check for changes since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

from agenticx import user_code
from agenticx.clocks import Clock, rfc3339
from agenticx.errors import AgenticXError, InvalidArguments, ToolError
from agenticx.logs import get_logger
from agenticx.messages import ToolOutcome, clean_text, new_id
from agenticx.permissions.explain import explain_read
from agenticx.permissions.kinds import NO_OFFER, Offer, describe, is_narrower, offer_rules
from agenticx.permissions.rule_stores import RulesUnusable
from agenticx.permissions.rules import Call, Rule, with_scope
from agenticx.permissions.said import is_said
from agenticx.permissions.verdict import Verdict, decide
from agenticx.runtime.calls.asking import Asker, ClosingAnswer, OpenRequest, question_request
from agenticx.runtime.calls.concurrency import Slot
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.calls.validation import CallOutcome, PendingCall, ValidatedArguments, validate_arguments
from agenticx.runtime.events import EventType
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
from agenticx.tools.base import Assessment, Risk, Tool, UserQuestion
from agenticx.tools.context import ToolContext
from agenticx.tools.critical_folders import assess_deletion, names_deletion
from agenticx.tools.registry import FunctionTool
from agenticx.tools.shell.read_only_heuristic import seems_read_only

__all__ = ["CallAuthorizer", "CallRefused"]

_log = get_logger(__name__)

_RESUMED_REASON = (
    "The session was in mode auto before the program was restarted; a yes lets it go on without further questions."
)
_LOOP_COMPARISONS = 5_000  # about 5 ms


class CallRefused(AgenticXError):
    """Raised when the call may not run; the model reads the message, `outcome` is the outcome of its result.

    `sources` name the texts of others that the message quotes.
    """

    def __init__(self, message: str, outcome: ToolOutcome, sources: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: ToolOutcome = outcome
        self.sources = tuple(sources)


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
        """Return the arguments that may run, or for a question of the agent the outcome with the user's answer.

        Raises `CallRefused` if the call may not run.
        """
        assert pending.tool is not None
        assert pending.arguments is not None
        earlier = turn.resumed_requests.get(context.call_id)
        call = _Authorization(
            turn=turn,
            pending=pending,
            tool=pending.tool,
            context=context,
            slot=slot,
            settings=self.settings,
            clock=self.clock,
            earlier=earlier,
        )
        if earlier is None:
            return await call.run(pending.arguments)
        slot.mark_asked()  # the request was asked before the restart
        if earlier.answer is not None:
            return await call.run(pending.arguments)
        # Clients already show this request, so answers are accepted while its call is assessed again.
        call.open_request = call.asker(earlier.request).ask_again(turn, earlier, earlier.request, slot)
        del turn.resumed_requests[context.call_id]
        try:
            await asyncio.sleep(0)  # a task that is cancelled before it begins does not close its request
            return await call.run(pending.arguments)
        finally:
            await cancel_and_wait(call.open_request.task)
            earlier.asked.set()

    def close_resumed(self, turn: Turn, by: AnsweredBy = "stop", call_id: str | None = None) -> None:
        """Close the requests of an interrupted turn that its calls, or the call `call_id`, have not taken up."""
        for id_ in list(turn.resumed_requests) if call_id is None else [call_id]:
            if (resumed := turn.resumed_requests.pop(id_, None)) is None:
                continue
            if not resumed.is_response_logged:
                asker = _asker(turn, resumed.request, self.settings, self.clock)
                asker.emit_answer(turn, resumed.request.id, resumed.answer or asker.kind.no_answer(by))
            resumed.asked.set()


@dataclass(frozen=True, slots=True)
class _JudgedCall:
    """A call with the verdict about it by the `rules` of the user; `offer` has those that a yes can store."""

    call: Call
    verdict: Verdict
    rules: Sequence[Rule]
    offer: Offer = NO_OFFER

    @property
    def is_asked_each_time(self) -> bool:
        """True if the user is asked whatever rules and modes allow."""
        return self.verdict.decision == "ask" and self.verdict.is_in_every_mode


@dataclass(slots=True, kw_only=True)
class _Authorization:
    """The authorization of one call.

    `earlier` is the request about it that an earlier process made; `open_request` is that request where it is still
    open, pending at the gate again.
    """

    turn: Turn
    pending: PendingCall
    tool: Tool
    context: ToolContext
    slot: Slot
    settings: Settings
    clock: Clock
    earlier: ResumedRequest | None
    open_request: OpenRequest[Any] | None = None

    async def run(self, arguments: dict[str, Any]) -> ValidatedArguments | CallOutcome:
        """Return the arguments that may run, or the user's answer as the outcome of a call that asks for it."""
        assessment = await self._assess(arguments)
        kind = CONFIRMATION if assessment.asks is None else QUESTION
        if self.earlier is not None and kind_of(self.earlier.request) is not kind:
            self._take_earlier()
            asker = self.asker(self.earlier.request)
            await asker.answer_again(self.turn, self.earlier, self.open_request, asker.kind.no_answer("restart"))
            raise CallRefused("Denied: the tool of the call was replaced while the program was down.", "denied")
        if assessment.asks is not None:
            return await self._ask_question(assessment.asks)
        return await self._permit(arguments, assessment)

    # --- confirmations ------------------------------------------------------------------------------------------------

    async def _permit(self, arguments: dict[str, Any], assessment: Assessment) -> ValidatedArguments:
        """Return the arguments that may run; those that the user gave instead are decided about as a call of their own.

        Raises `CallRefused`.
        """
        if assessment.command is not None and seems_read_only(assessment.command):
            self.turn.read_only_calls.add(self.context.call_id)
        permitted, judged = ValidatedArguments(arguments), await self._judge(arguments, assessment)
        if judged.verdict.decision != "ask":
            self._take_earlier()
            await self._apply_verdict(judged.verdict)
            return replace(permitted, risk=assessment.risk)
        while True:
            judged = await self._with_offer(judged)
            self._take_earlier()
            answer = await self._confirm(judged)
            if answer.arguments is None:
                break
            permitted = await _validate_replacement(self.tool, answer.arguments)
            self.earlier = self.open_request = None
            judged = await self._judge(permitted.arguments, await self._assess(permitted.arguments))
            if judged.verdict.decision == "deny":
                raise CallRefused(f"Denied: the changed arguments: {' '.join(judged.verdict.reasons)}", "denied")
            if not judged.is_asked_each_time:  # the person who wrote them has seen them
                judged = await self._with_offer(judged)
                break
        await self._store_rules(answer, judged.offer)
        return replace(permitted, risk=await self._risk_if_unchanged(judged.call, permitted.arguments))

    async def _judge(self, arguments: Mapping[str, Any], assessment: Assessment) -> _JudgedCall:
        """Return the call with the verdict about it."""
        rules = await self._rules()
        call = await self._call(arguments, assessment, rules)
        return _JudgedCall(call, await self._decide(call, rules), rules)

    async def _with_offer(self, judged: _JudgedCall) -> _JudgedCall:
        """Return a call that the user is asked about, bound, with the rules that a yes can store."""
        call = await self._bind(judged.call)
        offer = NO_OFFER if judged.is_asked_each_time else await self._offer(call, judged.rules)
        return replace(judged, call=call, offer=offer)

    async def _risk_if_unchanged(self, call: Call, arguments: Mapping[str, Any]) -> Risk:
        """Return the risk of a call that the user has allowed; raise `CallRefused` if its effect is another one now."""
        assessment = await self._assess(arguments)
        now = await self._bind(replace(call, arguments=arguments, assessment=assessment, digest=""))
        if now.digest != call.digest:
            raise CallRefused("Denied: the effect of the call changed after the user was asked; ask again.", "denied")
        return assessment.risk

    async def _call(self, arguments: Mapping[str, Any], assessment: Assessment, rules: Sequence[Rule]) -> Call:
        """Return the call as the rules see it."""
        workspace = self.context.workspace
        if any(rule.workspace is not None for rule in rules):
            workspace = await run_in_thread(workspace.resolve, name="agx workspace")
        call = Call(tool=self.tool.schema.name, assessment=assessment, arguments=arguments, workspace=workspace)
        return await self._bind(call) if any(rule.digest for rule in rules) else call

    async def _rules(self) -> Sequence[Rule]:
        """Return the rules of the user that may hold; those that allow do not replace an agent's own gate.

        Raises `CallRefused` if the stored ones cannot be read.
        """
        turn = self.turn
        stored: Sequence[Rule] = ()
        if turn.rule_store is not None:
            try:
                stored = await run_in_thread(turn.rule_store.list, name="agx rules")
            except RulesUnusable as exc:
                raise CallRefused(f"Denied: {exc}", "denied") from exc
        rules = (*stored, *turn.root.session.rules)
        return tuple(rule for rule in rules if rule.decision != "allow") if turn.has_own_gate else rules

    async def _decide(self, call: Call, rules: Sequence[Rule]) -> Verdict:
        turn, assessment = self.turn, call.assessment
        sources, files = (), ()
        if assessment.sends or assessment.risk != "read":
            sources = turn.foreign_sources
            if turn.has_instructions:
                files = await run_in_thread(turn.untrusted_files, name="agx trusted files")
        said = False
        if (sources or files) and assessment.sends:
            said = await run_in_thread(is_said, call.arguments, turn.root.user_texts(), name="agx messages")
        found = partial(decide, rules=rules, has_gate=turn.has_gate, sources=sources, untrusted_files=files)
        found = partial(found, turn.permission_mode, call, is_said=said)
        verdict = await run_in_thread(found, name="agx rules") if _takes_long(call, rules) else found()
        return self._ask_if_resumed(verdict, assessment)

    def _ask_if_resumed(self, verdict: Verdict, assessment: Assessment) -> Verdict:
        """Return the verdict; a change that mode auto allows is asked about until somebody has agreed to the mode."""
        is_change = verdict.decision == "allow" and verdict.decided_by == "auto" and assessment.risk != "read"
        if not is_change or self.turn.has_auto_consent:
            return verdict
        return Verdict("ask", "resumed", (*assessment.reasons, _RESUMED_REASON))

    async def _agree_to_auto(self, call: Call) -> None:
        """Let the session go on in mode auto, unless the call was allowed by another mode or a rule meanwhile."""
        if (await self._decide(call, await self._rules())).decided_by == "resumed":
            session = self.turn.root.session
            session.auto_consent.is_given = True
            session.change_permissions()

    async def _offer(self, call: Call, rules: Sequence[Rule]) -> Offer:
        """Return the rules that a yes to the call can store."""
        found = partial(offer_rules, call, rules)
        return await run_in_thread(found, name="agx rules") if _takes_long(call, rules) else found()

    async def _confirm(self, judged: _JudgedCall) -> ConfirmAnswer:
        """Ask the user, or take the answer to the earlier request; raise `CallRefused` for a no.

        If meanwhile the mode or the rules of the session change so that the call is not asked about any more, that
        closes the request.
        """
        call = judged.call
        await self.slot.release_to_ask()
        if self.earlier is not None:
            closing = None if self.open_request is None else self.open_request.closing
            ask = self._answer_to_earlier(self.earlier, call.digest)
        else:
            request = self._request(call, judged.verdict, judged.offer)
            closing = ClosingAnswer(CONFIRMATION.no_answer("stop"))
            ask = self.asker(request).ask(self.turn, request, self.slot, closing)
        answer = await (ask if closing is None else self._ask_until_decided(ask, call, closing))
        await self.slot.acquire()
        if not answer.approved:
            raise CallRefused(_denial_text(answer), "denied")
        if judged.verdict.decided_by == "resumed":
            await self._agree_to_auto(call)
        return answer

    async def _ask_until_decided(
        self, ask: Coroutine[Any, Any, ConfirmAnswer], call: Call, closing: ClosingAnswer[ConfirmAnswer]
    ) -> ConfirmAnswer:
        task = asyncio.create_task(ask)
        try:
            while True:
                changed = self.turn.root.session.permissions_changed()
                try:
                    await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if task.done():
                    return task.result()
                verdict = await self._decide(call, await self._rules())
                if verdict.decision == "ask":
                    continue
                reason = None if verdict.decision == "allow" else " ".join(verdict.reasons)
                answer = ConfirmAnswer(approved=verdict.decision == "allow", by="policy", reason=reason)
                if self.open_request is not None:
                    return await self.open_request.close(answer)
                closing.answer = answer
                await cancel_and_wait(task)
                return closing.answer
        finally:
            await cancel_and_wait(task)

    async def _answer_to_earlier(self, earlier: ResumedRequest, digest: str) -> ConfirmAnswer:
        """Return the answer to a confirmation from before the interruption; wait for it if it is pending."""
        answer, request = cast("ConfirmAnswer | None", earlier.answer), cast("ConfirmRequest", earlier.request)
        if request.digest != digest:
            answer = CONFIRMATION.no_answer("restart", "the effect of the call changed while the program was down")
        return await self.asker(request).answer_again(self.turn, earlier, self.open_request, answer)

    async def _store_rules(self, answer: ConfirmAnswer, offer: Offer) -> None:
        """Store the rules with which the user answered: those that were shown, or narrower ones.

        The kinds of arguments that the user gave instead were not shown: only rules that the answer names are stored.
        """
        if answer.remember == "once":
            return
        turn = self.turn
        given = [rule for rule in answer.rules if is_narrower(rule, offer)]
        if len(given) < len(answer.rules):
            _log.warning("rules that cover more than was shown are not stored", session_id=turn.session_id)
        chosen = given if answer.rules or answer.arguments is not None else offer.shown
        if not chosen:
            if answer.arguments is not None:
                self._say_not_stored("the question did not show a kind of the changed arguments")
            return
        chosen = [rule.model_copy(update={"sandboxed": offer.shown[0].sandboxed}) for rule in chosen]
        if answer.remember == "session" or turn.rule_store is None:
            turn.root.session.add_rules(chosen, rfc3339(self.clock.now()))
        else:
            workspace = await run_in_thread(self.context.workspace.resolve, name="agx workspace")
            scoped = (with_scope(one, "user" if one.scope == "user" else "workspace", str(workspace)) for one in chosen)
            rules = [rule.model_copy(update={"origin": "answer"}) for rule in scoped]
            try:
                await run_in_thread(turn.rule_store.add, rules, name="agx rules")
            except RulesUnusable as exc:
                self._say_not_stored(str(exc))
        turn.root.session.change_permissions()

    def _say_not_stored(self, reason: str) -> None:
        _log.error("the answer to a confirmation counts once: its rules could not be stored", reason=reason)
        text = f"The answer counts once, for this call: {reason}."
        self.turn.emit(EventType.ERROR, {"text": text, "code": "rule_not_stored", "fatal": False})

    async def _apply_verdict(self, verdict: Verdict) -> None:
        """Apply the mode's verdict, also to a confirmation that was pending; raise `CallRefused` for a denial."""
        answer = ConfirmAnswer(approved=verdict.decision == "allow", by="policy")
        if self.open_request is not None:
            answer = await self.open_request.close(answer)
        elif self.earlier is not None and not self.earlier.is_response_logged:
            self.asker(self.earlier.request).emit_answer(self.turn, self.earlier.request.id, answer)
        if verdict.decision == "deny":
            raise CallRefused(f"Denied: {' '.join(verdict.reasons)}", "denied")
        if not answer.approved:  # the user answered before the mode's verdict closed the confirmation
            raise CallRefused(_denial_text(answer), "denied")

    def _request(self, call: Call, verdict: Verdict, offer: Offer) -> ConfirmRequest:
        turn, assessment = self.turn, call.assessment
        return ConfirmRequest(
            id=new_id("cnf"),
            question=turn.with_title(assessment.question or f"Allow {call.tool}?"),
            context=_confirm_context(call, verdict, offer, self.context.call_id),
            digest=call.digest,
            expires_at=self.clock.now() + timedelta(seconds=CONFIRMATION.timeout_seconds(self.settings)),
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            agent_path=turn.asking_path,
        )

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _ask_question(self, question: UserQuestion) -> CallOutcome:
        """Ask a question of the agent and return the answer, once it is stored, as the call's outcome."""
        turn, pending, open_request = self.turn, self.pending, self.open_request
        asker = Asker(QUESTION, turn.gate, self.settings, self.clock)
        closing = ClosingAnswer(QUESTION.no_answer("stop")) if open_request is None else open_request.closing
        try:
            await self.slot.release_to_ask()
            self._take_earlier()
            if self.earlier is None:
                request = question_request(turn, pending.call.id, question)
                answer = await asker.ask(turn, request, self.slot, closing)
            else:
                given = cast("Any", self.earlier.answer)
                answer = await asker.answer_again(turn, self.earlier, open_request, given)
        finally:
            if closing.answer.by == "stop":
                pending.outcome = CallOutcome(_answer_text(closing.answer), "cancelled")
            elif closing.answer.answer:  # also if the turn is stopped in this very step
                pending.value.append(closing.answer.answer)
        await self.slot.acquire()
        await turn.channel.wait_until_written()
        text, truncated = truncate(clean_text(_answer_text(answer)), self.settings.tool_result_chars)
        return CallOutcome(text, truncated=truncated)

    # --- both ---------------------------------------------------------------------------------------------------------

    def asker(self, request: UserRequest) -> Asker[Any, Any]:
        """Return the asker of a request, at the gate that it is put to."""
        return _asker(self.turn, request, self.settings, self.clock)

    def _take_earlier(self) -> None:
        """Take the earlier request from the turn, so that the turn does not close it."""
        self.turn.resumed_requests.pop(self.context.call_id, None)

    async def _assess(self, arguments: Mapping[str, Any]) -> Assessment:
        """Return the tool's assessment; raise `CallRefused` if it fails or returns anything else.

        The tool's code runs in a thread; a function without an assessor has its declared risk. If the name of a tool
        says that it deletes, and it would delete a whole important folder, it is asked about like a protected path.
        """
        tool, context = self.tool, self.context
        name = tool.schema.name
        if isinstance(tool, FunctionTool) and tool.assessor is None:
            assessment = tool.assess(arguments, context)
        else:
            what = f"the assessment of tool {name!r}"
            given: object = await self._in_thread(tool.assess, arguments, context, what=what)
            try:
                assessment = checked_assessment(given, name)
            except ToolError as exc:
                raise CallRefused(str(exc), "error") from exc
        is_unasked = assessment.undeclared and not self.turn.has_gate
        if is_unasked or not names_deletion(name):
            return assessment
        what = f"the paths of tool {name!r}"
        return await self._in_thread(assess_deletion, assessment, name, arguments, context.workspace, what=what)

    async def _bind(self, call: Call) -> Call:
        """Return the call with its arguments as JSON, and the digest of all that a confirmation of it covers."""
        if call.digest:
            return call
        bound: Call = await self._in_thread(_bind, call, what=f"the confirmation of tool {call.tool!r}")
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


def _takes_long(call: Call, rules: Sequence[Rule]) -> bool:
    """Return whether each rule is compared with so many commands that it would hold the event loop."""
    shell = call.assessment.shell
    if shell is None:
        return False
    names = sum(1 + named.path.count("/") for named in shell.paths or ())
    return len(rules) * (len(shell.runs) + len(shell.parts or ()) + names) > _LOOP_COMPARISONS


def _asker(turn: Turn, request: UserRequest, settings: Settings, clock: Clock) -> Asker[Any, Any]:
    return Asker(kind_of(request), turn.gate_for(request), settings, clock)


def _confirm_context(call: Call, verdict: Verdict, offer: Offer, call_id: str) -> dict[str, Any]:
    assessment = call.assessment
    context: dict[str, Any] = {
        "tool": call.tool,
        "tool_call_id": call_id,
        "arguments": dict(call.arguments),
        "risk": assessment.risk,
        "reasons": [*verdict.reasons, *explain_read(call, verdict)],
        "decided_by": verdict.decided_by,
    }
    for key in ("command", "path", "diff", "sandboxed"):
        if (value := getattr(assessment, key)) is not None:
            context[key] = value
    if offer.shown:
        context["rules"] = [rule.to_json() for rule in offer.shown]
        context["kinds"] = [describe(rule) for rule in offer.shown]
    if len(offer.shown) == 1:
        context["rule"] = context["rules"][0]
    if offer.exact is not None:
        context["exact_rule"] = offer.exact.to_json()
    return context


def _bind(call: Call) -> Call:
    try:
        arguments = jsonable(call.arguments)
        digest = confirm_digest(call.tool, arguments, call.assessment.binding)
        return replace(call, arguments=arguments, digest=digest)
    except (TypeError, ValueError, RecursionError) as exc:
        raise CallRefused(
            f"the assessment of tool {call.tool!r} has a binding that is not JSON: {exc}", "error"
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
