"""Rules about shell commands: the check whether a rule matches a command line, or a part of it.

An allow rule matches a part only if bash certainly runs exactly that part. An ask or deny rule matches if the command
may run its words anywhere; the answer is "unknown" if a part of the command cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from agenticx.permissions.rules import Rule
from agenticx.sandbox.hosts import cover
from agenticx.tools.base import CommandPart, ShellCommand

__all__ = [
    "RUNNERS",
    "Match",
    "allows_part",
    "allows_wishes",
    "allows_without_sandbox",
    "find_in_command",
    "is_exactly",
    "may_be_allowed",
    "option_with_other_spellings",
]

Match = Literal["yes", "no", "unknown"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options before the subcommand that are followed by a value, by program.
_GLOBAL_OPTIONS = {
    "git": (
        "-C",
        "-c",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--exec-path",
        "--config-env",
        "--attr-source",
        "--super-prefix",
    ),
    "docker": ("-H", "--host", "-c", "--context", "--config", "-l", "--log-level"),
    "kubectl": ("-n", "--namespace", "--context", "--kubeconfig", "-s", "--server"),
    "npm": ("--prefix", "-w", "--workspace"),
}
# Options that make a program run another one, read another configuration, or take code from elsewhere, without their
# dashes: the words of a rule do not show that. These are looked for in programs that `_OWN_OPTIONS` does not have.
_RUNNING_OPTIONS = _names(
    """
    command config config-file eval exec exec-path extra-index-url file find-links globalconfig index-url init-file
    init-hook load-plugins loader makefile manifest-path node-options parser plugin plugins prefix python-executable
    rcfile require resolve-plugins-relative-to rsh rulesdir script-shell shell template userconfig
    """
)
_TAR_OPTIONS = """
    checkpoint-action index-file info-script new-volume-script rmt-command rsh-command to-command use-compress-program
"""
_PIP_OPTIONS = "config-settings extra-index-url find-links index-url prefix python root target"
# Such options of programs that accept abbreviations of options, and harmless options that look like an abbreviation.
_OWN_OPTIONS = {
    program: (_names(names), _names(others))
    for program, (names, others) in {
        "apt": ("config-file option", ""),
        "apt-get": ("config-file option", ""),
        "bsdtar": (_TAR_OPTIONS, "checkpoint"),
        "git": (
            """
            authors-prog cc-cmd config exec exec-path ext-diff header-cmd httpd open-files-in-pager receive-pack
            sendmail-cmd smtp-server template textconv to-cmd upload-pack
            """,
            "text",
        ),
        "gmake": ("directory eval file include-dir makefile", ""),
        "gtar": (_TAR_OPTIONS, "checkpoint"),
        "make": ("directory eval file include-dir makefile", ""),
        "npm": ("editor git globalconfig node-options prefix registry script-shell shell userconfig viewer", "global"),
        "pip": (_PIP_OPTIONS, "pre user"),
        "pip3": (_PIP_OPTIONS, "pre user"),
        "rsync": ("config files-from include-from rsh rsync-path", "include"),
        "tar": (_TAR_OPTIONS, "checkpoint"),
    }.items()
}
_CONTAINER_OPTIONS = frozenset({"build-context", "mount", "privileged", "volume"})
# Programs that accept no abbreviations of options, with further such options.
_EXACT_OPTIONS = {
    **dict.fromkeys(
        _names("""
        black bun cargo clippy cmake ctest deno dotnet eslint gh gofmt golangci-lint jest mocha poetry prettier pytest
        ruff rustfmt rustup stylelint swift tsc uv vitest
        """),
        frozenset[str](),
    ),
    "docker": _CONTAINER_OPTIONS,
    "go": frozenset({"C", "exec", "modfile", "overlay", "toolexec", "vettool"}),
    "gradle": frozenset({"build-file", "include-build", "init-script", "project-dir", "settings-file"}),
    "helm": frozenset({"kubeconfig", "post-renderer"}),
    "just": frozenset({"chooser", "justfile", "set", "working-directory"}),
    "kubectl": frozenset({"helm-command", "kubeconfig"}),
    "podman": _CONTAINER_OPTIONS | {"conmon", "hooks-dir", "network-cmd-path", "runtime"},
    **dict.fromkeys(("pnpm", "yarn"), frozenset({"cwd", "dir", "registry", "use-yarnrc"})),
    **dict.fromkeys(("terraform", "tofu"), frozenset({"chdir", "from-module", "plugin-dir"})),
}  # fmt: skip
# The same for options of one letter, by program; several letters may be in one word.
_RUNNING_LETTERS = {
    "apt": "co", "apt-get": "co", "cargo": "CZ", "cmake": "PECD", "docker": "v", "eslint": "c", "git": "O",
    "gmake": "fCEI", "gradle": "Ibcp", "just": "fd", "make": "fCEI", "npm": "C", "pip": "ift", "pip3": "ift",
    "pnpm": "C", "podman": "v", "rsync": "e", "tar": "IF", "yarn": "C",
}  # fmt: skip
# Subcommands that run another program, for programs whose other subcommands do not.
_RUNNING_WORDS = {"tox": frozenset({"devenv", "e", "exec"})}
_RUNNING_LETTERS_OF_GIT = {"clone": "uc", "rebase": "x"}
RUNNERS = frozenset({("bundle", "exec"), ("pipenv", "run"), ("poetry", "run"), ("uv", "run")})
"""Words before a program that only say what runs it."""

_GIT_CHANGING = ("-c", "--config-env", "--exec-path=")
# The long forms of short options, by program.
_LONG_OPTIONS = {
    "chmod": {"--recursive": "R"},
    "chown": {"--recursive": "R"},
    "cp": {"--recursive": "r", "--force": "f", "--archive": "a"},
    "rm": {"--recursive": "r", "--force": "f", "--dir": "d", "--interactive": "i", "--verbose": "v"},
}
# Programs whose long options begin with one dash, so that a word is not a set of letters.
_LONG_WITH_ONE_DASH = frozenset(
    {"clang", "find", "ffmpeg", "gcc", "go", "java", "javac", "ld", "openssl", "terraform", "tofu"}
)


def is_exactly(rule: Rule, command: ShellCommand) -> bool:
    """Return whether an exact rule is about this command."""
    return rule.exact is True and rule.command == command.text


def allows_wishes(rule: Rule, command: ShellCommand) -> bool:
    """Return whether an allow rule covers the command's requests for network, or for no sandbox."""
    if command.unsandboxed or rule.network is True:
        return not command.unsandboxed
    return not command.network or (command.network is not True and cover(rule.network_hosts, command.network))


