"""Servers that each break one promise on purpose, all of which the checks of this folder find."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from pathlib import Path

import pytest

from tests.support.faults.checker import VOLATILE, findings
from tests.support.faults.disk import arm
from tests.support.faults.kill_loop import KillLoop
from tests.support.faults.plan_model import plan
from tests.support.faults.power_cuts import PowerCuts
from tests.support.faults.questions import racing_answers
from tests.support.faults.servers import RecordedFolder, ServerDied, server_forker
from tests.support.timeouts import explained_timeout

pytestmark = pytest.mark.anyio

CYCLES, TRIES = 1000, 20  # the first finding ends the loop
MAX_UPTIME = 1.5
"""Longer than in the kill tests: a server must get as far as a question and its answer, also on a busy machine."""


@pytest.mark.promise("A1", "A3", "D1", "E3", "F1")
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("shows before it stores", "lost event|is another one"),
        ("forgets that calls began", "no fact says that it began"),
        ("forgets answers", r"and is kept as \[\]"),
        ("lets any turn begin", "kept as running|began while"),
        ("runs calls again", "ran 2 times|ran and is reported as"),
    ],
)
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_a_broken_server_is_detected_by_kills(
    tmp_path: Path, rng: random.Random, broken: str, words: str
) -> None:
    async with server_forker() as forker:
        recorded, options = RecordedFolder(tmp_path / "home"), {"broken": broken}
        loop = KillLoop(forker, recorded, rng, sessions=6, server_options=options, check_every=1, max_uptime=MAX_UPTIME)
        found = await loop.run(CYCLES)
    assert any(re.search(words, one) for one in found), found


@pytest.mark.promise("E2")
@pytest.mark.ci_lane
async def test_a_server_that_accepts_every_answer_is_detected(tmp_path: Path, rng: random.Random) -> None:
    async with server_forker() as forker:
        found = await racing_answers(forker, RecordedFolder(tmp_path / "home"), rng, 200, broken="accepts every answer")
    assert any("was answered both yes and no" in one for one in found), found


@pytest.mark.promise("A2")
@pytest.mark.ci_lane
async def test_a_server_that_never_syncs_is_detected(tmp_path: Path, rng: random.Random) -> None:
    trace = tmp_path / "trace"
    recorded = RecordedFolder(tmp_path / "home")
    async with server_forker() as forker:
        options = {"broken": "never syncs", "disk": {"trace": str(trace)}}
        cuts = PowerCuts(recorded, trace, rng)
        loop = KillLoop(
            forker, recorded, rng, sessions=6, server_options=options, max_uptime=MAX_UPTIME, after_kill=cuts
        )
        found = await loop.run(CYCLES)
    assert any("lost event" in one for one in found), found


@pytest.mark.ci_lane
@pytest.mark.promise("A4")
async def test_a_server_that_hides_storage_failures_is_detected(tmp_path: Path) -> None:
    trace, control = tmp_path / "trace", tmp_path / "control"
    recorded = RecordedFolder(tmp_path / "home")
    disk = {"trace": str(trace), "control": str(control)}
    async with server_forker() as forker:
        studio = await forker.serve(recorded.home, broken="hides storage failures", disk=disk)
        async with studio.client() as client:
            (session,) = await recorded.make_sessions(client, ["auto"])
            following = asyncio.create_task(recorded.follow(client, session))
            for number in range(TRIES):
                assert await recorded.start(client, session, plan((200, []))) == 202
                arm(control, "ENOSPC", 1, seconds=6000)
                async with explained_timeout(lambda: recorded.seen.sessions[session].frames[-5:]):
                    while b"".join(recorded.seen.sessions[session].frames).count(b'"type":"final"') <= number:
                        await asyncio.sleep(0.01)
                if "failed ENOSPC" in trace.read_text():
                    break
                arm(control, None)  # the turn was over before the disk was full
            await studio.end()
            await following
    found = findings(recorded.log(), recorded.seen, may_be_lost=VOLATILE - {"token"})
    assert any("lost event" in one for one in found), found


@pytest.mark.ci_lane
@pytest.mark.promise("A5")
@pytest.mark.parametrize("broken", [None, "takes no lock"])
@pytest.mark.cases(quick=1)
async def test_a_server_that_takes_no_lock_is_detected(tmp_path: Path, broken: str | None) -> None:
    async with server_forker() as forker:
        options = {} if broken is None else {"broken": broken}
        first = await forker.serve(tmp_path / "home", **options)
        if broken is None:
            with pytest.raises(ServerDied, match=f"process {first.pid}"):
                await forker.serve(tmp_path / "home", **options)
        else:
            await forker.serve(tmp_path / "home", **options)
        assert await first.end(signal.SIGKILL) == -signal.SIGKILL
        if broken is None:
            assert await (await forker.serve(tmp_path / "home")).end(signal.SIGTERM) == 0
