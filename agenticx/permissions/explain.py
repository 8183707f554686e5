"""Sentences that explain a verdict: what decides, what each part of a command is, and what a yes could cover."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from agenticx.permissions.command_rules import (
    allows_part,
    allows_wishes,
    allows_without_sandbox,
    find_in_command,
    may_be_allowed,
)
from agenticx.permissions.kinds import why_without_kind
from agenticx.permissions.offers import describe, offer_rules
from agenticx.permissions.rules import Call, Rule
from agenticx.permissions.verdict import Verdict
from agenticx.tools.base import CommandPart, ShellCommand
from agenticx.tools.visible import visible_line

__all__ = ["explain", "explain_decider", "explain_read"]

_MAX_PARTS = 20
_MAX_CHARS = 200

# Of what decides and is not named by the reasons of the verdict.
_DECIDERS = {
    "default": "No rule decides, so mode default does: reads are allowed, all else is asked about.",
    "accept_edits": (
        "No rule decides, so mode accept_edits does: reads, changes of files of the workspace that the tool names"
        " and commands in the sandbox of bubblewrap without the network are allowed, all else is asked about."
    ),
    "plan": "Mode plan decides: reads are allowed, all else is denied.",
    "auto": "No rule decides, so mode auto does: all is allowed that is not asked about in every mode.",
    "sandbox": "It wants more than the sandbox gives, which no mode allows.",
    "untrusted": (
        "While texts of others are in the conversation, calls that run code outside of a sandbox, or send what you have"
        " not written, are asked about in every mode."
    ),
    "tool": "The tool itself refuses such a call, before rules and modes are looked at.",
}


def explain(call: Call, verdict: Verdict, rules: Sequence[Rule] = ()) -> Sequence[str]:
    """Return the reasons of a verdict, what decided it, the parts of a command, and the rules that a yes could store.

    `rules` are the rules that the verdict took into account.
    """
    held = [rule for rule in rules if rule.decision == "allow" and rule.holds_in(call.workspace)]
    shell = call.assessment.shell
    sandboxed = call.assessment.sandboxed
    about = [rule for rule in held if rule.is_about(call) and rule.covers_all(call)]
    about = [rule for rule in about if allows_without_sandbox(rule, sandboxed)]
    if verdict.decided_by == "untrusted":
        about = []  # which decides before a rule that allows
    parts = () if shell is None else _explain_command(shell, verdict, about)
    yes = _explain_yes(call, verdict, held) if verdict.decision == "ask" else ()
    read = explain_read(call, verdict) if verdict.decided_by == "plan" else ()
    return (*verdict.reasons, *read, *explain_decider(verdict), *parts, *yes)


def explain_read(call: Call, verdict: Verdict) -> Iterator[str]:
    """Yield a sentence about why a command does not count as a read although its programs only read."""
    command = call.assessment.shell
    if _is_beyond_parts(verdict) or command is None or not command.parts:
        return
    asked = [part for part in command.parts if not part.is_harmless]
    if asked and all(part.obstacle is not None for part in asked):
        yield f"It is not taken for a read: {visible_line(asked[0].obstacle or '', 2 * _MAX_CHARS)}."


def explain_decider(verdict: Verdict) -> Iterator[str]:
    """Yield sentences about what decides, as far as the reasons of the verdict do not name it."""
    for rule in verdict.rules:
        if rule.id:
            yield f"The id of that rule is {rule.id}."
    if verdict.decided_by in _DECIDERS and not (verdict.decided_by == "plan" and verdict.decision == "deny"):
        yield _DECIDERS[verdict.decided_by]


def _explain_command(command: ShellCommand, verdict: Verdict, rules: Sequence[Rule]) -> Iterator[str]:
    if verdict.decision != "allow" and verdict.rules:
        yield from _explain_matches(command, verdict.rules[0])
    if verdict.decision == "deny" or (_is_beyond_parts(verdict) and verdict.decided_by != "unread"):
        return
    if command.parts is not None:
        for part in command.parts[:_MAX_PARTS]:
            yield _explain_part(part, command, verdict, rules)
        if len(command.parts) > _MAX_PARTS:
            yield f"There are {len(command.parts) - _MAX_PARTS} more parts."
        return
    if verdict.decision == "ask":
        found = command.unread or "more than plain words, quotes, pipes, `;`, `&&` and `||`"
        yield f"It has {found}: so it is not taken for a read, and no rule about its first words can allow it."
    seen = dict.fromkeys(map(_command_text, command.runs))
    if len(seen) > 1:
        yield f"It may run: {'; '.join(islice(seen, _MAX_PARTS))}{'; …' if len(seen) > _MAX_PARTS else ''}."


def _is_beyond_parts(verdict: Verdict) -> bool:
    """Return whether a command is asked about regardless of its parts."""
    return verdict.is_in_every_mode and verdict.decided_by != "untrusted"


def _explain_matches(command: ShellCommand, rule: Rule) -> Iterator[str]:
    """Yield what in a command a rule that asks or denies is about, or may be about."""
    matches = ((run, find_in_command(rule, replace(command, runs=(run,), is_complete=True))) for run in command.runs)
    found = dict.fromkeys((_command_text(run), match) for run, match in matches if rule.words and match != "no")
    for shown, match in islice(found, _MAX_PARTS):
        yield f"The rule {'is' if match == 'yes' else 'may be'} about `{shown}`."


def _explain_part(part: CommandPart, command: ShellCommand, verdict: Verdict, rules: Sequence[Rule]) -> str:
    shown, is_asked = f"`{_command_text(part.words)}`", verdict.decision == "ask"
    if part.is_harmless and part.words[0] == "cd":
        end = "; no rule about first words allows what comes after it" if is_asked else ""
        return f"{shown} changes the folder to one of the workspace{end}."
    if part.is_harmless:
        return f"{shown} only looks at files of the workspace: it needs no question."
    allowing = [rule for rule in rules if allows_part(rule, part)] if may_be_allowed(command) else []
    if (rule := next((rule for rule in allowing if allows_wishes(rule, command)), None)) is not None:
        return f"{shown} is allowed by a rule: {visible_line(str(rule), _MAX_CHARS)}."
    if is_asked and allowing:
        wish = "outside of the sandbox" if command.unsandboxed else "with this much of the network"
        return f"{shown} asks: a rule allows it, but not {wish}: {visible_line(str(allowing[0]), _MAX_CHARS)}."
    if not is_asked:
        return f"{shown} is allowed by {_decider(verdict)}."
    if part.words[0] == "cd":
        return f"{shown} changes the folder, and no rule about first words allows what comes after it."
    if part.obstacle is not None:  # no rule is made for a program that can only read
        return f"{shown} asks: {visible_line(part.obstacle, 2 * _MAX_CHARS)}."
    if (why := why_without_kind(part)) is not None:
        return f"{shown} asks; no kind of it can be remembered: {visible_line(why, 2 * _MAX_CHARS)}."
    return f"{shown} asks: it is not known to only look at files of the workspace."


def _decider(verdict: Verdict) -> str:
    return "a rule" if verdict.decided_by == "rule" else f"mode {verdict.decided_by}"


def _explain_yes(call: Call, verdict: Verdict, rules: Sequence[Rule]) -> Iterator[str]:
    if verdict.is_in_every_mode:
        yield "A yes counts once: this is asked about each time, and no rule can allow it."
        return
    offer = offer_rules(call, rules)
    if offer.rules:
        kinds = ", and ".join(visible_line(describe(rule), _MAX_CHARS) for rule in offer.rules)
        yield f"A yes can be remembered for this kind: {kinds}."
    elif offer.exact is not None:
        yield "A yes can be remembered only for exactly this call."
    else:
        yield "A yes counts once: it cannot be remembered."


def _command_text(words: Sequence[str | None]) -> str:
    return visible_line(" ".join("…" if word is None else shlex.quote(word) for word in words), _MAX_CHARS)
