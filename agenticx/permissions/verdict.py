"""The verdict about a call: allow it, ask the user, or deny it. The one rule for asking, wherever an agent runs.

The first of these that applies decides:

1. a deny rule of the user
2. mode plan: nothing may be changed
3. calls that are always asked about, whatever rules allow: protected paths, secrets, commands that cannot be checked,
   text to another provider, memory
4. texts of others in the conversation, for calls that send data, run code outside of a sandbox or instruct agents
5. an ask rule of the user
6. allow rules of the user
7. the mode, by the risk of this call and the files that it changes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from agenticx.permissions.command_rules import (
    Match,
    allows_part,
    allows_wishes,
    allows_without_sandbox,
    find_in_command,
    is_exactly,
    may_be_allowed,
)
from agenticx.permissions.path_rules import find_path
from agenticx.permissions.rules import Call, Rule
from agenticx.tools.base import Assessment, Risk, ShellCommand

__all__ = ["EVERY_MODE_RULES", "Decision", "PermissionMode", "Verdict", "decide", "stricter_mode"]

PermissionMode = Literal["default", "accept_edits", "plan", "auto"]
Decision = Literal["allow", "ask", "deny"]

EVERY_MODE_RULES = frozenset({"protected", "discloses", "remembers", "unchecked", "untrusted", "unread", "resumed"})
"""The values of `Verdict.decided_by` for calls that are asked about in every mode."""

_PLAN_REASON = (
    "The session is in plan mode, where only reading is allowed: "
    "describe the change instead; the user can leave plan mode to have it made."
)
# By the field of an assessment, in the order in which they are looked at.
_EVERY_MODE_REASONS = {
    "remembers": "Later sessions will have it, which is asked about in every mode, each time.",
    "protected": "Such a call is asked about in every mode.",
    "discloses": "Text goes to another provider, which is asked about in every mode.",
    "unchecked": "A call that cannot be checked completely is asked about in every mode.",
}
_SOURCES_REASON = "The conversation has texts that others wrote"
_SENDS_REASON = "It sends its arguments to others."
_INSTRUCTS_REASON = "It may change instructions that agents follow."
_SHOWN_SOURCES, _SHOWN_IF_REMEMBERED = 3, 20
_RISK_REASONS: dict[Risk, str] = {
    "read": "It reads.",
    "write": "It changes files or other state.",
    "execute": "It runs code with the user's full permissions.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a call; `reasons` are sentences about it.

    `decided_by` is the permission mode, or "protected", "discloses", "remembers", "unchecked", "undeclared",
    "untrusted", "unread" (a command that may be one that a rule is about), "sandbox" (it asks for more than a sandbox
    lets it do), "resumed" (the first change in mode auto after a restart), or "rule": then `rules` are those of the
    user that decided.
    """

    decision: Decision
    decided_by: str
    reasons: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def is_in_every_mode(self) -> bool:
        """True if it is asked about whatever rules and modes allow, so that no yes can be remembered."""
        return self.decided_by in EVERY_MODE_RULES or self.decided_by == "rule"

    def rule_json(self) -> Any:
        """Return what decided as JSON: the rule, a list of several, or the name of a built-in one."""
        if not self.rules:
            return self.decided_by
        return self.rules[0].to_json() if len(self.rules) == 1 else [rule.to_json() for rule in self.rules]


def stricter_mode(one: PermissionMode, other: PermissionMode) -> PermissionMode:
    """Return the one of two modes that permits less."""
    return one if _FROM_STRICT.index(one) <= _FROM_STRICT.index(other) else other


_FROM_STRICT: tuple[PermissionMode, ...] = ("plan", "default", "accept_edits", "auto")


