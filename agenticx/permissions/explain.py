"""Sentences that explain a verdict: what each part of a command is, and what a yes could cover."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from agenticx.permissions.command_rules import allows_part, allows_wishes, find_in_command, may_be_allowed
from agenticx.permissions.kinds import describe, offer_rules, why_without_kind
from agenticx.permissions.rules import Call, Rule
from agenticx.permissions.verdict import Verdict
from agenticx.tools.base import CommandPart, ShellCommand
from agenticx.tools.visible import visible_line

__all__ = ["explain"]

_MAX_PARTS = 20
_MAX_CHARS = 200


def explain(call: Call, verdict: Verdict, rules: Sequence[Rule] = ()) -> Sequence[str]:
    """Return the reasons of a verdict, and what decides about each part of a command and what a yes could store.

    `rules` are those with which it was decided.
    """
    held = [rule for rule in rules if rule.decision == "allow" and rule.holds_in(call.workspace)]
    shell = call.assessment.shell
    parts = () if shell is None else _explain_command(shell, verdict, [rule for rule in held if rule.is_about(call)])
    return (*verdict.reasons, *parts, *(_explain_yes(call, verdict, held) if verdict.decision == "ask" else ()))


def _explain_command(command: ShellCommand, verdict: Verdict, rules: Sequence[Rule]) -> Iterator[str]:
    if verdict.decision != "allow" and verdict.rules:
        yield from _explain_matches(command, verdict.rules[0])
    if verdict.decision == "deny" or (verdict.is_in_every_mode and verdict.decided_by != "unread"):
        return
    if command.parts is not None:
        for part in command.parts[:_MAX_PARTS]:
            yield _explain_part(part, command, verdict, rules)
        if len(command.parts) > _MAX_PARTS:
            yield f"There are {len(command.parts) - _MAX_PARTS} more parts."
        return
    if not verdict.rules:
        yield (
            "Rules about words cannot allow it, and it is not taken for plain reading: it has more than plain words,"
            " quotes, pipes, `;`, `&&` and `||`; for example a variable, a redirection to a file, or code in quotes."
        )
    seen = dict.fromkeys(map(_shown, command.runs))
    if len(seen) > 1:
        yield f"It may run: {'; '.join(islice(seen, _MAX_PARTS))}{'; …' if len(seen) > _MAX_PARTS else ''}."


def _explain_matches(command: ShellCommand, rule: Rule) -> Iterator[str]:
    """Yield what in a command a rule that asks or denies is about, or may be about."""
    matches = ((run, find_in_command(rule, replace(command, runs=(run,), is_complete=True))) for run in command.runs)
    found = dict.fromkeys((_shown(run), match) for run, match in matches if rule.words and match != "no")
    for shown, match in islice(found, _MAX_PARTS):
        yield f"The rule {'is' if match == 'yes' else 'may be'} about `{shown}`."


def _explain_part(part: CommandPart, command: ShellCommand, verdict: Verdict, rules: Sequence[Rule]) -> str:
    shown = f"`{_shown(part.words)}`"
    if part.is_harmless:
        return f"{shown} only looks at files of the workspace: it needs no question."
    may_match = may_be_allowed(command)
    allowing = (rule for rule in rules if allows_part(rule, part) and allows_wishes(rule, command))
    if may_match and (rule := next(allowing, None)) is not None:
        return f"{shown} is allowed by a rule: {visible_line(str(rule), _MAX_CHARS)}."
    does = "asks" if verdict.decision == "ask" else f"is allowed by {_decider(verdict)}"
    if part.words[0] == "cd":
        return f"{shown} changes the folder, so that no rule about words allows the command."
    if (why := why_without_kind(part)) is not None:
        return f"{shown} {does}; no kind of it can be remembered: {visible_line(why, 2 * _MAX_CHARS)}."
    return f"{shown} {does}; it is not known to only look at files of the workspace."


def _decider(verdict: Verdict) -> str:
    return "a rule" if verdict.decided_by == "rule" else f"mode {verdict.decided_by}"


def _explain_yes(call: Call, verdict: Verdict, rules: Sequence[Rule]) -> Iterator[str]:
    if verdict.is_in_every_mode:
        yield "A yes counts once: this is asked about each time, whatever rules allow."
        return
    offer = offer_rules(call, rules)
    if offer.rules:
        kinds = ", and ".join(visible_line(describe(rule), _MAX_CHARS) for rule in offer.rules)
        yield f"A yes can be remembered for this kind: {kinds}."
    elif offer.exact is not None:
        yield "A yes can be remembered only for exactly this call."
    else:
        yield "A yes counts once: it cannot be remembered."


def _shown(words: Sequence[str | None]) -> str:
    return visible_line(" ".join("…" if word is None else shlex.quote(word) for word in words), _MAX_CHARS)
