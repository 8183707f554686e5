"""Folders and files, such as toolchains, that stay readable in folders that the sandbox hides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agenticx.secret_detection import holds_credentials

__all__ = ["virtual_environments", "visible_home_paths"]

_TOOLCHAINS = """
    .asdf .bun/bin .cargo/bin .deno/bin .local/bin .local/lib .local/share/mise .local/share/pipx .local/share/uv .nvm
    .pyenv .rbenv .rustup .sdkman .volta go/bin miniconda3
"""
_GIT_FILES = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")
_MAX_GIT_BYTES = 256 * 1024


def visible_home_paths(home: Path, extra: Sequence[str]) -> tuple[Path, ...]:
    """Return the existing paths in `home` that a command may read, with the targets of the links in .local/bin.

    `extra` are further paths of the user, relative to `home` or absolute. A file of git that holds a password or a
    key is left out.
    """
    paths = [home / name for name in _TOOLCHAINS.split()]
    paths += [home / name for name in _GIT_FILES if not _has_credentials(home / name)]
    paths += [home / Path(name).expanduser() for name in extra]
    found = [path for path in dict.fromkeys(paths) if os.path.exists(path)]  # unlike Path.exists, without an error
    return (*found, *dict.fromkeys(_link_targets(home, found)))


def virtual_environments(search_path: str, around: Sequence[Path]) -> tuple[Path, ...]:
    """Return the virtual environments of `search_path`, a value of PATH, and the one of this process.

    An environment that contains one of the paths `around`, such as the home folder, is left out: it would reveal it.
    """
    folders = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    folders += [Path(entry).parent for entry in search_path.split(os.pathsep) if os.path.isabs(entry)]
    found = [folder for folder in dict.fromkeys(folders) if os.path.isfile(folder / "pyvenv.cfg")]
    return tuple(folder for folder in found if not any(path.is_relative_to(folder) for path in around))


def _link_targets(home: Path, found: Sequence[Path]) -> Iterator[Path]:
    """Yield the targets of the links in .local/bin that are in `home`, but in no folder of `found`."""
    try:
        entries = sorted(os.scandir(home / ".local/bin"), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            continue
        target = Path(os.path.realpath(entry.path))
        if os.path.isfile(target) and target.is_relative_to(home) and not any(map(target.is_relative_to, found)):
            yield target


def _has_credentials(path: Path) -> bool:
    """Return whether the file holds a password or a key; True also if it is too large to tell."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_GIT_BYTES + 1)
    except OSError:
        return False
    text = content.decode("utf-8", "replace")
    return len(content) > _MAX_GIT_BYTES or "extraheader" in text.lower() or holds_credentials(text, is_settings=True)
