"""Which shell commands are plainly harmless: proved simple, read-only and inside the workspace, or else not.

This is a grammar for what is allowed, never a search for what is bad: one command without operators, expansions, globs
or redirections; a program of the system's own folders from a short list; only options that are listed for it; every
other word a path inside the workspace. Whatever does not fit is asked about. `git` is not on the list: what it runs is
decided by the configuration of whatever repository it stands in.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.tools.paths import locate
from agenticx.tools.protected import is_within

__all__ = ["is_plainly_harmless"]

_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/usr/bin")))

# One-letter options that neither write, run, follow links nor take a file; `0` stands for digits. `diff` is missing: it
# follows the links that it finds in folders.
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
_ONLY_WORDS = frozenset({"basename", "dirname", "echo"})  # they look at no file

# Plain characters, '…', or "…" in which bash leaves everything as it is; nothing but ASCII.
_WORD = r"""(?:[A-Za-z0-9_./:,@%+-]|'[ -&(-~]*'|"[ !#%-\[\]-_a-~]*")+"""
_COMMAND = re.compile(rf"[ \t]*{_WORD}(?:[ \t]+{_WORD})*[ \t]*")
_QUOTE = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def is_plainly_harmless(command: str, workspace: Path, search_path: str, private: tuple[Path, ...]) -> bool:
    """Whether `command` can do nothing but look at the workspace. `private` are folders that no tool may look at."""
    words = _words(command)
    if not words or words[0] not in _OPTIONS or not _is_system_program(words[0], search_path):
        return False
    if any(is_within(root, workspace) for root in private):
        return False  # a recursive program would read what stands there
    program, *rest = words
    return all(_is_harmless_word(program, word, workspace) for word in rest)


def _words(command: str) -> list[str]:
    """The words as bash makes them; none if the command is more than one plain command."""
    if not _COMMAND.fullmatch(command):
        return []
    return [_QUOTE.sub(lambda quote: quote[1] or quote[2] or "", word) for word in re.findall(_WORD, command)]


def _is_system_program(name: str, search_path: str) -> bool:
    """Whether bash finds the system's own program, and no other that comes earlier on the PATH."""
    if not all(folder.startswith("/") for folder in search_path.split(os.pathsep)):
        return False
    found = shutil.which(name, path=search_path)
    return found is not None and Path(os.path.abspath(found)).parent in _SYSTEM_FOLDERS


def _is_harmless_word(program: str, word: str, workspace: Path) -> bool:
    if program in _ONLY_WORDS and not word.startswith("-"):
        return True
    if word.startswith("-"):
        letters = re.sub(r"[0-9]+", "0", word[1:])
        return bool(letters) and all(letter in _OPTIONS[program] for letter in letters)
    try:
        locate(word, workspace)
    except ToolError:
        return False
    return True
