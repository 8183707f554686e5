"""The search for a sandbox that works on this machine, with a trial run, once per process."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from agenticx.sandbox.bubblewrap import Profile, wrap
from agenticx.sandbox.options import SandboxKind, SandboxOptions

__all__ = ["SandboxStatus", "find_sandbox"]

_TRIAL_SECONDS = 10.0
_MAX_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """The sandbox of this machine: its kind and program, or None and the `reason` why there is none, a sentence."""

    kind: SandboxKind | None
    reason: str
    program: str = ""


def find_sandbox(options: SandboxOptions) -> SandboxStatus:
    """Return the sandbox that commands run in; the first call of a process tries it, for up to 10 s."""
    if options.mode == "off":
        return SandboxStatus(None, "The setting AGX_SANDBOX is off.")
    if not sys.platform.startswith("linux"):
        return SandboxStatus(None, "There is a sandbox on Linux only.")
    program = shutil.which("bwrap")
    if program is None:
        return SandboxStatus(None, "bubblewrap is not installed (there is no bwrap on the PATH).")
    return _try_bubblewrap(os.path.abspath(program))


@functools.cache
def _try_bubblewrap(program: str) -> SandboxStatus:
    shell = shutil.which("sh", path=os.defpath) or "/bin/sh"
    arguments = wrap(program, Profile(workspace=Path("/usr"), writable=False), [shell, "-c", ":"])
    try:
        trial = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return SandboxStatus(None, f"{program} did not end within {_TRIAL_SECONDS:g} s.")
    except OSError as exc:
        return SandboxStatus(None, f"{program} cannot be run: {exc.strerror}.")
    if trial.returncode == 0:
        return SandboxStatus("bubblewrap", f"Commands run in bubblewrap ({program}).", program)
    error = " ".join(trial.stderr.decode(errors="replace").split())[:_MAX_SHOWN_CHARS].removeprefix("bwrap: ")
    said = error or f"exit code {trial.returncode}"
    return SandboxStatus(None, f"{program} does not work here: {_cause(error)} ({said}).")


def _cause(error: str) -> str:
    """Return a clause about why bubblewrap fails, by the kernel's settings and by what it said.

    A masked /proc is that of a container: the kernel refuses a second one that would show more.
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
