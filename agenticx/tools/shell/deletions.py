"""A search for commands that may delete a critical folder (`CriticalFolders`), such as the home, or its files.

1. Each word, for example `~`, `"$HOME"/`, `..`, `/*` or `*`, is read as bash reads it: after an earlier `cd`, with the
   variables of the command and of the environment, with braces and globs expanded and links followed.
2. The search looks behind `sudo`, `xargs`, `bash -c` and the like; if the command runs a shell, quoted text is read as
   code.
3. A recursive deletion counts unless each of its words is known to be harmless: `build`, `dist/*`, a variable that the
   same command sets to such a path, or `"$(mktemp -d)"`. A word with an unknown value, for example `"$(cat list)"`, may
   be the home folder.
4. If a command names `rm` where the search does not see it run, as in `ln -s /bin/rm zap`, its `~` counts as deleted,
   unless a program like `grep` only shows the text.
5. Like `named_paths`, this finds reasons to ask; it does not find programs or scripts that delete by other means.

The work is bounded by the length of the command, limited by the caller, and by the limits of `FileSystemCache`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path

from agenticx.tools.critical_folders import CriticalFolders, strip_match_all_globs
from agenticx.tools.shell.braces import expand_braces, has_braces
from agenticx.tools.shell.deletion_commands import (
    ASSIGNMENT,
    COPIERS,
    CURRENT_FOLDER,
    DELETERS,
    EXECUTES,
    HARMLESS_NAME,
    LISTERS,
    MAX_VALUES,
    TRASHES,
    UNKNOWN,
    WORKSPACE,
    ExaminedCommand,
    find_deletes_all,
    is_filter,
    is_narrowed,
    split_find,
)
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.globs import is_glob
from agenticx.tools.shell.quoting import QUOTED, remove_quoting

__all__ = ["DeletionSearch", "find_critical_deletion", "find_deletion"]

_MAX_PIPELINE = 32
_MAX_FOLDERS = 8
_MAX_VALUE_CHARS = 4_096
_MAX_BRACE_CHARS = 256 * 1024
_LOOKUP_STEPS = 2_000

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
_LISTS_FILES = {("--files",), ("ls-files",)}  # of `rg` and of `git`
_SETS_NAMES = frozenset({"getopts", "mapfile", "read", "readarray", "select"})
_FOLDER_OPTIONS = frozenset({"-C", "-D", "--chdir", "--directory"})

# Variables that bash sets itself, so that a missing one in the environment is not empty.
_BASH_NAMES = """
    BASHPID EPOCHREALTIME EPOCHSECONDS EUID GROUPS HOSTNAME HOSTTYPE IFS LINENO MACHTYPE OLDPWD OSTYPE PPID RANDOM REPLY
    SECONDS SHLVL SRANDOM UID
