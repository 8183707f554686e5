"""The memory that several workers share: one for all of them, and encrypted."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.errors import InvalidArguments
from agenticx.knowledge import Memory, MemoryUnusable, UnknownMemory
from agenticx.knowledge.memory import MAX_ENTRIES
from agenticx.knowledge.shared_memory import SharedMemory
from agenticx.settings import load_settings
from agenticx.shared_state.state import SharedState
from agenticx.shared_state.values import MemorySharedValues

LONG_AGO, LATER = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"


@pytest.fixture
def values() -> MemorySharedValues:
    return MemorySharedValues()


@pytest.fixture
def workers(tmp_path: Path, values: MemorySharedValues) -> Iterator[tuple[Memory, Memory]]:
    """Yield the memory of two workers."""
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    settings = load_settings({"home": tmp_path / "home", "secret_file": secret}, environ={})
    with closing(SharedState(values, settings)) as one, closing(SharedState(values, settings)) as two:
        yield SharedMemory(one), SharedMemory(two)


def test_each_worker_has_what_another_one_saves_and_removes(
    workers: tuple[Memory, Memory], values: MemorySharedValues
) -> None:
    one, two = workers
    assert (one.exists(), one.list(), one.search("tea")) == (True, [], [])
    cat, _ = one.save("Has a cat.", saved_at=LATER)
    tea, is_new = two.save("Prefers green tea.\x1b", saved_at=LONG_AGO, session_id="ses_1")
    assert (tea.text, tea.session_id, is_new) == ("Prefers green tea.", "ses_1", True)
    assert one.save("Prefers green tea.", saved_at=LATER) == (tea, False)
    assert one.list() == two.list() == [tea, cat]
    assert one.search("teas green") == [tea]
    assert not any(b"tea" in value for value in values.items("").values())
    assert one.remove(tea.id) == tea
    assert two.list() == [cat]
    for unknown in (tea.id, "mem_\x00", "token", "../token"):
        with pytest.raises(UnknownMemory, match="the memory has no entry"):
            two.remove(unknown)


@pytest.mark.ci_lane
def test_limits_are_those_of_a_file(workers: tuple[Memory, Memory]) -> None:
    one, two = workers
    with pytest.raises(InvalidArguments, match="at most 2,000"):
        one.save("x" * 2_001, saved_at=LONG_AGO)
    for number in range(MAX_ENTRIES):
        one.save(f"{number}", saved_at=LONG_AGO)
    with pytest.raises(MemoryUnusable, match="the memory is full"):
        two.save("one more", saved_at=LONG_AGO)


def test_without_a_secret_the_memory_says_what_is_missing(
    tmp_path: Path, values: MemorySharedValues, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    with closing(SharedState(values, settings)) as place:
        assert not SharedMemory(place).exists()
        for use in (SharedMemory(place).list, lambda: SharedMemory(place).save("x", saved_at=LONG_AGO)):
            with pytest.raises(MemoryUnusable, match="set AGX_SECRET_FILE"):
                use()
    (warning,) = caplog.messages
    assert "need AGX_SECRET_FILE, which is not set" in warning
