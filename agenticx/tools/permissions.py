"""The permission modes and their decision about a call: allow it, ask the user, or deny it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx.tools.base import Assessment, Risk

__all__ = [
    "DISCLOSED_REASON",
    "PROTECTED_REASON",
    "REMEMBERS_REASON",
    "SOURCES_REASON",
    "UNCHECKED_REASON",
    "Decision",
    "PermissionMode",
    "Verdict",
    "decide",
    "is_asked_in_every_mode",
    "stricter_mode",
]

PermissionMode = Literal["default", "accept_edits", "plan", "auto"]
Decision = Literal["allow", "ask", "deny"]

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
PROTECTED_REASON = "It touches a protected path, which is asked about in every mode."
DISCLOSED_REASON = "Text goes to another provider, which is asked about in every mode."
REMEMBERS_REASON = "Later sessions will have it, which is asked about in every mode, each time."
SOURCES_REASON = "The conversation has texts that others wrote"
_SHOWN_SOURCES, _SHOWN_IF_REMEMBERED = 3, 20
UNCHECKED_REASON = "A call that cannot be checked completely is asked about in every mode."
_EVERY_MODE = frozenset({PROTECTED_REASON, DISCLOSED_REASON, REMEMBERS_REASON, UNCHECKED_REASON})
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


def is_asked_in_every_mode(reasons: Sequence[str]) -> bool:
    """Return whether a verdict with these reasons asks in every mode."""
    return any(reason in _EVERY_MODE or reason.startswith(SOURCES_REASON) for reason in reasons)


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
    reasons = (*verdict.reasons, f"{SOURCES_REASON} ({shown}); the call may have been their idea.")
    if verdict.decision == "ask":
        return Verdict("ask", verdict.rule, reasons)
    if assessment.risk == "execute" and verdict.rule != "undeclared":
        return Verdict("ask", "untrusted", reasons)
    return verdict


def _decide(mode: PermissionMode, assessment: Assessment, has_gate: bool) -> Verdict:
    if assessment.remembers:
        return Verdict("ask", "remembers", (*assessment.reasons, REMEMBERS_REASON))
    if mode == "plan" and assessment.risk != "read":
        return Verdict("deny", "plan", (_PLAN_REASON,))
    if assessment.protected:
        return Verdict("ask", "protected", (*assessment.reasons, PROTECTED_REASON))
    if assessment.discloses:
        return Verdict("ask", "discloses", (*assessment.reasons, DISCLOSED_REASON))
    if assessment.unchecked:
        return Verdict("ask", "unchecked", (*assessment.reasons, UNCHECKED_REASON))
    if assessment.risk in _ALLOWED[mode]:
        return Verdict("allow", mode, assessment.reasons)
    if assessment.undeclared and not has_gate:
        return Verdict("allow", "undeclared", assessment.reasons)
    return Verdict("ask", mode, assessment.reasons or (_RISK_REASONS[assessment.risk],))
