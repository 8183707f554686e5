"""What the tests of turns share."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog  # noqa: F401 - imported on first use, which costs more than a test of 200 ms can bear

from tests.runtime.playing import Player


@pytest.fixture
def play(tmp_path: Path) -> Player:
    """`run = await play([say("hi")])`: one turn, checked against the grammar, its history and its leftovers."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)
