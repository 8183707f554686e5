"""Simple commands for the search for deletions: the program behind `sudo` and the like, and the tests of `find`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agenticx.tools.shell.quoting import QUOTED

__all__ = [
    "ASSIGNMENT",
    "COPIERS",
    "CURRENT_FOLDER",
    "DELETERS",
    "EXECUTES",
    "HARMLESS_NAME",
    "LISTERS",
    "MAX_VALUES",
    "RIGHTS_CHANGERS",
    "TRASHES",
    "UNKNOWN",
    "UNPACKERS",
    "WORKSPACE",
    "ExaminedCommand",
    "deleting_actions",
    "find_deletes_all",
    "is_filter",
    "is_narrowed",
    "split_find",
]

MAX_VALUES = 64
"""The limit for the values of a word, and for the words of a program that another program runs."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)

# Marks for the current folder of a part of the command, for the workspace, and for an unknown value.
CURRENT_FOLDER = "\ue011"
WORKSPACE = "\ue012"
UNKNOWN = "\ue013"
# The name of a new file, or of a file that a narrow search lists.
HARMLESS_NAME = "\ue014"

# Words before the name of a program: keywords of bash, and programs that run their arguments.
_KEYWORDS = frozenset({"!", "{", "}", "coproc", "do", "elif", "else", "if", "then", "until", "while"})
_RUNNER_NAMES = """
    ash bash builtin busybox caffeinate chroot command dash doas env eval exec fish flock gtimeout ionice ksh nice nohup
    npx parallel setsid sh stdbuf strace su sudo time timeout toybox trap unbuffer watch xargs zsh
"""
_RUNNERS = frozenset(_RUNNER_NAMES.split())
# Runners with an operand before the program.
_RUNNERS_WITH_OPERAND = frozenset({"chroot", "flock", "su"})
TRASHES = frozenset({"gvfs-trash", "rimraf", "rmtrash", "trash", "trash-put"})
DELETERS = TRASHES | {"rm", "rmdir", "shred", "srm", "unlink", "wipe"}
# Programs that copy, with the option that deletes the copied files.
COPIERS = {
    "7z": re.compile(r"-sdel"),
    "rsync": re.compile(r"--remove-s"),
    "tar": re.compile(r"--remove-f"),
    "zip": re.compile(r"-[A-Za-z]*m|--move"),
}
RIGHTS_CHANGERS = frozenset({"chattr", "chflags", "chgrp", "chmod", "chown", "setfacl"})
# Programs that unpack an archive: operands with which they do, joined by blanks, and the options for the folder.
_UNPACKS_TAR = re.compile(r"^-?[A-Za-z]*x|(?:^| )-[A-Za-z]*x[A-Za-z]*(?= |$)|(?:^| )--(?:extract|get)")
UNPACKERS: Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "7z": (re.compile(r"^[ex]\b"), ("-o",)),
    "bsdtar": (_UNPACKS_TAR, ("-C", "--directory", "--cd")),
    "cpio": (re.compile(r"(?:^| )(?:-[A-Za-z]*i|--extract)"), ("-D", "--directory")),
    "tar": (_UNPACKS_TAR, ("-C", "--directory")),
    "unzip": (re.compile(r"^(?!(?:.* )?-[A-Za-z]*[lptvzZ])", re.DOTALL), ("-d",)),
}
_EXAMINED = DELETERS | COPIERS.keys() | RIGHTS_CHANGERS | UNPACKERS.keys() | {"cd", "find", "mv", "pushd"}
# Programs that only show or keep the text of their arguments and of their input.
_SHOWS_TEXT = frozenset({"ack", "ag", "apropos", "cat", "echo", "egrep", "fgrep", "gh", "grep", "man", "printf", "rg"})
_KEEPS_TEXT_IN_GIT = frozenset({"blame", "commit", "diff", "grep", "log", "notes", "show", "stash", "tag"})
LISTERS = frozenset({"dir", "echo", "ls", "printf", "tree"})
_FILTERS = frozenset({"comm", "egrep", "fgrep", "fzf", "grep", "head", "rg", "shuf", "tail"})

EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
# Tests of `find` that let few files through: by a name, if that has a letter, and the others.
_TESTS_OF_NAMES = re.compile(r"-(?:i?lname|i?name|i?path|i?regex|i?wholename|inum|samefile)")


