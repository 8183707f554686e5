"""A search for commands that delete the home folder, the workspace, `/`, or all that is in one.

A word such as `~`, `"$HOME"/`, `..`, `/*` or `*` is read as bash reads it: in the folder to which earlier parts of the
command have changed, with variables that the command sets or the environment has, braces and globs expanded and links
followed. `sudo`, `xargs`, `bash -c` and the like are looked through, so that quoted text is examined as code if the
command runs a shell. As in `named_paths`, this finds reasons to ask; it does not prove that a command deletes little. A
word whose value is not known before the command runs, such as `"$(mktemp -d)"`, counts as no such folder.

The work is bounded by the length of the command, which the caller limits, and by the limits of `FileSystemCache`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path

from agenticx.tools.shell.braces import expand_braces, has_braces
from agenticx.tools.shell.globs import is_glob
from agenticx.tools.shell.lookups import FileSystemCache
from agenticx.tools.shell.quoting import QUOTED, remove_quoting
from agenticx.tools.whole_folders import WholeFolders, without_globs_of_all

__all__ = ["find_whole_deletion"]

_MAX_VALUES = 64
_MAX_PIPELINE = 32
_MAX_FOLDERS = 8
_MAX_VALUE_CHARS = 4_096
_MAX_BRACE_CHARS = 256 * 1024
_LOOKUP_STEPS = 2_000

_MAY_DELETE = re.compile(r"\b(?:rimraf|rm|rsync|shred|unlink)\b|-delete\b|rmtree|rm_rf|rmSync|removeSync|RemoveAll")
_RUNS_CODE = re.compile(r"(?<![\w.-])(?:(?:ba|da|k|z|fi|a)?sh|eval|su|trap|xargs|parallel|watch)\b(?![\w.-])")
_FOLDER_NOW = re.compile(
    r"\$\(\s*pwd(?:\s+-[LP])?\s*\)|`\s*pwd\s*`|\$\{PWD\b[^}]*\}|\$PWD\b|(?<![^\s=:])~\+(?=[/\s;&|)]|$)"
)
_TOP_OF_REPOSITORY = re.compile(
    r"\$\(\s*git\s+rev-parse\s+--show-toplevel\s*\)|`\s*git\s+rev-parse\s+--show-toplevel\s*`"
)
_LISTING = re.compile(r"\$\(\s*ls(?:\s+-\w+)*\s*(?:\s([^\s()-][^\s()]*)\s*)?\)")
_PATH_OF = re.compile(r'\$\(\s*(echo|realpath|readlink\s+-f|dirname)\s+"?([^\s()"]+)"?\s*\)')
# A call in a script, such as `shutil.rmtree(os.path.expanduser(~))`, without its quotes.
_CALL = re.compile(r"(?:rmtree|rm_rf|rmSync|removeSync|RemoveAll)\(\s*(?:[\w.]+\(\s*)*([^,()\s]+)")
_CALLS_FOR_FOLDERS = {
    "Path.home": "~",
    "os.homedir": "~",
    "Dir.home": "~",
    "Path.cwd": ".",
    "os.getcwd": ".",
    "process.cwd": ".",
}
_JOINED_DESCRIPTORS = re.compile(r"[<>]&[\d-]+|&>>?")
_OPERATORS = re.compile(r"(\|\||&&|;|\|&?|&|\n|\(|\)|`)")
_VARIABLE = re.compile(r"\$\{(\w+|[@*])(:?[-=?+])?([^{}]*)\}|\$(\w+|[@*])")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)

# Marks for the folder in which a part of the command runs, for the workspace, and for a value that is not known.
_HERE = "\ue011"
_WORKSPACE = "\ue012"
_UNKNOWN = "\ue013"

# Words before the name of a program: those of bash, and programs that run their arguments.
_KEYWORDS = frozenset({"!", "{", "}", "do", "elif", "else", "if", "then", "until", "while"})
_RUNNER_NAMES = """
    ash bash builtin busybox caffeinate chroot command dash doas env eval exec fish flock gtimeout ionice ksh nice nohup
    npx parallel setsid sh stdbuf strace su sudo time timeout toybox trap unbuffer watch xargs zsh
