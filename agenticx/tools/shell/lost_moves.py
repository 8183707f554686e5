"""Recognition of commands that move files to a folder, such as /tmp, that is removed with the sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agenticx.sandbox.bubblewrap import lost_folders

__all__ = ["LOST", "find_lost_move"]

LOST = "what is moved there is lost when the command ends"
"""A clause about the place that `find_lost_move` finds."""


_MAX_PATH_CHARS = 4_096
_MAX_FOLDERS = 8
_MAX_TARGETS = 256
_RUN_OTHERS = frozenset({"find", "parallel", "xargs"})
_MOVERS = frozenset({"7z", "7za", "7zz", "git", "gmv", "gtar", "mv", "rsync", "tar", "zip"})
_TARGET = re.compile(r"(?:-[bfinuvTZ]*t|--target-directory(?:=|$))(.*)", re.DOTALL)
_REMOVES_SENT = re.compile(r"--remove-(?:source|sent)-files")
_MOVES_INTO_ARCHIVE = re.compile(r"-[A-Za-z]*m[A-Za-z]*|--move|--remove-files|-sdel")
# Ways to name such a folder by what only bash knows: `mv a $(mktemp -d)`, `d=/tmp/x; mv a $d`.
_MENTION = re.compile(r"mktemp|TMPDIR|(?<![\w.-])/(?:tmp|var/tmp|run|dev/shm)(?![\w-])|(?:~|HOME\}?\"?)/\.?\w[\w./-]*")


def find_lost_move(text: str, runs: Sequence[Sequence[str | None]], workspace: Path) -> str | None:
    """Return the text that names a folder to which a command moves files and that is removed with the sandbox, or None.

    `runs` are the programs with their words in the command `text`, None for a word that only bash knows. The command
    runs in `workspace`, a resolved path.
    """
    lost = lost_folders(workspace)
    folders, count = [str(workspace)], 0
    for words in runs:
        if words[0] in ("cd", "pushd") and len(words) > 1 and len(folders) < _MAX_FOLDERS:
            folders += [os.path.join(folders[-1], words[1])] if words[1] else []
        for target in _targets(words):
            count += 1
            if target is None or len(target) > _MAX_PATH_CHARS or count > _MAX_TARGETS:
                if (mention := _MENTION.search(text)) is not None and _is_lost(mention[0], lost, workspace):
                    return mention[0]
            elif any(_is_in(os.path.join(folder, target), lost, workspace) for folder in folders):
                return target
    return None


def _is_lost(mention: str, lost: Sequence[Path], workspace: Path) -> bool:
    if mention[0] not in "~H":
        return True
    home = os.path.expanduser("~")
    return _is_in(os.path.join(home, mention.partition("/")[2]), lost, workspace)


def _is_in(path: str, lost: Sequence[Path], workspace: Path) -> bool:
    try:
        meant = {Path(os.path.normpath(path)), Path(os.path.realpath(path))}
    except (OSError, ValueError):  # a name that no file can have
        return False
    return any(any(map(one.is_relative_to, lost)) and not one.is_relative_to(workspace) for one in meant)


def _targets(words: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the words of a program by which it moves files to a place; None for one that only bash knows."""
    names = [(word or "").rpartition("/")[2] for word in words]
    start = 0 if names[0] in _MOVERS else next((at for at, name in enumerate(names) if name in _MOVERS), 0)
    if start and names[0] not in _RUN_OTHERS:
        return
    name, arguments = names[start], words[start + 1 :]
    if ";" in arguments:  # of `find -exec`
        arguments = arguments[: arguments.index(";")]
    operands = [word for word in arguments if word is None or not word.startswith("-")]
    options = [word for word in arguments if word is not None and word.startswith("-")]
    match name:
        case "mv" | "gmv":
            yield from _targets_of_mv(arguments, operands)
        case "git" if "mv" in operands or {"worktree", "move"}.issubset(operands):
            yield operands[-1]
        case "rsync" if any(map(_REMOVES_SENT.fullmatch, options)):
            yield from operands[-1:]
        case "tar" | "gtar" | "zip" | "7z" | "7za" | "7zz" if any(map(_MOVES_INTO_ARCHIVE.fullmatch, options)):
            yield from operands
        case _:
            pass


def _targets_of_mv(arguments: Sequence[str | None], operands: Sequence[str | None]) -> Iterator[str | None]:
    pairs = zip(arguments, [*arguments[1:], None], strict=True)
    options = [(word, following) for word, following in pairs if word is not None and word.startswith("-")]
    named = [match[1] or following for word, following in options if (match := _TARGET.fullmatch(word)) is not None]
    yield from named or operands[-1:]
