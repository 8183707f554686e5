"""A search for commands that may delete one of the `CriticalFolders`, for example the home folder, or all files in one.

A second search (`find_protected_change`) finds those that delete or move a folder with protected files, such as
`.github`, whose name is not protected itself, or that put such files in it, as `mv workflows .github` does.

1. Each word, for example `~`, `"$HOME"/`, `..`, `/*` or `*`, is read as bash reads it: after `cd` in earlier parts of
   the command, with the variables of the command and the environment, braces and globs expanded and links followed.
2. `sudo`, `xargs`, `bash -c` and the like are looked through; quoted text is examined as code if the command runs a
   shell.
3. A recursive deletion is found unless each of its words is known to be harmless: `build`, `dist/*`, a variable that
   the same command sets to such a path, or `"$(mktemp -d)"`. A word with an unknown value, for example
   `"$(cat list)"`, may be the home folder.
4. If a command names `rm` where the search does not see it run, as in `ln -s /bin/rm zap`, `~` in it may be deleted,
   unless a program like `grep` only shows the text.
5. As in `named_paths`, this finds reasons to ask; a program or script that deletes by other means is not found.

The work is bounded by the length of the command, limited by the caller, and by the limits of `FileSystemCache`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, product
from pathlib import Path

from agenticx.tools.critical_folders import CriticalFolders, strip_match_all_globs
from agenticx.tools.protected import PROTECTED_PAIRS, protected_settings_part
from agenticx.tools.shell.braces import expand_braces, has_braces
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.git_repositories import GitRepositories
from agenticx.tools.shell.globs import is_glob
from agenticx.tools.shell.protected_files import protected_names_in, protected_paths_in
from agenticx.tools.shell.quoting import QUOTED, remove_quoting

__all__ = ["find_critical_deletion", "find_protected_change"]

_MAX_VALUES = 64
_MAX_PIPELINE = 32
_MAX_FOLDERS = 8
_MAX_VALUE_CHARS = 4_096
_MAX_BRACE_CHARS = 256 * 1024
_LOOKUP_STEPS = 2_000
_LISTING_STEPS = 100
_PROTECTED_SECONDS = 2.0  # for the search of all folders that a command deletes

_CALLS = (
    r"(?<!\w)(?:rmtree|rm_rf?|rmSync|rmdirSync|removeSync|RemoveAll|remove_dir_all|remove_dir|remove_tree)(?!\w)"
    r"|(?<=[s)\ue000])\.rm(?!\w)"
)
_MAY_DELETE = re.compile(
    r"\b(?:7z|clean|cp|install|ln|mv|rimraf|rm|rmdir|rsync|shred|srm|tar|trash|unlink|wipe|zip)\b|-delete\b|\$\{?\w|\$\(|`|[?*\]}]\S{0,16}\s+-|\bgio\b"
    rf"|{_CALLS}"
)
# A place where a command names a program or a function that deletes folders, in whatever quotes.
_MENTION = re.compile(rf"(?<![\w.-])(?:rm|rimraf)(?![\w.-])|{_CALLS}")
_RECURSIVE_OPTION = re.compile(r"(?<![^\s\W])-(?:[A-Za-z]*[rR]|-r|-no-p|\{|\$)")
_WIDE_WORD = re.compile(
    r"(?<![\w./~*-])(?:~|\$\{?HOME\b\}?|/|\.\.?|\*)/?(?:\*|\.)?(?![\w./~*-])"
    # In a script:
    r"|\b(?:environ|expanduser|homedir|getcwd|getenv|ENV)\b|\bPath\.(?:home|cwd)|\bDir\.(?:home|pwd)|\bprocess\.(?:cwd|env)"
)
_INTERPRETER = re.compile(r"(?<![\w.-])(?:awk|node|perl|php|python[\d.]*|ruby)(?![\w.-])")
_STRING_PREFIX = re.compile(r"([(\[,+]\s{0,8}|=\s)[bBfFrRuU]{1,2}(?=\\?[\"'])")
# A value that a script inserts into a text.
_INTERPOLATION = re.compile(r"(?<!\$)\{\w[\w.]*\}|%s|\s\+\s+(?=\w)")
_RUNS_CODE = re.compile(
    r"(?<![\w.-])(?:(?:ba|da|k|z|fi|a)?sh|eval|source|su|trap|xargs|parallel|watch)\b(?![\w.-])"
    r"|(?:^|[;&|\n(])[^\S\n]*(?:\.\s|\.{0,2}/\w|(?:at|batch|crontab|make|node|perl|python[\d.]*|ruby|ssh)(?![\w.-]))"
)
_FOLDER_NOW = re.compile(
    r"\$\(\s*pwd(?:\s+-[LP])?\s*\)|`\s*pwd\s*`|\$\{PWD\b[^}]*\}|\$PWD\b|(?<![^\s=:])~\+(?=[/\s;&|)]|$)"
)
_TOP_OF_REPOSITORY = re.compile(
    r"\$\(\s*git\s+rev-parse\s+--show-toplevel\s*\)|`\s*git\s+rev-parse\s+--show-toplevel\s*`"
)
_LISTING = re.compile(r"\$\(\s*ls(?:\s+-\w+)*\s*(?:\s([^\s()-][^\s()]*)\s*)?\)")
_PATH_OF = re.compile(r'\$\(\s*(echo|realpath|readlink\s+-f|dirname)\s+"?([^\s()"]+)"?\s*\)')
_NEW_FOLDER = re.compile(r"\$\(\s*mktemp\b[^()`;&|]*\)|`\s*mktemp\b[^()`;&|]*`")
# Character classes that match nearly everything: `[!x]`, `[a-z]`.
_WIDE_CLASS = re.compile(r"\[(?:[!^][^\[\]\s]*|[^\[\]\s]-[^\[\]\s]*|\[:\w+:\])\]")
# An expansion with a default or an error: `${DIR:-build}`, `${DIR:?not set}`.
_DEFAULT = re.compile(r"""\$\{(\w+|[@*]):?(?:(\?)[^{}]*|([-=+])([^{}"'`\\\s]*))\}""")
# A call in a script, `shutil.rmtree(os.path.expanduser("~"))`: the inner calls, a quote, and the quoted text.
_CALL = re.compile(rf"""(?:{_CALLS})(?=\s*[("'\\]|\s+as\b)\s*\(?\s*((?:[\w.]+\(\s*)*)(\\?["'])?([^,()\s"'\\]*)""")
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_CODE_OF_CHARACTER = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3}))")
_CALLS_THAT_KEEP_PATHS = frozenset({"", "Path", "pathlib.Path", "os.path.abspath", "os.path.expanduser", "expanduser"})
_CALLS_FOR_FOLDERS = {
    "Path.home": "~",
    "os.homedir": "~",
    "Dir.home": "~",
    "Path.cwd": ".",
    "os.getcwd": ".",
    "process.cwd": ".",
}
_JOINED_DESCRIPTORS = re.compile(r"(?:(?<![^\s;|&()])\d+)?[<>]&[\d-]+")
_REDIRECTION = re.compile(r"(?:(?<!\S)\d+)?(?:<<-?|>>?|<)[ \t]*[^\s<>]*")
_OPERATORS = re.compile(r"(\|\||&&|;|\|&?|&|\n|\(|\)|`)")
_VARIABLE = re.compile(
    r"\$\{(\w+|[@*])(?:%/)?\}|\$([A-Za-z_]\w*|[0-9@*])|\ue015(\w+|[@*])\ue016([adrp])([^\ue015-\ue017]*)\ue017"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)

