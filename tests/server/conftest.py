"""Fixtures of the studio's tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.server.chromium import Tab, browser_tab
from tests.support.server.running_studio import RunningStudio, StudioMaker, running_studio

_STORES = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.ci_lane),
    pytest.param("polled postgres", marks=pytest.mark.deep_lane),
]


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    """Return a tab of the browser, without cookies and storage of others."""
    async with browser_tab() as tab:
        yield tab


def secret_file(folder: Path) -> Path:
    """Return a file with the key that workers share, see AGX_SECRET_FILE."""
    path = folder / "secret"
    path.touch(0o600)
    path.write_text("5" * 64)
    return path


@pytest.fixture(params=_STORES)
def make_studio(request: pytest.FixtureRequest, tmp_path: Path) -> StudioMaker:
    """Return a function that starts studios: `async with make_studio(model) as studio`.

    All those of a test that name no store of their own have the same sessions, unless they have another home.
    """
    if request.param == "sqlite":
        return lambda *args, **kwargs: running_studio(tmp_path, *args, **kwargs)
    cluster: Cluster = request.getfixturevalue("postgres")
    urls = dict[object, str]()

    @asynccontextmanager
    async def make(*args: Any, **kwargs: Any) -> AsyncGenerator[RunningStudio]:
        home = kwargs.get("home")
        if home not in urls:
            urls[home] = await store_url(cluster)
        shared = {"store_url": urls[home], "store_poll": "polled" in request.param}
        if request.node.get_closest_marker("shares_secrets"):
            shared["secret_file"] = secret_file(tmp_path)
        store = {} if "store" in kwargs else shared
        async with running_studio(tmp_path, *args, **store, **kwargs) as studio:
            yield studio

    return make
