"""What the tests of turns share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog  # noqa: F401 - imported on first use, which costs more than a test of 200 ms can bear

from tests.runtime.playing import Player, Watch


@pytest.fixture
def play(tmp_path: Path) -> Player:
    """`run = await play([say("hi")])`: one turn, checked against the grammar, its history and its leftovers."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Player(tmp_path / "home", workspace)


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """A fast clock, and `watch.near(6)` for what should have happened after six of its seconds."""
    watch = Watch()
    ticking = asyncio.create_task(watch.watch())
    yield watch
    ticking.cancel()
    await asyncio.wait({ticking})
