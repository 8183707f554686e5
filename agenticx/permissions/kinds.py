"""The rules that a yes can store: for a call, the smallest kind of calls that people mean by it, and exactly this call.

A kind is the folder of a file, the fixed words of a command (`git commit`, `pytest`), the host of an address, or the
tool of a server. A command whose first words run any code, for example `python -c`, `env` or a bare `git`, is of none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError

from agenticx.permissions.command_rules import allows_part, allows_wishes, allows_without_sandbox, may_be_allowed
from agenticx.permissions.rules import EDITS, Call, Rule
from agenticx.sandbox.hosts import cover
from agenticx.tools.base import CommandPart

__all__ = [
    "NO_OFFER",
    "Offer",
    "describe",
    "fixed_words",
    "is_narrower",
    "offer_rules",
    "why_too_wide",
    "why_without_kind",
]

_MAX_EXACT_CHARS = 20_000
_MAX_RULES = 8


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PROGRAM = re.compile(r"\.{0,2}/?[A-Za-z0-9_+-][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)*")
_SUBCOMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]*")

# Programs whose calls are all of one kind, whatever their arguments are.
_ALONE = _names("""
    autopep8 bandit black clippy cmake ctest eslint flake8 gofmt hadolint isort jest mkdir mocha mypy ninja nox
    phpunit prettier pylint pyright pytest rspec rubocop ruff rustfmt shellcheck stylelint touch tox tsc vitest
    yamllint
""")
# Programs that do what their first word says, with those words that run or configure anything.
_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "alembic": frozenset(),
    "apt": frozenset(),
    "apt-get": frozenset(),
    "bazel": frozenset({"run"}),
    "brew": frozenset(),
    "bundle": frozenset({"config"}),
    "cargo": frozenset({"config"}),
    "composer": frozenset({"exec", "global"}),
    "conda": frozenset({"run"}),
    "docker": frozenset({"compose", "exec", "run", "buildx", "container"}),
    "dotnet": frozenset({"exec"}),
    "flutter": frozenset(),
    "gh": frozenset({"alias", "api", "extension"}),
    "git": _names("""
    am bisect config difftool filter-branch for-each-ref help mergetool rebase submodule var worktree
"""),
    "go": frozenset({"generate", "tool", "env"}),
    "gradle": frozenset(),
    "helm": frozenset({"plugin"}),
    "just": frozenset(),
    "kubectl": frozenset({"exec", "run", "config", "plugin"}),
    "make": frozenset(),
    "mix": frozenset({"run"}),
    "mkdocs": frozenset(),
    "mvn": frozenset({"exec:exec", "exec:java"}),
    "npm": frozenset({"config", "exec", "explore", "set", "x"}),
    "pip": frozenset({"config"}),
    "pip3": frozenset({"config"}),
    "pipenv": frozenset({"shell"}),
    "pnpm": frozenset({"config", "dlx", "exec"}),
    "podman": frozenset({"exec", "run", "container"}),
    "pdm": frozenset({"run"}),
    "pre-commit": frozenset(),
    "poetry": frozenset({"config", "shell"}),
    "rustup": frozenset({"run", "which"}),
    "swift": frozenset({"run"}),
    "systemctl": frozenset({"edit"}),
    "terraform": frozenset({"console"}),
    "tofu": frozenset({"console"}),
    "uv": frozenset({"tool"}),
    "yarn": frozenset({"config", "dlx", "exec", "node"}),
}
# Words of any of them that run another program.
_RUNNING = frozenset({"console", "dlx", "do", "exec", "runner", "shell", "x"})
# Words of those programs after which one more word says what is done.
_TWO_WORDS = {
    "bundle": ("exec",), "cargo": ("run",), "docker": ("compose",), "gh": ("pr", "issue", "repo", "run", "release"),
    "go": ("mod",), "npm": ("run", "run-script"), "pnpm": ("run",), "uv": ("pip", "run"), "yarn": ("run",),
    "poetry": ("run",), "pipenv": ("run",), "kubectl": ("rollout",),
}  # fmt: skip
_REMOTE_COMMANDS = frozenset({"fetch", "ls-remote", "pull", "push"})  # the kind of each is that of one remote
_REMOTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# Programs that run another one: its kind is theirs.
_RUNNERS = {("bundle", "exec"), ("pipenv", "run"), ("poetry", "run"), ("uv", "run")}
# Programs that run code of the project or of its packages, tests, plugins and configuration included: those of which
# all words do, and those of which some do.
_PROJECT_PROGRAMS = _names("""
    alembic bazel cmake ctest eslint flake8 gradle jest just make mix mkdocs mocha mvn mypy ninja nox phpunit pre-commit
    prettier pylint pytest rspec rubocop stylelint tox vitest yarn