"""
_RUNNERS = frozenset(_RUNNER_NAMES.split())
# Those with an operand of any kind before the program.
_RUNNERS_WITH_OPERAND = frozenset({"chroot", "flock", "su"})
_DELETERS = frozenset({"rimraf", "rm", "shred", "unlink"})
_EXAMINED = _DELETERS | {"cd", "find", "pushd", "rsync"}
_FOLDER_OPTIONS = frozenset({"-C", "-D", "--chdir", "--directory"})
_FILTERS = frozenset({"awk", "comm", "cut", "egrep", "fgrep", "fzf", "grep", "head", "rg", "sed", "shuf", "tail"})
# Variables that bash sets itself, so that a missing one in the environment is not empty.
_BASH_NAMES = """
    BASHPID EPOCHREALTIME EPOCHSECONDS EUID GROUPS HOSTNAME HOSTTYPE IFS LINENO MACHTYPE OLDPWD OSTYPE PPID RANDOM REPLY
    SECONDS SHLVL SRANDOM UID
"""
_SET_BY_BASH = frozenset(_BASH_NAMES.split())

# Tests of `find` by which some of the files are left out.
_NARROWING = re.compile(
    r"-(?:[acm]min|[acm]time|empty|gid|group|i?lname|i?name|i?path|i?regex|i?wholename|inum|links|newer.*|perm|samefile"
    r"|size|uid|user|used|xtype)"
)


def find_whole_deletion(
    command: str, workspace: Path, environment: Mapping[str, str], file_system: FileSystemCache
) -> str | None:
    """Return the word by which `command`, run in `workspace`, deletes one of its `WholeFolders`, or None.

    Raises `UncheckableError` as `file_system` does.
    """
    stripped = _without_quotes(command)
    if _MAY_DELETE.search(stripped) is None:
        return None
    search = _Search(str(workspace), WholeFolders(workspace), environment, file_system)
    marked = _marked(command)
    found = search.find(remove_quoting(marked).text)
    if found is None and _RUNS_CODE.search(stripped) is not None:
        found = search.find(_without_quotes(marked))
    if found is None:
        found = search.find_call(stripped)
    shown = {_HERE: ".", _WORKSPACE: str(workspace), _UNKNOWN: "…", QUOTED: "?"}
    return None if found is None else found.translate(str.maketrans(shown))


def _without_quotes(command: str) -> str:
    return re.sub(r"\\\n|\$?[\"']|\\", "", command)


def _marked(command: str) -> str:
    """Return a command in which substitutions with a known value are replaced by it, or by a mark for it."""
    command = _FOLDER_NOW.sub(_HERE, command)
    command = _TOP_OF_REPOSITORY.sub(_WORKSPACE, command)
    command = _LISTING.sub(lambda match: f"{match[1]}/*" if match[1] else "*", command)
    command = _PATH_OF.sub(lambda match: f"{match[2]}/.." if match[1] == "dirname" else match[2], command)
    return _JOINED_DESCRIPTORS.sub(" ", command)


@dataclass(frozen=True, slots=True)
class _Command:
    """A simple command: the program's name without its folder, the words after it, and those before it."""

    program: str
    operands: tuple[str, ...]
    before: tuple[str, ...] = ()

    @classmethod
    def parse(cls, words: Sequence[str]) -> _Command:
        """Look for the program behind keywords, assignments and the programs that run it, with their options."""
        runs = takes_operand = is_option = False
        for place, word in enumerate(words):
            name = word.rpartition("/")[2]
            if name in _RUNNERS:
                runs, is_option, takes_operand = True, False, name in _RUNNERS_WITH_OPERAND
            elif word in _KEYWORDS or _ASSIGNMENT.match(word):
                is_option = False
            elif runs and word.startswith(("-", "+")):
                is_option = True
            elif name in _EXAMINED or not (runs and (is_option or takes_operand or word[:1].isdigit())):
                return cls(name, tuple(words[place + 1 :]), tuple(words[:place]))
            else:
                is_option = False
        return cls("", (), tuple(words))

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
    def removes_folders(self) -> bool:
        """True for `rm -r`, and for programs that delete folders without an option."""
        if self.program == "rimraf":
            return True
        options = [word for word in self.operands if word.startswith("-")]
        return self.program == "rm" and any(
            re.match(r"-[A-Za-z]*[rR]|--r|--no-p", word) or "$" in word for word in [*options, *self._variables()]
        )

    def _variables(self) -> list[str]:
        return [word for word in self.operands[:1] if word.startswith("$")]


