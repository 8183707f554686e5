"""The discovery file of the running studio, for other programs: AGX_HOME/studio.json.

`{"url": "http://127.0.0.1:8765", "port": 8765, "token_file": "…", "pid": 123, "version": "0.1.0", "api": 1,
"instance": "…"}`, mode 0600, replaced atomically. It is written before the studio announces itself and is gone after
every end but a kill. Before a reader sends the token to that port it therefore checks that the process runs, and that
`GET /api/health` (without a token) answers with the same instance, as `discovery.find_studio` does.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agenticx import __version__
from agenticx.process_ids import is_running

__all__ = ["API_VERSION", "STUDIO_FILE", "StudioAddress", "read_address", "write_private"]

STUDIO_FILE = "studio.json"
API_VERSION = 1
"""The version of the HTTP API; it rises with a change that breaks existing clients."""

_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class StudioAddress:
    """The address of a studio on this machine; `host` is written as in a URL, so an IPv6 address has brackets.

    `instance` is a random identifier of one run of the server; `token_file` has the token for its requests.
    """

    host: str
    port: int
    instance: str
    token_file: Path
    pid: int = field(default_factory=os.getpid)
    version: str = __version__
    api: int = API_VERSION

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        """Return the content of the discovery file."""
        return {
            "url": self.url,
            "port": self.port,
            "token_file": str(self.token_file),
            "pid": self.pid,
            "version": self.version,
            "api": self.api,
            "instance": self.instance,
        }

    def write_file(self, home: Path) -> None:
        """Write the discovery file, in place of one that a killed studio left."""
        write_private(home / STUDIO_FILE, json.dumps(self.to_json()) + "\n")

    def remove_file(self, home: Path) -> None:
        """Delete the discovery file if it is that of this instance."""
        path = home / STUDIO_FILE
        written = _read(path)
        if written is not None and written.instance == self.instance:
            path.unlink(missing_ok=True)


def read_address(home: Path) -> StudioAddress | None:
    """Return the address in the discovery file, or None if there is no valid one or its process has ended."""
    address = _read(home / STUDIO_FILE)
    return address if address is not None and is_running(address.pid, of_this_user=True) else None


def write_private(path: Path, content: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    temporary.replace(path)


def _read(path: Path) -> StudioAddress | None:
    try:
        content: Any = json.loads(path.read_text())
        host, _, port = str(content["url"]).removeprefix("http://").rpartition(":")
        address = StudioAddress(
            host,
            int(port),
            str(content["instance"]),
            Path(content["token_file"]),
            int(content["pid"]),
            str(content["version"]),
            int(content["api"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if host in _LOOPBACK_HOSTS else None