def decide(
    mode: PermissionMode,
    call: Call,
    *,
    rules: Iterable[Rule] = (),
    has_gate: bool = True,
    sources: Sequence[str] = (),
    untrusted_files: Sequence[str] = (),
    is_written_by_user: bool = False,
) -> Verdict:
    """Return the verdict about a call.

    `rules` are the user's rules that may match the call. `has_gate` is True if a confirm gate can be asked, an
    application's own or a hub's. Without a gate a call of undeclared risk is allowed too, except in plan mode: the
    application's own functions need no permission. Such a call never counts as a read.

    `sources` and `untrusted_files` (AGENTS.md files) name the untrusted texts of the conversation; each confirmation
    names them. If there are any, a call that no rule allows is asked about if it runs code outside of a sandbox, may
    change instructions of agents, or sends text that the user did not write (`is_written_by_user`).
    """
    held = [rule for rule in rules if rule.holds_in(call.workspace) and rule.is_about(call)]
    is_own = call.assessment.undeclared and not has_gate
    sources = (*untrusted_files, *sources)
    verdict = _decide(mode, call, held, is_own=is_own, has_sources=bool(sources) and not is_written_by_user)
    if not sources or verdict.decision != "ask" or (call.assessment.risk == "read" and not call.assessment.sends):
        return verdict
    room = _SHOWN_IF_REMEMBERED if call.assessment.remembers else _SHOWN_SOURCES
    shown = ", ".join(sources[:room]) + (f", … and {len(sources) - room:,} more" if len(sources) > room else "")
    reasons = (*verdict.reasons, f"{_SOURCES_REASON} ({shown}); the call may have been their idea.")
    if untrusted_files:
        reasons += (_trust_reason(untrusted_files),)
    return Verdict("ask", verdict.decided_by, reasons, verdict.rules)


def _trust_reason(files: Sequence[str]) -> str:
    shown = " and ".join(files) if len(files) <= _SHOWN_SOURCES else f"{len(files):,} AGENTS.md files"
    count = "counts" if len(files) == 1 else "count"
    return f"{shown} {count} as written by others until you trust {'it' if len(files) == 1 else 'them'}: `agx trust`."


def _decide(mode: PermissionMode, call: Call, rules: Sequence[Rule], *, is_own: bool, has_sources: bool) -> Verdict:
    assessment = call.assessment
    denying, undenied = _find(rules, "deny", call)
    if denying is not None:
        return Verdict("deny", "rule", (f"The user's rule denies it: {denying}.",), (denying,))
    if mode == "plan" and (assessment.risk != "read" or assessment.remembers):
        return Verdict("deny", "plan", (_PLAN_REASON,))
    for name, reason in _EVERY_MODE_REASONS.items():
        if getattr(assessment, name):
            return Verdict("ask", name, (*assessment.reasons, reason))
    if has_sources and not is_own and _may_serve_others(call, rules):
        says_so = not assessment.sends or assessment.shell is not None  # a command's reasons name its hosts
        reasons = assessment.reasons if says_so else (*assessment.reasons, _SENDS_REASON)
        if assessment.instructs:
            reasons = (*reasons, _INSTRUCTS_REASON)
        return Verdict("ask", "untrusted", reasons or (_RISK_REASONS[assessment.risk],))
    asking, unasked = _find(rules, "ask", call)
    if asking is not None:
        return Verdict("ask", "rule", (*assessment.reasons, f"The user's rule asks: {asking}."), (asking,))
    if (unread := undenied or unasked) is not None:
        reason = f"It may run what a rule of the user is about ({unread}); the command does not show it."
        if unread.path is not None:
            reason = f"It may reach files that a rule of the user is about ({unread})."
        return Verdict("ask", "unread", (*assessment.reasons, reason), (unread,))
    return _decide_by_mode(mode, call, rules, is_own=is_own)


def _may_serve_others(call: Call, rules: Sequence[Rule]) -> bool:
    """Return whether a call could act on an untrusted text: send data, run code that can, or instruct agents."""
    assessment = call.assessment
    if assessment.sends:
        return not _allowing(rules, call)
    return assessment.instructs or (assessment.risk == "execute" and not assessment.contained)


