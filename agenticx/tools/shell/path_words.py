"""The files and folders of the workspace that the words of a shell command name, for rules that ask or deny by path.

Like `command_reader`, it is tolerant and never serves to allow a command: a word that may be a path counts as one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from agenticx.tools.base import NamedPath
from agenticx.tools.shell.command_reader import CommandReading
from agenticx.tools.shell.read_only_programs import read_arguments

__all__ = ["find_named_paths"]

_MAX_WORDS = 1_000
_MAX_CHARS = 4_096
_MAX_FOLDERS = 4
_PIECE = re.compile(r"[^\s\"'`=:,;|&<>(){}\[\]$]+")
_FOLDER_CHANGES = frozenset({"cd", "pushd"})
# Programs whose arguments are texts, not files.
_TEXTS = frozenset({"[", "[[", "echo", "exit", "export", "false", "local", "popd", "printf", "read", "return", "set",
                    "shift", "sleep", "test", "true", "type", "unset"})  # fmt: skip
# Programs that change all files in their arguments.
_CHANGERS = frozenset({"mv", "rm", "rmdir", "shred", "tee", "touch", "truncate", "unlink"})
# Programs that go through the current folder if they are given no other.
_WALKERS = frozenset({"ack", "ag", "fd", "fdfind", "find", "rg", "rgrep", "tree"})
_WALKING_COMMANDS_OF_GIT = frozenset({"archive", "clean", "grep"})


def find_named_paths(reading: CommandReading, workspace: Path) -> tuple[NamedPath, ...] | None:
    """Return the paths that a command names, relative to the resolved `workspace`; None if not all can be known."""
    found: dict[NamedPath, None] = {}
    bases = [""]
    for run in reading.runs:
        if run[0] in _FOLDER_CHANGES:
            bases += [word for word in run[1:] if word and not word.startswith("-")]
            if None in run or len(bases) > _MAX_FOLDERS:
                return None
    written = ((word, True, True, False) for word in reading.written)
    read = ((word, False, True, False) for word in reading.read)
    words = list(islice(chain(_words_of_runs(reading), written, read), _MAX_WORDS + 1))
    if len(words) > _MAX_WORDS:
        return None
    for word, is_changed, is_sure, walks in words:
        if word is None or len(word) > _MAX_CHARS:
            return None
        for base in bases:
            for path, is_folder in _resolve(word, base, workspace):
                if walks or not is_folder:
                    found[NamedPath(path, is_folder=is_folder, is_changed=is_changed, is_sure=is_sure)] = None
    return tuple(found) if reading.is_complete else None


_Word = tuple[str | None, bool | None, bool, bool]
"""A word, and whether it names a file that is changed, is a word of its own, and may name a folder as well."""


def _words_of_runs(reading: CommandReading) -> Iterator[_Word]:
    for run in reading.runs:
        program = "" if run[0] is None else run[0].rpartition("/")[2]
        if program in _TEXTS or program in _FOLDER_CHANGES:
            continue
        known = [word for word in run if word is not None]
        read = read_arguments((program, *known[1:])) if len(known) == len(run) else None
        if read is not None:
            paths = read.paths or (("."),) * (read.is_recursive or program in _WALKERS)
            yield from ((path, False, True, read.is_recursive) for path in paths)
            continue
        yield from _words_of(run[1:], is_changed=True if program in _CHANGERS else None)
        walks = program in _WALKERS or (program == "git" and _WALKING_COMMANDS_OF_GIT.intersection(known[1:]))
        if walks and not any("/" in word for word in known[1:]):
            yield ".", None, True, True


def _words_of(arguments: Sequence[str | None], *, is_changed: bool | None) -> Iterator[_Word]:
    for word in arguments:
        if word is None:
            yield None, False, False, False
            continue
        is_path = not word.startswith("-")
        if is_path:
            yield word, is_changed, True, True
        pieces = _PIECE.findall(word)
        for piece in pieces:
            if piece.startswith("-"):
                yield piece[2:] or piece, None, False, len(piece) > 2  # as in -Ip
            elif piece != word:
                yield piece, None, False, True


def _resolve(word: str, base: str, workspace: Path) -> Iterator[tuple[str, bool]]:
    """Yield the paths that a word may be, relative to the workspace, and whether each is a folder; links followed."""
    root = str(workspace)
    try:
        path = os.path.normpath(os.path.join(root, os.path.expanduser(base), os.path.expanduser(word)))
        real = os.path.realpath(path)
        is_folder = os.path.isdir(real)
    except (OSError, ValueError):  # a NUL; a loop of links
        return
    for one in dict.fromkeys((path, real)):
        if one == root or root.startswith(one.rstrip("/") + "/"):
            yield ".", True
        elif one.startswith(root + "/"):
            yield one[len(root) + 1 :], is_folder
