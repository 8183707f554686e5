"""Fixtures for the tests of agents and their executor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jumping_clock import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> Any:
    """Return an event loop whose time passes only while a turn waits."""
    return VIRTUAL_TIME
