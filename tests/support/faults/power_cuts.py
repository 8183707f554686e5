"""Power cuts that corrupt the unsynced writes of a log."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.faults.checker import VOLATILE, findings
from tests.support.faults.disk import unsynced_writes
from tests.support.faults.log_file import read_log, snapshot
from tests.support.faults.projections import different_tables
from tests.support.faults.servers import RecordedFolder

__all__ = ["PowerCuts"]

SECTOR = 512


class PowerCuts:
    """A check after each kill of three images of the disk as a power cut at that moment could have left it."""

    def __init__(self, recorded: RecordedFolder, trace: Path, rng: random.Random) -> None:
        self.images = self.torn = 0
        self._world = recorded
        self._trace = trace
        self._rng = rng

    def __call__(self) -> list[str]:
        found: list[str] = []
        waiting = unsynced_writes(self._trace)
        for tear in (self._lost, self._cut, self._garbled):
            copy = snapshot(self._world.database, self._world.home / "torn")
            for name, places in waiting.items():
                self.torn += 1
                tear(copy.with_name(name), places)
            self.images += 1
            wrong = findings(read_log(copy), self._world.seen, may_be_lost=VOLATILE)
            wrong += [] if wrong else different_tables(copy)
            found += [f"{tear.__name__[1:]} {sum(map(len, waiting.values()))} writes: {one}" for one in wrong]
        return found

    def _lost(self, file: Path, places: list[tuple[int, int]]) -> None:
        """Overwrite all unsynced writes with zeros."""
        for offset, size in places:
            _overwrite(file, offset, bytes(size))

    def _cut(self, file: Path, places: list[tuple[int, int]]) -> None:
        """Overwrite the unsynced writes with zeros from some byte on."""
        kept = self._rng.randrange(sum(size for _, size in places) + 1)
        for offset, size in places:
            _overwrite(file, offset + min(kept, size), bytes(size - min(kept, size)))
            kept = max(0, kept - size)

    def _garbled(self, file: Path, places: list[tuple[int, int]]) -> None:
        """Overwrite some sectors of the unsynced writes with zeros or random bytes."""
        for offset, size in places:
            for start in range(offset, offset + size, SECTOR):
                length = min(SECTOR, offset + size - start)
                if self._rng.random() < 0.5:
                    _overwrite(file, start, self._rng.choice([bytes(length), self._rng.randbytes(length)]))


def _overwrite(file: Path, offset: int, content: bytes) -> None:
    if content and file.exists():
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(content)
