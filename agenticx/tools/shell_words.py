"""What the words of a shell command name: protected paths, folders of ours, files with secrets.

Quotes and backslashes are taken out, `~`, `$HOME` and `$PWD` put in, braces and globs tried, and a folder that one word
names may be where another starts, as after `cd`. A name put together by other variables or substitutions is not seen:
this asks where it can, it does not prove that a command is harmless.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path

from agenticx.secret_names import is_secret_file
from agenticx.tools.protected import PROTECTED_NAMES, is_within, named_part

__all__ = ["protected_word", "secret_word"]

_GLOB = re.compile(r"[*?[]")
_RESOLVED_WORDS = 64
_EXPANDED_WORDS = 64
_EXPANDED_PARTS = 2
_EXPANDED_NAMES = 200


def protected_word(command: str, workspace: Path, roots: Iterable[Path] = ()) -> str | None:
    """The word that names a protected path, if any; everything in `roots` is protected too."""
    bare = _bare(command, workspace)
    if "AGX_HOME" in bare or "AGX_TOKEN_FILE" in bare:
        return "AGX_HOME"
    targets = dict.fromkeys(target for root in roots for target in (str(root), os.path.realpath(root)))
    words = _words(bare)
    for target in targets:
        if target in bare:
            return target
        if (word := _word_into(Path(target), words, workspace)) is not None:
            return word
    for word, path in _existing(words, workspace):
        if named_part(_inside(path, workspace)) or any(is_within(path, Path(target)) for target in targets):
            return word
    for word in words:
        if named_part(_inside(workspace / word, workspace)) or any(map(_may_become_protected, word.split("/"))):
            return word
    return None


def secret_word(command: str, workspace: Path) -> str | None:
    """The word that names an existing file which usually holds keys or passwords, if any."""
    bare = _bare(command, workspace)
    words = _words(bare)
    folders = [workspace, *(workspace / folder for folder in re.findall(r"\b(?:cd|pushd)\s+([^\s;|&<>()]+)", bare))]
    for word in words:
        if is_secret_file(*word.split("/")) and any(_exists(folder / word) for folder in folders):
            return word
    files = ((word, path) for word, path in _existing(words, workspace) if path.is_file())
    return next((word for word, path in files if is_secret_file(*_inside(path, workspace).parts)), None)


# --- words ------------------------------------------------------------------------------------------------------------


def _bare(command: str, workspace: Path) -> str:
    """The command without quoting, with what stands for well-known folders put in."""
    bare = re.sub(r"\\\n|[\"'\\]", "", command)
    home = os.path.expanduser("~")
    known = (
        (r"\$\{?HOME\b\}?|(?<![\w/.~])~(?=[/\s;|&<>)]|$)", home),
        (r"\$\{?PWD\b\}?", str(workspace)),
    )
    for pattern, folder in known:
        bare = re.sub(pattern, lambda _, folder=folder: folder, bare)
    return bare


def _words(bare: str) -> list[str]:
    """The words, each once, and what brace expansion may make of them."""
    words = [word for word in re.split(r"[\s;|&<>()`$=:,]+", bare) if word]
    for word in re.findall(r"\S*\{\S*", bare):
        prefix, *choices = re.split(r"[{,}]", word)
        words += [prefix + choice for choice in choices]
    return list(dict.fromkeys(words))


def _inside(path: Path, workspace: Path) -> Path:
    """Relative to the workspace, where it lies in it: what the workspace itself is called does not count."""
    path = Path(os.path.normpath(path))
    return path.relative_to(workspace) if path.is_relative_to(workspace) else path


def _existing(words: list[str], workspace: Path) -> Iterator[tuple[str, Path]]:
    """Where the first words lead, and what globs stand for right now, with all links resolved."""
    for word, named in chain(((word, word) for word in words[:_RESOLVED_WORDS]), _expanded(words, workspace)):
        try:
            yield word, Path(os.path.realpath(workspace / named))
        except (OSError, ValueError):
            continue


def _exists(path: Path) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


# --- globs ------------------------------------------------------------------------------------------------------------


def _may_become_protected(part: str) -> bool:
    """Whether a glob such as `.gi*` matches a protected name, there or not."""
    if not part.startswith(".") or not _GLOB.search(part):
        return False
    return any(_fits(name, part.casefold()) for name in PROTECTED_NAMES)


def _word_into(target: Path, words: list[str], workspace: Path) -> str | None:
    """The word that leads to `target` or into it, from the workspace or from a folder that other words lead to."""
    names = [name.casefold() for name in target.parts]
    folders = [workspace]
    for folder in folders:  # it grows: by folders on the way to the target
        for word in words:
            parts = Path(os.path.normpath(folder / word)).parts
            if not all(_fits(name, part.casefold()) for name, part in zip(names, parts, strict=False)):
                continue
            if len(parts) >= len(names):
                return word
            above = Path(*target.parts[: len(parts)])
            if above not in folders:
                folders.append(above)
    return None


def _fits(name: str, part: str) -> bool:
    """Whether bash's `part` may be `name`; a leading `*`, `?` or `[` matches no dot."""
    if not _GLOB.search(part):
        return name == part
    return name.startswith(".") <= part.startswith(".") and fnmatchcase(name, part.replace("[^", "[!"))


def _expanded(words: list[str], workspace: Path) -> Iterator[tuple[str, str]]:
    """The names that globs stand for. Globs that would take long to expand are left out."""
    for word in [word for word in words if _GLOB.search(word)][:_EXPANDED_WORDS]:
        if "\0" in word or sum(map(bool, map(_GLOB.search, word.split("/")))) > _EXPANDED_PARTS:
            continue
        for found in islice(glob.iglob(word.replace("[^", "[!"), root_dir=workspace), _EXPANDED_NAMES):
            yield word, found
