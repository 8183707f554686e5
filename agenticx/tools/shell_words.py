"""What the words of a shell command name: protected paths, folders of ours, files with secrets.

Quotes and backslashes are taken out, `~`, `$HOME` and `$PWD` put in, braces and globs tried, and a folder that one word
names may be where another starts, as after `cd`. A name put together by other variables or substitutions is not seen:
this asks where it can, it does not prove that a command is harmless.

The work is linear in the command and bounded: of a command of more than 64 KiB nothing is examined, of a word the first
4,096 bytes, and files, folders and globs are looked at as far as `Lookups` goes. What lies beyond is `unchecked`.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agenticx.secret_names import is_secret_file
from agenticx.tools.lookups import Lookups, Unclear
from agenticx.tools.protected import PROTECTED_NAMES, named_part
from agenticx.tools.shell_globs import is_glob

__all__ = ["EXAMINED_COMMAND_BYTES", "EXAMINED_WORD_BYTES", "NamedPaths", "examine"]

EXAMINED_COMMAND_BYTES = 64 * 1024
EXAMINED_WORD_BYTES = 4_096
_BRACED_CHARS = 256 * 1024
_NAME_CHARS = 255

_SEPARATORS = re.compile(r"[\s;|&<>()`$=:,]+")
_BRACES = re.compile(r"[{,}]")
_CHANGED_FOLDER = re.compile(r"\b(?:cd|pushd)\s+([^\s;|&<>()]+)")
_SORTED_NAMES = sorted(PROTECTED_NAMES)

_Upwards = tuple[str, int | None, tuple[str, ...]]
"""A word, and what `_upwards` makes of it."""


@dataclass(frozen=True, slots=True)
class NamedPaths:
    """The result of examining a command.

    `protected` is the first word that names a protected path, `secret` the first that names an existing file which
    usually holds keys or passwords. `unchecked` is a sentence about what could not be examined, if anything.
    """

    protected: str | None = None
    secret: str | None = None
    unchecked: str | None = None


def examine(command: str, workspace: Path, roots: Iterable[Path], lookups: Lookups) -> NamedPaths:
    """Examine the words of a command that is to run in `workspace`, a resolved path; `roots` are protected too."""
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > EXAMINED_COMMAND_BYTES:
        sentence = f"The command has {size:,} bytes; one of more than {EXAMINED_COMMAND_BYTES:,} bytes is not checked."
        return NamedPaths(unchecked=sentence)
    words = _Words.of(command, str(workspace), lookups)
    targets = dict.fromkeys(target for root in roots for target in (str(root), os.path.realpath(root)))
    protected = secret = None
    unchecked = words.unread
    try:
        protected = words.naming_protected(targets)
        secret = words.naming_secret()
        existing = list(words.existing())
        protected = protected or words.leading_to_protected(existing, targets)
        secret = secret or words.leading_to_secret(existing)
    except Unclear as exc:
        unchecked = unchecked or str(exc)
    return NamedPaths(protected, secret, unchecked)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a command, each once. `bare` is the command without quoting; `unread` says what is left out."""

    bare: str
    texts: tuple[str, ...]
    unread: str | None
    workspace: str
    lookups: Lookups

    @classmethod
    def of(cls, command: str, workspace: str, lookups: Lookups) -> _Words:
        bare = _bare(command, workspace)
        texts, unread = _texts(bare)
        return cls(bare, texts, unread, workspace, lookups)

    def naming_protected(self, targets: Iterable[str]) -> str | None:
        """Return the word that names a protected path as it is written, if any; what is in `targets` is protected."""
        if "AGX_HOME" in self.bare or "AGX_TOKEN_FILE" in self.bare:
            return "AGX_HOME"
        named = next((target for target in targets if target in self.bare), None)
        named = named or next((text for text in self.texts if self._names_protected(text)), None)
        paths = [(text, *_upwards(text)) for text in self.texts]
        for target in targets:
            named = named or self._leading_into(target, paths)
        return named

    def naming_secret(self) -> str | None:
        """Return the word that is the name of an existing file which usually holds keys or passwords, if any."""
        folders = dict.fromkeys([self.workspace, *map(self._resolved, _CHANGED_FOLDER.findall(self.bare))])
        for text in self.texts:
            parts = text.split("/")
            if len(parts[-1]) <= _NAME_CHARS and is_secret_file(*parts):
                self.lookups.spend(len(folders))
                if any(self.lookups.exists(folder, text) for folder in folders):
                    return text
        return None

    def existing(self) -> Iterator[tuple[str, str]]:
        """Yield where the words lead, and what globs stand for right now, with all links resolved."""
        for text in self.texts:
            yield text, self._resolved(text)
        for text in filter(is_glob, self.texts):
            for path in self.lookups.expand(self.workspace, text):
                yield text, path

    def leading_to_protected(self, existing: Iterable[tuple[str, str]], targets: Iterable[str]) -> str | None:
        """Return the word that leads to a protected path, if any."""
        below = tuple(f"{target.rstrip('/')}/" for target in targets)
        for text, path in existing:
            if f"{path}/".startswith(below) or named_part(self._inside(path)) is not None:
                return text
        return None

    def leading_to_secret(self, existing: Iterable[tuple[str, str]]) -> str | None:
        """Return the word that leads to a file which usually holds keys or passwords, if any."""
        for text, path in existing:
            if is_secret_file(*self._inside(path)) and self.lookups.is_file(path):
                return text
        return None

    # --- paths --------------------------------------------------------------------------------------------------------

    def _names_protected(self, text: str) -> bool:
        if named_part(self._inside(os.path.join(self.workspace, text))) is not None:
            return True
        return is_glob(text) and any(map(self._may_become_protected, text.split("/")))

    def _inside(self, path: str) -> list[str]:
        """Return the parts of a path, relative to the workspace where it lies in it: that one's own do not count."""
        path = os.path.normpath(path)
        if path == self.workspace:
            return []
        return path.removeprefix(f"{self.workspace.rstrip('/')}/").strip("/").split("/")

    def _resolved(self, text: str) -> str:
        return self.lookups.resolve(self.workspace, text)

    # --- globs --------------------------------------------------------------------------------------------------------

    def _may_become_protected(self, part: str) -> bool:
        """Return whether a glob such as `.gi*` matches a protected name, there or not."""
        if not part.startswith(".") or not is_glob(part):
            return False
        glob = part.casefold()
        prefix = self.lookups.glob_prefix(glob)
        first = bisect_left(_SORTED_NAMES, prefix)
        last = bisect_left(_SORTED_NAMES, f"{prefix}\U0010ffff")
        return any(self.lookups.matches(name, glob) for name in _SORTED_NAMES[first:last])

    def _leading_into(self, target: str, paths: list[_Upwards]) -> str | None:
        """Return the word that leads to or into `target`, from the workspace or a folder that other words lead to."""
        names = _parts(target)
        paths = [(text, ups, parts) for text, ups, parts in paths if _may_lead(parts, names)]
        folders = [_parts(self.workspace)]
        for folder in folders:  # it grows: by folders on the way to the target
            for text, ups, parts in paths:
                self.lookups.spend(1)
                base = () if ups is None else folder[: max(len(folder) - ups, 0)]
                if names[: len(base)] != base or not self._fit(names[len(base) :], parts):
                    continue
                depth = len(base) + len(parts)
                if depth >= len(names):
                    return text
                if names[:depth] not in folders:
                    folders.append(names[:depth])
        return None

    def _fit(self, names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
        return all(self.lookups.matches(name, part) for name, part in zip(names, parts, strict=False))


# --- words ------------------------------------------------------------------------------------------------------------


def _bare(command: str, workspace: str) -> str:
    """Return the command without quoting, with well-known folders put in."""
    bare = re.sub(r"\\\n|[\"'\\]", "", command)
    home = os.path.expanduser("~")
    known = (
        (r"\$\{?HOME\b\}?|(?<![\w/.~])~(?=[/\s;|&<>)]|$)", home),
        (r"\$\{?PWD\b\}?", workspace),
    )
    for pattern, folder in known:
        bare = re.sub(pattern, lambda _, folder=folder: folder, bare)
    return bare


def _texts(bare: str) -> tuple[tuple[str, ...], str | None]:
    """Return the words, each once, with those that brace expansion may make; and a sentence about what is left out."""
    found: dict[str, None] = {}
    unread: str | None = None
    room = _BRACED_CHARS
    for run in dict.fromkeys(bare.split()):
        text = _beginning(run)
        if text != run:
            unread = f"A word of it has more than {EXAMINED_WORD_BYTES:,} bytes, of which the rest is not checked."
        found.update(dict.fromkeys(_SEPARATORS.split(text)))
        prefix, *choices = _BRACES.split(text) if "{" in text else [text]
        room -= sum(len(prefix) + len(choice) for choice in choices)
        if room < 0:
            unread = "Its braces stand for more words than can be checked."
            continue
        for choice in choices:
            found.update(dict.fromkeys((prefix + choice, *_SEPARATORS.split(prefix + choice))))
    found.pop("", None)
    return tuple(found), unread


def _beginning(run: str) -> str:
    if 4 * len(run) <= EXAMINED_WORD_BYTES:
        return run
    encoded = run.encode("utf-8", "surrogatepass")
    if len(encoded) <= EXAMINED_WORD_BYTES:
        return run
    return encoded[:EXAMINED_WORD_BYTES].decode("utf-8", "ignore")


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in os.path.normpath(path).casefold().split("/") if part)


def _may_lead(parts: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Return whether a path begins with a name on the way to the target, or with a glob."""
    return not parts or parts[0] in names or is_glob(parts[0])


def _upwards(text: str) -> tuple[int | None, tuple[str, ...]]:
    """Return how many folders a relative path goes up first (None: it is absolute), and the parts that follow."""
    parts = _parts(text)
    if text.startswith("/"):
        return None, parts
    below = tuple(part for part in parts if part not in {"..", "."})
    return parts.count(".."), below
