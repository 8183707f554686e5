"""A program that restricts itself with Landlock and then becomes a command.

    python -I -S _landlock_launcher.py NETWORK READ WRITE PATH… PROGRAM ARGUMENT…

NETWORK is 1 if TCP is allowed, else 0. READ is the number of paths that may be read only, WRITE the number of paths
that may also be written; a folder stands for everything in it. Each path is an argument of its own, as one argument has
128 KiB at most. Restrictions that the kernel's version of Landlock lacks are left out. Exit code 126: Landlock did not
work.

The interface: https://docs.kernel.org/userspace-api/landlock.html. The module imports little, and nothing of AgenticX,
because it starts once per command.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all architectures
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 38, 47, 4
_MAX_CAPABILITIES = 64

# Rights to files, by their bits: execute, write_file, read_file, read_dir; from 4 on changes of folders; then those
# of later versions.
_READ = 1 << 0 | 1 << 2 | 1 << 3
_FIRST_VERSION = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | _TRUNCATE | _IOCTL_DEVICE
_ALL_TCP = 1 << 0 | 1 << 1  # bind, connect
_ALL_SCOPES = 1 << 0 | 1 << 1  # abstract sockets, signals


class _RulesetAttributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _PathAttributes(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def main() -> None:
    network, read, write = map(int, sys.argv[1:4])
    paths, command = sys.argv[4 : 4 + read + write], sys.argv[4 + read + write :]
    try:
        restrict(paths[:read], paths[read:], network=bool(network))
    except OSError as exc:
        os.write(2, f"landlock: {exc.strerror}\n".encode())
        sys.exit(126)
    try:
        os.execv(command[0], command)
    except OSError as exc:
        os.write(2, f"{command[0]}: {exc.strerror}\n".encode())
        sys.exit(127)


def landlock_version() -> int:
    """Return the kernel's version of Landlock, 0 if it has none or it is off."""
    try:
        return max(_call(_CREATE_RULESET, None, 0, _VERSION_FLAG), 0)
    except OSError:
        return 0


def restrict(read: list[str], write: list[str], *, network: bool) -> None:
    """Restrict this process and its children, for good; raise `OSError` if that fails."""
    version = landlock_version()
    files = _FIRST_VERSION
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        files |= right if version >= since else 0
    attributes = _RulesetAttributes(
        files, _ALL_TCP if version >= 4 and not network else 0, _ALL_SCOPES if version >= 6 else 0
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    for paths, rights in ((read, _READ), (write, files)):
        for path in paths:
            _allow(ruleset, path, rights & files)
    process_control = ctypes.CDLL(None, use_errno=True).prctl
    # With capabilities the superuser could read the environment and the memory map of any process. So the ambient and
    # the bounding set are cleared here. Other users have no right to clear them, so these calls may fail.
    process_control(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    for capability in range(_MAX_CAPABILITIES):
        process_control(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if process_control(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # removed since the rules were made
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathAttributes(rights, parent)), 0)
    finally:
        os.close(parent)


def _call(number: int, *arguments: object) -> int:
    result = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main()
