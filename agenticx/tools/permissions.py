"""What a permission mode says about a call: allow it, ask the person, or deny it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agenticx.tools.base import Assessment, Risk

__all__ = ["Decision", "PermissionMode", "Verdict", "decide"]

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
    "describe the change instead, the person can leave plan mode to have it made."
)
_PROTECTED_REASON = "It touches a protected path, which is asked about in every mode."
_UNCHECKED_REASON = "What cannot be checked is asked about in every mode."
_RISK_REASONS: dict[Risk, str] = {
    "read": "It reads.",
    "write": "It changes files or other state.",
    "execute": "It runs code with the person's full power.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one assessment; `rule` names what decided, `reasons` are sentences for whoever reads it."""

    decision: Decision
    rule: str
    reasons: tuple[str, ...] = ()


def decide(mode: PermissionMode, assessment: Assessment) -> Verdict:
    """Return what `mode` says about a call; what is protected or unchecked is never allowed unasked."""
    if mode == "plan" and assessment.risk != "read":
        return Verdict("deny", "plan", (_PLAN_REASON,))
    if assessment.protected:
        return Verdict("ask", "protected", (*assessment.reasons, _PROTECTED_REASON))
    if assessment.unchecked:
        return Verdict("ask", "unchecked", (*assessment.reasons, _UNCHECKED_REASON))
    if assessment.risk in _ALLOWED[mode]:
        return Verdict("allow", mode, assessment.reasons)
    return Verdict("ask", mode, assessment.reasons or (_RISK_REASONS[assessment.risk],))
