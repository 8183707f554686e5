"""The permission modes and their decision about a call: allow it, ask the user, or deny it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx.tools.base import Assessment, Risk

__all__ = ["EVERY_MODE_RULES", "Decision", "PermissionMode", "Verdict", "decide", "stricter_mode"]

PermissionMode = Literal["default", "accept_edits", "plan", "auto"]
Decision = Literal["allow", "ask", "deny"]

EVERY_MODE_RULES = frozenset({"protected", "discloses", "remembers", "unchecked", "untrusted"})
"""The rules that ask in every mode, whatever the agent's own gate is."""

_ALLOWED: dict[PermissionMode, frozenset[Risk]] = {
    "default": frozenset({"read"}),
    "accept_edits": frozenset({"read", "write"}),
    "plan": frozenset({"read"}),
    "auto": frozenset({"read", "write", "execute"}),
}
_PLAN_REASON = (
    "The session is in plan mode, where only reading is allowed: "
    "describe the change instead; the user can leave plan mode to have it made."
)
_PROTECTED_REASON = "It touches a protected path, which is asked about in every mode."
_DISCLOSED_REASON = "Text goes to another provider, which is asked about in every mode."
_REMEMBERS_REASON = "Later sessions will have it, which is asked about in every mode, each time."
_SOURCES_REASON = "The conversation has texts that others wrote"
_SHOWN_SOURCES, _SHOWN_IF_REMEMBERED = 3, 20
_UNCHECKED_REASON = "A call that cannot be checked completely is asked about in every mode."
_RISK_REASONS: dict[Risk, str] = {
    "read": "It reads.",
    "write": "It changes files or other state.",
    "execute": "It runs code with the user's full permissions.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one assessment; `rule` is the name of the deciding rule, `reasons` are sentences about it.

    `rule` is the permission mode, or "protected", "discloses", "remembers", "unchecked", "undeclared" or "untrusted".
    """

    decision: Decision
    rule: str
    reasons: tuple[str, ...] = ()


def stricter_mode(one: PermissionMode, other: PermissionMode) -> PermissionMode:
    """Return the one of two modes that permits less."""
    return one if _FROM_STRICT.index(one) <= _FROM_STRICT.index(other) else other


_FROM_STRICT: tuple[PermissionMode, ...] = ("plan", "default", "accept_edits", "auto")


def decide(
    mode: PermissionMode, assessment: Assessment, *, has_gate: bool = True, sources: Sequence[str] = ()
) -> Verdict:
    """Return the verdict about a call, the one rule for every way to run an agent.

    A call that is protected or unchecked, or that discloses or remembers text, is never allowed without asking. Any
    other call is allowed if `mode` allows its risk, and asked about if not. `has_gate` says that there is a confirm
    gate, given by the application or of a hub; without one a call of undeclared risk is allowed too, outside of plan
    mode: the application's own functions need no permission. It never counts as one that only reads. While the
    conversation has foreign texts, named by `sources`, a call that runs code is asked about in every mode, and each
    confirmation names them.
    """
    verdict = _decide(mode, assessment, has_gate)
    if not sources or verdict.decision == "deny" or assessment.risk == "read":
        return verdict
    room = _SHOWN_IF_REMEMBERED if assessment.remembers else _SHOWN_SOURCES
    shown = ", ".join(sources[:room]) + (f", … and {len(sources) - room:,} more" if len(sources) > room else "")
    reasons = (*verdict.reasons, f"{_SOURCES_REASON} ({shown}); the call may have been their idea.")
    if verdict.decision == "ask":
        return Verdict("ask", verdict.rule if verdict.rule in EVERY_MODE_RULES else "untrusted", reasons)
    if assessment.risk == "execute" and verdict.rule != "undeclared":
        return Verdict("ask", "untrusted", reasons)
    return verdict


def _decide(mode: PermissionMode, assessment: Assessment, has_gate: bool) -> Verdict:
    if assessment.remembers:
        return Verdict("ask", "remembers", (*assessment.reasons, _REMEMBERS_REASON))
    if mode == "plan" and assessment.risk != "read":
        return Verdict("deny", "plan", (_PLAN_REASON,))
    if assessment.protected:
        return Verdict("ask", "protected", (*assessment.reasons, _PROTECTED_REASON))
    if assessment.discloses:
        return Verdict("ask", "discloses", (*assessment.reasons, _DISCLOSED_REASON))
    if assessment.unchecked:
        return Verdict("ask", "unchecked", (*assessment.reasons, _UNCHECKED_REASON))
    if assessment.contained_risk in _ALLOWED[mode]:
        return Verdict("allow", mode, assessment.reasons)
    if assessment.undeclared and not has_gate:
        return Verdict("allow", "undeclared", assessment.reasons)
    return Verdict("ask", mode, assessment.reasons or (_RISK_REASONS[assessment.risk],))
