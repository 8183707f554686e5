"""The rules that a yes can store: for a call, the smallest kind of calls that people mean by it, and exactly this call.

A kind is the folder of a file, the fixed words of a command (`kinds`), the host of an address, or the tool of a server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agenticx.permissions.command_rules import allows_part, allows_wishes, allows_without_sandbox, may_be_allowed
from agenticx.permissions.kinds import fixed_words, runs_project_code
from agenticx.permissions.rules import EDITS, Call, Rule, rule_or_none
from agenticx.sandbox.hosts import cover
from agenticx.tools.base import ShellCommand

__all__ = ["NO_OFFER", "Offer", "describe", "is_narrower", "offer_rules"]

_MAX_EXACT_CHARS = 20_000
_MAX_RULES = 8


@dataclass(frozen=True, slots=True)
class Offer:
    """The rules that a yes to a call can store.

    `rules` together cover the call and all other calls of its kind; empty if the call has no kind. `exact` covers this
    call only; None if no rule can.
    """

    rules: tuple[Rule, ...] = ()
    exact: Rule | None = None

    @property
    def shown(self) -> tuple[Rule, ...]:
        """The rules that a client shows and stores unless the person chooses others."""
        return self.rules or (() if self.exact is None else (self.exact,))


NO_OFFER = Offer()


def offer_rules(call: Call, covered: Sequence[Rule] = ()) -> Offer:
    """Return the rules that a yes to a call can store; parts that the rules `covered` allow already get none."""
    assessment = call.assessment
    held = [rule for rule in covered if rule.decision == "allow" and rule.holds_in(call.workspace)]
    held = [rule for rule in held if rule.is_about(call)]
    if assessment.shell is not None:
        return _offer_for_command(call, assessment.shell, held)
    left = [part for part in call.parts() if not any(rule.covers(part) for rule in held)] or list(call.parts())
    if assessment.risk == "write" and assessment.paths:
        folders = dict.fromkeys(_folder_glob(path) for path, _ in left if path is not None)
        tool = call.tool if assessment.elsewhere else EDITS
        exact = rule_or_none(tool=tool, path=assessment.paths[0]) if len(assessment.paths) == 1 else None
        if exact is not None and re.search(r"[*?]", assessment.paths[0]):
            exact = None  # as a glob it would be about other files too
        return Offer(_all(None if glob is None else rule_or_none(tool=tool, path=glob) for glob in folders), exact)
    if assessment.hosts:
        hosts = dict.fromkeys(host for _, host in left)
        return Offer(_all(rule_or_none(tool=call.tool, host=host) for host in hosts), _exact(call))
    if assessment.server is not None:
        return Offer(_all([rule_or_none(tool=call.tool, server=assessment.server)]), _exact(call))
    return Offer((), _exact(call))


def _all(rules: Iterable[Rule | None]) -> tuple[Rule, ...]:
    """Return the rules; empty if one is None, since the others would not cover the call."""
    made = tuple(rules)
    return tuple(rule for rule in made if rule is not None) if None not in made else ()


def _offer_for_command(call: Call, command: ShellCommand, held: Sequence[Rule]) -> Offer:
    if command.unsandboxed:
        return NO_OFFER
    network = command.network if isinstance(command.network, bool) else [str(host) for host in command.network]
    network = network or None
    sandboxed = call.assessment.sandboxed or None
    exact = rule_or_none(tool=call.tool, command=command.text, exact=True, network=network, sandboxed=sandboxed)
    if command.parts is None or not may_be_allowed(command):
        return Offer((), exact)
    held = [rule for rule in held if rule.words and rule.covers_all(call) and allows_wishes(rule, command)]
    held = [rule for rule in held if allows_without_sandbox(rule, call.assessment.sandboxed)]
    rules: dict[str, Rule] = {}
    for part in command.parts:
        if part.is_harmless or any(allows_part(rule, part) for rule in held):
            continue
        words = fixed_words(part)
        fields = {"network": network, "sandboxed": sandboxed}
        rule = None if words is None else rule_or_none(tool=call.tool, command=" ".join(words), **fields)
        if rule is None or not allows_part(rule, part):
            return Offer((), exact)
        rules[str(rule)] = rule
    return Offer(tuple(rules.values()), exact) if len(rules) <= _MAX_RULES else Offer((), exact)


def _exact(call: Call) -> Rule | None:
    arguments = dict(call.arguments)
    if not call.digest or len(json.dumps(arguments, default=repr)) > _MAX_EXACT_CHARS:
        return None
    return rule_or_none(tool=call.tool, arguments=arguments, digest=call.digest, exact=True)


def _folder_glob(path: str) -> str | None:
    """Return the glob of all files in the folder of a path; for the workspace itself without its subfolders."""
    folder = str(PurePosixPath(path).parent)
    if folder == ".":
        return "*"
    return None if re.search(r"[*?]", folder) else f"{folder}/**"


def is_narrower(rule: Rule, offer: Offer) -> bool:
    """Return whether a rule, which a person has edited, covers no more than one of the offered rules."""
    return any(_is_within(rule, one) for one in (*offer.rules, *(() if offer.exact is None else (offer.exact,))))


_UNCHANGED = ("tool", "server")


def _is_within(rule: Rule, offered: Rule) -> bool:
    if rule.decision != "allow" or any(getattr(rule, name) != getattr(offered, name) for name in _UNCHANGED):
        return False
    hosts = rule.network_hosts
    if rule.network != offered.network and not (hosts and cover(offered.network_hosts, hosts)):
        return False
    if rule.sandboxed not in (None, offered.sandboxed):  # with None it gets the value of the offered rule
        return False
    if offered.exact or rule.exact:
        return (rule.exact, rule.command, rule.digest) == (offered.exact, offered.command, offered.digest)
    if rule.words[: len(offered.words)] != offered.words or (offered.host is not None and rule.host != offered.host):
        return False
    if offered.path is None or rule.path == offered.path:
        return True
    folder = offered.path.removesuffix("**")
    return offered.path.endswith("/**") and rule.path is not None and rule.path.startswith(folder)


def describe(rule: Rule) -> str:
    """Return what a rule is about in words, for a question or a list.

    >>> describe(Rule(decision="allow", tool="edit", path="src/**", scope="session"))
    'edit files in src/'
    """
    if rule.tool == EDITS and rule.path is not None:
        return f"edit {_describe_path(rule.path)}"
    if rule.command is not None:
        network = _describe_network(rule)
        if rule.exact:
            return f"exactly this command{network}: {rule.command}"
        note = " (it runs the project's code)" if runs_project_code(rule.words) else ""
        return f"{rule.command} …{network}{note}"
    if rule.host is not None:
        return f"{rule.tool} at {rule.host}"
    if rule.exact:
        return f"{rule.tool} with exactly these arguments"
    if rule.path is not None:
        return f"{rule.tool} {_describe_path(rule.path)}"
    return f"{rule.tool} of {rule.server}" if rule.server is not None else f"all calls of {rule.tool}"


def _describe_network(rule: Rule) -> str:
    if rule.network is None:
        return ""
    return " with the network" if rule.network is True else f" with {', '.join(rule.network)}"


def _describe_path(glob: str) -> str:
    if glob == "*":
        return "files in the workspace's own folder"
    if glob == "**":
        return "files of the workspace"
    if glob.endswith("/**") and not re.search(r"[*?]", glob[:-3]):
        return f"files in {glob[:-2]}"
    return glob
