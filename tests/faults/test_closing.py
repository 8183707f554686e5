"""Shutdown of a busy studio: all streams end with a closing frame, nothing hangs, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lanes import Count
from tests.support.server.shutdown import ShutdownScenario

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B6")]


async def test_a_shutdown_with_streams_turns_and_questions_is_in_time_and_all_resume(
    tmp_path: Path, count: Count
) -> None:
    turns, questions, streams = count(6, 20, 20), count(2, 5, 5), count(30, 100, 100)
    scenario = ShutdownScenario(running=turns, asking=questions, streams=streams)
    await scenario.check_shutdown(tmp_path / "home")
    await scenario.check_restart(tmp_path / "home")
