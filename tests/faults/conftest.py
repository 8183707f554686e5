"""What the randomised fault tests share: a turn player, how many cases to run, and a seed that plays them again."""

from __future__ import annotations

import os
import random
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


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Randomness whose seed stands in the report of a failing test; AGX_TEST_SEED plays it again."""
    seed = int(os.environ.get("AGX_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"replay with AGX_TEST_SEED={seed}")
    return random.Random(seed)
