"""Shutdown of a busy studio: all streams end with a closing frame, nothing hangs, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server.shutdown import ShutdownScenario

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B6")]


async def test_a_shutdown_with_100_streams_20_turns_and_5_questions_is_in_time_and_all_resume(
    tmp_path: Path,
) -> None:
    scenario = ShutdownScenario(running=20, asking=5, streams=100)
    await scenario.check_shutdown(tmp_path / "home")
    await scenario.check_restart(tmp_path / "home")