""")
_PROJECT_CODE = {
    program: _names(words)
    for program, words in {
        "bundle": "install update",
        "cargo": "bench build check clippy doc fix install run test",
        "composer": "install require run run-script test update",
        "dotnet": "build msbuild publish restore run test",
        "flutter": "build run test",
        "go": "generate run test",
        "npm": "add ci i install install-test it pack publish rebuild restart run run-script start stop t test update",
        "pdm": "add build install sync update",
        "pip": "download install wheel",
        "pip3": "download install wheel",
        "pipenv": "install sync update",
        "pnpm": "add build ci i install rebuild run start t test update",
        "poetry": "add build install sync update",
        "swift": "build run test",
        "terraform": "apply destroy init plan",
        "tofu": "apply destroy init plan",
        "uv": "add build lock pip remove run sync",
    }.items()
}
_PROJECT_MODULES = _PROJECT_PROGRAMS | {"build", "coverage", "unittest"}
_MODULES = _names("""
    black build coverage flake8 isort mypy nox pylint pyright pytest ruff tox unittest
""")
_MODULES_WITH_SUBCOMMAND = frozenset({"coverage", "pip", "uv"})
_LANGUAGES = re.compile(r"(?:python|node|ruby|perl|php|deno|bun|lua)[\d.]*|(?:ba|da|k|z|fi)?sh")
_SCRIPT = re.compile(r"(?!-)[A-Za-z0-9_./-]+\.(?:py|js|mjs|cjs|ts|rb|pl|php|lua|sh|bash)")
# Programs that run what their arguments say, or that change so much that each call is looked at.
_NO_KIND = _names("""
    at awk batch builtin bunx busybox caffeinate chattr chmod chown chroot chrt command crontab curl dd doas env
    eval exec expect find flock gawk gdb ionice kill killall ln mawk mount nawk nc nice nohup npx osascript parallel
    pkill pnpx rm rmdir rsync scp script sed setsid shred socat source ssh stdbuf strace su sudo systemd-run tar
    taskset tee telnet time timeout toybox trap truncate umount unbuffer unlink vi vim watch wget xargs xonsh