# Marks for the current folder of a part of the command, for the workspace, and for an unknown value.
_CURRENT_FOLDER = "\ue011"
_WORKSPACE = "\ue012"
_UNKNOWN = "\ue013"
# The name of a new file, or of a file that a narrow search lists.
_HARMLESS_NAME = "\ue014"

# Words before the name of a program: keywords of bash, and programs that run their arguments.
_KEYWORDS = frozenset({"!", "{", "}", "coproc", "do", "elif", "else", "if", "then", "until", "while"})
_RUNNER_NAMES = """
    ash bash builtin busybox caffeinate chroot command dash doas env eval exec fish flock gtimeout ionice ksh nice nohup
    npx parallel setsid sh stdbuf strace su sudo time timeout toybox trap unbuffer watch xargs zsh
"""
_RUNNERS = frozenset(_RUNNER_NAMES.split())
# Runners with an operand before the program.
_RUNNERS_WITH_OPERAND = frozenset({"chroot", "flock", "su"})
_TRASHES = frozenset({"gvfs-trash", "rimraf", "rmtrash", "trash", "trash-put"})
_DELETERS = _TRASHES | {"rm", "rmdir", "shred", "srm", "unlink", "wipe"}
# Programs that copy, with the option that deletes the copied files.
_COPIERS = {
    "7z": re.compile(r"-sdel"),
    "rsync": re.compile(r"--remove-s"),
    "tar": re.compile(r"--remove-f"),
    "zip": re.compile(r"-[A-Za-z]*m|--move"),
}
# Programs that put files in the folder that is their last operand.
_PLACERS = frozenset({"cp", "install", "ln", "mv", "rsync"})
_EXAMINED = _DELETERS | _COPIERS.keys() | {"cd", "find", "mv", "pushd"}
# Programs that only show or keep the text of their arguments and of their input.
_SHOWS_TEXT = frozenset({"ack", "ag", "apropos", "cat", "echo", "egrep", "fgrep", "gh", "grep", "man", "printf", "rg"})
_KEEPS_TEXT_IN_GIT = frozenset({"blame", "commit", "diff", "grep", "log", "notes", "show", "stash", "tag"})
_LISTERS = frozenset({"dir", "echo", "ls", "printf", "tree"})
_LISTS_FILES = {("--files",), ("ls-files",)}  # of `rg` and of `git`
_SETS_NAMES = frozenset({"getopts", "mapfile", "read", "readarray", "select"})
_FOLDER_OPTIONS = frozenset({"-C", "-D", "--chdir", "--directory"})
_FILTERS = frozenset({"comm", "egrep", "fgrep", "fzf", "grep", "head", "rg", "shuf", "tail"})
# Variables that bash sets itself, so that a missing one in the environment is not empty.
_BASH_NAMES = """
    BASHPID EPOCHREALTIME EPOCHSECONDS EUID GROUPS HOSTNAME HOSTTYPE IFS LINENO MACHTYPE OLDPWD OSTYPE PPID RANDOM REPLY
    SECONDS SHLVL SRANDOM UID
"""
_SET_BY_BASH = frozenset(_BASH_NAMES.split())

_EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
# Tests of `find` that let few files through: by a name, if that has a letter, and the others.
_TESTS_OF_NAMES = re.compile(r"-(?:i?lname|i?name|i?path|i?regex|i?wholename|inum|samefile)")


def find_critical_deletion(
    command: str, workspace: Path, environment: Mapping[str, str], file_system: FileSystemCache
) -> str | None:
    """Return the word of `command`, run in `workspace`, that may delete one of the `CriticalFolders`, or None.

    Raises `UncheckableError` as `file_system` does.
    """
    return _find(command, _Search(str(workspace), CriticalFolders(workspace), environment, file_system))


def find_protected_change(
    command: str,
    workspace: Path,
    environment: Mapping[str, str],
    file_system: FileSystemCache,
    find_launcher: Callable[[], Sequence[str]] = tuple[str, ...],
) -> str | None:
    """Return the word of `command`, run in `workspace`, by which it deletes, moves or adds protected files, or None.

    `find_critical_deletion` has found nothing in the command. `find_launcher` returns the words that start a read-only
    sandbox, in which git is asked what `git clean` would remove. Raises `UncheckableError` as `file_system` does, and
    for folders that are too large to be searched.
    """
    search = _ProtectedSearch(str(workspace), CriticalFolders(workspace), environment, file_system)
    search.find_launcher = find_launcher
    return _find(command, search)


def _find(command: str, search: _Search) -> str | None:
    command = _ANSI_C.sub(lambda match: f"$'{_CODE_OF_CHARACTER.sub(_character, match[1])}'", command)
    stripped = _without_quotes(command)
    if _MAY_DELETE.search(stripped) is None:
        return None
    marked = _with_marks(command)
    found = search.find(remove_quoting(marked).text)
    if found is None and (
        search.has_unseen_deletion or _RUNS_CODE.search(re.sub("#![^\n]*", "", stripped)) is not None
    ):
        unquoted = re.sub(r",(?=\s)", " ", _without_quotes(marked))
        if _INTERPRETER.search(stripped) is not None:
            unquoted = _INTERPOLATION.sub(f" {_UNKNOWN}", unquoted)
        found = search.find(unquoted) or search.find_call(command) or search.find_mention(stripped)
    shown = {_CURRENT_FOLDER: ".", _WORKSPACE: search.workspace, _UNKNOWN: "…", _HARMLESS_NAME: "…", QUOTED: "?"}
    return None if found is None else found.translate(str.maketrans(shown))


def _without_quotes(command: str) -> str:
    if _INTERPRETER.search(command) is not None:
        command = _STRING_PREFIX.sub(r"\1", command)
    return re.sub(r"\\\n|\$?[\"']|\\", "", command)


def _character(match: re.Match[str]) -> str:
    """Return a character for its code in `$'…'`, unless it would end the quotes."""
    code = int(match[3], 8) if match[3] else int(match[1] or match[2], 16)
    character = chr(code)
    return match[0] if character in "'\\\0" or 0xD800 <= code < 0xF900 else character


def _with_marks(command: str) -> str:
    """Return a command with its substitutions replaced by their values, or by marks."""
    command = _FOLDER_NOW.sub(_CURRENT_FOLDER, command)
    command = _TOP_OF_REPOSITORY.sub(_WORKSPACE, command)
    command = _LISTING.sub(lambda match: f"{match[1]}/*" if match[1] else "*", command)
    command = _PATH_OF.sub(_path_of, command)
    command = _NEW_FOLDER.sub(_HARMLESS_NAME, command)
    command = _WIDE_CLASS.sub("?", command)
    command = _DEFAULT.sub(_mark_default, command)
    return _JOINED_DESCRIPTORS.sub(" ", command).replace("&>", ">")


def _path_of(match: re.Match[str]) -> str:
    path = match[2]
    if path == "~" or path.startswith("~/"):  # quotes around the substitution do not matter for this `~`
        path = f"$HOME{path[1:]}"
    return f"{path}/.." if match[1] == "dirname" else path


def _mark_default(match: re.Match[str]) -> str:
    """Return an expansion with a default as marks, on which quotes have no effect."""
    kind = "r" if match[2] else {"+": "p", "=": "a"}.get(match[3], "d")
    name = "@" if match[1] == "*" else match[1]
    return f"\ue015{name}\ue016{kind}{match[4] or ''}\ue017"


