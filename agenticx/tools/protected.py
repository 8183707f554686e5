"""Paths that decide what runs or who is asked, so that no agent changes them unasked, in any mode.

Whoever writes a shell start-up file, a git hook or an editor's task gets to run code later, outside every gate; whoever
writes our own settings gets to move the gate. What a person runs knowingly, such as a Makefile, is not protected; what
common tools run by themselves is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

__all__ = ["PROTECTED_NAMES", "is_within", "makes_repository", "named_part", "protected_part"]

_FOLDERS = """
    .agenticx .aws .bundle .cargo .circleci .claude .codex .cursor .devcontainer .direnv .docker .emacs.d .fleet
    .git .githooks .gitea .gnupg .gradle .hg .husky .idea .ipython .jj .jupyter .kube .lefthook .m2 .mvn .nvim
    .password-store .roo .ssh .svn .vim .vscode .windsurf .woodpecker .yarn .zed
"""
_START_UP_FILES = """
    .ackrc .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .bazelrc .bunfig.toml .condarc .cshrc .curlrc
    .dir-locals.el .emacs .env .envrc .exrc .gdbinit .gemrc .git-credentials .gitattributes .gitconfig .gitlab-ci.yml
    .gitmodules .gvimrc .hgrc .ideavimrc .inputrc .irbrc .julia .kshrc .lesskey .lldbinit .login .lvimrc .mailcap
    .mcp.json .mise.toml .netrc .npmrc .nvim.lua .nvimrc .octaverc .pam_environment .pdbrc .perltidyrc .pgpass
    .pnpmfile.cjs .pre-commit-config.yaml .profile .pryrc .psqlrc .pypirc .pythonrc .pythonrc.py .pythonstartup
    .rprofile .screenrc .selected_editor .sqliterc .tcshrc .tmux.conf .tool-versions .travis.yml .vimrc
    .wgetrc .xinitrc .xmodmap .xprofile .xresources .xsession .xsessionrc .yarnrc .yarnrc.yml .zlogin .zlogout
    .zprofile .zshenv .zshrc
"""
PROTECTED_NAMES = frozenset((_FOLDERS + _START_UP_FILES).split())
_SEQUENCES = (
    (".config", "agenticx"),
    (".config", "autostart"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "nvim"),
    (".config", "systemd"),
    (".config", "tmux"),
    (".github", "actions"),
    (".github", "workflows"),
    (".local", "bin"),
)
# Run by whoever starts Python, a test or a project's tools. Commands name them all day, so only writing them counts.
_WRITTEN_NAMES = """
    .config .local .tox .venv azure-pipelines.yml bitbucket-pipelines.yml conftest.py jenkinsfile node_modules pip.conf
    sitecustomize.py usercustomize.py venv
"""
_WRITTEN = frozenset(_WRITTEN_NAMES.split())
_REPOSITORY_NAMES = "commondir config config.worktree hooks info modules objects packed-refs refs worktrees"
_OF_A_REPOSITORY = frozenset(_REPOSITORY_NAMES.split())


def protected_part(path: Path, roots: Iterable[Path] = ()) -> str | None:
    """The part that makes writing `path` an act to ask about, if any; case does not count, as on some file systems."""
    if (named := named_part(path)) is not None:
        return named
    for part in _folded(path):
        if part in _WRITTEN or part.endswith(".pth"):
            return part
    return next((str(root) for root in roots if is_within(path, root)), None)


def named_part(path: Path) -> str | None:
    """The part that is protected wherever it is named, in a shell command too."""
    parts = _folded(path)
    for part in parts:
        if part in PROTECTED_NAMES or part.startswith(".env."):
            return part
    return next((f"{first}/{second}" for first, second in pairwise(parts) if (first, second) in _SEQUENCES), None)


def makes_repository(root: Path, parts: tuple[str, ...]) -> bool:
    """Whether writing there makes or changes a bare git repository, whose configuration names programs git runs.

    Git takes a folder for one by its HEAD, objects and refs, whatever it is called, as soon as it stands in it.
    """
    folded = _folded(Path(*parts))
    if folded[-1:] == ("head",):
        return True
    return any(
        part in _OF_A_REPOSITORY and os.path.lexists(root.joinpath(*parts[:depth], "HEAD"))
        for depth, part in enumerate(folded)
    )


def is_within(path: Path, root: Path) -> bool:
    """Whether `path` is `root` or lies in it, also where `root` is reached through a link."""
    return path.is_relative_to(root) or path.is_relative_to(os.path.realpath(root))


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(part.casefold().rstrip(". ") or part for part in path.parts)
