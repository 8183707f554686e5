"""Fixtures that tests of sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sessions import SessionHarness


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return SessionHarness(tmp_path)
