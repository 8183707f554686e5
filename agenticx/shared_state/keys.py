"""The keys of providers that all workers of one database share, encrypted there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agenticx.clocks import Clock, SystemClock
from agenticx.credentials.provider_keys import ProviderKey, check_format
from agenticx.credentials.secret_key import SecretKey
from agenticx.errors import AgenticXError, SettingsError
from agenticx.logs import get_logger
from agenticx.settings import remember_secret
from agenticx.shared_state.values import SharedValues
from agenticx.threads import start_thread

__all__ = ["SharedKeyStore"]

_PREFIX = "key/"
_POLL_SECONDS = 0.5

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Copy:
    """The stored keys as they were read last: encrypted, and by variable, with the errors of those that do not open."""

    version: int = 0
    sealed: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    keys: Mapping[str, str | SettingsError] = field(default_factory=dict[str, "str | SettingsError"], repr=False)


class SharedKeyStore:
    """A `StoredKeys` in shared values, of which this process has a copy in memory.

    `find`, `source` and `version` answer from the copy, which follows the keys of other workers within a second, from
    `follow` to `close`. All other methods wait for the storage. Without a secret no key can be stored or read.
    """

    place = "the database that the workers share"

    def __init__(self, values: SharedValues, secret: SecretKey | None, clock: Clock | None = None) -> None:
        self._values = values
        self._secret = secret
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._copy = _Copy()
        self._closed = threading.Event()

    @property
    def version(self) -> object:
        """A value that changes with every change of the copy."""
        return self._copy.version

    def find(self, variables: Sequence[str]) -> ProviderKey | None:
        """Return the first key that is stored for one of `variables`; raises `SettingsError` if it does not open."""
        keys = self._copy.keys
        for name in variables:
            if (key := keys.get(name)) is None:
                continue
            if isinstance(key, SettingsError):
                raise key
            remember_secret(key)
            return ProviderKey(name, key, "database")
        return None

    def source(self, variables: Sequence[str]) -> Literal["database"] | None:
        """Return the place of the first key that is stored for one of `variables`, else None."""
        return "database" if any(name in self._copy.keys for name in variables) else None

    def read_all(self) -> None:
        """Read the stored keys; raises `StoreError`."""
        with self._lock:
            sealed = self._values.items(_PREFIX)
            if sealed != self._copy.sealed:
                keys = {name.removeprefix(_PREFIX): self._unsealed(name, value) for name, value in sealed.items()}
                self._copy = _Copy(self._copy.version + 1, sealed, keys)

    def store(self, variable: str, key: str) -> Literal["database"]:
        """Store a key; raises `InvalidKey`, `StoreError`, and `SettingsError` without a secret."""
        key = check_format(key)
        remember_secret(key)
        name = _PREFIX + variable
        self._values.put(name, self._required_secret().seal(name, key.encode("ascii")))
        self.read_all()
        return "database"

    def remove(self, variables: Sequence[str]) -> bool:
        """Remove the keys that are stored for any of `variables`; return whether there were some.

        Raises `StoreError`.
        """
        removed = [self._values.take(_PREFIX + name) for name in variables]
        self.read_all()
        return any(value is not None for value in removed)

    def follow(self) -> None:
        """Begin to follow the keys that other workers store; raises `StoreError` if they cannot be read."""
        self.read_all()
        start_thread(self._poll, name="agx keys")

    def close(self) -> None:
        """Follow the keys no more."""
        self._closed.set()

    def _poll(self) -> None:
        is_failing = False
        while not self._closed.wait(self._clock.real(_POLL_SECONDS)):
            try:
                self.read_all()
            except AgenticXError as exc:
                if not is_failing and not self._closed.is_set():
                    _log.warning("the keys of other workers cannot be read; those known stay", reason=str(exc))
                is_failing = True
            else:
                is_failing = False

    def _unsealed(self, name: str, sealed: bytes) -> str | SettingsError:
        try:
            return check_format(self._required_secret().unseal(name, sealed).decode())
        except SettingsError as exc:
            return exc

    def _required_secret(self) -> SecretKey:
        if self._secret is None:
            raise SettingsError(
                "the keys of providers in the database are encrypted with the key of AGX_SECRET_FILE, which is not set"
            )
        return self._secret