def _decide_by_mode(mode: PermissionMode, call: Call, rules: Sequence[Rule], *, is_own: bool) -> Verdict:
    """Return the verdict about a call that nothing else speaks about; rules that allow come first."""
    assessment = call.assessment
    if allowing := _allowing(rules, call):
        reasons = tuple(f"The user's rule allows it: {rule}." for rule in allowing)
        return Verdict("allow", "rule", reasons, allowing)
    if (command := assessment.shell) is not None and (command.network or command.unsandboxed):
        return Verdict("ask", "sandbox", assessment.reasons)
    if _is_allowed_by(mode, assessment):
        return Verdict("allow", mode, assessment.reasons)
    if is_own:
        return Verdict("allow", "undeclared", assessment.reasons)
    return Verdict("ask", mode, assessment.reasons or (_RISK_REASONS[assessment.risk],))


def _is_allowed_by(mode: PermissionMode, assessment: Assessment) -> bool:
    match mode:
        case "plan" | "default":
            return assessment.risk == "read"
        case "accept_edits":
            return assessment.stays_in_workspace
        case "auto":
            return True
        case _:
            assert_never(mode)


def _find(rules: Sequence[Rule], decision: Decision, call: Call) -> tuple[Rule | None, Rule | None]:
    """Return the first rule with this decision that matches the call, and the first rule before it that may match.

    A rule may match if the command cannot be read completely.
    """
    unknown: Rule | None = None
    for rule in rules:
        if rule.decision != decision:
            continue
        match = _match(rule, call)
        if match == "yes":
            return rule, unknown
        if match == "unknown":
            unknown = unknown or rule
    return None, unknown


def _match(rule: Rule, call: Call) -> Match:
    """Return whether the command and the path of an ask or deny rule match a call."""
    matches: set[Match] = {"yes"}
    if rule.command is not None:
        matches.add("no" if call.assessment.shell is None else find_in_command(rule, call.assessment.shell))
    if rule.path is not None:
        matches.add(find_path(rule, call))
    return "no" if "no" in matches else "unknown" if "unknown" in matches else "yes"


def _allowing(rules: Sequence[Rule], call: Call) -> tuple[Rule, ...]:
    """Return the rules that together allow all parts of a call; empty if they leave a part."""
    allowing = [rule for rule in rules if rule.decision == "allow"]
    command = call.assessment.shell
    if command is None:
        return _covering([rule for rule in allowing if rule.command is None], call)
    sandboxed, allowing = call.assessment.sandboxed, [rule for rule in allowing if rule.covers_all(call)]
    allowing = [rule for rule in allowing if allows_wishes(rule, command) and allows_without_sandbox(rule, sandboxed)]
    whole = next((rule for rule in allowing if rule.command is None or is_exactly(rule, command)), None)
    return (whole,) if whole is not None else _allowing_parts(allowing, command)


def _covering(rules: Sequence[Rule], call: Call) -> tuple[Rule, ...]:
    """Return one rule that covers all files and hosts of a call, or else several that do so together."""
    if (whole := next((rule for rule in rules if rule.covers_all(call)), None)) is not None:
        return (whole,)
    used: dict[str, Rule] = {}
    for part in call.parts() if rules else ():
        rule = next((rule for rule in rules if rule.covers(part)), None)
        if rule is None:
            return ()
        used[str(rule)] = rule
    return tuple(used.values())


def _allowing_parts(rules: Sequence[Rule], command: ShellCommand) -> tuple[Rule, ...]:
    if command.parts is None or not may_be_allowed(command):
        return ()
    used: dict[str, Rule] = {}
    for part in command.parts:
        if part.is_harmless:
            continue
        rule = next((rule for rule in rules if rule.words and allows_part(rule, part)), None)
        if rule is None:
            return ()
        used[str(rule)] = rule
    return tuple(used.values())