def allows_without_sandbox(rule: Rule, sandboxed: str | bool | None) -> bool:
    """Return whether a rule holds in the sandbox that a command gets.

    It does not hold in a weaker sandbox than it was made for. A rule with hosts holds only if the sandbox enforces
    them.
    """
    made_for = "bubblewrap" if rule.network_hosts else rule.sandboxed
    return _STRENGTH[made_for] <= _STRENGTH[sandboxed or None]


_STRENGTH: dict[str | bool | None, int] = {None: 0, "landlock": 1, "bubblewrap": 2}


def may_be_allowed(command: ShellCommand) -> bool:
    """Return whether rules about words can allow parts of a command; a `cd` in it could change what the parts do."""
    return command.parts is not None and all(part.words[0] not in ("cd", "pushd", "popd") for part in command.parts)


def allows_part(rule: Rule, part: CommandPart) -> bool:
    """Return whether an allow rule about words matches a part of a command.

    The part must begin with the rule's words, without quotes, and have no option that makes the program run another.
    """
    words = rule.words
    if rule.exact or part.bare_count < len(words) or part.words[: len(words)] != words:
        return False
    if not words:
        return True
    if any(word[:1] in ("*", "?", "-") and ("*" in word or "?" in word) for word in part.words[len(words) :]):
        return False  # a file of the repository may be named like an option
    program = _without_runner(part.words)
    return not any(_may_run_another(word, program) for word in _until_dashes(part.words[len(words) :], program[0]))


def _until_dashes(words: Sequence[str], program: str) -> Sequence[str]:
    """Return the words before `--`: after it there are no options, except options of git, as in `gh repo clone`."""
    return words[: words.index("--")] if "--" in words and program.rpartition("/")[2] != "gh" else words


def _may_run_another(word: str, words: Sequence[str]) -> bool:
    """Return whether an argument of the command `words` may make the command run another program."""
    program = words[0].rpartition("/")[2]
    if word == "--":
        return True  # the program passes what follows on, and that may be options
    if not word.startswith("-"):  # a variable of make may be a program
        return (program in ("make", "gmake", "just") and "=" in word) or word in _RUNNING_WORDS.get(program, ())
    if word.startswith("--") or program in _LONG_WITH_ONE_DASH:
        return _is_running_option(program, word.lstrip("-").partition("=")[0]) or "-extld" in word
    letters = _RUNNING_LETTERS.get(program, "")
    if program == "git" and len(words) > 1:
        letters += _RUNNING_LETTERS_OF_GIT.get(words[1], "")
    return any(letter in word for letter in letters)


