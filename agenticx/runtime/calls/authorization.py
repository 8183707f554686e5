"""Authorization of one call: the mode's verdict, the user's answer, and a check for changes since."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from agenticx.clocks import rfc3339
from agenticx.errors import InvalidArguments
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.permissions.explain import explain_read
from agenticx.permissions.offers import Offer, describe, is_narrower
from agenticx.permissions.rule_stores import RulesUnusable
from agenticx.permissions.rules import Call, with_scope
from agenticx.permissions.verdict import Verdict
from agenticx.runtime.calls.asking import Asker, OpenRequest
from agenticx.runtime.calls.assessing import CallAssessor
from agenticx.runtime.calls.judging import CallJudge, JudgedCall
from agenticx.runtime.calls.validation import CallRefused, ValidatedArguments, validate_arguments
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.turn import Turn
from agenticx.runtime.user_requests.confirm_digest import jsonable
from agenticx.runtime.user_requests.edited_arguments import edited_arguments
from agenticx.runtime.user_requests.kinds import CONFIRMATION
from agenticx.runtime.user_requests.requests import ASKED_ANEW, ConfirmAnswer, ConfirmRequest
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, Risk, Tool
from agenticx.tools.shell.read_only_heuristic import seems_read_only

__all__ = ["authorize"]

_log = get_logger(__name__)

_ASKED_ANEW = ConfirmAnswer(approved=False, by="policy", reason=ASKED_ANEW)


async def authorize(
    arguments: dict[str, Any], assessment: Assessment, assessor: CallAssessor, asker: Asker
) -> ValidatedArguments:
    """Return the arguments with which the call may run: its own, or those that the user gave instead.

    Arguments that the user gave are judged as a call of their own. Raises `CallRefused` if the call may not run.
    """
    turn = assessor.turn
    if assessment.command is not None and seems_read_only(assessment.command):
        turn.read_only_calls.add(assessor.context.call_id)
    call = _Authorization(turn, assessor, CallJudge(assessor), asker)
    judged = await call.judge.judge(arguments, assessment)
    decision = judged.verdict.decision
    if decision == "ask" or (decision == "allow" and asker.is_answered):  # what the user said counts
        return await call.confirm(ValidatedArguments(arguments), judged)
    await call.apply(judged.verdict)
    return ValidatedArguments(arguments, risk=assessment.risk, rules=judged.verdict.rules)


@dataclass(frozen=True, slots=True)
class _Authorization:
    """The collaborators in the authorization of one call."""

    turn: Turn
    assessor: CallAssessor
    judge: CallJudge
    asker: Asker

    async def apply(self, verdict: Verdict) -> None:
        """Apply a verdict that asks nobody; raise `CallRefused` for a denial, also by a user who was faster."""
        answer = await self.asker.settle(CONFIRMATION, _policy_answer(verdict))
        if verdict.decision == "deny":
            raise CallRefused(f"Denied: {' '.join(verdict.reasons)}", "denied")
        if not answer.approved:
            raise CallRefused(_denial_text(answer), "denied")

    async def confirm(self, permitted: ValidatedArguments, judged: JudgedCall) -> ValidatedArguments:
        """Ask the user, again about edited arguments where that is needed each time; raise `CallRefused` for a no."""
        edits: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
        while True:
            answer, judged = await self._ask(judged)
            if answer.arguments is None:
                break
            permitted = await _validate_replacement(self.assessor.tool, answer.arguments)
            edits.append((judged.call.arguments, jsonable(answer.arguments)))
            assessment = await self.assessor.assess(permitted.arguments)
            judged = await self.judge.judge(permitted.arguments, assessment)
            if judged.verdict.decision == "deny":
                raise CallRefused(f"Denied: the changed arguments: {' '.join(judged.verdict.reasons)}", "denied")
            if not judged.is_asked_each_time:  # the person who wrote them has seen them
                judged = await self.judge.with_offer(judged)
                break
        await self._store_rules(answer, judged.offer)
        risk = await self._risk_if_unchanged(judged.call, permitted.arguments)
        return replace(permitted, risk=risk, edited=edited_arguments(edits))

    async def _ask(self, judged: JudgedCall) -> tuple[ConfirmAnswer, JudgedCall]:
        """Return a yes of the user, or of a mode or rules that changed meanwhile; raise `CallRefused` for a no.

        The second value is the call as it was asked about at last: a question whose reasons change is asked anew.
        """
        answer: ConfirmAnswer | None = None
        await self.asker.slot.release_to_ask()
        while answer is None:
            judged = await self.judge.with_offer(judged)
            request = await self.asker.open(CONFIRMATION, self._request(judged))
            answer, judged = await self._answer_or_verdict(request, judged)
        await self.asker.slot.acquire()
        if not answer.approved:
            raise CallRefused(_denial_text(answer), "denied")
        if judged.verdict.decided_by == "resumed":
            await self._agree_to_auto(judged.call)
        return answer, judged

    async def _answer_or_verdict(
        self, request: OpenRequest[ConfirmAnswer], judged: JudgedCall
    ) -> tuple[ConfirmAnswer | None, JudgedCall]:
        """Return the user's answer, and the call.

        If meanwhile the mode, the rules or the trusted files change so that the call is not asked about any more, that
        closes the request. So do other reasons to ask: then there is no answer, and the call is the newly judged one.
        """
        answering = asyncio.create_task(request.answer())
        try:
            while True:
                changed = self.turn.lineage.root.session.permissions_changed()
                try:
                    await asyncio.wait({answering, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if answering.done():
                    return answering.result(), judged
                again = await self.judge.judge_again(judged.call)
                verdict = again.verdict
                if verdict.decision != "ask":
                    reason = None if verdict.decision == "allow" else " ".join(verdict.reasons)
                    return await request.close(replace(_policy_answer(verdict), reason=reason)), judged
                if verdict.reasons != judged.verdict.reasons:
                    answer = await request.close(_ASKED_ANEW)
                    return (None, again) if answer is _ASKED_ANEW else (answer, judged)
        finally:
            await cancel_and_wait(answering)

    async def _agree_to_auto(self, call: Call) -> None:
        """Let the session go on in mode auto, unless the call was allowed by another mode or a rule meanwhile."""
        if (await self.judge.judge_again(call)).verdict.decided_by == "resumed":
            session = self.turn.lineage.root.session
            session.auto_consent.is_given = True
            session.change_permissions()

    async def _risk_if_unchanged(self, call: Call, arguments: Mapping[str, Any]) -> Risk:
        """Return the risk of a call that the user has allowed; raise `CallRefused` if its effect is another one now."""
        assessment = await self.assessor.assess(arguments)
        now = await self.assessor.bind(replace(call, arguments=arguments, assessment=assessment, digest=""))
        if now.digest != call.digest:
            raise CallRefused("Not done: the effect of the call changed after the user was asked; ask again.", "denied")
        return assessment.risk

    def _request(self, judged: JudgedCall) -> ConfirmRequest:
        turn, call = self.turn, judged.call
        return ConfirmRequest(
            id=new_id("cnf"),
            question=turn.lineage.with_title(call.assessment.question or f"Allow {call.tool}?"),
            context=_confirm_context(judged, self.assessor.context.call_id),
            digest=call.digest,
            expires_at=turn.clock.now() + timedelta(seconds=CONFIRMATION.timeout_seconds(turn.settings)),
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            agent_path=turn.lineage.asking_path,
        )

    # --- rules that a yes stores --------------------------------------------------------------------------------------

    async def _store_rules(self, answer: ConfirmAnswer, offer: Offer) -> None:
        """Store the rules with which the user answered: the rules that were shown, or narrower ones.

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
        if answer.remember == "session" or turn.permissions.rule_store is None:
            turn.lineage.root.session.add_rules(chosen, rfc3339(turn.clock.now()))
        else:
            workspace = await run_in_thread(self.assessor.context.workspace.resolve, name="agx workspace")
            scoped = (with_scope(one, "user" if one.scope == "user" else "workspace", str(workspace)) for one in chosen)
            rules = [rule.model_copy(update={"origin": "answer"}) for rule in scoped]
            try:
                await run_in_thread(turn.permissions.rule_store.add, rules, name="agx rules")
            except RulesUnusable as exc:
                self._say_not_stored(str(exc))
        turn.lineage.root.session.change_permissions()

    def _say_not_stored(self, reason: str) -> None:
        _log.error("the answer to a confirmation counts once: its rules could not be stored", reason=reason)
        text = f"The answer counts once, for this call: {reason}."
        self.turn.emit(EventType.ERROR, {"text": text, "code": "rule_not_stored", "fatal": False})