@dataclass(frozen=True, slots=True)
class ExaminedCommand:
    """A simple command: the program's name without its folder, the words after it and the words before it."""

    program: str
    operands: tuple[str, ...]
    before: tuple[str, ...] = ()
    is_guessed: bool = False
    """True for an `rm` among the words of an unknown program."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> ExaminedCommand:
        """Find the program after keywords, assignments and runners with their options."""
        runs = takes_operand = is_option = False
        for place, word in enumerate(words):
            name = word.rpartition("/")[2]
            if word == "function" or words[place - 1 : place] == ["function"]:
                is_option = False
            elif name in _RUNNERS:
                runs, is_option, takes_operand = True, False, name in _RUNNERS_WITH_OPERAND
            elif word in _KEYWORDS or ASSIGNMENT.match(word):
                is_option = False
            elif runs and word.startswith(("-", "+")):
                is_option = True
            elif name in _EXAMINED or not (runs and (is_option or takes_operand or word[:1].isdigit())):
                command = cls(name, tuple(words[place + 1 :]), tuple(words[:place]))
                if name == UNKNOWN:  # `"$(command -v rm)"`
                    return cls("rm", command.operands, command.before)
                return command if name in _EXAMINED or command.only_shows_text else command._run()
            else:
                is_option = False
        return cls("", (), tuple(words))

    def _run(self) -> ExaminedCommand:
        """Return the `rm` among the operands of an unknown program, which it may run; else the command itself."""
        for place, word in enumerate(self.operands):
            name = word.rpartition("/")[2]
            if (
                name in {"rimraf", "rm", "trash"}
                or (name == "remove" and self.program == "gio")
                or (name == "mv" and self.program == "git")
            ):
                before = (*self.before, self.program, *self.operands[:place])
                name = "trash" if name == "remove" else name
                return ExaminedCommand(name, self.operands[place + 1 :], before, is_guessed=True)
        return self

    @property
    def only_shows_text(self) -> bool:
        if self.program == "git":
            return self.operands[:1] != () and self.operands[0] in _KEEPS_TEXT_IN_GIT
        return self.program in _SHOWS_TEXT

    @property
    def is_of_xargs(self) -> bool:
        return any(word.rpartition("/")[2] in {"xargs", "parallel"} for word in self.before)

    @property
    def is_shell(self) -> bool:
        """True for a shell that is not told what to run."""
        return not self.program and any(word.rpartition("/")[2].endswith("sh") for word in self.before)

    @property
    def arguments(self) -> list[str]:
        """The operands that are no options."""
        return [word for word in self.operands if not word.startswith("-")]

    @property
    def is_in_git_only(self) -> bool:
        return "git" in self.before and "--cached" in self.operands

    @property
    def takes_names_of_runner(self) -> bool:
        """True for an `rm` that gets the names from its runner, as in `fd -X rm -rf`."""
        return not self.is_of_xargs and (
            (not self.arguments and bool({"fd", "fdfind"} & set(self.before)))
            or any("{}" in word or word == f"{QUOTED}{QUOTED}" for word in self.arguments)
        )


def is_filter(command: ExaminedCommand) -> bool:
    """Return whether a part of a pipeline passes on some of the lines; `grep -v` passes on nearly all."""
    inverts = any(re.fullmatch(r"-[A-Za-z]*v[A-Za-z]*|--inv.*", word) for word in command.operands)
    return command.program in _FILTERS and not inverts


def split_find(operands: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the starting points of `find`, and its tests and actions."""
    words = [word for word in operands if word not in {"-H", "-L", "-P"}]
    end = next((place for place, word in enumerate(words) if word[:1] in {"-", "!", QUOTED, ","}), len(words))
    return words[:end] or ["."], words[end:]


def find_deletes_all(tests: Sequence[str]) -> bool:
    """Return whether an action of `find` deletes without an earlier test that leaves files out."""
    return any(not is_narrowed(tests[:place]) for place in deleting_actions(tests))


def deleting_actions(tests: Sequence[str]) -> Iterator[int]:
    """Yield the places of the actions of `find` that delete."""
    for place, word in enumerate(tests):
        runs = word in EXECUTES
        deletes = runs and ExaminedCommand.parse(tests[place + 1 : place + 1 + MAX_VALUES]).program in {*DELETERS, "mv"}
        if word == "-delete" or deletes:
            yield place


def is_narrowed(tests: Sequence[str]) -> bool:
    """Return whether tests of `find` leave out more than they let through, as `-name '*.pyc'` does.

    A negated test lets nearly all through, and so does an alternative after `-o` without a test. Tests of age, owner or
    size may do so too.
    """
    narrowed, has_alternatives = False, not {"-o", "-or", ","}.isdisjoint(tests)
    for place, word in enumerate(tests):
        negates = tests[place - 1 : place] in (["!"], ["-not"], [QUOTED])
        if negates and word in {QUOTED, "("}:
            return False
        if word in {"-o", "-or", ","}:
            narrowed = False
        elif word == "-empty":
            narrowed = narrowed or not negates
        elif _TESTS_OF_NAMES.fullmatch(word) and not negates:
            value = tests[place + 1] if place + 1 < len(tests) else ""
            is_narrow = re.search(r"\w", value) is not None
            if not is_narrow and has_alternatives:
                return False
            narrowed = narrowed or is_narrow
    return narrowed
