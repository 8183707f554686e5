"""The address file of a running studio, by which other commands find it: AGX_HOME/studio-PID.json.

It contains `{"url": "http://127.0.0.1:8765", "pid": 123}`. Each process has a file of its own, so one that ends does
not remove the address of another.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["StudioAddress", "read_address", "running_studios", "write_private"]

_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class StudioAddress:
    """The address of a studio on this machine; `host` is written as in a URL, so an IPv6 address has brackets."""

    host: str
    port: int
    pid: int = field(default_factory=os.getpid)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def write_file(self, home: Path) -> None:
        """Write the address file; delete those of processes that have ended."""
        for path in _address_files(home):
            if _read_if_running(path) is None:
                path.unlink(missing_ok=True)
        write_private(_address_file(home, self.pid), json.dumps({"url": self.url, "pid": self.pid}) + "\n")

    def remove_file(self, home: Path) -> None:
        _address_file(home, self.pid).unlink(missing_ok=True)


def read_address(home: Path, pid: int) -> StudioAddress | None:
    """Return the address in the file of a process, or None if there is no valid one."""
    return _read(_address_file(home, pid))


def running_studios(home: Path) -> list[StudioAddress]:
    """Return the addresses of the studios whose process is running, the most recently started first."""
    addresses = (_read_if_running(path) for path in _address_files(home))
    return [address for address in addresses if address is not None]


def write_private(path: Path, content: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    temporary.replace(path)


def _address_files(home: Path) -> list[Path]:
    """Return the address files of all studios, the latest first."""
    files: list[tuple[float, Path]] = []
    for path in home.glob("studio-*.json"):
        with suppress(FileNotFoundError):
            files.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(files, reverse=True)]


def _address_file(home: Path, pid: int) -> Path:
    return home / f"studio-{pid}.json"


def _read(path: Path) -> StudioAddress | None:
    try:
        content: Any = json.loads(path.read_text())
        host, _, port = str(content["url"]).removeprefix("http://").rpartition(":")
        return StudioAddress(host, int(port), int(content["pid"])) if host in _LOOPBACK_HOSTS else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_if_running(path: Path) -> StudioAddress | None:
    address = _read(path)
    if address is None:
        return None
    try:
        os.kill(address.pid, 0)
    except (OSError, OverflowError):  # PermissionError: the pid was reused by another user's process
        return None
    return address
