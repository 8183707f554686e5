"""Promise A2: a power cut that tears unsynced writes loses nothing that was reported as done."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.faults.checker import VOLATILE, findings, report_findings
from tests.support.faults.disk import unsynced_writes
from tests.support.faults.killing import KillLoop, split_cycles
from tests.support.faults.log_file import read_log, snapshot
from tests.support.faults.servers import World, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio

SECTOR = 512


class PowerCuts:
    """A check after each kill of three images of the disk as a power cut at that moment could have left it."""

    def __init__(self, world: World, trace: Path, rng: random.Random) -> None:
        self.images = self.torn = 0
        self._world = world
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


@pytest.mark.promise("A2")
@pytest.mark.parametrize("part", range(2))
@pytest.mark.cases(quick=1)
async def test_a_power_failure_loses_no_acknowledged_write(
    tmp_path: Path, rng: random.Random, count: Count, part: int
) -> None:
    for number, lives in enumerate(split_cycles(count(1, 12, 2_500), 50)):
        folder = tmp_path / str(number)
        world, trace = World(folder / "home"), folder / "trace"
        cuts = PowerCuts(world, trace, rng)
        async with server_forker() as forker:
            order = {"disk": {"trace": str(trace)}}
            loop = KillLoop(forker, world, rng, sessions=25, order=order, after_kill=cuts)
            for _ in range(20):  # of a slow machine's short lives few may come to write anything
                found = await loop.run(lives)
                assert found == [], report_findings(found)
                if cuts.torn > lives / 2:
                    break
        assert cuts.torn > lives / 2
        print(loop.figures, cuts.images, "images", cuts.torn, "files torn")
