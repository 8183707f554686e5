"""Streams that each break one promise on purpose, all of which the checks of these promises find."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import AgentRuntime, RuntimeEvent
from agenticx.testing import GrammarError, call, hang, say
from studio.http.response_writer import WRITE_TIMEOUT_SECONDS
from tests.support.faults import broken
from tests.support.faults.checker import findings
from tests.support.faults.log_cost import large_log_figures
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.server import heartbeats, slow_readers, stream_checks
from tests.support.server.agx_processes import agx_serve
from tests.support.server.running_studio import RunningStudio, note, running_studio
from tests.support.server.shutdown import ShutdownScenario
from tests.support.timeouts import PATIENCE, PatientClock, wait_until
from tests.support.turn_player import Player

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

TRIES = 20


def break_(studio: RunningStudio, mutant: str) -> None:
    broken.services(mutant, studio.services)


@pytest.mark.promise("A6")
async def test_a_server_that_reads_the_whole_log_to_resume_is_detected(tmp_path: Path) -> None:
    figures = await large_log_figures(tmp_path / "home", 30_000, resumes=1, broken="reads the whole log to resume")
    assert any(found.startswith("memory") for found in figures.findings()), figures


@pytest.mark.promise("B1")
@pytest.mark.parametrize(
    ("mutant", "words"),
    [("skips an event after a reconnect", "came 0 times"), ("repeats an event after a reconnect", "came 2 times")],
)
async def test_cursors_that_are_off_by_one_are_detected_by_reconnecting_readers(
    tmp_path: Path, mutant: str, words: str
) -> None:
    async with running_studio(tmp_path, ScriptedModel([stream_checks.many_events(600)] * TRIES)) as studio:
        break_(studio, mutant)
        for _ in range(TRIES):  # who is always up to date shows nothing
            if found := await stream_checks.resume_differences(studio, readers=2, hops=10, events=600):
                break
    assert found
    assert all(one.startswith(words) for one in found), found


@pytest.mark.promise("B2")
@pytest.mark.parametrize(
    ("mutant", "error", "words"),
    [
        ("sends no reset for an odd cursor", TimeoutError, None),
        ("never answers an odd cursor", TimeoutError, None),
        ("fails at an odd cursor", AssertionError, " 500 "),
    ],
)
async def test_a_wrong_response_to_an_odd_cursor_is_detected(
    tmp_path: Path, mutant: str, error: type[Exception], words: str | None
) -> None:
    async with running_studio(tmp_path) as studio:
        session_id = await studio.session()
        log = [frame.raw for frame in await stream_checks.run_turn(studio, session_id)]
        break_(studio, mutant)
        with pytest.raises(error, match=words):
            await stream_checks.check_odd_cursors(studio, session_id, log, seconds=1 if words is None else PATIENCE)


@pytest.mark.promise("B2")
async def test_a_wrong_response_to_an_odd_cursor_of_all_sessions_is_detected(tmp_path: Path) -> None:
    async with running_studio(tmp_path) as studio:
        break_(studio, "fails at an odd cursor")
        with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match=" 500 ")):
            await stream_checks.check_odd_cursors_of_all(studio)


@pytest.mark.promise("B3")
async def test_an_unbounded_queue_for_each_reader_is_detected(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home", mutant="queues for each reader") as served:
        assert await slow_readers.memory_growth_for_stopped_readers(served, 16) > slow_readers.MAX_MEMORY


@pytest.mark.promise("B3")
async def test_a_server_that_drops_no_stalled_reader_is_detected(tmp_path: Path) -> None:
    async with running_studio(tmp_path, clock=PatientClock({WRITE_TIMEOUT_SECONDS: 1e6})) as studio:
        with pytest.raises(TimeoutError):
            await slow_readers.check_stalled_request_is_dropped(studio, "nothing", seconds=2)


@pytest.mark.promise("B4")
@pytest.mark.parametrize(
    ("mutant", "what", "left"),
    [
        ("keeps disconnected readers", "readers", range(10, 31)),
        ("stops the turn of a disconnected reader", "turns", [0]),
    ],
)
async def test_a_leak_after_aborted_readers_is_detected(
    tmp_path: Path, mutant: str, what: str, left: Collection[int]
) -> None:
    async with running_studio(tmp_path, ScriptedModel([[say("a"), hang()]])) as studio:
        session_id = await stream_checks.start_running_turn(studio)
        break_(studio, mutant)
        for _ in range(TRIES):  # on a slow machine some are dead before they are met, and some not yet found to be
            found = await stream_checks.leaks_of_aborted_readers(studio, session_id, 30, seconds=1)
            if found.get(what) in left:
                break
    assert found.get(what) in left, found


@pytest.mark.promise("B5")
@pytest.mark.parametrize(
    ("state", "mutant"),
    [
        ("idle", "never sends a heartbeat"),
        ("model", "sends no heartbeat after token"),
        ("tool", "sends no heartbeat after tool_call"),
        ("confirm", "sends no heartbeat after confirm_required"),
        ("queued", "sends no heartbeat after queued"),
    ],
)
@pytest.mark.cases(quick=2)
async def test_missing_heartbeats_are_detected_in_each_state(tmp_path: Path, state: str, mutant: str) -> None:
    model, clock = ScriptedModel(heartbeats.STATES[state][0]), PatientClock(heartbeats.SHORT_HEARTBEAT_INTERVAL)
    async with running_studio(tmp_path, model, tools=[note, heartbeats.wait], clock=clock) as studio:
        break_(studio, mutant)
        with pytest.raises(TimeoutError):
            await heartbeats.check_heartbeats(studio, state, seconds=2.5)


@pytest.mark.promise("B6")
@pytest.mark.parametrize(
    ("mutant", "missing"), [("closes streams before turns", "error"), ("sends no closing frame", "server_closing")]
)
async def test_a_missing_frame_at_shutdown_is_detected(tmp_path: Path, mutant: str, missing: str) -> None:
    async with running_studio(tmp_path, ScriptedModel([[say("a"), hang()]] * 3)) as studio:
        break_(studio, mutant)
        assert all(missing not in words for words in await stream_checks.last_types_before_close(studio))


@pytest.mark.promise("B6")
@pytest.mark.parametrize(
    ("mutant", "words"), [("sends no closing frame", "server_closing"), ("closes with an error", r"ended with \(1, ")]
)
async def test_a_faulty_shutdown_with_many_readers_is_detected(tmp_path: Path, mutant: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await ShutdownScenario(running=2, asking=1, streams=7).check_shutdown(tmp_path / "home", mutant)


@pytest.mark.promise("B7")
@pytest.mark.parametrize(
    ("mutant", "words"), [("appends events after the end", "token of turn"), ("ends twice", "final of turn")]
)
async def test_events_after_the_terminal_event_are_detected_in_the_log(tmp_path: Path, mutant: str, words: str) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server_forker() as forker:
        studio = await forker.serve(recorded.home, broken=mutant)
        async with studio.client() as client:
            (session,) = await recorded.make_sessions(client, ["auto"])
            assert await recorded.start(client, session, plan((3, []))) == 202
            await wait_until(
                lambda: any(event.terminal for event in recorded.log().events[session]),
                state=lambda: recorded.log().events[session][-5:],
            )
        await studio.end()
    found = findings(recorded.log(), recorded.seen, over=True)
    assert any(words in one for one in found), found


@dataclass(frozen=True)
class RepeatingPlayer(Player):
    """A player whose runtime repeats the last event of each turn."""

    def runtime(self, *args: Any, **options: Any) -> Any:
        return RepeatingRuntime(super().runtime(*args, **options))


@dataclass(frozen=True)
class RepeatingRuntime:
    usual: AgentRuntime

    async def run_turn(self, *args: Any, **options: Any) -> AsyncGenerator[RuntimeEvent]:
        async for event in self.usual.run_turn(*args, **options):
            yield event
            if event.terminal:
                yield event


@pytest.mark.promise("B7")
@pytest.mark.parametrize("script", [["hello"], [call("nothing")]], ids=["final", "error"])
async def test_a_repeated_terminal_event_is_detected_in_every_played_turn(play: Player, script: list[Any]) -> None:
    with pytest.raises(GrammarError, match="comes after the terminal event"):
        await RepeatingPlayer(play.home, play.workspace)(script, max_tool_rounds=1)


@pytest.mark.promise("B8")
@pytest.mark.parametrize(
    "mutant", ["leaves line feeds in frames", "leaves carriage returns in frames", "leaves line separators in frames"]
)
async def test_broken_framing_is_detected_with_odd_text(tmp_path: Path, mutant: str) -> None:
    async with running_studio(tmp_path) as studio:
        break_(studio, mutant)
        with pytest.raises((AssertionError, json.JSONDecodeError), match=r"torn frames|column"):
            await stream_checks.check_framing(studio, stream_checks.odd_events(100))


def test_every_mutant_is_used_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_broken_*.py"))
    assert [mutant for mutant in sorted(broken.MUTANTS) if f'"{mutant}"' not in tests] == []
