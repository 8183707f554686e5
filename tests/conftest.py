"""What every test shares: async tests run on asyncio; `--deep` runs randomised tests at the full counts."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="randomised tests at the counts that the promises name")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: half as many workers again as cores, since many tests wait for sockets and processes."""
    cores = os.cpu_count() or 1
    return cores + (cores + 1) // 2


def pytest_configure(config: pytest.Config) -> None:
    """A test that sets no `max_examples` of its own gets these; a failure prints what replays it."""
    settings.register_profile("quick", max_examples=200, deadline=None, print_blob=True)
    settings.register_profile("deep", max_examples=5_000, deadline=None, print_blob=True)
    settings.load_profile("deep" if config.getoption("--deep") else "quick")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