@dataclass(frozen=True, slots=True)
class _Around:
    """The state to go on with at the operator `end`: the folders, and the command around a substitution."""

    end: str
    folders: list[str]
    before: str | None = None
    operator: str = ""
    pipeline: list[_Command] = field(default_factory=list[_Command])


@dataclass(slots=True)
class _Search:
    """The state of a search: the folders in which the next part may run, and the values of variables."""

    workspace: str
    whole: WholeFolders
    environment: Mapping[str, str]
    file_system: FileSystemCache
    folders: list[str] = field(init=False)
    _variables: dict[str, list[str]] = field(default_factory=dict[str, list[str]], init=False)
    _words: list[str] = field(default_factory=list[str], init=False)
    _homes: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _brace_chars_left: int = field(default=_MAX_BRACE_CHARS, init=False)

    def find(self, text: str) -> str | None:
        """Return the first word that deletes one of the `whole` folders; `text` is without quotes."""
        self.folders, self._variables = [self.workspace], {}
        words = (word for word in re.split(r"[\s;|&<>()`]+", text) if not word.startswith("-"))
        self._words = list(islice(filter(None, words), _MAX_VALUES))
        around: list[_Around] = []
        pipeline: list[_Command] = []
        before, operator = "", ""
        for part, next_operator in _parts(text):
            before += part
            is_substitution = next_operator == "(" and before.endswith("$")
            if is_substitution or (next_operator == "`" and not (around and around[-1].end == "`")):
                # The words around a substitution are one command, which runs after it.
                end = ")" if is_substitution else "`"
                around.append(_Around(end, self.folders, before.removesuffix("$"), operator, pipeline))
                before, operator, pipeline = "", "", []
                continue
            if words := [word for word in re.split(r"[\s<>]+", before) if word]:
                self._assign(words)
                command = _Command.parse(self._with_program(words))
                pipeline = [*pipeline[:_MAX_PIPELINE], command] if operator in {"|", "|&"} else [command]
                if (found := self._deleted_by(pipeline)) is not None:
                    return found
                self._change_folder(command, is_followed_only_if_done=next_operator == "&&")
            before, operator = "", next_operator
            if next_operator == "(":
                around.append(_Around(")", self.folders))
            elif around and next_operator == around[-1].end:
                outer = around.pop()
                self.folders = outer.folders
                if outer.before is not None:
                    before, operator, pipeline = f"{outer.before}{_UNKNOWN}", outer.operator, outer.pipeline
        return None

    def find_call(self, text: str) -> str | None:
        """Return the argument of the first call in a script that deletes one of the `whole` folders."""
        for match in _CALL.finditer(text):
            if self._is_whole(_CALLS_FOR_FOLDERS.get(match[1], match[1]), [self.workspace]):
                return match[1]
        return None

    def _with_program(self, words: Sequence[str]) -> Sequence[str]:
        """Return a command whose program is in a variable, as in `$RM ~`, with the words of that."""
        if not words[0].startswith("$"):
            return words
        value = next(iter(self._values(words[0])), "")
        return [*value.replace(QUOTED, " ").split(), *words[1:]]

    # --- folders and variables ----------------------------------------------------------------------------------------

    def _change_folder(self, command: _Command, *, is_followed_only_if_done: bool) -> None:
        if command.program not in {"cd", "pushd", "popd"}:
            return
        if command.program == "popd" or "-" in command.operands:
            self.folders = list(dict.fromkeys([*self.folders, self.workspace]))
            return
        target = next(iter(command.arguments), "~")
        changed = [path for folder in self.folders for path in self._resolved(target, folder)]
        exists = all(self.file_system.check_exists("/", path) for path in changed)
        before = [] if (exists and changed) or is_followed_only_if_done else self.folders
        self.folders = list(dict.fromkeys([*changed, *before]))[:_MAX_FOLDERS] or [self.workspace]

    def _assign(self, words: Sequence[str]) -> None:
        """Take note of the values of `NAME=value`, `for NAME in …`, and of names that get an unknown one."""
        if words[0] == "for" and words[2:3] == ["in"]:
            self._variables[words[1]] = [value for word in words[3:] for value in self._values(word)] or [_UNKNOWN]
        elif words[0] in {"for", "read", "mapfile", "readarray", "select"} or words[:2] == ["while", "read"]:
            self._variables |= {word: [_UNKNOWN] for word in words if word.isidentifier()}
        for word in words:
            if (match := _ASSIGNMENT.fullmatch(word)) is not None:
                self._variables[match[1]] = self._values(match[2])

    def _values(self, word: str) -> list[str]:
        """Return the words that bash may make of `word` by its variables; `_UNKNOWN` is in those that are not known."""
        self.file_system.spend(1)
        if "$" not in word:
            return [word]
        pieces, end = list[list[str]](), 0
        for match in islice(_VARIABLE.finditer(word), _MAX_VALUES):
            pieces += [[word[end : match.start()]], self._values_of(match)]
            end = match.end()
        pieces.append([word[end:]])
        values = ["".join(combination) for combination in islice(product(*pieces), _MAX_VALUES)]
        self.file_system.spend(sum(map(len, values)))
        return [value if len(value) <= _MAX_VALUE_CHARS else _UNKNOWN for value in values]

    def _values_of(self, match: re.Match[str]) -> list[str]:
        name, operator, other = match[1] or match[4], match[2] or "", match[3] or ""
        if name in {"@", "*"} or name.isdigit():  # an argument of a function or of `bash -c`
            return [word for word in self._words if "$" not in word] or [_UNKNOWN]
        if name in self._variables:
            return self._variables[name]
        value = os.path.expanduser("~") if name == "HOME" else self.environment.get(name, "")
        if name in _SET_BY_BASH or (not value and operator.endswith("?")):
            return [_UNKNOWN]
        return [other if not value and operator.endswith(("-", "=")) else value]

    def _expanded(self, word: str) -> Iterator[str]:
        """Yield the words that bash makes of a word by braces, variables and `~`, before globs."""
        braced = expand_braces(word, self._try_spend) if has_braces(word) else [word]
        for text in braced or ():
            for value in self._values(text):
                if value and _UNKNOWN not in value and "$" not in value:
                    value = value.replace(_WORKSPACE, self.workspace)
                    yield self._with_home(value) if value.startswith("~") else value

    def _with_home(self, word: str) -> str:
        """Return a word with the folder that its `~` or `~user` stands for."""
        name, slash, rest = word.partition("/")
        if name not in self._homes:
            self.file_system.spend(_LOOKUP_STEPS)  # of a user, which may ask a server
            try:
                self._homes[name] = os.path.expanduser(name)
            except ValueError:  # a NUL, or a lone surrogate: no user has this name
                self._homes[name] = name
        return f"{self._homes[name]}{slash}{rest}"

    def _try_spend(self, characters: int) -> bool:
        self._brace_chars_left -= characters
        return self._brace_chars_left >= 0

    def _resolved(self, word: str, folder: str) -> Iterator[str]:
        """Yield the paths of a word that is no glob."""
        for value in self._expanded(word):
            path = value.replace(_HERE, folder) if value.startswith(_HERE) else value
            yield os.path.join(folder, path) if QUOTED in path else self.file_system.resolve(folder, path)

    # --- deletions ----------------------------------------------------------------------------------------------------

    def _deleted_by(self, pipeline: Sequence[_Command]) -> str | None:
        command = pipeline[-1]
        if command.is_shell and len(pipeline) > 1:  # it runs what comes through the pipe, such as from `echo`
            command = _Command.parse(pipeline[-2].operands)
        folders = self._folders_of(command)
        if command.program == "find":
            return self._deleted_by_find(command, folders)
        if command.program == "rsync" and any(word.startswith("--del") for word in command.operands):
            return self._first_whole(command.arguments[-1:], folders)
        if command.program not in _DELETERS:
            return None
        if command.removes_folders and (found := self._first_whole(command.arguments, folders)) is not None:
            return found
        return self._deleted_by_list(pipeline[:-1], command) if command.is_of_xargs else None

    def _folders_of(self, command: _Command) -> list[str]:
        """Return the folders in which a command runs: those now, or that of an option such as `env -C`."""
        for option, value in zip(command.before, command.before[1:], strict=False):
            if option in _FOLDER_OPTIONS:
                return [path for folder in self.folders for path in self._resolved(value, folder)]
        return self.folders

    def _deleted_by_find(self, command: _Command, folders: Sequence[str]) -> str | None:
        starts, tests = _split_find(command.operands)
        return self._first_whole(starts, folders) if _find_deletes_all(tests) else None

    def _deleted_by_list(self, earlier: Sequence[_Command], command: _Command) -> str | None:
        """Return the word of the `earlier` parts of a pipeline that makes `xargs rm` delete all of a folder."""
        if not earlier or any(_is_filter(part) for part in earlier):
            return None
        first = earlier[0]
        if first.program == "find":
            starts, tests = _split_find(first.operands)
            return None if _is_narrowed(tests) else self._first_whole(starts, self.folders)
        if not command.removes_folders:
            return None
        words = first.arguments or (["."] if first.program in {"ls", "dir", "tree"} else [])
        return self._first_whole(words, self.folders)

    def _first_whole(self, words: Iterable[str], folders: Sequence[str]) -> str | None:
        return next((word for word in words if self._is_whole(word, folders)), None)

    def _is_whole(self, word: str, folders: Sequence[str]) -> bool:
        return any(
            self._is_one(path)
            for value in self._expanded(word)
            for folder in folders
            for path in self._paths(value, folder)
        )

    def _is_one(self, path: str) -> bool:
        """Return whether a path is one of the `whole` folders; `QUOTED` in it stands for any character."""
        if QUOTED not in path:
            return path in self.whole
        pattern = re.compile(".".join(map(re.escape, os.path.normpath(path).casefold().split(QUOTED))))
        return any(pattern.fullmatch(whole) for whole in self.whole.paths)

    def _paths(self, value: str, folder: str) -> Iterator[str]:
        """Yield what a word denotes: its path, the folder of which it denotes all, and the paths that match it."""
        value = value.replace(_HERE, folder) if value.startswith(_HERE) else value
        base = without_globs_of_all(value)
        if not is_glob(base):
            yield os.path.join(folder, base)
            if QUOTED not in base:
                yield self.file_system.resolve(folder, base)
        elif QUOTED not in value:
            yield from self.file_system.expand(folder, value)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a command between its operators, each with the operator that follows, "" for the last."""
    parts = [*_OPERATORS.split(text), ""]
    yield from zip(parts[::2], parts[1::2], strict=True)


def _is_filter(command: _Command) -> bool:
    """Return whether a part of a pipeline passes on some of the lines; `grep -v` passes on nearly all."""
    inverts = any(re.fullmatch(r"-[A-Za-z]*v[A-Za-z]*|--inv.*", word) for word in command.operands)
    return command.program in _FILTERS and not inverts


def _split_find(operands: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the starting points of `find`, and its tests and actions."""
    words = [word for word in operands if word not in {"-H", "-L", "-P"}]
    end = next((place for place, word in enumerate(words) if word[:1] in {"-", "!", QUOTED, ","}), len(words))
    return words[:end] or ["."], words[end:]


def _find_deletes_all(tests: Sequence[str]) -> bool:
    """Return whether an action of `find` deletes, and no test before it leaves files out."""
    for place, word in enumerate(tests):
        runs = word in {"-exec", "-execdir", "-ok", "-okdir"}
        deletes = runs and _Command.parse(tests[place + 1 :]).program in _DELETERS
        if (word == "-delete" or deletes) and not _is_narrowed(tests[:place]):
            return True
    return False


def _is_narrowed(tests: Sequence[str]) -> bool:
    """Return whether tests of `find` leave out more than they let through, as `-name '*.pyc'` does.

    A test that is negated lets nearly all through; so does what follows `-o`, if it has no test itself.
    """
    narrowed = False
    for place, word in enumerate(tests):
        if word in {"-o", "-or", ","}:
            narrowed = False
        elif _NARROWING.fullmatch(word) and tests[place - 1 : place] not in (["!"], ["-not"], [QUOTED]):
            value = tests[place + 1] if place + 1 < len(tests) else ""
            narrowed = narrowed or not value or value.strip(f"*{QUOTED}") != ""
    return narrowed
