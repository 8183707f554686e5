"""A search for protected paths, private folders and secret files in the words of a shell command.

Quotes and backslashes are removed, `~`, `$HOME` and `$PWD` are replaced by their values, and braces and globs are
expanded. A word may be relative to a folder that another word names, as after `cd`. The words are collected twice: as
bash splits the command, where quoted characters are neither globs nor braces, and from the text without any quotes,
because another shell or program may interpret it (`bash -c '…'`). Names made of other variables or substitutions are
not recognised: this module finds reasons to ask, it does not prove that a command is harmless. Syntax that bash may
interpret differently is reported as `unchecked`.

The work is linear in the command and bounded: a command of more than 64 KiB is not examined at all, a word only in its
first 4,096 bytes, and files, folders and globs within the limits of `FileSystemCache`. Anything beyond is reported as
`unchecked`.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agenticx.secret_detection import is_secret_file, may_hold_credentials, may_hold_keys
from agenticx.tools.protected import PROTECTED_AFFIXES, PROTECTED_NAMES, PROTECTED_PAIRS, protected_settings_part
from agenticx.tools.secret_files import SecretFiles, workspace_path
from agenticx.tools.shell.braces import expand_braces, has_braces
from agenticx.tools.shell.file_system_cache import FileSystemCache, UncheckableError
from agenticx.tools.shell.globs import ShellGlob, is_glob, simplify_classes
from agenticx.tools.shell.quoting import QUOTED, UnquotedText, remove_quoting
from agenticx.tools.visible import without_invisible

__all__ = ["EXAMINED_COMMAND_BYTES", "EXAMINED_WORD_BYTES", "NamedPaths", "examine"]

EXAMINED_COMMAND_BYTES = 64 * 1024
EXAMINED_WORD_BYTES = 4_096
_MAX_BRACE_CHARS = 256 * 1024
_MAX_NAME_CHARS = 255
_STEPS_TO_READ = 1_000  # counted for examining the content of a file

_SEPARATORS = re.compile(r"[\s;|&<>()`$=:,]+")
_BLANKS = re.compile(r"[ \t\n]+")  # the blanks between words in bash; Unicode has more
_QUOTING = re.compile(r"\\\n|\\((?s:.))|[\"']")
_QUOTED_WORD = re.compile(
    r"""(?: [^ \t\n;|&<>()`'"\\]++ | \\(?s:.) | '[^']*+' | "[^"\\]*+(?:\\(?s:.)[^"\\]*+)*" )+""", re.VERBOSE
)
_BRACES = re.compile(r"[{,}]")
_COMMAND_WORDS = re.compile(r"[^\s;|&<>()`=]+")
_FOLDER_CHANGES = frozenset({"cd", "pushd", "-C", "--directory", "--chdir"})
_SORTED_NAMES = sorted(PROTECTED_NAMES)
_NAMES_WITHOUT_DOT = tuple(name for name in _SORTED_NAMES if not name.startswith("."))
_BEGINNINGS = tuple(beginning for beginning, _ in PROTECTED_AFFIXES if beginning)
_ENDINGS = tuple(ending for beginning, ending in PROTECTED_AFFIXES if not beginning)

_CODED_CHARACTERS = re.compile(r"\$'[^']*\\[0-7xuUc]")
_OTHER_GLOBS = re.compile(r"shopt|setopt|extglob|dotglob|globdots|glob_dots|GLOBIGNORE|BASHOPTS")
_EXTENDED_GLOB = re.compile(r"(?<=[^\s$;|&<>()0-9])[@?*+!]\(")

_ParentPath = tuple[str, int | None, tuple[str, ...]]
"""A word, and the result of `_split_parents` for it."""


@dataclass(frozen=True, slots=True)
class NamedPaths:
    """The protected and secret paths that a command names.

    `protected` is the first word that names a protected path, `secret` the first that names an existing file with a
    name or content of keys or passwords; both may be None. `unchecked` is a sentence about the part that could not be
    examined, or None.
    """

    protected: str | None = None
    secret: str | None = None
    unchecked: str | None = None


def examine(command: str, workspace: Path, roots: Iterable[Path], file_system: FileSystemCache) -> NamedPaths:
    """Examine the words of a command to be run in `workspace`, a resolved path; `roots` are protected too."""
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > EXAMINED_COMMAND_BYTES:
        sentence = f"The command has {size:,} bytes; one of more than {EXAMINED_COMMAND_BYTES:,} bytes is not checked."
        return NamedPaths(unchecked=sentence)
    words = _Words.parse(command, str(workspace), file_system)
    targets = dict.fromkeys(target for root in roots for target in (str(root), os.path.realpath(root)))
    protected = secret = None
    unchecked = words.unchecked
    try:
        protected = words.find_protected_name(targets)
        secret = words.find_secret_name()
        existing = list(words.resolved_paths())
        protected = protected or words.find_protected_path(existing, targets)
        secret = secret or words.find_secret_path(existing)
    except UncheckableError as exc:
        unchecked = unchecked or str(exc)
    return NamedPaths(protected, secret, unchecked)


@dataclass(frozen=True, slots=True)
class _Words:
    """The distinct words of a command.

    `stripped` is the command without quote characters; `unchecked` is a sentence about the part that is left out, or
    None.
    """

    stripped: str
    texts: tuple[str, ...]
    unchecked: str | None
    workspace: str
    file_system: FileSystemCache
    secrets: SecretFiles

    @classmethod
    def parse(cls, command: str, workspace: str, file_system: FileSystemCache) -> _Words:
        stripped = _expand_folders(re.sub(r"\\\n|[\"'\\]", "", command), workspace)
        unquoted = remove_quoting(command)
        collected = _WordCollector()
        collected.add_stripped(stripped)
        collected.add_unquoted(_expand_folders(unquoted.text, workspace))
        collected.add_quoted(_expand_folders(command, workspace))
        unchecked = collected.unchecked or _unsupported_syntax(command, unquoted)
        secrets = SecretFiles(Path(workspace))
        return cls(stripped, tuple(collected.texts), unchecked, workspace, file_system, secrets)

    def find_protected_name(self, targets: Iterable[str]) -> str | None:
        """Return the word that names a protected path as it is written, or None; `targets` are protected too."""
        if any(variable in self.stripped for variable in ("AGX_HOME", "AGX_TOKEN_FILE", "AGX_SECRET_FILE")):
            return "AGX_HOME"
        named = next((target for target in targets if target in self.stripped), None)
        named = named or next((text for text in self.texts if self._match_protected_path(text)), None)
        named = named or self._find_protected_pair()
        paths = [(text, *_split_parents(text)) for text in self.texts]
        for target in targets:
            named = named or self._find_path_into(target, paths)
        return named

    def find_secret_name(self) -> str | None:
        """Return the word that is the name of an existing secret file, or None."""
        folders = self._folders()
        for text in self.texts:
            parts = text.split("/")
            if len(parts[-1]) <= _MAX_NAME_CHARS and is_secret_file(*parts):
                self.file_system.spend(len(folders))
                if any(self.file_system.check_exists(folder, text) for folder in folders):
                    return text
        return None

    def resolved_paths(self) -> Iterator[tuple[str, str]]:
        """Yield the words with their resolved paths, and with the existing paths that match their globs."""
        for folder in self._folders():
            for text in self.texts:
                yield text, self.file_system.resolve(folder, text)
            for text in filter(is_glob, self.texts):
                for path in self.file_system.expand(folder, text):
                    yield text, path

    def find_protected_path(self, existing: Iterable[tuple[str, str]], targets: Iterable[str]) -> str | None:
        """Return the word that resolves to a protected path, or None."""
        target_prefixes = tuple(f"{target.rstrip('/')}/" for target in targets)
        for text, path in existing:
            if f"{path}/".startswith(target_prefixes) or protected_settings_part(self._inside(path)) is not None:
                return text
        return None

    def find_secret_path(self, existing: Iterable[tuple[str, str]]) -> str | None:
        """Return the word that resolves to a secret file, or None."""
        for text, path in existing:
            names = self.file_system.count_names(path)
            if names and self._is_secret(path, names):
                return text
        return None

    def _is_secret(self, path: str, names: int) -> bool:
        """Return whether the file at a resolved path, with so many hard links, is a secret file.

        It is one, too, if a link on the way to it has a secret name.
        """
        parts = self._inside(path)
        if is_secret_file(*parts) or any(
            is_secret_file(*self._inside(link)) for link in self.file_system.links_to(path)
        ):
            return True
        if names == 1 and not may_hold_credentials(*parts) and not may_hold_keys(*parts):
            return False
        self.file_system.spend(_STEPS_TO_READ)
        return self.secrets.hold(workspace_path(path, Path(self.workspace)))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _match_protected_path(self, text: str) -> bool:
        if protected_settings_part(self._inside(os.path.join(self.workspace, text))) is not None:
            return True
        return is_glob(text) and any(map(self._match_protected_name, text.split("/")))

    def _inside(self, path: str) -> list[str]:
        """Return the parts of a path, relative to the workspace if it lies inside."""
        path = os.path.normpath(path)
        if path == self.workspace:
            return []
        return path.removeprefix(f"{self.workspace.rstrip('/')}/").strip("/").split("/")

    def _folders(self) -> list[str]:
        """Return the possible current folders of the command's parts, resolved, the workspace first."""
        changed = (self.file_system.resolve(self.workspace, name) for name in _changed_folders(self.stripped))
        return list(dict.fromkeys([self.workspace, *changed]))

    def _find_protected_pair(self) -> str | None:
        """Return the word that names a protected pair like `.github/workflows`, by globs or from another word."""
        for text in filter(is_glob, self.texts):
            for parent, child in pairwise(text.split("/")):
                if child.strip("*") and any(self._match_all(pair, (parent, child)) for pair in PROTECTED_PAIRS):
                    return text
        changed = {_last_part(folder) for folder in _changed_folders(self.stripped)}
        folders = changed | {_last_part(text) for text in self.texts}
        starts = {text.removeprefix("./").casefold(): text for text in self.texts}
        for first, second in PROTECTED_PAIRS:
            if not self._match_any(first, folders):
                continue
            is_folder_changed = self._match_any(first, changed)
            for start, text in starts.items():
                parent, slash, _ = start.partition("/")
                if (slash or is_folder_changed) and parent.strip("*") and self.file_system.match(second, parent):
                    return text
        return None

    def _match_any(self, name: str, globs: set[str]) -> bool:
        return name in globs or any(glob.strip("*") and self.file_system.match(name, glob) for glob in globs)

    # --- globs --------------------------------------------------------------------------------------------------------

    def _match_protected_name(self, part: str) -> bool:
        """Match a glob like `.gi*` with the protected names, whether or not the file exists.

        A glob without a leading dot must fix at least half of the name, and not only its ending: `*.json` does not
        count.
        """
        if not is_glob(part):
            return False
        glob = self.file_system.glob(without_invisible(part).casefold())
        is_dotted = glob.prefix.startswith(".")
        fixed = len(part) if is_dotted else glob.fixed_stem_count()
        if not fixed:
            return self._match_protected_ending(part.casefold())
        for name in _candidates(glob):
            if (is_dotted or 2 * fixed >= len(name)) and glob.match(name, self.file_system.spend):
                return True
        for beginning in _BEGINNINGS:
            if is_dotted is not beginning.startswith("."):
                continue
            min_fixed = 1 if is_dotted else len(beginning) // 2
            if fixed >= min_fixed and glob.fixed_prefix_length(beginning, self.file_system.spend) >= max(min_fixed, 1):
                return True
        return self._match_protected_ending(part.casefold())

    def _match_protected_ending(self, part: str) -> bool:
        """Match a glob with the protected endings; it must fix at least a third of the ending."""
        last = part.rpartition(".")[2]
        fixed = self.file_system.glob(last).fixed_count()
        return any(
            part.endswith(ending[1:]) or (3 * fixed >= len(ending) and self.file_system.match(ending, f".{last}"))
            for ending in _ENDINGS
        )

    def _find_path_into(self, target: str, paths: list[_ParentPath]) -> str | None:
        """Return the word that leads to or into `target`, from the workspace or from a folder of another word."""
        names = _parts(target)
        paths = [(text, parents, parts) for text, parents, parts in paths if _may_lead_to(parts, names)]
        folders = [_parts(self.workspace)]
        for folder in folders:  # the list grows by folders on the way to the target
            for text, parents, parts in paths:
                self.file_system.spend(1)
                base = () if parents is None else folder[: max(len(folder) - parents, 0)]
                if names[: len(base)] != base or not self._match_all(names[len(base) :], parts):
                    continue
                depth = len(base) + len(parts)
                if depth >= len(names):
                    return text
                if names[:depth] not in folders:
                    folders.append(names[:depth])
        return None

    def _match_all(self, names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
        return all(self.file_system.match(name, part) for name, part in zip(names, parts, strict=False))


# --- words ------------------------------------------------------------------------------------------------------------


def _expand_folders(text: str, workspace: str) -> str:
    """Return a command with `~`, `$HOME` and `$PWD` replaced by the folders they denote."""
    replacements = (
        (r"\$\{?HOME\b\}?|(?<![\w/.~])~(?=[/\s;|&<>)]|$)", os.path.expanduser("~")),
        (r"\$\{?PWD\b\}?", workspace),
    )
    for pattern, folder in replacements:
        text = re.sub(pattern, lambda _, folder=folder: folder, text)
    return text


def _unsupported_syntax(command: str, unquoted: UnquotedText) -> str | None:
    """Return a sentence about syntax that bash may interpret differently from this module, or None."""
    if not unquoted.is_complete:
        return "Its quotes are not all closed, so that its words are not checked."
    if _CODED_CHARACTERS.search(command):
        return "It writes characters as codes in $'…', which are not checked."
    if _OTHER_GLOBS.search(command):
        return "It changes how a shell reads patterns, which is not checked."
    if "((" not in command and _EXTENDED_GLOB.search(unquoted.text):
        return "It has a pattern such as @(…), which is not checked."
    return None


class _WordCollector:
    """A collector of the distinct words of a command; `unchecked` is a sentence about the part that is left out."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        self.unchecked: str | None = None
        self._chars_left = _MAX_BRACE_CHARS

    def add_stripped(self, stripped: str) -> None:
        """Add the words of a command without any quotes, because quoted words may be code."""
        for token in dict.fromkeys(_BLANKS.split(stripped)):
            text = _truncated(token)
            if text != token:
                self.unchecked = _TOO_LONG
            self._add(text)
            for word in self._expanded(text):
                self._add(word)

    def add_unquoted(self, unquoted: str) -> None:
        """Add the words of a command with `QUOTED` for each quoted special character."""
        for token in dict.fromkeys(_BLANKS.split(unquoted)):
            words = [token]
            if has_braces(token):
                expanded = None if len(token) > EXAMINED_WORD_BYTES else expand_braces(token, self._try_spend)
                if expanded is None:
                    self.unchecked = self.unchecked or _TOO_MANY_BRACES
                words = expanded or []
            for word in words:
                for text in simplify_classes(word).split(QUOTED):
                    self._add(_truncated(text))

    def add_quoted(self, command: str) -> None:
        """Add words with quoted blanks, like `"my key.pem"`, as one name each."""
        for word in dict.fromkeys(_QUOTED_WORD.findall(command)):
            text = _QUOTING.sub(r"\1", word)
            if _BLANKS.search(text):
                self.texts[_truncated(text)] = None

    def _expanded(self, text: str) -> list[str]:
        """Return the brace expansion of a text; with too many braces, its prefix followed by each of the choices."""
        if "{" not in text:
            return []
        expanded = expand_braces(text, self._try_spend) if has_braces(text) else None
        if expanded is not None:
            return expanded
        prefix, *choices = _BRACES.split(text)
        if self._try_spend(sum(len(prefix) + len(choice) for choice in choices)):
            return [prefix + choice for choice in choices]
        self.unchecked = self.unchecked or _TOO_MANY_BRACES
        return []

    def _add(self, text: str) -> None:
        simple = simplify_classes(text) if "[" in text else text
        for word in dict.fromkeys((text, simple)):
            self.texts.update(dict.fromkeys((word, *_SEPARATORS.split(word))))
        self.texts.pop("", None)

    def _try_spend(self, characters: int) -> bool:
        """Subtract from the characters left; return False if there were too few."""
        self._chars_left -= characters
        return self._chars_left >= 0


_TOO_LONG = f"A word of it has more than {EXAMINED_WORD_BYTES:,} bytes, of which the rest is not checked."
_TOO_MANY_BRACES = "Its braces expand to more words than can be checked."


def _changed_folders(stripped: str) -> list[str]:
    """Return the words that follow `cd` and options that change the folder."""
    found: dict[str, None] = {}
    is_next = False
    for word in _COMMAND_WORDS.findall(stripped):
        if word in _FOLDER_CHANGES:
            is_next = True
        elif is_next and not word.startswith("-"):
            found[word] = None
            is_next = False
    return list(found)


def _candidates(glob: ShellGlob) -> Iterable[str]:
    """Return the protected names with the prefix of the glob; without a prefix, those with its suffix and no dot."""
    if not glob.prefix:
        return [name for name in _NAMES_WITHOUT_DOT if name.endswith(glob.suffix)]
    first = bisect_left(_SORTED_NAMES, glob.prefix)
    last = bisect_left(_SORTED_NAMES, f"{glob.prefix}\U0010ffff")
    return _SORTED_NAMES[first:last]


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2].casefold()


def _truncated(token: str) -> str:
    if 4 * len(token) <= EXAMINED_WORD_BYTES:
        return token
    encoded = token.encode("utf-8", "surrogatepass")
    if len(encoded) <= EXAMINED_WORD_BYTES:
        return token
    return encoded[:EXAMINED_WORD_BYTES].decode("utf-8", "ignore")


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in os.path.normpath(path).casefold().split("/") if part)


def _may_lead_to(parts: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Return whether a path is empty or begins with one of the names or with a glob."""
    return not parts or parts[0] in names or is_glob(parts[0])


def _split_parents(text: str) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of leading `..` of a relative path (None: it is absolute), and the parts that follow."""
    parts = _parts(text)
    if text.startswith("/"):
        return None, parts
    names = tuple(part for part in parts if part not in {"..", "."})
    return parts.count(".."), names
