"""Fixtures for the tests of turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog  # noqa: F401 - imported on first use, which costs more than a test of 200 ms can bear

from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock
from tests.support.turn_player import Player


@pytest.fixture
def anyio_backend() -> Any:
    """Return an event loop whose time passes only while a turn waits."""
    return VIRTUAL_TIME


@pytest.fixture
def play(tmp_path: Path) -> Player:
    """Return a player: `run = await play([say("hi")])` runs one turn and checks its grammar, history and leftovers."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)


@pytest.fixture
def clock() -> LoopClock:
    """Return the clock of the running loop."""
    return LoopClock()
