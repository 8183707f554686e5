"""An explanation of failures of commands that the sandbox may have caused, by their output."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from agenticx.lazy_patterns import lazy_compile
from agenticx.sandbox.hosts import Host
from agenticx.sandbox.options import SandboxKind

__all__ = ["explain_failure"]

_EXAMINED_CHARS = 32_000
_NETWORK = lazy_compile(
    r"could not resolve|couldn't resolve|failed to resolve|name resolution|Name or service not known|getaddrinfo"
    r"|network is unreachable|failed to connect|connection refused"
    r"|(?-i:\bE(?:NOTFOUND|AI_AGAIN|NETUNREACH|CONNREFUSED)\b)"  # not ModuleNotFoundError
    r"|no route to host|cannot connect to the docker daemon at tcp|No address associated with hostname|dns error"
    r"|failed to lookup address",
    re.IGNORECASE,
)
_WRITING = lazy_compile(
    r"read-only file ?system|device or resource busy|\bEROFS\b|\bEBUSY\b"
    r"|read only lock file|setgroups \d+ failed|could not open lock file|unable to acquire the dpkg|are you root\?",
    re.IGNORECASE,
)
# Errors about services of this machine, whose sockets are in /run.
_SERVICE = lazy_compile(
    r"docker (?:daemon|API) at unix:|failed to connect to (?:(?:system|user) scope )?bus|failed to get D-Bus connection"
    r"|not been booted with systemd|(?:cannot|unable to) connect to podman|dial unix ",
    re.IGNORECASE,
)
# Errors in the output of a command that succeeded; they do not match lines of a search, a comparison or a comment.
_CLEAR = lazy_compile(
    r"(?<![\"'`/|])(?:could not resolve|Temporary failure (?:in name resolution|resolving)|\bEAI_AGAIN\b"
    r"|failed to lookup address|name or service not known|network is unreachable|read-only file ?system"
    r"|read only lock file|docker (?:daemon|API) at unix:|failed to connect to (?:system scope )?bus)",
    re.IGNORECASE,
)
_QUOTED_LINE = lazy_compile(r"[^\s:]{1,500}[:-]\d+[:-]|\s*(?:[-+#*>\"'`]|//)")
_DENIED = lazy_compile(r"permission denied|operation not permitted|no such file or directory", re.IGNORECASE)
_MISSING = lazy_compile(r"(?:^|: )([\w.+-]{1,100}): (?:command )?not found", re.MULTILINE)

_DENIED_BY_LANDLOCK = lazy_compile(r"permission denied|operation not permitted|\bEACCES\b", re.IGNORECASE)
_LANDLOCK = (
    "The sandbox allows writing in the workspace, in $TMPDIR and in /dev/shm only, hides /tmp and the home folder, "
    "except toolchains, and has no TCP; a command that needs more is called with network=true or unsandboxed=true, "
    "which asks the user."
)


_NO_SERVICES = (
    "The sandbox hides the sockets of this machine's services, such as docker and systemd; a command that needs one is "
    "called with unsandboxed=true, which asks the user."
)
_NO_NETWORK = (
    "The sandbox has no network, and none of this machine's servers; a command that needs them is called with the hosts"
    ' in network, such as ["pypi.org"], or with network=true, which asks the user.'
)
_PROXY_ONLY = (
    "The sandbox reaches the hosts of the call only through the proxy that HTTP_PROXY and HTTPS_PROXY name; "
    "a program that uses no proxy is called with network=true, which asks the user."
)


def explain_failure(
    output: str,
    *,
    kind: SandboxKind,
    network: bool | Sequence[Host],
    writable: bool,
    homes: tuple[Path, ...],
    failed: bool = True,
) -> str | None:
    """Return a sentence on what the sandbox may have to do with the failure that `output` shows, or None.

    Only the end of the output is read. If the command has not `failed`, only lines that clearly are errors count, and
    no line counts if it only reads, since its output may be lines of a file.
    """
    output = output[-_EXAMINED_CHARS:]
    if not failed:
        output = "\n".join(filter(_is_clear, output.splitlines())) if writable else ""
    if kind == "landlock":
        return _LANDLOCK if _DENIED_BY_LANDLOCK.search(output) else None
    return " ".join(_sentences(output, network, writable, homes)) or None


def _is_clear(line: str) -> bool:
    return _CLEAR.search(line) is not None and _QUOTED_LINE.match(line) is None


def _sentences(output: str, network: bool | Sequence[Host], writable: bool, homes: tuple[Path, ...]) -> Iterator[str]:
    if is_of_service := _SERVICE.search(output) is not None:
        yield _NO_SERVICES
    if network is not True and not is_of_service and _NETWORK.search(output):
        yield _PROXY_ONLY if network else _NO_NETWORK
    if _WRITING.search(output):
        kept = (
            "only the workspace is writable, without files that decide what runs, such as .git/config, hooks and the"
            " virtual environment in which AgenticX runs"
        )
        yield (
            f"In the sandbox {kept if writable else 'a command that only reads can write nothing'}; "
            "a command that must write elsewhere is called with unsandboxed=true, which asks the user."
        )
    lines = output.splitlines()
    if any(str(home) in line and _DENIED.search(line) for line in lines for home in homes):
        yield (
            "The sandbox hides the home folder, except toolchains; "
            "a command that needs more of it is called with unsandboxed=true, which asks the user."
        )
    elif any(_is_in_home(name, homes) for name in dict.fromkeys(_MISSING.findall(output))):
        yield (
            "The program is in the home folder, which the sandbox hides except toolchains and what the user adds with "
            "the setting AGX_SANDBOX_HOME_PATHS; unsandboxed=true asks the user to run the command without the sandbox."
        )


def _is_in_home(program: str, homes: tuple[Path, ...]) -> bool:
    found = shutil.which(program)
    return found is not None and any(map(Path(found).is_relative_to, homes))