"""
_SET_BY_BASH = frozenset(_BASH_NAMES.split())


def find_critical_deletion(
    command: str, workspace: Path, environment: Mapping[str, str], file_system: FileSystemCache
) -> str | None:
    """Return the word of `command`, run in `workspace`, that may delete one of the `CriticalFolders`, or None.

    Raises `UncheckableError` as `file_system` does.
    """
    return find_deletion(command, DeletionSearch(str(workspace), CriticalFolders(workspace), environment, file_system))


def find_deletion(command: str, search: DeletionSearch) -> str | None:
    """Return the first word by which a command deletes something that `search` looks for, or None."""
    command = _ANSI_C.sub(lambda match: f"$'{_CODE_OF_CHARACTER.sub(_character, match[1])}'", command)
    stripped = _without_quotes(command)
    if not search.names_program(stripped):
        return None
    marked = _with_marks(command)
    found = search.find(remove_quoting(marked).text)
    if found is None and (
        search.has_unseen_deletion or _RUNS_CODE.search(re.sub("#![^\n]*", "", stripped)) is not None
    ):
        unquoted = re.sub(r",(?=\s)", " ", _without_quotes(marked))
        if _INTERPRETER.search(stripped) is not None:
            unquoted = _INTERPOLATION.sub(f" {UNKNOWN}", unquoted)
        found = search.find(unquoted) or search.find_call(command) or search.find_mention(stripped)
    shown = {CURRENT_FOLDER: ".", WORKSPACE: search.workspace, UNKNOWN: "…", HARMLESS_NAME: "…", QUOTED: "?"}
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
    command = _FOLDER_NOW.sub(CURRENT_FOLDER, command)
    command = _TOP_OF_REPOSITORY.sub(WORKSPACE, command)
    command = _LISTING.sub(lambda match: f"{match[1]}/*" if match[1] else "*", command)
    command = _PATH_OF.sub(_path_of, command)
    command = _NEW_FOLDER.sub(HARMLESS_NAME, command)
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
class _Outer:
    """The state outside of parentheses or a substitution, restored at the operator `end`."""

    end: str
    folders: list[str]
    before: str | None = None
    operator: str = ""
    pipeline: list[ExaminedCommand] = field(default_factory=list[ExaminedCommand])
    count: int = 0


@dataclass(slots=True)
class DeletionSearch:
    """A search in a command: the possible current folders of its next part, and the values of variables."""

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

    def names_program(self, command: str) -> bool:
        """Return whether a command, without its quotes, may name a program that this search is about."""
        return _MAY_DELETE.search(command) is not None

    def find(self, text: str) -> str | None:
        """Return the first word that deletes one of the critical folders; `text` is without quotes."""
        self.folders, self._variables, self._argument_values = [self.workspace], {}, []
        self.has_unseen_deletion, self._seen_count, self._count, self._is_unset_unknown = False, 0, 0, False
        document_of: ExaminedCommand | None = None
        words = (word for word in re.split(r"[\s;|&<>()`]+", text) if not word.startswith("-"))
        self._words = list(islice(filter(None, words), MAX_VALUES))
        outers: list[_Outer] = []
        pipeline: list[ExaminedCommand] = []
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
                    self._variables[words[-1].rstrip("+=")] = [UNKNOWN]
                command = ExaminedCommand.parse(self._with_program(words))
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
                    value = HARMLESS_NAME if is_narrow else UNKNOWN
                    before, operator, pipeline = f"{outer.before}{value}", outer.operator, outer.pipeline
        return None

    def _count_mentions(self, command: ExaminedCommand, part: str, document_of: ExaminedCommand | None) -> None:
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
        if ASSIGNMENT.match(words[0]):
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

    def _change_folder(self, command: ExaminedCommand, *, is_followed_only_if_done: bool) -> None:
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

    def _assign(self, words: Sequence[str], earlier: Sequence[ExaminedCommand]) -> None:
        """Store the values of `NAME=value` and `for NAME in …`, and of names that get an unknown value."""
        self._argument_values = []  # they may have the variables that are set here
        if words[0] == "for" and words[2:3] == ["in"]:
            self._variables[words[1]] = [value for word in words[3:] for value in self._values(word)] or [UNKNOWN]
        elif words[0] == "for" or words[:2] == ["printf", "-v"] or not _SETS_NAMES.isdisjoint(words[:4]):
            value = HARMLESS_NAME if earlier and self._listed_by(earlier) is None else UNKNOWN
            self._variables |= {word: [value] for word in words if word.isidentifier()}
        is_reference = words[0] in {"declare", "local", "typeset"} and any(
            re.fullmatch(r"-\w*n\w*", word) for word in words
        )
        for word in words:
            if (match := ASSIGNMENT.fullmatch(word)) is None:
                if "\ue016a" in word:
                    self._values(word)  # an expansion that assigns
            else:
                values = [UNKNOWN] if is_reference else self._values(match[2])
                # A quoted glob is one again where the variable is expanded.
                values = [UNKNOWN if QUOTED in value and not value.strip(f"{QUOTED}./") else value for value in values]
                if word[len(match[1])] == "+":
                    old = self._variables.get(match[1]) or [self.environment.get(match[1], "")]
                    values = ["".join(pair) for pair in islice(product(old, values), MAX_VALUES)]
                self._variables[match[1]] = values

    def _values(self, word: str) -> list[str]:
        """Return the words that bash may make of `word` by its variables; `UNKNOWN` marks unknown values."""
        self.file_system.spend(1)
        if "$" not in word and "\ue015" not in word:
            return [word]
        pieces, end = list[list[str]](), 0
        for match in islice(_VARIABLE.finditer(word), MAX_VALUES):
            pieces += [[word[end : match.start()].replace("$", UNKNOWN)], self._values_of(match)]
            end = match.end()
        pieces.append([word[end:].replace("$", UNKNOWN)])
        values = ["".join(combination) for combination in islice(product(*pieces), MAX_VALUES)]
        self.file_system.spend(sum(map(len, values)))
        return [value if len(value) <= _MAX_VALUE_CHARS else UNKNOWN for value in values]

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
            values = [UNKNOWN]
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
        values = [value for word in words for value in (self._values(word) if word != "$" else [UNKNOWN])]
        self._argument_values = values if 0 < len(values) <= MAX_VALUES else [UNKNOWN]
        return self._argument_values

    def _expanded(self, word: str) -> Iterator[str]:
        """Yield the words that bash makes of a word by braces, variables and `~`, before globs."""
        braced = expand_braces(word, self._try_spend) if has_braces(word) else [word]
        for text in [UNKNOWN] if braced is None else braced:
            for value in self._values(text):
                if value:
                    value = value.replace(WORKSPACE, self.workspace)
                    yield self._with_home(value) if value.startswith("~") else value

    def _with_home(self, word: str) -> str:
        """Return a word with the folder that its `~` or `~user` stands for."""
        name, slash, rest = word.partition("/")
        if re.fullmatch(r"~(?:[+-]\d*|\d+)", name):  # a folder of the shell
            return f"{UNKNOWN}{slash}{rest}"
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
            if UNKNOWN in value:
                continue
            path = value.replace(CURRENT_FOLDER, folder) if value.startswith(CURRENT_FOLDER) else value
            yield os.path.join(folder, path) if QUOTED in path else self.file_system.resolve(folder, path)

    # --- deletions ----------------------------------------------------------------------------------------------------

    def _deleted_by(self, pipeline: Sequence[ExaminedCommand]) -> str | None:
        command = pipeline[-1]
        if command.is_shell and len(pipeline) > 1:  # it runs the output of the pipe, for example of `echo`
            command = ExaminedCommand.parse(pipeline[-2].operands)
        folders = self._folders_of(command)
        if command.program == "find":
            return self._deleted_by_find(command, folders)
        if command.program == "rsync" and any(word.startswith("--del") for word in command.operands):
            return self._first_critical(command.arguments[-1:], folders)
        option = COPIERS.get(command.program)
        if option is not None and any(map(option.match, command.operands)):
            return self._first_critical(command.arguments, folders)
        if command.program == "mv":
            return self._moved_by(command, folders, pipeline[:-1])
        if command.program not in DELETERS or command.is_in_git_only:
            return None
        return self._deleted_by_rm(command, folders, pipeline[:-1])

    def _deleted_by_rm(
        self, command: ExaminedCommand, folders: Sequence[str], earlier: Sequence[ExaminedCommand]
    ) -> str | None:
        removes_folders = self._removes_folders(command)
        if removes_folders and (found := self._first_critical(command.arguments, folders)) is not None:
            return found
        if "git" in command.before:  # git expands globs itself
            words = [word for word in command.arguments if not word.strip(f"{QUOTED}./*:")]
            if removes_folders and words:
                return words[0]
        if not removes_folders and any(
            word[0] in {UNKNOWN, HARMLESS_NAME} for word in command.arguments
        ):  # it may be an option
            known = (word for word in command.arguments if self._may_be_critical(word, folders, if_unknown=False))
            if (found := next(known, None)) is not None:
                return found
        if removes_folders and command.takes_names_of_runner:
            return next(iter(command.arguments), UNKNOWN)
        return self._deleted_by_list(earlier, removes_folders=removes_folders) if command.is_of_xargs else None

    def _removes_folders(self, command: ExaminedCommand) -> bool:
        """Return whether a command is `rm -r`, or deletes folders without an option."""
        if command.program in TRASHES:
            return True
        options = [word for word in command.operands if re.match(r"-|.*[$\ue015]", word) or has_braces(word)]
        if command.program == "rmdir":
            return any(re.match(r"-p|--p", word) for word in options)
        return command.program in {"rm", "srm", "wipe"} and any(
            re.match(r"-[A-Za-z]*[rR]|--r|--no-p", value) or (word.startswith("-") and UNKNOWN in value)
            for word in options
            for value in self._expanded(word)
        )

    def _moved_by(
        self, command: ExaminedCommand, folders: Sequence[str], earlier: Sequence[ExaminedCommand]
    ) -> str | None:
        """Return the word of `mv` that names a critical folder; its files may move to a folder inside of it."""
        if command.is_of_xargs and earlier and earlier[0].program in {*LISTERS, "find"}:
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

    def _folders_of(self, command: ExaminedCommand) -> list[str]:
        """Return the possible current folders of a command, also by an option like `env -C`."""
        for option, value in zip(command.before, command.before[1:], strict=False):
            if option in _FOLDER_OPTIONS:
                return [path for folder in self.folders for path in self._resolved(value, folder)]
        return self.folders

    def _deleted_by_find(self, command: ExaminedCommand, folders: Sequence[str]) -> str | None:
        starts, tests = split_find(command.operands)
        actions = sum(word == "-delete" or word in EXECUTES for word in tests)
        self.file_system.spend(len(tests) * actions // MAX_VALUES)
        if (found := self._deleted_by_exec(tests, folders)) is not None:
            return found
        return self._first_critical(starts, folders) if find_deletes_all(tests) else None

    def _deleted_by_exec(self, tests: Sequence[str], folders: Sequence[str]) -> str | None:
        """Return the word of `-exec rm -r` that is a critical folder, apart from the found files."""
        for place in islice((place for place, word in enumerate(tests) if word in EXECUTES), MAX_VALUES):
            command = ExaminedCommand.parse(list(islice(tests, place + 1, place + 1 + MAX_VALUES)))
            if command.program in DELETERS and self._removes_folders(command):
                words = [word for word in command.arguments if word not in {"{}", f"{QUOTED}{QUOTED}", QUOTED, "+"}]
                ends = next((end for end, word in enumerate(words) if "{}" in word or word.startswith("$")), len(words))
                if (found := self._first_critical(words[:ends], folders)) is not None:
                    return found
        return None

    def _deleted_by_list(self, earlier: Sequence[ExaminedCommand], *, removes_folders: bool) -> str | None:
        """Return the word of the `earlier` parts of a pipeline that makes `xargs rm` delete a critical folder."""
        lists_files = bool(earlier) and (earlier[0].program == "find" or earlier[0].operands[:1] in _LISTS_FILES)
        return self._listed_by(earlier) if removes_folders or lists_files else None

    def _listed_by(self, pipeline: Sequence[ExaminedCommand]) -> str | None:
        """Return the word by which the output of a pipeline may name all files of a critical folder, or None."""
        if not pipeline:
            return UNKNOWN
        first, *others = pipeline
        self.file_system.spend(len(first.operands))
        if first.program == "find":
            starts, tests = split_find(first.operands)
            words = [] if is_narrowed(tests) else starts
        elif first.program == "git" and first.operands[:1] == ("ls-files",):
            of_few = any(re.fullmatch(r"-[dio]+|--(?:deleted|ignored|others)", word) for word in first.operands)
            words = [] if of_few else first.arguments[1:] or ["."]
        elif first.operands[:1] == ("--files",):
            words = (
                [] if any(word.startswith(("-g", "--glob")) for word in first.operands) else first.arguments or ["."]
            )
        elif first.program in LISTERS:
            words = first.arguments or (["."] if first.program in {"ls", "dir", "tree"} else [])
        else:
            return first.program or UNKNOWN
        return None if any(is_filter(part) for part in others) else self._first_critical(words, self.folders)

    def _first_critical(self, words: Iterable[str], folders: Sequence[str]) -> str | None:
        return next((word for word in words if self._may_be_critical(word, folders)), None)

    def _may_be_critical(self, word: str, folders: Sequence[str], *, if_unknown: bool = True) -> bool:
        """Return whether a word may name a critical folder or all files in one; `if_unknown` for an unknown word."""
        return any(
            if_unknown and self._may_lead_to_critical(value, folder)
            if UNKNOWN in value
            else any(self._is_critical(path) for path in self._paths(value, folder))
            for value in self._expanded(word)
            for folder in folders
        )

    def _may_lead_to_critical(self, value: str, folder: str) -> bool:
        """Return whether a path that is known up to a mark may be one of the critical folders.

        The unknown rest is assumed to go further down.
        """
        known, _, rest = value.replace(CURRENT_FOLDER, folder).partition(UNKNOWN)
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
        value = value.replace(CURRENT_FOLDER, folder) if value.startswith(CURRENT_FOLDER) else value
        base = strip_match_all_globs(value)
        if not is_glob(base):
            yield os.path.join(folder, base)
            if QUOTED not in base:
                yield self.file_system.resolve(folder, base)
        elif QUOTED not in value:
            yield from self.file_system.expand(folder, value)


def _split_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a command between its operators, each with the operator that follows, "" for the last."""
    parts = [*_OPERATORS.split(text), ""]
    yield from zip(parts[::2], parts[1::2], strict=True)


def _is_in_proc(path: str) -> bool:
    """Return whether a path is in `/proc`, with links to the folders of processes."""
    return re.match(r"/[/.]*proc/", path) is not None
