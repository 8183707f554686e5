"""The newest timeline of each server that this installation has written, kept for later processes.

A standby that is promoted begins a new timeline. An earlier primary that is started again has the earlier timeline, and
writes to it are lost. A worker that starts then recognizes it only by the timeline kept here.
"""

from __future__ import annotations

import json
from pathlib import Path

from agenticx.logs import get_logger
from agenticx.private_files import make_folders, replace_file
from agenticx.threads import run_in_thread

__all__ = ["KnownTimelines"]

_log = get_logger(__name__)


class KnownTimelines:
    """The timelines in a file, by the system identifier of the server; without a path they are not kept."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._newest = {} if path is None else _read(path)

    def newest(self, system: str) -> int:
        """Return the newest known timeline of a server, 0 for one that is not known."""
        return self._newest.get(system, 0)

    async def note(self, system: str, timeline: int) -> None:
        """Keep a timeline if it is newer than the known one."""
        if timeline > self.newest(system):
            self._newest[system] = timeline
            if self.path is not None:
                await run_in_thread(_write, self.path, dict(self._newest), name="agx store timelines")


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_bytes())
        return {str(system): int(timeline) for system, timeline in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        _log.warning("the known timelines of database servers cannot be read", path=str(path), error=str(exc))
        return {}


def _write(path: Path, newest: dict[str, int]) -> None:
    try:
        make_folders(path.parent, path.parent)
        content = json.dumps({system: max(number, _read(path).get(system, 0)) for system, number in newest.items()})
        replace_file(path, content.encode(), path.with_name(f"{path.name}.new"))
    except OSError as exc:
        _log.warning("the timeline of the database server cannot be kept", path=str(path), error=str(exc))
