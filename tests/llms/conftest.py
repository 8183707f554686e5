"""What the tests of model calls share."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import local_servers
from tests.jumping import VIRTUAL_TIME_OVER_SOCKETS
from tests.patience import PATIENCE


@pytest.fixture
def anyio_backend() -> Any:
    """Both ends of all sockets are here: what is slow is waited for, and silence takes no time."""
    return VIRTUAL_TIME_OVER_SOCKETS


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local servers may take longer to answer than a person would wait."""
    for name in ("_WAIT_SECONDS", "_ANSWER_SECONDS", "_DETAILS_SECONDS"):
        monkeypatch.setattr(local_servers, name, PATIENCE)
