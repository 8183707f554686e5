"""The quarantine: protected files that a command in the sandbox created are moved there once it has ended.

Existing protected files are mounted read-only. A missing one cannot be mounted, and a placeholder would remain as an
empty file, so new ones are moved away afterwards.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import error_text
from agenticx.private_files import make_folders
from agenticx.tools.shell.protected_files import ProtectedFiles, ProtectedIdentity, is_named_in
from agenticx.tools.unfollowed_paths import list_folder, move_entry, open_folder, read_small_file

__all__ = ["Quarantined", "move_new_ones", "newest_change"]

_MAX_CONFIG_BYTES = 64 * 1024
_MAX_PATH_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The paths that were moved away, and the paths that could not be moved, with the reason."""

    moved: Sequence[Path]
    kept: Mapping[Path, str]


def move_new_ones(
    before: ProtectedFiles, after: ProtectedFiles, command: str, quarantine: Path, *, home: Path, were_mounted: bool
) -> Quarantined:
    """Move files that appeared under a protected name since `before` into `quarantine`, a folder in `home`.

    These stay:
    - files that `command` names: the user was asked about it;
    - files that others changed meanwhile; if the protected files were not mounted read-only, this cannot be told, so
      each file in the place of a protected one stays;
    - files in a folder that was not searched before the command: they may have been there.

    Another command may change the workspace at the same time: no link is followed, and a file is moved only if it is
    still the one that was found, in the folder in which it was found.
    """
    known = {identity for path, identity in before.identities.items() if not is_named_in(command, path)}
    roots = (before.workspace, *before.repositories)
    moved: list[Path] = []
    kept: dict[Path, str] = {}
    for path, identity in after.identities.items():
        if identity in known or is_named_in(command, path) or _others_changed(path, before, identity, were_mounted):
            continue
        if not any(map(path.is_relative_to, roots)) or not before.is_searched(path):
            continue
        try:
            with open_folder(path.parent) as folder:
                _require_same(path.name, folder, identity)
                if any(map(path.is_relative_to, after.repositories)) and _is_harmless_part(path.name, folder):
                    continue
                make_folders(quarantine, home)
                inside = path.relative_to(before.workspace if path.is_relative_to(before.workspace) else "/")
                move_entry(path.name, folder, Path(os.path.realpath(quarantine)), inside.parts[:-1])
                moved.append(path)
                if path in before.identities and (link := before.identities[path].target):
                    os.symlink(link, path.name, dir_fd=folder)
        except FileNotFoundError:  # removed since, or moved away after another command
            continue
        except OSError as exc:
            kept[path] = error_text(exc)
    return Quarantined(moved, kept)


def _require_same(name: str, folder: int, judged: ProtectedIdentity) -> None:
    """Raise `OSError` unless an entry of an open folder, and the folder itself, are the ones that were found."""
    above, entry = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if ((above.st_dev, above.st_ino), entry.st_dev, entry.st_ino) != (judged.parent, judged.device, judged.inode):
        raise OSError("it was changed meanwhile")


def _others_changed(path: Path, before: ProtectedFiles, now: ProtectedIdentity, were_mounted: bool) -> bool:
    """Return whether someone else changed a path that existed before, for example by saving it in an editor.

    The command could not change, rename or remove a mounted path; it could only rename its folder and make another one.
    Links are not mounted.
    """
    earlier = before.identities.get(path)
    if earlier is None or not were_mounted:
        return earlier is not None
    return not earlier.target and earlier.parent == now.parent


def newest_change(path: Path) -> int:
    """Return the time of the latest change of a file, or of anything in a folder, in nanoseconds; 0 if it is gone."""
    newest, pending = 0, [path]
    while pending:
        here = pending.pop()
        try:
            with open_folder(here.parent) as folder:
                status = os.stat(here.name, dir_fd=folder, follow_symlinks=False)
                newest = max(newest, status.st_ctime_ns)
                if stat.S_ISDIR(status.st_mode) and len(str(here)) < _MAX_PATH_CHARS:
                    pending += [here / name for name in list_folder(here.name, folder)]
        except OSError:  # removed, not readable, or a link by now
            continue
    return newest


_SECTION = re.compile(r'\[\s*(\w+)(?:\s+"[^"]*")?\s*\]')
_HARMLESS_KEYS = {
    "core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode"},
    "remote": {"url", "fetch"},
    "branch": {"remote", "merge"},
    "user": {"name", "email"},
    "init": {"defaultbranch"},
}


def _is_harmless_part(name: str, folder: int) -> bool:
    """Return whether a part of a new repository runs nothing: plain settings, and hooks that are samples.

    `folder` is the open folder of the repository.
    """
    try:
        if name == "hooks":
            return all(hook.endswith(".sample") for hook in list_folder(name, folder))
        if name != "config":
            return False
        content = read_small_file(name, folder, _MAX_CONFIG_BYTES)
    except OSError:
        return False
    keys: set[str] = set()
    for line in content.decode("utf-8", "replace").splitlines():
        if section := _SECTION.fullmatch(line.strip()):
            keys = _HARMLESS_KEYS.get(section[1].lower(), set())
            if not keys:
                return False
        elif (name := line.partition("=")[0].strip().lower()) and (name not in keys or line.rstrip().endswith("\\")):
            return False
    return True