""")


@dataclass(frozen=True, slots=True)
class Offer:
    """The rules that a yes to a call can store.

    `rules` together cover the call with all others of its kind; they are empty if it is of none. `exact` covers exactly
    this call, None if no rule can.
    """

    rules: tuple[Rule, ...] = ()
    exact: Rule | None = None

    @property
    def shown(self) -> tuple[Rule, ...]:
        """The rules that a client shows and stores unless the person chooses others."""
        return self.rules or (() if self.exact is None else (self.exact,))


NO_OFFER = Offer()


def offer_rules(call: Call, covered: Sequence[Rule] = ()) -> Offer:
    """Return the rules that a yes to a call can store; parts of a command that `covered` allow already need none."""
    assessment = call.assessment
    if assessment.shell is not None:
        return _offer_for_command(call, covered)
    if assessment.risk == "write" and assessment.paths:
        folders = dict.fromkeys(_folder_glob(path) for path in assessment.paths)
        exact = _rule(tool=EDITS, path=assessment.paths[0]) if len(assessment.paths) == 1 else None
        if exact is not None and re.search(r"[*?]", assessment.paths[0]):
            exact = None  # as a glob it would be about other files too
        return Offer(_all(None if glob is None else _rule(tool=EDITS, path=glob) for glob in folders), exact)
    if assessment.hosts:
        hosts = dict.fromkeys(assessment.hosts)
        return Offer(_all(_rule(tool=call.tool, host=host) for host in hosts), _exact(call))
    if assessment.server is not None:
        return Offer(_all([_rule(tool=call.tool, server=assessment.server)]), _exact(call))
    return Offer((), _exact(call))


def _all(rules: Iterable[Rule | None]) -> tuple[Rule, ...]:
    """Return the rules, none of them if one is missing: together they would not cover the call."""
    made = tuple(rules)
    return tuple(rule for rule in made if rule is not None) if None not in made else ()


def _offer_for_command(call: Call, covered: Sequence[Rule]) -> Offer:
    command = call.assessment.shell
    assert command is not None
    if command.unsandboxed:
        return NO_OFFER
    network = command.network if isinstance(command.network, bool) else [str(host) for host in command.network]
    network = network or None
    sandboxed = call.assessment.sandboxed or None
    exact = _rule(tool=call.tool, command=command.text, exact=True, network=network, sandboxed=sandboxed)
    if command.parts is None or not may_be_allowed(command):
        return Offer((), exact)
    covered = [rule for rule in covered if _allows_words(rule, call)]
    rules: dict[str, Rule] = {}
    for part in command.parts:
        if part.is_harmless or any(allows_part(rule, part) for rule in covered):
            continue
        words = fixed_words(part)
        fields = {"network": network, "sandboxed": sandboxed}
        rule = None if words is None else _rule(tool=call.tool, command=" ".join(words), **fields)
        if rule is None or not allows_part(rule, part):
            return Offer((), exact)
        rules[str(rule)] = rule
    return Offer(tuple(rules.values()), exact) if len(rules) <= _MAX_RULES else Offer((), exact)


def _allows_words(rule: Rule, call: Call) -> bool:
    """Return whether a rule allows parts of the command of a call."""
    is_held = rule.decision == "allow" and rule.holds_in(call.workspace) and rule.is_about(call)
    return (
        is_held
        and bool(rule.words)
        and call.assessment.shell is not None
        and allows_wishes(rule, call.assessment.shell)
        and allows_without_sandbox(rule, call.assessment.sandboxed)
    )


def _exact(call: Call) -> Rule | None:
    arguments = dict(call.arguments)
    if not call.digest or len(json.dumps(arguments, default=repr)) > _MAX_EXACT_CHARS:
        return None
    return _rule(tool=call.tool, arguments=arguments, digest=call.digest, exact=True)


def _rule(**fields: Any) -> Rule | None:
    """Return a rule that allows, None if no rule can have these fields, for example a path that begins with ~."""
    try:
        return Rule(decision="allow", scope="session", **fields)
    except ValidationError:
        return None


def _folder_glob(path: str) -> str | None:
    """Return the glob of all files in the folder of a path, of the workspace's own folder without those below it."""
    folder = str(PurePosixPath(path).parent)
    if folder == ".":
        return "*"
    return None if re.search(r"[*?]", folder) else f"{folder}/**"


def fixed_words(part: CommandPart) -> tuple[str, ...] | None:
    """Return the words that say what a command does, whatever follows them; None if they could run any code.

    >>> fixed_words(CommandPart(("git", "commit", "-m", "x"), 4)), fixed_words(CommandPart(("git", "-c", "a=b"), 3))
    (('git', 'commit'), None)
    """
    return _fixed(part.words[: part.bare_count])


def _fixed(words: Sequence[str]) -> tuple[str, ...] | None:
    if not words or not _PROGRAM.fullmatch(words[0]):
        return None
    program, rest = words[0], words[1:]
    name = program.rpartition("/")[2]
    if program.startswith(("/", "..")) or "/../" in program or name in _NO_KIND:
        return None
    if name in _SUBCOMMANDS:
        fixed = _fixed_subcommand(name, rest)
    elif _LANGUAGES.fullmatch(name):
        fixed = _fixed_script(name, rest)
    elif name in _ALONE or "/" in program:  # the latter is a script of the project, for example ./gradlew
        fixed = ()
    else:
        fixed = None
    return None if fixed is None else (program, *fixed)


def _fixed_subcommand(program: str, rest: Sequence[str]) -> tuple[str, ...] | None:
    """Return the fixed words after a program that does what its first word says."""
    if not rest or not _SUBCOMMAND.fullmatch(rest[0]):
        return None
    if (program, rest[0]) in _RUNNERS:
        inner = _fixed(rest[1:])
        return None if inner is None else (rest[0], *inner)
    if program == "git" and rest[0] in _REMOTE_COMMANDS:
        return tuple(rest[:2]) if len(rest) > 1 and _REMOTE.fullmatch(rest[1]) else None
    if rest[0] in _TWO_WORDS.get(program, ()):
        is_fixed = len(rest) > 1 and _SUBCOMMAND.fullmatch(rest[1]) and (program == "npm" or rest[1] not in _RUNNING)
        return tuple(rest[:2]) if is_fixed else None
    return None if rest[0] in _SUBCOMMANDS[program] | _RUNNING else (rest[0],)


