"""A turn player for the randomised fault tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.playing import Player


@pytest.fixture
def play(tmp_path: Path) -> Player:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)
