"""The profile of Landlock, for machines where bubblewrap does not work.

1. It is weaker. It takes rights to whole folders only: in a writable workspace it cannot keep `.git/config` or hooks
   from being changed; what a command changed is found and reported after it.
2. Sockets with a path, and UDP, pass; TCP passes before version 4, signals and abstract sockets before version 6.
3. Temporary files have a folder of their own, which TMPDIR names; /tmp itself is out of reach. /dev/shm is shared with
   other programs: semaphores of Python's multiprocessing are in it.
4. Hosts cannot be told apart: a command that may reach some has all of TCP.
5. The kernel does not restrict changes of permissions, owners and times: a command may make them wherever its user may.
"""

from __future__ import annotations

import json
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
    rules = {"read": read, "write": write, "network": bool(profile.network)}
    return [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(rules), *command]


def _visible(folder: Path, hidden: Sequence[Path]) -> Iterator[str]:
    """Yield the entries of a folder, of those with a hidden path in them only their other entries, and so on."""
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
