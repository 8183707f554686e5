"""The verdict about a call in its turn: by the mode, the rules of the user, and the texts that the turn has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agenticx.permissions.offers import NO_OFFER, Offer, offer_rules
from agenticx.permissions.rule_stores import RulesUnusable
from agenticx.permissions.rules import Call, Rule
from agenticx.permissions.user_texts import is_written_by_user
from agenticx.permissions.verdict import Verdict, decide, stricter_mode
from agenticx.runtime.calls.assessing import CallAssessor
from agenticx.runtime.calls.validation import CallRefused
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment

__all__ = ["CallJudge", "JudgedCall"]

_RESUMED_REASON = (
    "The session was in mode auto before the program was restarted; a yes lets it go on without further questions."
)
_LOOP_COMPARISONS = 5_000  # about 5 ms


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A call with the verdict about it by the `rules` of the user; `offer` has the rules that a yes can store."""

    call: Call
    verdict: Verdict
    rules: Sequence[Rule]
    offer: Offer = NO_OFFER

    @property
    def is_asked_each_time(self) -> bool:
        """True if the user is asked whatever rules and modes allow."""
        return self.verdict.decision == "ask" and self.verdict.is_in_every_mode


@dataclass(frozen=True, slots=True)
class CallJudge:
    """The judge of a call: its verdicts are about the mode and the rules of the moment, which may change."""

    assessor: CallAssessor

    async def judge(self, arguments: Mapping[str, Any], assessment: Assessment) -> JudgedCall:
        """Return the call with the verdict about it; raise `CallRefused` if the stored rules cannot be read."""
        rules = await self._rules()
        call = await self._call(arguments, assessment, rules)
        return JudgedCall(call, await self._decide(call, rules), rules)

    async def judge_again(self, call: Call) -> JudgedCall:
        """Return the call with the verdict about it now; raise `CallRefused` if the stored rules cannot be read."""
        rules = await self._rules()
        return JudgedCall(call, await self._decide(call, rules), rules)

    async def with_offer(self, judged: JudgedCall) -> JudgedCall:
        """Return a call that the user is asked about, bound, with the rules that a yes can store."""
        call = await self.assessor.bind(judged.call)
        if judged.is_asked_each_time:
            return replace(judged, call=call)
        find = partial(offer_rules, call, judged.rules)
        offer = await run_in_thread(find, name="agx rules") if _takes_long(call, judged.rules) else find()
        return replace(judged, call=call, offer=offer)

    async def _rules(self) -> Sequence[Rule]:
        """Return the rules of the user that may hold; rules that allow do not replace an agent's own gate."""
        turn = self.assessor.turn
        try:
            stored = await turn.permissions.stored_rules()
        except RulesUnusable as exc:
            raise CallRefused(f"Denied: {exc}", "denied") from exc
        rules = (*stored, *turn.lineage.root.session.rules)
        return tuple(rule for rule in rules if rule.decision != "allow") if turn.permissions.has_own_gate else rules

    async def _call(self, arguments: Mapping[str, Any], assessment: Assessment, rules: Sequence[Rule]) -> Call:
        """Return the call as the rules see it."""
        assessor = self.assessor
        workspace = assessor.context.workspace
        if any(rule.workspace is not None for rule in rules):
            workspace = await run_in_thread(workspace.resolve, name="agx workspace")
        call = Call(tool=assessor.tool.schema.name, assessment=assessment, arguments=arguments, workspace=workspace)
        return await assessor.bind(call) if any(rule.digest for rule in rules) else call

    async def _decide(self, call: Call, rules: Sequence[Rule]) -> Verdict:
        """Return the verdict about a call; an agent's own gate is asked about what a wider mode would allow."""
        turn, assessment = self.assessor.turn, call.assessment
        permissions = turn.permissions
        sources, files = (), ()
        if assessment.sends or assessment.risk != "read":
            sources = turn.sources.names()
            if turn.sources.has_instructions:
                files = await run_in_thread(turn.sources.untrusted_files, name="agx trusted files")
        is_of_user = False
        if (sources or files) and assessment.sends:
            texts = turn.sources.user_texts()
            is_of_user = await run_in_thread(is_written_by_user, call.arguments, texts, name="agx messages")
        find = partial(decide, rules=rules, has_gate=permissions.gate.is_given, sources=sources, untrusted_files=files)
        mode = stricter_mode(permissions.mode, "default") if permissions.has_own_gate else permissions.mode
        find = partial(find, mode, call, is_written_by_user=is_of_user)
        verdict = await run_in_thread(find, name="agx rules") if _takes_long(call, rules) else find()
        return self._ask_if_resumed(verdict, assessment)

    def _ask_if_resumed(self, verdict: Verdict, assessment: Assessment) -> Verdict:
        """Return the verdict; a change that mode auto allows is asked about until somebody has agreed to the mode."""
        is_change = verdict.decision == "allow" and verdict.decided_by == "auto" and assessment.risk != "read"
        if not is_change or self.assessor.turn.permissions.has_auto_consent:
            return verdict
        return Verdict("ask", "resumed", (*assessment.reasons, _RESUMED_REASON))


def _takes_long(call: Call, rules: Sequence[Rule]) -> bool:
    """Return whether comparing the call with each rule would hold the event loop."""
    assessment, shell = call.assessment, call.assessment.shell
    names = sum(1 + path.count("/") for path in assessment.paths) * max(len(assessment.hosts), 1)
    if shell is not None:
        names += len(shell.runs) + len(shell.parts or ())
        names += sum(1 + named.path.count("/") for named in shell.paths or ())
    return len(rules) * (names + len(assessment.hosts)) > _LOOP_COMPARISONS