def _fixed_script(program: str, rest: Sequence[str]) -> tuple[str, ...] | None:
    """Return the fixed words of a call of an interpreter: a module that is known, or a script."""
    if program.startswith("python") and rest[:1] == ("-m",) and len(rest) > 1:
        if rest[1] in _MODULES_WITH_SUBCOMMAND:
            return tuple(rest[:3]) if len(rest) > 2 and _SUBCOMMAND.fullmatch(rest[2]) else None
        return tuple(rest[:2]) if rest[1] in _MODULES else None
    return (rest[0],) if rest and _SCRIPT.fullmatch(rest[0]) else None


def why_without_kind(part: CommandPart) -> str | None:
    """Return a clause that says why a command is of no kind, None if it is of one.

    >>> why_without_kind(CommandPart(("git",), 1))
    '`git` alone could be followed by anything'
    """
    words = part.words[: part.bare_count]
    fixed = _fixed(words)
    if fixed is None:
        return _why_unfixed(words) if words else "its program is quoted, or has * or ?"
    rule = _rule(tool="bash_exec", command=" ".join(fixed))
    if rule is None or not allows_part(rule, part):
        return f"an option of this `{fixed[0]}` may make it run another program"
    return None


def why_too_wide(rule: Rule) -> str | None:
    """Return a clause that says why a rule that allows covers nearly anything, None if it does not."""
    if rule.decision != "allow" or rule.exact or rule.tool != "bash_exec":
        return None
    words = rule.words
    if not words:
        return "it covers all commands"
    words = (words[0].rpartition("/")[2], *words[1:])
    is_wide = words[0] in _NO_KIND or words[0] in _SUBCOMMANDS or _LANGUAGES.fullmatch(words[0])
    return _why_unfixed(words) if is_wide and _fixed(words) is None else None


def _why_unfixed(words: Sequence[str]) -> str:
    """Return a clause that says why `_fixed` returns None for the words, of which there is one at least."""
    program, rest = words[0], words[1:]
    if program in _NO_KIND:
        return f"what `{program}` does or runs is up to its arguments"
    if program in _SUBCOMMANDS:
        if not rest:
            return f"`{program}` alone could be followed by anything"
        if (program, rest[0]) in _RUNNERS:
            return _why_unfixed(rest[1:]) if len(rest) > 1 else f"`{program} {rest[0]}` runs any program"
        if (program, rest[0]) == ("git", "-c"):
            return (
                "`git -c` changes any setting of git for one command, and some settings name a program that git then"
                " runs, for example core.pager, core.fsmonitor, diff.external and alias.*"
            )
        if rest == ("--version",):
            return f"files of the project or the user may decide which `{program}` runs"
        if rest[0].startswith("-"):
            return f"`{rest[0]}` before the subcommand of `{program}` may change what that does or where"
        if program == "git" and rest[0] in _REMOTE_COMMANDS:
            return f"`git {rest[0]}` names no remote before its options, so settings say which one it uses"
        return f"`{program} {rest[0]}` may run or configure any program"
    if _LANGUAGES.fullmatch(program):
        return f"`{program}` runs any code that it is given"
    return f"it is not known which words after `{program}` say what it does"


def is_narrower(rule: Rule, offer: Offer) -> bool:
    """Return whether a rule that a person made of an offered one covers no more than that."""
    return any(_is_within(rule, one) for one in (*offer.rules, *(() if offer.exact is None else (offer.exact,))))


_UNCHANGED = ("tool", "server")


def _is_within(rule: Rule, offered: Rule) -> bool:
    if rule.decision != "allow" or any(getattr(rule, name) != getattr(offered, name) for name in _UNCHANGED):
        return False
    hosts = rule.network_hosts
    if rule.network != offered.network and not (hosts and cover(offered.network_hosts, hosts)):
        return False
    if rule.sandboxed not in (None, offered.sandboxed):  # without one it gets that of the offered rule
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
        note = " (it runs the project's code)" if _runs_project_code(rule.words) else ""
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


def _runs_project_code(words: Sequence[str]) -> bool:
    """Return whether a command with these first words runs code of the project, for example its tests."""
    if not words:
        return False
    if tuple(words[:2]) in _RUNNERS and words[0] != "uv":
        return _runs_project_code(words[2:])
    if "-m" in words[1:2]:
        return bool(_PROJECT_MODULES.intersection(words[2:3])) or _runs_project_code(words[2:])
    if "/" in words[0] or _LANGUAGES.fullmatch(words[0]) or words[0] in _PROJECT_PROGRAMS:
        return True
    return bool(_PROJECT_CODE.get(words[0], frozenset()).intersection(words[1:2]))
