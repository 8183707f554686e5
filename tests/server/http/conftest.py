"""Fixtures of the tests of the HTTP layer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.server.raw_http import (
    ALLOWED_ORIGIN,
)
from tests.support.server.running_studio import RunningStudio, running_studio


@pytest.fixture(scope="module")
async def studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningStudio]:
    async with running_studio(tmp_path_factory.mktemp("boundary"), allowed_origins=[ALLOWED_ORIGIN]) as running:
        yield running
