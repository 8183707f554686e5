"""Fixtures of the tests of notes."""

from __future__ import annotations

import pytest

from tests.support.timeouts import PATIENCE


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches wait until the index is up to date: on a slow machine that may take longer than a second."""
    monkeypatch.setattr("agenticx.knowledge.vaults._SEARCH_SECONDS", PATIENCE)
