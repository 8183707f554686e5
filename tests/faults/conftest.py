"""What the randomised fault tests share: a turn player, and how many cases to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.playing import Player


@pytest.fixture
def play(tmp_path: Path) -> Player:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`count(200, 5_000)`: how many cases to run, the second with --deep."""
    return lambda few, many: many if request.config.getoption("--deep") else few
