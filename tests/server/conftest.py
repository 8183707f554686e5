"""Fixtures of the studio's tests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.running_studio import RunningStudio, StudioMaker, running_studio


@pytest.fixture
def make_studio(tmp_path: Path) -> StudioMaker:
    """Return a function that starts studios: `async with make_studio(model) as studio`."""

    def make(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[RunningStudio]:
        return running_studio(tmp_path, *args, **kwargs)

    return make
