"""Advice about rules: what no rule can allow, and rules that say less, more or something else than they seem to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from agenticx.errors import InvalidArguments
from agenticx.permissions.command_rules import option_with_other_spellings
from agenticx.permissions.kinds import why_too_wide
from agenticx.permissions.rules import ANY_TOOL, EDITS, Rule
from agenticx.similar_names import similar_name
from agenticx.tools.shell.grammar import find_unread, parse_command
from agenticx.tools.visible import visible_line

__all__ = ["advise", "advise_all", "holds_without_sandbox", "is_about_commands", "refuse_without_effect"]

_SHELL = "bash_exec"
_MAX_COMPARED = 200  # the most stricter rules that a rule is compared with
_MAX_CHARS = 200
# Tools for files: True if the tool changes files.
_PATH_TOOLS: Mapping[str, bool] = {
    "file_edit": True,
    "file_read": False,
    "file_search": False,
    "file_write": True,
    "list_files": False,
}
# Tools that ask about each call, whatever rules allow.
_ASKED_EACH_TIME: Mapping[str, str] = {
    "memory_save": "what later sessions will have is asked about each time",
}


def refuse_without_effect(rule: Rule) -> None:
    """Raise `InvalidArguments` for a rule that allows and could never allow a call; the message says why."""
    if rule.decision != "allow":
        return
    if (why := _ASKED_EACH_TIME.get(rule.tool)) is not None:
        raise InvalidArguments(f"no rule can allow {rule.tool}: {why}")
    if rule.command is not None and rule.tool != _SHELL:
        raise InvalidArguments(f"a rule about {rule.tool} has no command; only those about {_SHELL} have one")
    if (why := _why_not_plain(rule)) is not None:
        raise InvalidArguments(f"the rule would allow no command: {why}")


def holds_without_sandbox(rule: Rule) -> bool:
    """Return whether a rule allows shell commands even without a sandbox."""
    return rule.decision == "allow" and rule.tool == _SHELL and not rule.network_hosts and rule.sandboxed is None


def is_about_commands(rule: Rule) -> bool:
    """Return whether an ask or deny rule applies to shell commands too."""
    return rule.decision != "allow" and (rule.tool in (ANY_TOOL, _SHELL) or (rule.tool == EDITS and bool(rule.path)))


def advise(rule: Rule, rules: Sequence[Rule], tools: Collection[str] | None = None) -> Sequence[str]:
    """Return clauses about a rule that may not mean what it seems to; `rules` are all, `tools` the known names.

    Each begins with a small letter, as after "it is stored, but". Of a rule without any, nothing is returned.
    """
    return tuple(_advise(rule, [one for one in rules if one.decision != "allow"][:_MAX_COMPARED], tools))


def advise_all(rules: Sequence[Rule], tools: Collection[str] | None = None) -> Mapping[str, Sequence[str]]:
    """Return the advice on each rule by the rule's id; rules without advice are left out."""
    stricter = [one for one in rules if one.decision != "allow"][:_MAX_COMPARED]
    found = ((rule.id, tuple(_advise(rule, stricter, tools))) for rule in rules)
    return {rule_id: clauses for rule_id, clauses in found if clauses}


def _advise(rule: Rule, stricter: Sequence[Rule], tools: Collection[str] | None) -> Iterator[str]:
    if tools is not None and rule.tool not in (ANY_TOOL, EDITS, *tools) and "__" not in rule.tool:
        similar = similar_name(rule.tool, [*tools, EDITS])
        hint = "" if similar is None else f"; perhaps {similar} is meant"
        yield f"no tool is called {rule.tool!r}, unless an application or a server has one of that name{hint}"
    if (why := why_too_wide(rule)) is not None:
        yield f"it allows very much: {why}"
    if rule.decision == "allow":
        try:
            refuse_without_effect(rule)
        except InvalidArguments as exc:  # a rule of a file
            yield f"it has no effect: {exc}"
    else:
        yield from _advise_about_words(rule)
    if (first := next((one for one in stricter if _decides_before(one, rule)), None)) is not None:
        shown = f"{first.id} ({visible_line(str(first), _MAX_CHARS)})"
        yield f"it has no effect: the rule {shown} is about all of these calls, and decides first"


def _advise_about_words(rule: Rule) -> Iterator[str]:
    """Yield clauses about the command of a rule that asks or denies."""
    if rule.path is not None and rule.tool in _PATH_TOOLS:
        wider = EDITS if _PATH_TOOLS[rule.tool] else ANY_TOOL
        yield f"commands and other tools may reach these files too; a rule about {wider} is about all"
    if rule.command is not None and rule.tool not in (_SHELL, ANY_TOOL):
        yield f"it is about no call: {rule.tool} has no command, only {_SHELL} has one"
    elif (why := _why_not_plain(rule)) is not None:
        yield f"it may be about no command: {why}"
    elif (option := option_with_other_spellings(rule)) is not None:
        done = "denied" if rule.decision == "deny" else "asked about"
        rest = " ".join(rule.words[: rule.words.index(option)])
        yield (
            f"{option!r} may be written in other ways, for example as its long or short form or an abbreviation, and"
            f" such a call is not {done}; command={visible_line(rest, _MAX_CHARS)!r} would be about all calls of it"
        )


def _why_not_plain(rule: Rule) -> str | None:
    """Return a clause about why no command can have the words of a rule, None if one can."""
    if not rule.words or rule.command is None:
        return None
    commands = parse_command(rule.command)
    if not commands:
        found = find_unread(rule.command) or "a comment"
        return f"{found} is no first word of a command; give the words as they stand there, without quotes"
    first, *others = commands
    if others:
        return "its words are those of one command; add a rule for each"
    words = first.words
    if any(word.is_glob for word in words):
        return "* and ? are no wildcards in a command; leave them out, as a rule is about whatever follows its words"
    if not all(word.is_bare for word in words):
        return "quotes are not part of words; leave them out"
    if rule.decision == "allow" and words[0].text in ("cd", "pushd", "popd"):
        return "no rule about words allows what comes after a change of the folder"
    return None


def _decides_before(one: Rule, other: Rule) -> bool:
    """Return whether `one` certainly matches all calls that `other` matches, and decides before it."""
    if one.id == other.id or not _is_stricter(one, other) or one.workspace not in (None, other.workspace):
        return False
    if one.tool not in (ANY_TOOL, other.tool) or one.digest not in (None, other.digest):
        return False
    same = all(getattr(one, name) in (None, getattr(other, name)) for name in ("host", "server"))
    return same and _covers_path(one.path, other.path) and _covers_command(one, other)


def _is_stricter(one: Rule, other: Rule) -> bool:
    return _STEPS.index(one.decision) < _STEPS.index(other.decision)


_STEPS = ("deny", "ask", "allow")


def _covers_path(glob: str | None, other: str | None) -> bool:
    if glob is None or glob == other:
        return True
    folder = glob.removesuffix("**")
    return glob.endswith("/**") and not {"*", "?"} & set(folder) and other is not None and other.startswith(folder)


def _covers_command(one: Rule, other: Rule) -> bool:
    if one.command is None:
        return True
    return not one.exact and not other.exact and bool(other.words) and other.words[: len(one.words)] == one.words