def _without_runner(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command without the first ones that only say what runs it, as `uv run` and `python -m`."""
    start = 0
    while len(words) > start + 2:
        first, second = words[start : start + 2]
        if (first, second) not in RUNNERS and not (second == "-m" and "python" in first):
            break
        start += 2
    return words[start:]


def _is_running_option(program: str, name: str) -> bool:
    """Return whether a long option, given without its dashes, may make the program run another one."""
    if not name:
        return False
    if (exact := _EXACT_OPTIONS.get(program)) is not None:
        return name in exact or name in _RUNNING_OPTIONS
    names, others = _OWN_OPTIONS.get(program, (_RUNNING_OPTIONS, frozenset[str]()))
    return name not in others and any(option.startswith(name) for option in names)  # it may be abbreviated


def find_in_command(rule: Rule, command: ShellCommand) -> Match:
    """Return whether a command line may run, in any way, the command of an ask or deny rule.

    "unknown" means that a part that cannot be read might run it.
    """
    if rule.exact:
        return "yes" if is_exactly(rule, command) else "no"
    words = rule.words
    if not words:
        return "yes"
    spellings = [words, *((words[0], *other.split(), *words[2:]) for other in _SYNONYMS.get(words[:2], ()))]
    matches = {_match(one, run) for run in command.runs for one in spellings}
    if "yes" in matches:
        return "yes"
    is_known = command.is_complete and not any(_is_mentioned(one, command.mentions) for one in spellings)
    return "no" if is_known and "unknown" not in matches else "unknown"


def _is_mentioned(words: Sequence[str], mentions: frozenset[str | None]) -> bool:
    """Return whether an unknown program may run the command `words`: its arguments have all of them."""
    program = words[0].rpartition("/")[2]
    return program in mentions and (
        None in mentions or all(name in mentions for word in words[1:] for name in re.findall(r"[\w.+-]+", word))
    )


# Subcommands that do the same as another one.
_SYNONYMS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("cargo", "build"): ("b",),
    ("cargo", "run"): ("r",),
    ("cargo", "test"): ("t",),
    ("git", "push"): ("send-pack", "http-push", "lfs push", "p4 submit", "subtree push", "svn dcommit"),
    ("npm", "install"): ("i", "in", "ins", "inst", "insta", "instal", "add", "isntall"),
    ("npm", "run"): ("run-script", "rum", "urn"),
    ("npm", "test"): ("t", "tst"),
    ("npm", "uninstall"): ("un", "unlink", "remove", "rm", "r"),
}


def _match(words: Sequence[str], run: Sequence[str | None]) -> Match:
    program = run[0]
    if program is None:
        return "unknown"
    name, expected = program.rpartition("/")[2], words[0].rpartition("/")[2]
    if expected == "git" and name.startswith("git-"):
        run = ("git", name.removeprefix("git-"), *run[1:])  # as in `/usr/lib/git-core/git-push`
    elif expected == "git" and name == "hub":
        run = ("git", *run[1:])
    elif name != expected:
        return "no"
    match = _match_rest(words[1:], run[1:], _GLOBAL_OPTIONS.get(words[0], ()))
    if match != "yes" and expected not in _GLOBAL_OPTIONS and expected not in _LONG_WITH_ONE_DASH:
        match = _match_letters(expected, words[1:], run[1:]) or match
    if match == "no" and expected == "git" and any(word and word.startswith(_GIT_CHANGING) for word in run):
        return "unknown"  # it may define an alias
    return match


def _match_letters(program: str, words: Sequence[str], rest: Sequence[str | None]) -> Match | None:
    """Match words that are short options, in any order and place; None if there are other words."""
    if not words or not all(word[:1] == "-" and word[1:].isalnum() for word in words):
        return None
    long = _LONG_OPTIONS.get(program, {})
    found: set[str] = set()
    for word in rest:
        if word == "--":
            break
        if word is not None and word.startswith("--"):
            found.update(letter for option, letter in long.items() if option.startswith(word.partition("=")[0]))
        elif word is not None and word.startswith("-"):
            found.update(word[1:])
    same = {"R": "r"} if program == "rm" else {}
    wanted = {same.get(letter, letter) for word in words for letter in word[1:]}
    if wanted <= {same.get(letter, letter) for letter in found}:
        return "yes"
    return "unknown" if None in rest else "no"


def option_with_other_spellings(rule: Rule) -> str | None:
    """Return the first option in the words of a rule that a call may spell in a way that the rule is not about."""
    options = [word for word in rule.words[1:] if word.startswith("-") and word.strip("-")]
    program = rule.words[0].rpartition("/")[2] if options else ""
    if program in _LONG_OPTIONS and all(word[:1] == "-" and word[1:].isalnum() for word in rule.words[1:]):
        long = _LONG_OPTIONS[program]
        options = [word for word in options if not set(word[1:]) <= {*long.values(), "R"}]
    return options[0] if options else None


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
