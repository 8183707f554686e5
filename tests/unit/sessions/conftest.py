"""Fixtures that tests of sessions share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agenticx.sessions import Store
from tests.support.sessions import SessionHarness
from tests.support.stores import STORES


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Return a store of each kind."""
    make: Callable[[Path], Store] = request.param
    opened = make(tmp_path)
    yield opened
    await opened.aclose()


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return SessionHarness(tmp_path)
