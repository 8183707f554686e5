"""The kinds of commands: the first words that say what a command does, such as `git commit` and `pytest`.

A command whose first words can run any code, for example `python -c`, `env` or a bare `git`, has no kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agenticx.permissions.command_rules import RUNNERS, allows_part
from agenticx.permissions.rules import Rule, rule_or_none
from agenticx.tools.base import CommandPart

__all__ = ["fixed_words", "runs_project_code", "why_too_wide", "why_without_kind"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PROGRAM = re.compile(r"\.{0,2}/?[A-Za-z0-9_+-][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)*")
_SUBCOMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]*")

# Programs with one kind for all calls, whatever the arguments are.
_ALONE = _names("""
    autopep8 bandit black clippy cmake ctest eslint flake8 gofmt hadolint isort jest mkdir mocha mypy ninja nox
    phpunit prettier pylint pyright pytest rspec rubocop ruff rustfmt shellcheck stylelint touch tox tsc vitest
    yamllint
""")
# Programs whose first word says what they do, with the exceptions: words that run or configure anything.
_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "alembic": frozenset(),
    "apt": frozenset(),
    "apt-get": frozenset(),
    "bazel": frozenset({"run"}),
    "brew": _names("irb prof ruby sh"),
    "bundle": frozenset({"config"}),
    "cargo": frozenset({"config", "make", "watch"}),
    "composer": frozenset({"config", "exec", "global"}),
    "conda": frozenset({"config", "run"}),
    "docker": frozenset({"compose", "exec", "run", "buildx", "container"}),
    "dotnet": frozenset({"exec", "fsi", "script", "tool"}),
    "flutter": frozenset(),
    "gh": frozenset({"alias", "api", "codespace", "extension"}),
    "git": _names("""
        am bisect config daemon difftool filter-branch for-each-ref for-each-repo help instaweb merge-index mergetool
        rebase remote-ext remote-fd submodule var web--browse worktree
"""),
    "go": frozenset({"generate", "tool", "env"}),
    "gradle": frozenset(),
    "helm": frozenset({"plugin"}),
    "just": frozenset(),
    "kubectl": frozenset({"exec", "run", "config", "debug", "plugin"}),
    "make": frozenset(),
    "mix": frozenset({"cmd", "eval", "run"}),
    "mkdocs": frozenset(),
    "mvn": frozenset({"exec:exec", "exec:java"}),
    "npm": frozenset({"config", "create", "exec", "explore", "init", "innit", "set", "x"}),
    "pip": frozenset({"config"}),
    "pip3": frozenset({"config"}),
    "pipenv": frozenset({"shell"}),
    "pnpm": frozenset({"config", "create", "dlx", "exec"}),
    "podman": frozenset({"compose", "container", "exec", "machine", "run", "unshare"}),
    "pdm": frozenset({"run"}),
    "pre-commit": frozenset({"try-repo"}),
    "poetry": frozenset({"config", "shell"}),
    "rustup": frozenset({"run", "which"}),
    "swift": frozenset({"run"}),
    "systemctl": _names("edit enable import-environment link reenable set-environment"),
    "terraform": frozenset({"console"}),
    "tofu": frozenset({"console"}),
    "uv": frozenset({"tool"}),
    "yarn": frozenset({"config", "create", "dlx", "exec", "node", "plugin"}),
}
# Subcommands that run another program, whatever the first program is.
_RUNNING = frozenset({"console", "dlx", "do", "exec", "runner", "shell", "x"})
# Subcommands that need one more word to say what is done, for example `npm run build`.
_TWO_WORDS = {
    "bundle": ("exec",), "cargo": ("run",), "docker": ("compose",), "gh": ("pr", "issue", "repo", "run", "release"),
    "go": ("mod",), "npm": ("run", "run-script"), "pnpm": ("run",), "uv": ("pip", "run"), "yarn": ("run",),
    "poetry": ("run",), "pipenv": ("run",), "kubectl": ("rollout",),
}  # fmt: skip
_REMOTE_COMMANDS = frozenset({"fetch", "ls-remote", "pull", "push"})  # the kind of each is that of one remote
_REMOTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# Programs that run code of the project or of its packages: its tests, plugins and configuration too. With the first
# any subcommand does (`make all`), with the second the listed ones do (`npm test`, not `npm view`).
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


def fixed_words(part: CommandPart) -> tuple[str, ...] | None:
    """Return the first words that say what a command does, whatever follows; None if they could run any code.

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
    if (program, rest[0]) in RUNNERS:
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
    """Return a clause about why a command has no kind, None if it has one.

    >>> why_without_kind(CommandPart(("git",), 1))
    '`git` alone could be followed by anything'
    """
    words = part.words[: part.bare_count]
    fixed = _fixed(words)
    if fixed is None:
        return _why_unfixed(words) if words else "its program is quoted, or has * or ?"
    rule = rule_or_none(tool="bash_exec", command=" ".join(fixed))
    if rule is None or not allows_part(rule, part):
        return f"an option of this `{fixed[0]}` may make it run another program"
    return None


def why_too_wide(rule: Rule) -> str | None:
    """Return a clause about why an allow rule covers nearly anything, None if it does not."""
    if rule.decision != "allow" or rule.exact or rule.tool != "bash_exec":
        return None
    words = rule.words
    if not words:
        return "it covers all commands"
    words = (words[0].rpartition("/")[2], *words[1:])
    is_wide = words[0] in _NO_KIND or words[0] in _SUBCOMMANDS or _LANGUAGES.fullmatch(words[0])
    return _why_unfixed(words) if is_wide and _fixed(words) is None else None


def _why_unfixed(words: Sequence[str]) -> str:
    """Return a clause about why `_fixed` returns None for the words, one or more."""
    program, rest = words[0], words[1:]
    if program in _NO_KIND:
        return f"what `{program}` does or runs is up to its arguments"
    if program in _SUBCOMMANDS:
        if not rest:
            return f"`{program}` alone could be followed by anything"
        if (program, rest[0]) in RUNNERS:
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


def runs_project_code(words: Sequence[str]) -> bool:
    """Return whether a command with these first words runs code of the project, for example its tests."""
    if not words:
        return False
    if tuple(words[:2]) in RUNNERS and words[0] != "uv":
        return runs_project_code(words[2:])
    if "-m" in words[1:2]:
        return bool(_PROJECT_MODULES.intersection(words[2:3])) or runs_project_code(words[2:])
    if "/" in words[0] or _LANGUAGES.fullmatch(words[0]) or words[0] in _PROJECT_PROGRAMS:
        return True
    return bool(_PROJECT_CODE.get(words[0], frozenset()).intersection(words[1:2]))
