"""Paths that decide what runs or who is asked, so that no agent changes them unasked, in any mode.

Whoever writes a shell start-up file, a git hook or an editor's task gets to run code later, outside every gate; whoever
writes our own settings gets to move the gate.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

__all__ = ["is_within", "protected_part", "protected_word"]

_FOLDERS = """
    .agenticx .claude .codex .cursor .devcontainer .direnv .git .githooks .gnupg .husky .idea .ssh .vscode .zed
"""
_START_UP_FILES = """
    .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .cshrc .env .envrc .gitattributes .gitconfig
    .gitmodules .inputrc .kshrc .login .mcp.json .mise.toml .netrc .npmrc .pam_environment .pre-commit-config.yaml
    .profile .pypirc .tcshrc .tool-versions .xinitrc .xprofile .xsession .xsessionrc .yarnrc .yarnrc.yml .zlogin
    .zlogout .zprofile .zshenv .zshrc
"""
_NAMES = frozenset((_FOLDERS + _START_UP_FILES).split())
_SEQUENCES = (
    (".config", "agenticx"),
    (".config", "autostart"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "systemd"),
)


def protected_part(path: Path, roots: Iterable[Path] = ()) -> str | None:
    """The part that makes `path` protected, if any; names are compared as case-insensitive file systems do."""
    parts = tuple(part.casefold().rstrip(". ") or part for part in path.parts)
    for part in parts:
        if part in _NAMES or part.startswith(".env."):
            return part
    for first, second in _SEQUENCES:
        if any(pair == (first, second) for pair in pairwise(parts)):
            return f"{first}/{second}"
    return next((str(root) for root in roots if is_within(path, root)), None)


def is_within(path: Path, root: Path) -> bool:
    """Whether `path` is `root` or lies in it, also where `root` is reached through a link."""
    return path.is_relative_to(root) or path.is_relative_to(os.path.realpath(root))


def protected_word(command: str, workspace: Path, roots: Iterable[Path] = ()) -> str | None:
    """The word of a shell command that names a protected path, if any.

    Quotes and backslashes are taken out first and globs are tried against the protected names. A name put together by
    variables or substitutions is not seen: this asks where it can, it does not prove that a command is harmless.
    """
    bare = re.sub(r"\\\n|[\"'\\]", "", command)
    if "AGX_HOME" in bare or "AGX_TOKEN_FILE" in bare:
        return "AGX_HOME"
    roots = tuple(roots)
    for root in roots:
        if str(root) in bare or os.path.realpath(root) in bare:
            return str(root)
    for word in _words(bare):
        path = Path(os.path.normpath(workspace / word))
        if protected_part(Path(word)) or any(is_within(path, root) for root in roots):
            return word
        if any(_may_become_protected(part) for part in word.split("/")):
            return word
    return None


def _words(command: str) -> list[str]:
    """The words of a command, and what brace expansion may make of them."""
    words = [word for word in re.split(r"[\s;|&<>()`$=:,]+|(?<!\w)~(?=/)", command) if word]
    for word in re.findall(r"\S*\{\S*", command):
        prefix, *choices = re.split(r"[{,}]", word)
        words += [prefix + choice for choice in choices]
    return words


def _may_become_protected(part: str) -> bool:
    """Whether a glob such as `.gi*` matches a protected name; a leading `*` or `?` matches no dot in bash."""
    if not part.startswith(".") or not re.search(r"[*?[]", part):
        return False
    return any(fnmatchcase(name, part.casefold()) for name in _NAMES)
