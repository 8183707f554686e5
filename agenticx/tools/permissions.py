"""The permission modes and their decision about a call: allow it, ask the user, or deny it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agenticx.tools.base import Assessment, Risk

__all__ = ["PROTECTED_REASON", "UNCHECKED_REASON", "Decision", "PermissionMode", "Verdict", "decide", "stricter_mode"]

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
UNCHECKED_REASON = "A call that cannot be checked completely is asked about in every mode."
_RISK_REASONS: dict[Risk, str] = {
    "read": "It reads.",
    "write": "It changes files or other state.",
    "execute": "It runs code with the user's full permissions.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one assessment; `rule` is the name of the deciding rule, `reasons` are sentences about it.

    `rule` is the permission mode, or a name such as "protected", "unchecked" or "tool".
    """

    decision: Decision
    rule: str
    reasons: tuple[str, ...] = ()


def stricter_mode(one: PermissionMode, other: PermissionMode) -> PermissionMode:
    """Return the one of two modes that permits less."""
    return one if _FROM_STRICT.index(one) <= _FROM_STRICT.index(other) else other


_FROM_STRICT: tuple[PermissionMode, ...] = ("plan", "default", "accept_edits", "auto")


def decide(mode: PermissionMode, assessment: Assessment) -> Verdict:
    """Return the verdict of `mode` about a call; a protected or unchecked call is never allowed without asking."""
    if mode == "plan" and assessment.risk != "read":
        return Verdict("deny", "plan", (_PLAN_REASON,))
    if assessment.protected:
        return Verdict("ask", "protected", (*assessment.reasons, PROTECTED_REASON))
    if assessment.unchecked:
        return Verdict("ask", "unchecked", (*assessment.reasons, UNCHECKED_REASON))
    if assessment.risk in _ALLOWED[mode]:
        return Verdict("allow", mode, assessment.reasons)
    return Verdict("ask", mode, assessment.reasons or (_RISK_REASONS[assessment.risk],))
