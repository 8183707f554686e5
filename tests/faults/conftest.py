"""The fixture of the randomised fault tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.turn_player import Player


@pytest.fixture
def play(tmp_path: Path) -> Player:
    """Return a player of turns with a home and a workspace of its own."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)
