"""Rules about shell commands: whether one matches a command line, or a part of it.

A rule that allows matches a part only if bash certainly runs just that; one that asks or denies is looked for in
everything that a command may run, and where that is not known, the answer is "unknown".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agenticx.permissions.rules import Rule
from agenticx.tools.base import CommandPart, ShellCommand

__all__ = ["allows_part", "allows_wishes", "find_in_command", "is_exactly", "may_be_allowed"]

Match = Literal["yes", "no", "unknown"]

# Options before the subcommand that are followed by a value, by program.
_GLOBAL_OPTIONS = {
    "git": ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"),
    "docker": ("-H", "--host", "-c", "--context", "--config", "-l", "--log-level"),
    "kubectl": ("-n", "--namespace", "--context", "--kubeconfig", "-s", "--server"),
    "npm": ("--prefix", "-w", "--workspace"),
}
# Options that make a program run another one, which the words that a rule names do not show.
_RUNNING_OPTIONS = {
    "git": ("--exec", "--upload-pack", "--receive-pack", "--ext-diff", "--textconv", "--template", "--config", "-O",
            "--open-files-in-pager"),
    "tar": ("--to-command", "-I", "--use-compress-program", "--checkpoint-action", "--info-script", "-F"),
    "rsync": ("-e", "--rsh"),
    "make": ("-f", "--file", "--makefile", "--eval", "-C", "--directory"),
    "npm": ("--prefix", "--script-shell", "--node-options"),
    "cargo": ("--config",),
    "go": ("-exec", "-toolexec", "-vettool"),
    "docker": ("--privileged", "-v", "--volume", "--mount"),
}  # fmt: skip


def is_exactly(rule: Rule, command: ShellCommand) -> bool:
    """Return whether a rule about an exact command is about this one."""
    return rule.exact is True and rule.command == command.text


def allows_wishes(rule: Rule, command: ShellCommand) -> bool:
    """Return whether a rule that allows a command allows what it asks for beyond the sandbox."""
    return not command.unsandboxed and (rule.network is True or not command.network)


def may_be_allowed(command: ShellCommand) -> bool:
    """Return whether rules about words can allow parts of a command; not behind a `cd`, which changes what they do."""
    return command.parts is not None and all(part.words[0] not in ("cd", "pushd", "popd") for part in command.parts)


def allows_part(rule: Rule, part: CommandPart) -> bool:
    """Return whether a rule that allows words matches a part of a command.

    Its words must stand there without quotes, and no option may make the program run another one.
    """
    words = rule.words
    if rule.exact or part.bare_count < len(words) or part.words[: len(words)] != words:
        return False
    if not words:
        return True
    if any(word[:1] in "*?" for word in part.words[part.bare_count :]):
        return False  # it may become an option
    running = _RUNNING_OPTIONS.get(words[0], ())
    return not any(_is_option(word, option) for word in part.words[len(words) :] for option in running)


def _is_option(word: str, option: str) -> bool:
    """Return whether a word is an option, also with its value behind it, or abbreviated."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 3 and option.startswith(name)
    return word.startswith(option)


def find_in_command(rule: Rule, command: ShellCommand) -> Match:
    """Return whether a command that a rule asks about or denies may be run in a command line, in whatever way.

    "unknown" says that a part cannot be read that might be it.
    """
    if rule.exact:
        return "yes" if is_exactly(rule, command) else "no"
    words = rule.words
    if not words:
        return "yes"
    matches = {_match(words, run) for run in command.runs}
    if "yes" in matches:
        return "yes"
    return "no" if command.is_complete and "unknown" not in matches else "unknown"


def _match(words: Sequence[str], run: Sequence[str | None]) -> Match:
    program = run[0]
    if program is None:
        return "unknown"
    if program != words[0] and program.rpartition("/")[2] != words[0].rpartition("/")[2]:
        return "no"
    match = _match_rest(words[1:], run[1:], _GLOBAL_OPTIONS.get(words[0], ()))
    if match == "no" and words[0] == "git" and any(word in ("-c", "--config-env") for word in run):
        return "unknown"  # it may define an alias
    return match


def _match_rest(words: Sequence[str], rest: Sequence[str | None], valued: Sequence[str]) -> Match:
    """Match the words after the program; options that the rule does not name are skipped."""
    position, is_sure = 0, True
    for expected in words:
        while position < len(rest):
            word = rest[position]
            if word is None:
                return "unknown"
            if word == expected:
                break
            if not word.startswith("-"):
                if is_sure:
                    return "no"
                is_sure = True  # it may be the value of the option before it
            elif word in valued:
                position += 1
            else:
                is_sure = bool(valued) or "=" in word
            position += 1
        else:
            return "no"
        if not is_sure:
            return "unknown"
        position += 1
    return "yes"