def _confirm_context(judged: JudgedCall, call_id: str) -> dict[str, Any]:
    call, assessment, offer = judged.call, judged.call.assessment, judged.offer
    context: dict[str, Any] = {
        "tool": call.tool,
        "tool_call_id": call_id,
        "arguments": dict(call.arguments),
        "risk": assessment.risk,
        "reasons": [*judged.verdict.reasons, *explain_read(call, judged.verdict)],
        "decided_by": judged.verdict.decided_by,
    }
    for key in ("command", "cwd", "path", "diff", "sandboxed"):
        if (value := getattr(assessment, key)) is not None:
            context[key] = value
    if assessment.diff_cut:
        context["diff_cut"] = True
    if assessment.unchanged_below:
        context["unchanged_below"] = assessment.unchanged_below
    if offer.shown:
        context["rules"] = [rule.to_json() for rule in offer.shown]
        context["kinds"] = [describe(rule) for rule in offer.shown]
    if len(offer.shown) == 1:
        context["rule"] = context["rules"][0]
    if offer.exact is not None:
        context["exact_rule"] = offer.exact.to_json()
    return context


async def _validate_replacement(tool: Tool, arguments: Mapping[str, Any]) -> ValidatedArguments:
    try:
        return await run_in_thread(validate_arguments, tool, arguments, name="agx reading a call")
    except InvalidArguments as exc:
        raise CallRefused(f"Invalid arguments given with the confirmation: {exc}", "invalid_arguments") from exc


def _policy_answer(verdict: Verdict) -> ConfirmAnswer:
    return ConfirmAnswer(approved=verdict.decision == "allow", by="policy")


def _denial_text(answer: ConfirmAnswer) -> str:
    text = {
        "user": "Denied by the user.",
        "timeout": "Denied: no answer was given in time.",
        "policy": "Denied by policy.",
        "stop": "Denied: the turn was stopped.",
        "restart": "Denied: the program was restarted before an answer was given.",
    }[answer.by]
    return f"{text} Reason: {answer.reason}" if answer.reason else text
