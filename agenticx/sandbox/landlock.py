"""The profile of Landlock, for machines where bubblewrap does not work.

1. It is weaker than bubblewrap. It restricts whole folders only: in a writable workspace it cannot protect
   `.git/config` or hooks. Changes of them are found and reported after the command.
2. Sockets with a path and UDP are not restricted; nor is TCP before version 4, nor are signals and abstract sockets
   before version 6.
3. Temporary files go to a folder of the command's own, named by TMPDIR; /tmp itself cannot be accessed. /dev/shm is
   shared with other programs, since Python's multiprocessing has its semaphores there.
4. Hosts are not distinguished: a command that may reach some hosts may use TCP to all hosts.
5. The kernel does not restrict changes of permissions, owners and times: a command may make the changes that its user
   may make.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agenticx.sandbox.bubblewrap import EMPTY_FOLDERS, Profile, home_folders

__all__ = ["describe_version", "landlock_version", "restricted"]

_LAUNCHER = Path(__file__).with_name("_landlock_launcher.py")
_DEVICES = ("/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/random", "/dev/shm", "/dev/tty", "/dev/urandom")
_ZERO = "/dev/zero"


def landlock_version() -> int:
    """Return the kernel's version of Landlock, 0 if it has none or it is off."""
    from agenticx.sandbox import _landlock_launcher  # imports ctypes, which few machines need

    return _landlock_launcher.landlock_version()


def describe_version(version: int) -> str:
    """Return a clause about what a version of Landlock does not keep a command from."""
    missing = [
        "changes of the permissions and times of your other files",
        "writing in /dev/shm",
        "UDP",
        "sockets with a path",
        "changes of .git/config and hooks in the workspace",
    ]
    if version < 4:
        missing.insert(0, "TCP")
    if version < 6:
        missing.insert(0, "signals")
    return f"{', '.join(missing[:-1])} and {missing[-1]}"


def restricted(profile: Profile, temporary: Path | None, command: Sequence[str]) -> list[str]:
    """Return the arguments that run `command` under `profile`, with the folder `temporary`, if any, to write in."""
    homes = [home for home in home_folders() if not home.is_relative_to(profile.workspace)]
    hidden = [*homes, *profile.private, *map(Path, EMPTY_FOLDERS), Path("/dev")]
    read = [*_visible(Path("/"), hidden), str(profile.workspace)]
    read += [str(path) for path in profile.visible if not any(map(path.is_relative_to, profile.private))]
    write = [*_DEVICES, _ZERO, *([] if temporary is None else [str(temporary)])]
    if profile.writable:
        write.append(str(profile.workspace))
    numbers = (int(bool(profile.network)), len(read), len(write))
    return [sys.executable, "-I", "-S", str(_LAUNCHER), *map(str, numbers), *read, *write, *command]


def _visible(folder: Path, hidden: Sequence[Path]) -> Iterator[str]:
    """Yield the entries of a folder; an entry that contains a hidden path is replaced by its own visible entries."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_symlink() or path in hidden:
            continue
        if any(hide.is_relative_to(path) for hide in hidden):
            yield from _visible(path, hidden)
        else:
            yield entry.path
