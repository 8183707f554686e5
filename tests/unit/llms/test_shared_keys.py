"""Tests of the keys of providers that several workers share."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping

import pytest

from agenticx.credentials.provider_keys import InvalidKey, ProviderKey, find_key, find_key_source, using_key_store
from agenticx.credentials.secret_key import SecretKey, WrongSecret
from agenticx.errors import SettingsError, StoreError
from agenticx.shared_state.keys import SharedKeyStore
from agenticx.shared_state.values import MemorySharedValues
from tests.support.timeouts import PATIENCE

KEY, OTHER = "canary-of-a-shared-key-1", "canary-of-a-shared-key-2"
GROQ = ["GROQ_API_KEY"]


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)


def wait_for(keys: SharedKeyStore, value: str | None) -> None:
    """Wait until the copy has this key."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while (found := keys.find(GROQ)) != (value and ProviderKey("GROQ_API_KEY", value, "database")):
        assert time.monotonic() < deadline, found
        pause.wait(0.02)


@pytest.mark.ci_lane
def test_a_key_that_one_worker_stores_is_followed_by_the_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    values, secret = MemorySharedValues(), SecretKey(secrets.token_bytes(32))
    one, two = SharedKeyStore(values, secret), SharedKeyStore(values, secret)
    two.follow()
    assert (two.version, two.source(GROQ), two.find(GROQ)) == (0, None, None)
    assert one.store("GROQ_API_KEY", f" {KEY}\n") == "database"
    assert one.find(GROQ) == ProviderKey("GROQ_API_KEY", KEY, "database")
    wait_for(two, KEY)
    assert (two.version, two.source(GROQ)) == (1, "database")
    one.store("GROQ_API_KEY", OTHER)
    wait_for(two, OTHER)
    assert not any(b"canary" in value for value in values.items("").values())
    assert (one.remove(GROQ), one.remove(GROQ)) == (True, False)
    wait_for(two, None)
    two.close()
    assert "canary" not in caplog.text


def test_the_keys_in_use_are_those_that_the_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SharedKeyStore(MemorySharedValues(), SecretKey(secrets.token_bytes(32)))
    keys.store("GROQ_API_KEY", KEY)
    with using_key_store(keys):
        assert find_key(GROQ) == ProviderKey("GROQ_API_KEY", KEY, "database")
        monkeypatch.setenv("GROQ_API_KEY", OTHER)
        assert find_key_source(GROQ) == "env"


def test_mistakes_say_what_is_right() -> None:
    values = MemorySharedValues()
    keys = SharedKeyStore(values, SecretKey(secrets.token_bytes(32)))
    with pytest.raises(InvalidKey):
        keys.store("GROQ_API_KEY", "two words")
    keys.store("GROQ_API_KEY", KEY)
    with_other_secret = SharedKeyStore(values, SecretKey(secrets.token_bytes(32)))
    with_other_secret.read_all()
    assert with_other_secret.source(GROQ) == "database"
    with pytest.raises(WrongSecret, match="give each worker the same file"):
        with_other_secret.find(GROQ)
    without = SharedKeyStore(values, None)
    without.read_all()
    with pytest.raises(SettingsError, match="AGX_SECRET_FILE, which is not set"):
        without.find(GROQ)
    with pytest.raises(SettingsError, match="AGX_SECRET_FILE, which is not set"):
        without.store("GROQ_API_KEY", KEY)
    assert without.remove(GROQ)


class FailingValues(MemorySharedValues):
    """Values that fail while `fails`, and count what was asked."""

    fails = False
    reads = 0

    def items(self, prefix: str) -> Mapping[str, bytes]:
        self.reads += 1
        if self.fails:
            raise StoreError("the database does not answer")
        return super().items(prefix)


@pytest.mark.ci_lane
def test_the_known_keys_stay_while_the_database_fails(caplog: pytest.LogCaptureFixture) -> None:
    values, secret = FailingValues(), SecretKey(secrets.token_bytes(32))
    one, two = SharedKeyStore(values, secret), SharedKeyStore(values, secret)
    one.store("GROQ_API_KEY", KEY)
    two.follow()
    values.fails, before = True, values.reads
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while values.reads < before + 3:
        assert time.monotonic() < deadline
        pause.wait(0.02)
    assert two.find(GROQ) == ProviderKey("GROQ_API_KEY", KEY, "database")
    values.fails = False
    one.store("GROQ_API_KEY", OTHER)
    wait_for(two, OTHER)
    two.close()
    (warning,) = caplog.messages
    assert "the keys of other workers cannot be read; those known stay" in warning
    values.fails = True
    with pytest.raises(StoreError):
        SharedKeyStore(values, secret).follow()
