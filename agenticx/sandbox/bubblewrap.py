"""The profiles of bubblewrap: read-only, and with a writable workspace.

In both the whole file system is read-only. The home folder (except toolchains), /tmp and /run (with the sockets of
other programs) are empty, and AgenticX's own files are hidden. The only network is the sandbox's own loopback, and no
process outside is visible. Later options are mounted over earlier ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.sandbox.hosts import Host

__all__ = ["EMPTY_FOLDERS", "MAX_MOUNTS", "Profile", "home_folders", "lost_folders", "wrap"]

# They hold the sockets of other programs, such as Docker's, and a user's session bus; and shared temporary files.
EMPTY_FOLDERS = ("/tmp", "/var/tmp", "/run")
MAX_MOUNTS = 2_000
"""The most paths that a profile may pin or protect: bubblewrap takes 9,000 arguments, three of them for each."""
# Folders of the home folder in which compilers and package managers write: empty ones, which end with the command. All
# else in the home folder fails, so that nothing seems to be written that is lost.
_CACHES = """
    .bun .bundle .cache .cargo .ccache .composer .dotnet .gem .gradle .ivy2 .julia .local/share/pnpm .m2 .npm .nuget
    .pub-cache .sbt .yarn go/pkg
"""
_NAME_SERVICE = "/run/systemd/resolve"
_PROGRAMS_IN_RUN = ("/run/current-system", "/run/wrappers")  # of NixOS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules for one command; all paths are absolute, `workspace` and `private` with links resolved.

    - `network` is True for all of the network, or the hosts that the command may reach, here through a proxy.
    - `private` are AgenticX's own files and folders, which are hidden.
    - `visible` paths stay readable in the home folder and in /tmp, which are empty otherwise.
    - `pinned` are folders of a writable workspace that cannot be renamed, such as `.git`; `read_only` are paths in it
      that cannot be changed.
    - `programs` are files and folders that stay readable wherever they are.
    """

    workspace: Path
    writable: bool
    network: bool | tuple[Host, ...] = False
    private: tuple[Path, ...] = ()
    visible: tuple[Path, ...] = ()
    pinned: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()


def home_folders() -> tuple[Path, ...]:
    """Return the home folders that HOME and the user database name, without missing ones and `/`."""
    homes = [os.path.realpath(home) for home in (os.path.expanduser("~"), _home_of_user()) if os.path.isabs(home)]
    return tuple(Path(home) for home in dict.fromkeys(homes) if home != "/" and os.path.isdir(home))


def lost_folders(workspace: Path) -> list[Path]:
    """Return the writable folders whose content is lost when the command ends; some may be in `workspace`."""
    homes = [home for home in home_folders() if not home.is_relative_to(workspace)]
    return [*map(Path, (*EMPTY_FOLDERS, "/dev")), *(cache for home in homes for cache in _caches(home))]


def _home_of_user() -> str:
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # the user has no entry, as in some containers
        return ""


def wrap(program: str, profile: Profile, command: Sequence[str]) -> list[str]:
    """Return the arguments that run `command` under `profile`; `program` is the path of bubblewrap.

    The sandbox ends with its last process, not with the command: what the command leaves running is counted and ended
    by its supervisor.
    """
    namespaces = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if profile.network is not True:
        namespaces.append("--unshare-net")
    options = [*namespaces, "--new-session", "--cap-drop", "ALL", *_mounts(profile), "--chdir", str(profile.workspace)]
    return [program, *options, "--", *command]


def _mounts(profile: Profile) -> Iterator[str]:
    workspace = profile.workspace
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    for folder in EMPTY_FOLDERS:
        if os.path.isdir(folder) and not os.path.islink(folder):
            yield from ("--tmpfs", folder)
    for folder in _PROGRAMS_IN_RUN:
        yield from ("--ro-bind-try", folder, folder)
    if profile.network is True:
        yield from ("--ro-bind-try", _NAME_SERVICE, _NAME_SERVICE)
    homes = [home for home in home_folders() if not home.is_relative_to(workspace)]
    parents = [workspace.parent] if _is_lost(workspace.parent, homes) else []
    for parent in parents:
        yield from ("--tmpfs", str(parent))
    yield from _empty_homes(homes, profile)
    yield from _visible_paths(homes, profile)
    around = [path for path in profile.private if workspace.is_relative_to(path)]
    yield from _hide(around)
    yield from ("--bind" if profile.writable else "--ro-bind", str(workspace), str(workspace))
    for path in profile.pinned:
        yield from ("--bind-try" if profile.writable else "--ro-bind-try", str(path), str(path))
    for path in profile.read_only:
        yield from ("--ro-bind-try", str(path), str(path))
    yield from _hide(path for path in profile.private if path not in around)
    hidden = (*homes, *parents, *map(Path, EMPTY_FOLDERS), *profile.private)
    for path in _within(hidden, profile.programs, but=workspace):
        yield from ("--ro-bind", str(path), str(path))
    for folder in (*homes, *parents):
        yield from ("--remount-ro", str(folder))


def _is_lost(parent: Path, homes: Sequence[Path]) -> bool:
    """Return whether files that a command writes next to the workspace would be lost when the command ends."""
    empty = any(parent != Path(folder) and parent.is_relative_to(folder) for folder in EMPTY_FOLDERS)
    return empty and not any(map(parent.is_relative_to, homes))


def _empty_homes(homes: Sequence[Path], profile: Profile) -> Iterator[str]:
    for home in homes:
        yield from ("--tmpfs", str(home))
        for cache in _caches(home) if profile.writable else ():
            yield from ("--tmpfs", str(cache))


def _visible_paths(homes: Sequence[Path], profile: Profile) -> Iterator[str]:
    emptied = (*homes, *map(Path, EMPTY_FOLDERS))
    for path in profile.visible:
        if any(map(path.is_relative_to, emptied)):
            yield from ("--ro-bind-try", str(path), str(path))


def _caches(home: Path) -> Iterator[Path]:
    """Yield the existing caches, and always the shared `.cache`; each costs a quarter of a millisecond."""
    return (home / name for name in _CACHES.split() if name == ".cache" or os.path.isdir(home / name))


def _within(folders: Sequence[Path], paths: Sequence[Path], *, but: Path) -> Iterator[Path]:
    """Yield the paths in one of the folders, except paths in `but`."""
    return (path for path in paths if any(map(path.is_relative_to, folders)) and not path.is_relative_to(but))


def _hide(paths: Sequence[Path] | Iterator[Path]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            yield from ("--tmpfs", str(path))
        elif os.path.exists(path):
            yield from ("--ro-bind", os.devnull, str(path))
