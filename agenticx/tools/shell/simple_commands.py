"""Recognition of plainly harmless shell commands: simple, read-only and inside the workspace.

This is an allow-list grammar, not a search for dangerous constructs: one command without operators, expansions, globs
or redirections; a program of a short list, found in the system's folders; only the options listed for that program;
every other word the path of a file or folder inside the workspace (reading a pipe or device may block, or have an
effect) that does not usually hold secrets. The user is asked about every other command. `git` is not on the list: the
configuration of the current repository decides which programs it runs.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.secret_names import is_secret_file, is_secret_folder
from agenticx.tools.paths import resolve_in_workspace
from agenticx.tools.protected import is_within
from agenticx.tools.secret_files import SecretFiles, has_secret_name, workspace_path
from agenticx.tools.shell.lookups import DirectoryEntry, FileSystemCache, UncheckableError
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, EXAMINED_WORD_BYTES

__all__ = ["is_plainly_harmless"]

_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/usr/bin")))

# One-letter options that neither write, run, follow links nor take a file; `0` means any digits. `diff` is missing
# because it follows the links that it finds in folders.
_OPTIONS = {
    "basename": "az",
    "cat": "AbEenstTuv",
    "cmp": "bls",
    "cut": "bcdfsz0",
    "dirname": "z",
    "du": "abchkmsx",
    "echo": "enE",
    "false": "",
    "grep": "aBACcEeFhHiLlmnoqrsvwx0",
    "head": "cnqvz0",
    "ls": "1aAbBcCdfFgGhiIklmnopqQrRsStuUvwxXZ",
    "md5sum": "bt",
    "nl": "bfhilnpsvw",
    "pwd": "LP",
    "sha256sum": "bt",
    "stat": "t",
    "tail": "cnqvz0",
    "true": "",
    "uname": "amnprsv",
    "wc": "clmLw",
    "whoami": "",
}
_MAX_CHECKED_PATHS = 256
_MAX_NAME_BYTES = 255
_MAX_SEARCHED_NAMES = 10_000
_PATHLESS_PROGRAMS = frozenset({"basename", "dirname", "echo"})  # they read no files

# Plain characters, '…', or "…" without characters that bash expands; ASCII only.
_WORD = r"""(?:[A-Za-z0-9_./:,@%+-]|'[ -&(-~]*'|"[ !#%-\[\]-_a-~]*")+"""
_COMMAND = re.compile(rf"[ \t]*{_WORD}(?:[ \t]+{_WORD})*[ \t]*")
_QUOTE = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def is_plainly_harmless(
    command: str,
    workspace: Path,
    search_path: str,
    private: tuple[Path, ...],
    file_system: FileSystemCache | None = None,
) -> bool:
    """Return whether `command` can only read the workspace. `private` are folders that no tool may read."""
    if len(command) > EXAMINED_COMMAND_BYTES:
        return False
    words = _words(command)
    if not words or words[0] not in _OPTIONS or not _is_system_program(words[0], search_path):
        return False
    if any(is_within(root, workspace) for root in private):
        return False  # a recursive program would read the files in it
    program, *rest = words
    if sum(_is_path(program, word) for word in rest) > _MAX_CHECKED_PATHS:
        return False
    if not all(_is_harmless_word(program, word, workspace) for word in rest):
        return False
    folders = _searched_folders(rest, workspace) if program == "grep" else []
    return _may_be_searched(folders, workspace.resolve(), file_system or FileSystemCache())


def _words(command: str) -> list[str]:
    """Return the words as bash splits them; an empty list if the command is not one plain command."""
    if not _COMMAND.fullmatch(command):
        return []
    return [_QUOTE.sub(lambda quote: quote[1] or quote[2] or "", word) for word in re.findall(_WORD, command)]


def _is_system_program(name: str, search_path: str) -> bool:
    """Return whether bash runs the program of the system's folders, and no other that comes earlier on the PATH."""
    if not all(folder.startswith("/") for folder in search_path.split(os.pathsep)):
        return False
    program_path = shutil.which(name, path=search_path)
    return program_path is not None and Path(os.path.abspath(program_path)).parent in _SYSTEM_FOLDERS


def _is_path(program: str, word: str) -> bool:
    return program not in _PATHLESS_PROGRAMS and not word.startswith("-")


def _is_harmless_word(program: str, word: str, workspace: Path) -> bool:
    if len(word) > EXAMINED_WORD_BYTES:
        return False
    if word.startswith("-"):
        letters = re.sub(r"[0-9]+", "0", word[1:])
        return bool(letters) and all(letter in _OPTIONS[program] for letter in letters)
    if not _is_path(program, word):
        return True
    if any(len(part) > _MAX_NAME_BYTES for part in word.split("/")):  # no file can have this name
        return False
    try:
        target = resolve_in_workspace(word, workspace)
        kind = stat.S_IFMT(target.path.stat().st_mode)
    except ToolError:
        return False
    except OSError as exc:  # a missing file cannot be read; if it is created later, the binding of the call changes
        return exc.errno in (errno.ENOENT, errno.ENOTDIR)
    return kind in (stat.S_IFREG, stat.S_IFDIR) and not has_secret_name(target)


def _searched_folders(words: list[str], workspace: Path) -> list[Path]:
    """Return the folders that a recursive grep searches; the whole workspace if the options leave that unclear."""
    options = "".join(word for word in words if word.startswith("-"))
    if "r" not in options:
        return []
    operands = [word for word in words if not word.startswith("-")]
    if len(operands) < 2 or set(options) & set("ABCem"):  # these options may take the next word
        return [workspace]
    return [workspace / word for word in operands[1:]]


def _may_be_searched(folders: list[Path], workspace: Path, file_system: FileSystemCache) -> bool:
    """Return whether no file in the folders usually holds secrets; False if they are too large or not accessible."""
    entry_count, secrets = 0, SecretFiles(workspace)
    pending = [os.path.realpath(folder) for folder in folders]
    try:
        while pending:
            folder = pending.pop()
            entries = file_system.entries(folder)
            entry_count += len(entries)
            if entry_count > _MAX_SEARCHED_NAMES:
                return False
            prefix = folder.rstrip("/")
            if any(_is_secret(entry, f"{prefix}/{entry.name}", workspace, secrets) for entry in entries):
                return False
            pending += [f"{prefix}/{entry.name}" for entry in entries if entry.kind == "folder"]
    except UncheckableError:
        return False
    return True


def _is_secret(entry: DirectoryEntry, path: str, workspace: Path, secrets: SecretFiles) -> bool:
    """Return whether an entry usually holds secrets; a link is treated as both a file and a folder."""
    target = workspace_path(path, workspace)
    match entry.kind:
        case "folder":
            return is_secret_folder(*target.parts)
        case "link":
            return is_secret_folder(entry.name) or is_secret_file(*target.parts)
        case "other":
            return secrets.hold(target)
