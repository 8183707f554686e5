"""A process that owns sessions of a PostgreSQL store and writes them, to be paused by its test.

The program reads a command from each line of stdin and answers it with a line of JSON:

- `claim ID …` claims the sessions, as soon as they have no living owner; the answer has the last event of each.
- `write` begins to commit one event after another to each of them; the answer comes once each has two.
- `check` lets each session be written twice more, or lose its owner; the answer has how many were, `written`, and
  which were `lost`. The answer to the first of the two commits may have waited for the process.
- `stop` ends all writing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.sessions import OwnershipLost, PostgresStore, SessionOwnedElsewhere
from tests.support.forked import AsyncProcess
from tests.support.postgres.writers import LoadWriter, break_commits
from tests.support.timeouts import explained_timeout

__all__ = ["SessionOwner"]

_AGAIN_SECONDS = 0.01


class SessionOwner:
    """A running process of this module."""

    def __init__(self, process: AsyncProcess) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str, name: str, *, lease: float, folder: Path, fences: bool = True) -> SessionOwner:
        """Start a process, whose events begin with `name`; `lease` are seconds. Without `fences` it heeds no epochs."""
        arguments = [url, name, str(lease), *([] if fences else ["without fences"])]
        return cls(
            await AsyncProcess.start(
                "tests.support.postgres.session_owner", arguments, cwd=folder, env={}, stdin=subprocess.PIPE
            )
        )

    async def ask(self, command: str, *ids: str) -> Any:
        """Send a command and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join([command, *ids]) + "\n").encode())
        async with explained_timeout(lambda: f"process {self.process.pid} does not answer {command!r}"):
            line = await self.process.stdout.readline()
        assert line, (await self.process.stderr.read()).decode()
        return json.loads(line)

    async def kill(self) -> None:
        """Kill the process, also while it is paused."""
        if self.process.returncode is None:
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.communicate()


class _Owner:
    def __init__(self, store: PostgresStore, name: str) -> None:
        self._store = store
        self._name = name
        self._writers = dict[str, LoadWriter]()
        self._lost = list[str]()
        self._tasks = list[asyncio.Task[None]]()
        self._checks = 0
        self._commits = dict[str, int]()
        self._changed = asyncio.Event()

    async def claim(self, ids: Sequence[str]) -> dict[str, int]:
        return dict(await asyncio.gather(*map(self._claim, ids)))

    async def _claim(self, session_id: str) -> tuple[str, int]:
        self._writers[session_id] = writer = LoadWriter(self._store, session_id, f"{self._name}:")
        while True:
            try:
                return session_id, (await writer.claim()).last_seq
            except SessionOwnedElsewhere:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def write(self) -> None:
        self._lost, self._commits = [], dict.fromkeys(self._writers, 0)
        self._tasks = [asyncio.create_task(self._write(*each)) for each in self._writers.items()]
        await self.check()

    async def _write(self, session_id: str, writer: LoadWriter) -> None:
        try:
            while True:
                await writer.commit()
                self._commits[session_id] += 1
                self._changed.set()
        except OwnershipLost:
            self._lost.append(session_id)
            self._changed.set()

    async def check(self) -> dict[str, Any]:
        before = dict(self._commits)
        while any(self._commits[id_] < before[id_] + 2 for id_ in before.keys() - set(self._lost)):
            self._changed.clear()
            await self._changed.wait()
        return {"written": len(before) - len(self._lost), "lost": self._lost}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _main(url: str, name: str, lease: str, *broken: str) -> None:
    if broken:
        without = (" AND fences.writer = $9::bigint", ""), ("generation = $11::bigint", "$11::bigint > 0")
        for name, changes in (("ADD_COMMITS", without), ("ADD_COMMITS_AGAIN", ())):
            break_commits(pytest.MonkeyPatch(), name, ("fences.epoch = given.epoch", "true"), *changes)
    owner = _Owner(await asyncio.to_thread(PostgresStore, url, lease=float(lease)), name)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *ids = line.split()
        match command:
            case "claim":
                answer: Any = await owner.claim(ids)
            case "write":
                answer = await owner.write()
            case "check":
                answer = await owner.check()
            case _:
                answer = await owner.stop()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
