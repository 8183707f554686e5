"""Promise A4: a disk failure at any operation is reported and loses nothing that was shown.

When the disk fails at any operation, the turn says so, nothing is shown that is not stored, and the next turn runs.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.faults.checker import findings, report_findings
from tests.support.faults.disk import FAILURES, arm
from tests.support.faults.faulty_stores import REFUSED, UNANSWERED
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import KillableStudio, RecordedFolder, ServerForker, server_forker
from tests.support.lanes import Count
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio

TURN = plan((3, ["mark", "look"]), (3, []))
MOST_OPERATIONS = 1000


class Failing:
    """A server whose storage fails on command, with a client that waits for the end of every turn."""

    def __init__(
        self, recorded: RecordedFolder, studio: KillableStudio, client: httpx.AsyncClient, control: Path, notes: Path
    ) -> None:
        self.recorded = recorded
        self.client = client
        self._studio = studio
        self._control = control
        self._notes = notes

    async def suffer(self, what: str, nth: int, seconds: float = 0.0) -> bool:
        """Run one turn of a new session with this failure, then one without; return True if the failure occurred."""
        (session,) = await self.recorded.make_sessions(self.client, ["auto"])
        following = asyncio.create_task(self._follow(session))
        failed_before = self._failures()
        arm(self._control, what, nth, seconds)
        status = await self.recorded.start(self.client, session, TURN)
        if status == 202:
            await self._until(session, 1)
        failed = self._failures() > failed_before
        arm(self._control, None)
        ends = self._ends(session)
        assert all(end in {"final", "error storage"} for end in ends), f"{what} at {nth}: {status} {ends}"
        assert failed or ends == ["final"], f"without a failure: {status} {ends}"
        assert await self.recorded.start(self.client, session, TURN) == 202, f"after {what} at {nth}"
        await self._until(session, len(ends) + 1)
        while self._ends(session)[-1] != "final":  # the end of the turn before had waited
            await self._until(session, len(self._ends(session)) + 1)
        following.cancel()
        return failed

    def _failures(self) -> int:
        return self._notes.read_text().count("failed ") if self._notes.exists() else 0

    async def _follow(self, session: str) -> None:
        """Follow a stream, reconnecting when the failure ends it, as every client does."""
        while True:
            await self.recorded.follow(self.client, session)
            await asyncio.sleep(0.01)

    async def _until(self, session: str, ends: int) -> None:
        await wait_until(lambda: len(self._ends(session)) >= ends, state=lambda: self._ends(session))

    def _ends(self, session: str) -> list[str]:
        frames = [json.loads(frame) for frame in self.recorded.seen.sessions[session].frames]
        return [
            " ".join([frame["type"], *([frame["data"]["code"]] if frame["type"] == "error" else [])])
            for frame in frames
            if frame["type"] == "final" or frame["data"].get("fatal")
        ]


@asynccontextmanager
async def failing(forker: ServerForker, folder: Path, **options: Any) -> AsyncGenerator[Failing]:
    recorded, control, notes = RecordedFolder(folder / "home"), folder / "control", folder / "home" / "stderr"
    if "disk" in options:
        notes = folder / "trace"
        options["disk"] = {"trace": str(notes), "control": str(control)}
    else:
        options["fails"] = str(control)
    studio = await forker.serve(recorded.home, **options)
    async with studio.client() as client:
        everything = asyncio.create_task(recorded.follow(client, None))
        yield Failing(recorded, studio, client, control, notes)
        everything.cancel()
        assert await studio.end(signal.SIGTERM) == 0
    errors = (folder / "home" / "stderr").read_text()
    assert "Traceback" not in errors, errors
    found = findings(recorded.log(), recorded.seen, over=True)
    assert found == [], report_findings(found)


@pytest.mark.promise("A4")
@pytest.mark.parametrize("what", [REFUSED, UNANSWERED])
@pytest.mark.cases(quick=1)
async def test_a_store_failure_at_any_operation_ends_the_turn_and_the_next_one_works(
    tmp_path: Path, what: str, count: Count
) -> None:
    async with server_forker() as forker, failing(forker, tmp_path) as one:
        assert await first_untouched(one, what, step=4 // count(1, 4, 4)) > 10


@pytest.mark.promise("A4")
@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.cases(quick=1)
async def test_a_disk_failure_at_any_operation_ends_the_turn_and_the_next_one_works(
    tmp_path: Path, what: str, count: Count
) -> None:
    async with server_forker() as forker, failing(forker, tmp_path, disk={}) as one:
        await first_untouched(one, what, step=12 // count(1, 4, 12))


async def first_untouched(one: Failing, what: str, step: int = 1) -> int:
    """Return the number of the first operation that no turn reaches."""
    for nth in range(1, MOST_OPERATIONS, step):
        if not await one.suffer(what, nth):
            return nth
    raise AssertionError(f"a turn takes more than {MOST_OPERATIONS} operations")
