"""Fixtures of the tests of model calls."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms.providers import local_servers
from tests.support.jumping_clock import VIRTUAL_TIME_OVER_SOCKETS
from tests.support.timeouts import PATIENCE


@pytest.fixture
def anyio_backend() -> Any:
    """Return the backend with a clock that jumps over waits; both ends of all sockets are in this process."""
    return VIRTUAL_TIME_OVER_SOCKETS


@pytest.fixture
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give local servers more time to answer, for slow test machines."""
    for name in ("_WAIT_SECONDS", "_ANSWER_SECONDS", "_DETAILS_SECONDS"):
        monkeypatch.setattr(local_servers, name, PATIENCE)
