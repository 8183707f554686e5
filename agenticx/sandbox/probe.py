"""The search for a sandbox that works on this machine, with a trial run, once per process."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agenticx.sandbox.bubblewrap import Profile, wrap
from agenticx.sandbox.landlock import describe_version, landlock_version, restricted
from agenticx.sandbox.options import SandboxKind, SandboxOptions

__all__ = ["SandboxStatus", "find_sandbox"]

_TRIAL_SECONDS = 10.0
_MAX_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """The sandbox of this machine: its kind and program; without a sandbox, None and a sentence in `reason`.

    With Landlock, `reason` says why bubblewrap does not work, and `gaps` lists what Landlock does not prevent.
    """

    kind: SandboxKind | None
    reason: str
    program: str = ""
    gaps: str = ""


def find_sandbox(options: SandboxOptions) -> SandboxStatus:
    """Return the sandbox that commands run in; the first call of a process tries it, for up to 10 s."""
    if options.mode == "off":
        return SandboxStatus(None, "The setting AGX_SANDBOX is off.")
    if not sys.platform.startswith("linux"):
        return SandboxStatus(None, "There is a sandbox on Linux only.")
    program = shutil.which("bwrap")
    if program is None:
        status = SandboxStatus(None, "bubblewrap is not installed (there is no bwrap on the PATH).")
    else:
        status = _try_bubblewrap(os.path.abspath(program))
    return status if status.kind is not None else _try_landlock(status.reason)


@functools.cache
def _try_landlock(reason: str) -> SandboxStatus:
    """Return the status with Landlock, or without a sandbox; `reason` is why bubblewrap does not work."""
    if (version := landlock_version()) == 0:
        return SandboxStatus(None, f"{reason} The kernel has no Landlock, or it is off.")
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(workspace=Path("/usr"), writable=False)
        trial = _run(restricted(profile, Path(folder), [_shell(), "-c", ":"]))
    if isinstance(trial, str):
        return SandboxStatus(None, f"{reason} Landlock does not work here ({trial}).")
    gaps = describe_version(version)
    weaker = f"Landlock (version {version}) does not keep a command from {gaps}."
    return SandboxStatus("landlock", f"{reason} {weaker}", gaps=gaps)


@functools.cache
def _try_bubblewrap(program: str) -> SandboxStatus:
    error = _run(wrap(program, Profile(workspace=Path("/usr"), writable=False), [_shell(), "-c", ":"]))
    if error is None:
        return SandboxStatus("bubblewrap", f"Commands run in bubblewrap ({program}).", program)
    error = error.removeprefix("bwrap: ")
    return SandboxStatus(None, f"{program} does not work here: {_cause(error)} ({error}).")


def _shell() -> str:
    return shutil.which("sh", path=os.defpath) or "/bin/sh"


def _run(arguments: list[str]) -> str | None:
    """Run a command that does nothing; return None if it works, else its error message."""
    try:
        trial = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_TRIAL_SECONDS:g} s"
    except OSError as exc:
        return f"it cannot be run: {exc.strerror}"
    if trial.returncode == 0:
        return None
    text = " ".join(trial.stderr.decode(errors="replace").split())
    return text[:_MAX_SHOWN_CHARS] or f"exit code {trial.returncode}"


def _cause(error: str) -> str:
    """Return a clause about why bubblewrap fails, by the kernel's settings and bubblewrap's error message.

    Containers have a masked /proc: the kernel refuses to mount a second /proc that would show more.
    """
    if _kernel_setting("user/max_user_namespaces") == "0":
        return "user namespaces are off (user.max_user_namespaces is 0)"
    if _kernel_setting("kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "user namespaces are off for users (kernel.unprivileged_userns_clone is 0)"
    if _kernel_setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1); "
            "a profile for bwrap with the rule userns allows them"
        )
    if "mount proc" in error:
        return "this is a container with a masked /proc, in which none can be mounted"
    if "namespace" in error and _has_system_call_filter():
        return "a filter of system calls, such as a container's seccomp profile, forbids namespaces"
    return "the kernel or a container forbids it"


def _kernel_setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _has_system_call_filter() -> bool:
    try:
        return "\nSeccomp:\t2" in Path("/proc/self/status").read_text()
    except OSError:
        return False