@dataclass(frozen=True, slots=True)
class _Command:
    """A simple command: the program's name without its folder, the words after it, and those before it."""

    program: str
    operands: tuple[str, ...]
    before: tuple[str, ...] = ()
    is_guessed: bool = False
    """True for an `rm` among the words of an unknown program."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> _Command:
        """Find the program after keywords, assignments and runners with their options."""
        runs = takes_operand = is_option = False
        for place, word in enumerate(words):
            name = word.rpartition("/")[2]
            if word == "function" or words[place - 1 : place] == ["function"]:
                is_option = False
            elif name in _RUNNERS:
                runs, is_option, takes_operand = True, False, name in _RUNNERS_WITH_OPERAND
            elif word in _KEYWORDS or _ASSIGNMENT.match(word):
                is_option = False
            elif runs and word.startswith(("-", "+")):
                is_option = True
            elif name in _EXAMINED or not (runs and (is_option or takes_operand or word[:1].isdigit())):
                command = cls(name, tuple(words[place + 1 :]), tuple(words[:place]))
                if name == _UNKNOWN:  # `"$(command -v rm)"`
                    return cls("rm", command.operands, command.before)
                return command if name in _EXAMINED or command.only_shows_text else command._run()
            else:
                is_option = False
        return cls("", (), tuple(words))

    def _run(self) -> _Command:
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
                return _Command(name, self.operands[place + 1 :], before, is_guessed=True)
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


@dataclass(frozen=True, slots=True)
class _Outer:
    """The state outside of parentheses or a substitution, restored at the operator `end`."""

    end: str
    folders: list[str]
    before: str | None = None
    operator: str = ""
    pipeline: list[_Command] = field(default_factory=list[_Command])
    count: int = 0


@dataclass(slots=True)
class _Search:
    """A search: the possible current folders of the next part of the command, and the values of variables."""

    workspace: str
    critical: CriticalFolders
    environment: Mapping[str, str]
    file_system: FileSystemCache
    folders: list[str] = field(init=False)
    has_unseen_deletion: bool = field(default=False, init=False)
    """Whether a part names a deleting program and the search does not see it run."""
    _seen_count: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _is_unset_unknown: bool = field(default=False, init=False)
    _variables: dict[str, list[str]] = field(default_factory=dict[str, list[str]], init=False)
    _words: list[str] = field(default_factory=list[str], init=False)
    _argument_values: list[str] = field(default_factory=list[str], init=False)
    _homes: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _brace_chars_left: int = field(default=_MAX_BRACE_CHARS, init=False)

    def find(self, text: str) -> str | None:
        """Return the first word that deletes one of the critical folders; `text` is without quotes."""
        self.folders, self._variables, self._argument_values = [self.workspace], {}, []
        self.has_unseen_deletion, self._seen_count, self._count, self._is_unset_unknown = False, 0, 0, False
        document_of: _Command | None = None
        words = (word for word in re.split(r"[\s;|&<>()`]+", text) if not word.startswith("-"))
        self._words = list(islice(filter(None, words), _MAX_VALUES))
        outers: list[_Outer] = []
        pipeline: list[_Command] = []
        before, operator = "", ""
        for part, next_operator in _split_parts(text):
            before += part
            is_substitution = next_operator == "(" and before.endswith("$")
            if is_substitution or (next_operator == "`" and not (outers and outers[-1].end == "`")):
                # The words around a substitution are one command; it runs after the substitution.
                end = ")" if is_substitution else "`"
                outers.append(_Outer(end, self.folders, before.removesuffix("$"), operator, pipeline, self._count))
                before, operator, pipeline = "", "", []
                continue
            if next_operator == "(" and before.endswith(("!", "@", "+", "?")):  # an extended glob, `!(keep)`
                before = f"{before[:-1]}*"
            if words := _REDIRECTION.sub(" ", before.replace("<<<", " ")).split():
                earlier = pipeline if operator in {"|", "|&"} else []
                self._assign(words, earlier)
                if next_operator == "(" and words[-1].endswith("="):  # an array
                    self._variables[words[-1].rstrip("+=")] = [_UNKNOWN]
                command = _Command.parse(self._with_program(words))
                self._count_mentions(command, before, document_of)
                document_of = command if "<<" in before.replace("<<<", "") else None
                pipeline = [*earlier[:_MAX_PIPELINE], command]
                if (found := self._deleted_by(pipeline)) is not None:
                    return found
                self._change_folder(command, is_followed_only_if_done=next_operator == "&&")
            before, operator = "", next_operator
            if next_operator == "(":
                outers.append(_Outer(")", self.folders))
            elif outers and next_operator == outers[-1].end:
                outer = outers.pop()
                self.folders = outer.folders
                if outer.before is not None:
                    is_narrow = self._count - outer.count == len(pipeline) and self._listed_by(pipeline) is None
                    value = _HARMLESS_NAME if is_narrow else _UNKNOWN
                    before, operator, pipeline = f"{outer.before}{value}", outer.operator, outer.pipeline
        return None

    def _count_mentions(self, command: _Command, part: str, document_of: _Command | None) -> None:
        """Compare how often a part names a deleting program with how often it runs one."""
        self._count += 1
        mentions = len(_MENTION.findall(part))
        runs = command.program in {"rimraf", "rm"}
        if command.is_guessed:
            runs = any(word.startswith("-") for word in command.operands)
        runs = runs or (command.program == "find" and any(word in {"rm", "/bin/rm"} for word in command.operands))
        runs = runs and mentions > 0 and (bool(command.operands) or command.is_of_xargs)
        self._seen_count += runs
        shows = command.only_shows_text or (document_of is not None and document_of.only_shows_text)
        self.has_unseen_deletion = self.has_unseen_deletion or (mentions > runs and not shows)
        self._is_unset_unknown = self._is_unset_unknown or command.program in {".", "source"}

    def find_mention(self, text: str) -> str | None:
        """Return a word like `~` if the text names `rm -r` more often than `find` has seen it run, else None."""
        if len(_MENTION.findall(text)) <= self._seen_count or _RECURSIVE_OPTION.search(text) is None:
            return None
        wide = _WIDE_WORD.search(text)
        if wide is not None:
            return wide[0]
        return next((path for path in (os.path.expanduser("~"), self.workspace) if path in text), None)

    def find_call(self, text: str) -> str | None:
        """Return the argument of the first call in a script that may delete one of the critical folders."""
        for match in _CALL.finditer(text):
            calls = match[1].replace(" ", "").rstrip("(").split("(")
            self._seen_count += 1
            path = _CALLS_FOR_FOLDERS.get(match[3], match[3])
            is_known = bool(match[2]) and set(calls) <= _CALLS_THAT_KEEP_PATHS
            if not is_known or self._may_be_critical(path or ".", [self.workspace]):
                return path or "…"
        return None

    def _with_program(self, words: Sequence[str]) -> Sequence[str]:
        """Return a command with the value of the variable that is its program, as in `$RM ~`."""
        if _ASSIGNMENT.match(words[0]):
            return words
        if has_braces(words[0]):
            words = [*(expand_braces(words[0], self._try_spend) or words[:1]), *words[1:]]
        if is_glob(words[0]) and self.file_system.match("rm", words[0].rpartition("/")[2]):
            return ["rm", *words[1:]]
        if "$" not in words[0]:
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

    def _assign(self, words: Sequence[str], earlier: Sequence[_Command]) -> None:
        """Store the values of `NAME=value` and `for NAME in …`, and of names that get an unknown value."""
        self._argument_values = []  # they may have the variables that are set here
        if words[0] == "for" and words[2:3] == ["in"]:
            self._variables[words[1]] = [value for word in words[3:] for value in self._values(word)] or [_UNKNOWN]
        elif words[0] == "for" or words[:2] == ["printf", "-v"] or not _SETS_NAMES.isdisjoint(words[:4]):
            value = _HARMLESS_NAME if earlier and self._listed_by(earlier) is None else _UNKNOWN
            self._variables |= {word: [value] for word in words if word.isidentifier()}
        is_reference = words[0] in {"declare", "local", "typeset"} and any(
            re.fullmatch(r"-\w*n\w*", word) for word in words
        )
        for word in words:
            if (match := _ASSIGNMENT.fullmatch(word)) is None:
                if "\ue016a" in word:
                    self._values(word)  # an expansion that assigns
            else:
                values = [_UNKNOWN] if is_reference else self._values(match[2])
                # A quoted glob is one again where the variable is expanded.
                values = [_UNKNOWN if QUOTED in value and not value.strip(f"{QUOTED}./") else value for value in values]
                if word[len(match[1])] == "+":
                    old = self._variables.get(match[1]) or [self.environment.get(match[1], "")]
                    values = ["".join(pair) for pair in islice(product(old, values), _MAX_VALUES)]
                self._variables[match[1]] = values

    def _values(self, word: str) -> list[str]:
        """Return the words that bash may make of `word` by its variables; `_UNKNOWN` marks unknown values."""
        self.file_system.spend(1)
        if "$" not in word and "\ue015" not in word:
            return [word]
        pieces, end = list[list[str]](), 0
        for match in islice(_VARIABLE.finditer(word), _MAX_VALUES):
            pieces += [[word[end : match.start()].replace("$", _UNKNOWN)], self._values_of(match)]
            end = match.end()
        pieces.append([word[end:].replace("$", _UNKNOWN)])
        values = ["".join(combination) for combination in islice(product(*pieces), _MAX_VALUES)]
        self.file_system.spend(sum(map(len, values)))
        return [value if len(value) <= _MAX_VALUE_CHARS else _UNKNOWN for value in values]

    def _values_of(self, match: re.Match[str]) -> list[str]:
        name, kind = match[1] or match[2] or match[3], match[4] or ""
        others = self._values(match[5]) if match[5] else [""]
        if name in {"@", "*"} or name.isdigit():  # an argument of a function or of `bash -c`
            return [*self._arguments(), *(others if kind else [])]
        if name in self._variables:
            values = self._variables[name]
        elif name == "HOME":
            values = [os.path.expanduser("~")]
        elif name == "BASH":
            values = ["bash"]
        elif name in _SET_BY_BASH or (self._is_unset_unknown and name not in self.environment):
            values = [_UNKNOWN]
        else:
            values = [self.environment.get(name, "")]
        if kind == "p":
            return [*others, ""]
        if not kind:
            return values
        values = [value for value in values if value] + (others if kind in "ad" and not all(values) else [])
        if kind == "a":
            self._variables[name] = values
        return values

    def _arguments(self) -> list[str]:
        """Return the words of the command that may be an argument of a function or of `bash -c`."""
        if self._argument_values:
            return self._argument_values
        words = [word for word in self._words if not re.search(r"\$\{?[\d@*]|\ue015[\d@*]", word)]
        values = [value for word in words for value in (self._values(word) if word != "$" else [_UNKNOWN])]
        self._argument_values = values if 0 < len(values) <= _MAX_VALUES else [_UNKNOWN]
        return self._argument_values

    def _expanded(self, word: str) -> Iterator[str]:
        """Yield the words that bash makes of a word by braces, variables and `~`, before globs."""
        braced = expand_braces(word, self._try_spend) if has_braces(word) else [word]
        for text in [_UNKNOWN] if braced is None else braced:
            for value in self._values(text):
                if value:
                    value = value.replace(_WORKSPACE, self.workspace)
                    yield self._with_home(value) if value.startswith("~") else value

    def _with_home(self, word: str) -> str:
        """Return a word with the folder that its `~` or `~user` stands for."""
        name, slash, rest = word.partition("/")
        if re.fullmatch(r"~(?:[+-]\d*|\d+)", name):  # a folder of the shell
            return f"{_UNKNOWN}{slash}{rest}"
        if name not in self._homes:
            self.file_system.spend(_LOOKUP_STEPS)  # the look-up of a user may ask a server
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
            if _UNKNOWN in value:
                continue
            path = value.replace(_CURRENT_FOLDER, folder) if value.startswith(_CURRENT_FOLDER) else value
            yield os.path.join(folder, path) if QUOTED in path else self.file_system.resolve(folder, path)

    # --- deletions ----------------------------------------------------------------------------------------------------

    def _deleted_by(self, pipeline: Sequence[_Command]) -> str | None:
        command = pipeline[-1]
        if command.is_shell and len(pipeline) > 1:  # it runs the output of the pipe, for example of `echo`
            command = _Command.parse(pipeline[-2].operands)
        folders = self._folders_of(command)
        if command.program == "find":
            return self._deleted_by_find(command, folders)
        if command.program == "rsync" and any(word.startswith("--del") for word in command.operands):
            return self._first_critical(command.arguments[-1:], folders)
        option = _COPIERS.get(command.program)
        if option is not None and any(map(option.match, command.operands)):
            return self._first_critical(command.arguments, folders)
        if command.program == "mv":
            return self._moved_by(command, folders, pipeline[:-1])
        if command.program not in _DELETERS or command.is_in_git_only:
            return None
        return self._deleted_by_rm(command, folders, pipeline[:-1])

    def _deleted_by_rm(self, command: _Command, folders: Sequence[str], earlier: Sequence[_Command]) -> str | None:
        removes_folders = self._removes_folders(command)
        if removes_folders and (found := self._first_critical(command.arguments, folders)) is not None:
            return found
        if "git" in command.before:  # git expands globs itself
            words = [word for word in command.arguments if not word.strip(f"{QUOTED}./*:")]
            if removes_folders and words:
                return words[0]
        if not removes_folders and any(
            word[0] in {_UNKNOWN, _HARMLESS_NAME} for word in command.arguments
        ):  # it may be an option
            known = (word for word in command.arguments if self._may_be_critical(word, folders, if_unknown=False))
            if (found := next(known, None)) is not None:
                return found
        if removes_folders and command.takes_names_of_runner:
            return next(iter(command.arguments), _UNKNOWN)
        return self._deleted_by_list(earlier, removes_folders=removes_folders) if command.is_of_xargs else None

    def _removes_folders(self, command: _Command) -> bool:
        """Return whether a command is `rm -r`, or deletes folders without an option."""
        if command.program in _TRASHES:
            return True
        options = [word for word in command.operands if re.match(r"-|.*[$\ue015]", word) or has_braces(word)]
        if command.program == "rmdir":
            return any(re.match(r"-p|--p", word) for word in options)
        return command.program in {"rm", "srm", "wipe"} and any(
            re.match(r"-[A-Za-z]*[rR]|--r|--no-p", value) or (word.startswith("-") and _UNKNOWN in value)
            for word in options
            for value in self._expanded(word)
        )

    def _moved_by(self, command: _Command, folders: Sequence[str], earlier: Sequence[_Command]) -> str | None:
        """Return the word of `mv` that names a critical folder; its files may move to a folder inside of it."""
        if command.is_of_xargs and earlier and earlier[0].program in {*_LISTERS, "find"}:
            return self._listed_by(earlier)
        *sources, target = command.arguments or [""]
        for word in sources:
            if self._may_be_critical(word, folders, if_unknown=False):
                inside = f"{self.workspace}/"
                stays = "/" not in word and all(
                    path.startswith(inside) for folder in folders for path in self._resolved(target, folder)
                )
                if not (stays and is_glob(word)):
                    return word
        return None

    def _folders_of(self, command: _Command) -> list[str]:
        """Return the possible current folders of a command, also by an option like `env -C`."""
        for option, value in zip(command.before, command.before[1:], strict=False):
            if option in _FOLDER_OPTIONS:
                return [path for folder in self.folders for path in self._resolved(value, folder)]
        return self.folders

    def _deleted_by_find(self, command: _Command, folders: Sequence[str]) -> str | None:
        starts, tests = _split_find(command.operands)
        actions = sum(word == "-delete" or word in _EXECUTES for word in tests)
        self.file_system.spend(len(tests) * actions // _MAX_VALUES)
        if (found := self._deleted_by_exec(tests, folders)) is not None:
            return found
        return self._first_critical(starts, folders) if _find_deletes_all(tests) else None

    def _deleted_by_exec(self, tests: Sequence[str], folders: Sequence[str]) -> str | None:
        """Return the word of `-exec rm -r` that is a critical folder, apart from the found files."""
        for place in islice((place for place, word in enumerate(tests) if word in _EXECUTES), _MAX_VALUES):
            command = _Command.parse(list(islice(tests, place + 1, place + 1 + _MAX_VALUES)))
            if command.program in _DELETERS and self._removes_folders(command):
                words = [word for word in command.arguments if word not in {"{}", f"{QUOTED}{QUOTED}", QUOTED, "+"}]
                ends = next((end for end, word in enumerate(words) if "{}" in word or word.startswith("$")), len(words))
                if (found := self._first_critical(words[:ends], folders)) is not None:
                    return found
        return None

    def _deleted_by_list(self, earlier: Sequence[_Command], *, removes_folders: bool) -> str | None:
        """Return the word of the `earlier` parts of a pipeline that makes `xargs rm` delete a critical folder."""
        lists_files = bool(earlier) and (earlier[0].program == "find" or earlier[0].operands[:1] in _LISTS_FILES)
        return self._listed_by(earlier) if removes_folders or lists_files else None

    def _listed_by(self, pipeline: Sequence[_Command]) -> str | None:
        """Return the word by which the output of a pipeline may name all files of a critical folder, or None."""
        if not pipeline:
            return _UNKNOWN
        first, *others = pipeline
        self.file_system.spend(len(first.operands))
        if first.program == "find":
            starts, tests = _split_find(first.operands)
            words = [] if _is_narrowed(tests) else starts
        elif first.program == "git" and first.operands[:1] == ("ls-files",):
            of_few = any(re.fullmatch(r"-[dio]+|--(?:deleted|ignored|others)", word) for word in first.operands)
            words = [] if of_few else first.arguments[1:] or ["."]
        elif first.operands[:1] == ("--files",):
            words = (
                [] if any(word.startswith(("-g", "--glob")) for word in first.operands) else first.arguments or ["."]
            )
        elif first.program in _LISTERS:
            words = first.arguments or (["."] if first.program in {"ls", "dir", "tree"} else [])
        else:
            return first.program or _UNKNOWN
        return None if any(_is_filter(part) for part in others) else self._first_critical(words, self.folders)

    def _first_critical(self, words: Iterable[str], folders: Sequence[str]) -> str | None:
        return next((word for word in words if self._may_be_critical(word, folders)), None)

    def _may_be_critical(self, word: str, folders: Sequence[str], *, if_unknown: bool = True) -> bool:
        """Return whether a word may name a critical folder or all files in one; `if_unknown` for an unknown word."""
        return any(
            if_unknown and self._may_lead_to_critical(value, folder)
            if _UNKNOWN in value
            else any(self._is_critical(path) for path in self._paths(value, folder))
            for value in self._expanded(word)
            for folder in folders
        )

    def _may_lead_to_critical(self, value: str, folder: str) -> bool:
        """Return whether a path that is known up to a mark may be one of the critical folders.

        The unknown rest is assumed to lead further down.
        """
        known, _, rest = value.replace(_CURRENT_FOLDER, folder).partition(_UNKNOWN)
        if ".." in rest.split("/") or QUOTED in known or is_glob(known):
            return True
        base, _, name = os.path.join(folder, known).rpartition("/")
        if _is_in_proc(f"{base}/"):
            return True
        beginning = f"{self.file_system.resolve('/', base).rstrip('/')}/{name}".casefold()
        return any(f"{path}/".startswith(beginning) for path in self.critical.paths)

    def _is_critical(self, path: str) -> bool:
        """Return whether a path is one of the critical folders; `QUOTED` in it stands for any character."""
        if _is_in_proc(path):
            return True
        if QUOTED not in path:
            return path in self.critical
        pattern = re.compile(".".join(map(re.escape, os.path.normpath(path).casefold().split(QUOTED))))
        return any(pattern.fullmatch(folder) for folder in self.critical.paths)

    def _paths(self, value: str, folder: str) -> Iterator[str]:
        """Yield the paths that a word names: its own, its folder for `folder/*`, and the matches of its globs."""
        value = value.replace(_CURRENT_FOLDER, folder) if value.startswith(_CURRENT_FOLDER) else value
        base = strip_match_all_globs(value)
        if not is_glob(base):
            yield os.path.join(folder, base)
            if QUOTED not in base:
                yield self.file_system.resolve(folder, base)
        elif QUOTED not in value:
            yield from self.file_system.expand(folder, value)


@dataclass(slots=True)
class _ProtectedSearch(_Search):
    """A search for changes of folders with protected files; only words whose paths are known count."""

    deadline: float = field(default_factory=lambda: time.monotonic() + _PROTECTED_SECONDS, init=False)
    find_launcher: Callable[[], Sequence[str]] = field(default=tuple[str, ...], init=False)
    _holds: dict[str, bool] = field(default_factory=dict[str, bool], init=False)

    def _deleted_by(self, pipeline: Sequence[_Command]) -> str | None:
        command = pipeline[-1]
        if command.program == "git":
            return self._deleted_by_git(command)
        placed = self._placed_by(command, self._folders_of(command)) if command.program in _PLACERS else None
        return placed or _Search._deleted_by(self, pipeline)

    def _placed_by(self, command: _Command, folders: Sequence[str]) -> str | None:
        """Return the word by which files get into the folder of a protected pair, such as `.github/workflows`."""
        if len(command.arguments) < 2:
            return None
        *sources, target = command.arguments
        if any(re.match(r"-[A-Za-z]*t|--t", word) for word in command.operands):
            target, *sources = command.arguments
        places = {path.rpartition("/")[2].casefold() for folder in folders for path in self._resolved(target, folder)}
        names = [name for parent, name in PROTECTED_PAIRS if parent in places]
        if not names:
            return None
        return next((word for word in sources if self._may_be_of_pair(word, names, folders)), None)

    def _may_be_of_pair(self, word: str, names: Sequence[str], folders: Sequence[str]) -> bool:
        """Return whether a word names a file or folder with one of these names, or a folder with such a one in it."""
        paths = (path for folder in folders for value in self._expanded(word) for path in self._paths(value, folder))
        return any(
            path.rpartition("/")[2].casefold() in names
            or not self.file_system.check_exists("/", path)
            or any(self.file_system.check_exists(path, name) for name in names)
            for path in paths
        )

    def _deleted_by_git(self, command: _Command) -> str | None:
        words, folders, is_known = list(command.operands), self._folders_of(command), True
        while words and words[0].startswith("-"):  # options of git itself
            option, *words = words
            if option == "-C" and words:
                folders = [path for folder in folders for path in self._resolved(words[0], folder)]
            is_known = is_known and option == "-C"
            words = words[1:] if option in {"-C", "-c"} else words
        if words[:1] != ["clean"]:
            return None
        is_harmless = is_known and all(self._is_harmless_clean(words[1:], folder) for folder in folders)
        return None if is_harmless else "git clean"

    def _is_harmless_clean(self, options: Sequence[str], folder: str) -> bool:
        """Return whether `git clean` removes no protected files, as git itself says; False if that is not known."""
        git = shutil.which("git", path=self.environment.get("PATH", ""))
        repositories = GitRepositories(Path(self.workspace), git or "", self.environment, self.find_launcher)
        removed = repositories.removed_by_clean(options, Path(folder))
        return removed is not None and not any(self._is_protected(os.path.join(folder, path)) for path in removed)

    def _is_protected(self, path: str) -> bool:
        """Return whether a path that git shows, that of a folder with a slash, is or holds a protected one."""
        inside = path.removeprefix(f"{self.workspace}/").strip("/").split("/")
        return protected_settings_part(inside) is not None or (path.endswith("/") and self._holds_protected_files(path))

    def _deleted_by_find(self, command: _Command, folders: Sequence[str]) -> str | None:
        starts, tests = _split_find(command.operands)
        found = _Search._deleted_by_find(self, command, folders)
        if found is not None or next(_deleting_actions(tests), None) is None:
            return found
        words = [value for test, value in pairwise(tests) if test in {"-name", "-iname"}]
        globs = [word.replace(QUOTED, "*").casefold() for word in words]
        self.file_system.spend(len(starts) * _LISTING_STEPS)
        for path in {path for word in starts if globs for folder in folders for path in self._resolved(word, folder)}:
            for name in protected_names_in(Path(path), Path(self.workspace), self.deadline):
                if any(self.file_system.match(name.casefold(), glob) for glob in globs):
                    return name
        return None

    def _moved_by(self, command: _Command, folders: Sequence[str], earlier: Sequence[_Command]) -> str | None:
        if command.is_of_xargs and earlier and earlier[0].program in {*_LISTERS, "find"}:
            return self._listed_by(earlier)
        has_target_first = any(re.match(r"-[A-Za-z]*t|--t", word) for word in command.operands)
        return self._first_critical(command.arguments if has_target_first else command.arguments[:-1], folders)

    def _may_be_critical(self, word: str, folders: Sequence[str], *, if_unknown: bool = True) -> bool:
        return any(
            self._holds_protected_files(path)
            for value in self._expanded(word)
            if _UNKNOWN not in value
            for folder in folders
            for path in self._paths(value, folder)
        )

    def _paths(self, value: str, folder: str) -> Iterator[str]:
        """Yield the paths that a word names; `QUOTED` in it stands for any character."""
        value = value.replace(_CURRENT_FOLDER, folder) if value.startswith(_CURRENT_FOLDER) else value
        value = value.replace(QUOTED, "?")
        if is_glob(value):
            yield from self.file_system.expand(folder, value)
        else:
            yield self.file_system.resolve(folder, value)

    def _holds_protected_files(self, path: str) -> bool:
        if path not in self._holds:
            self.file_system.spend(_LISTING_STEPS)
            found = protected_paths_in(Path(path), Path(self.workspace), self.deadline)
            self._holds[path] = next(found, None) is not None
        return self._holds[path]


def _split_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a command between its operators, each with the operator that follows, "" for the last."""
    parts = [*_OPERATORS.split(text), ""]
    yield from zip(parts[::2], parts[1::2], strict=True)


def _is_in_proc(path: str) -> bool:
    """Return whether a path is in `/proc`, with links to the folders of processes."""
    return re.match(r"/[/.]*proc/", path) is not None


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
    """Return whether an action of `find` deletes, and no earlier test leaves files out."""
    return any(not _is_narrowed(tests[:place]) for place in _deleting_actions(tests))


def _deleting_actions(tests: Sequence[str]) -> Iterator[int]:
    """Yield the places of the actions of `find` that delete."""
    for place, word in enumerate(tests):
        runs = word in _EXECUTES
        deletes = runs and _Command.parse(tests[place + 1 : place + 1 + _MAX_VALUES]).program in {*_DELETERS, "mv"}
        if word == "-delete" or deletes:
            yield place


def _is_narrowed(tests: Sequence[str]) -> bool:
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
