"""The shared state of the workers of a database: their token, keys of providers, and other values."""

from __future__ import annotations

from contextlib import ExitStack

from agenticx.clocks import Clock
from agenticx.credentials.provider_keys import key_file_path, using_key_store
from agenticx.credentials.secret_key import KEY_COMMAND, SecretKey, read_secret_key
from agenticx.errors import SettingsError
from agenticx.logs import get_logger
from agenticx.settings import Settings
from agenticx.shared_state.keys import SharedKeyStore
from agenticx.shared_state.values import SharedValues

__all__ = ["SharedState"]

_SECRET_CHECK = "secret"
_TOKEN = "token"
_ATTEMPTS = 3

_log = get_logger(__name__)


class SharedState:
    """The values that all workers share, with the keys of providers among them, which this process uses until `close`.

    Blocks, as `token` and `close` do. With `only_reads` opening it stores nothing. Raises `StoreError`, `SettingsError`
    for an AGX_SECRET_FILE that cannot be used, and `WrongSecret` for one with another key than the other workers have.
    `values` are closed by `close`.
    """

    def __init__(
        self, values: SharedValues, settings: Settings, clock: Clock | None = None, *, only_reads: bool = False
    ) -> None:
        self.values = values
        self._secret = None if settings.secret_file is None else read_secret_key(settings.secret_file)
        if self._secret is not None:
            _check_secret(values, self._secret, only_reads=only_reads)
        else:
            _log.warning("the keys of providers and the memory of the workers need AGX_SECRET_FILE, which is not set")
        self.keys = SharedKeyStore(values, self._secret, clock)
        self._closing = ExitStack()
        self._closing.callback(values.close)
        self._closing.callback(self.keys.close)
        self._closing.enter_context(using_key_store(self.keys))
        self.keys.follow()
        if (unused := key_file_path()).exists():
            _log.warning("stored keys are not used: the workers of a database have theirs in it", file=str(unused))

    @property
    def has_secret(self) -> bool:
        """True if AGX_SECRET_FILE is set."""
        return self._secret is not None

    @property
    def secret(self) -> SecretKey:
        """The key of AGX_SECRET_FILE; raises `SettingsError` if that is not set."""
        if self._secret is None:
            raise SettingsError(
                "the store is a database that several workers share, in which their token, keys of providers and"
                " memory are encrypted: set AGX_SECRET_FILE to a file with the same key on each worker, which"
                f" {KEY_COMMAND} makes (with the same AGX_TOKEN_FILE on each worker there is no need to, but no key or"
                " memory is stored)"
            )
        return self._secret

    def token(self, proposed: str) -> str:
        """Return the token of all workers, which is `proposed` if there is none yet.

        Raises `StoreError`, and `SettingsError` without a secret.
        """
        stored = self.values.put_if_absent(_TOKEN, self.secret.seal(_TOKEN, proposed.encode("ascii")))
        return self.secret.unseal(_TOKEN, stored).decode("ascii")

    def change_secret(self, secret: SecretKey) -> int:
        """Encrypt all values with another key, and return their number; either all of them are changed or none.

        Raises `StoreError`, `WrongSecret` if the key of AGX_SECRET_FILE does not open a value, and `SettingsError`
        without a secret, or if workers change the values meanwhile.
        """
        for _ in range(_ATTEMPTS):
            sealed = {name: value for name, value in self.values.items("").items() if value}  # tickets are empty
            changed = {name: secret.seal(name, self.secret.unseal(name, value)) for name, value in sealed.items()}
            if self.values.replace({name: (value, changed[name]) for name, value in sealed.items()}):
                self._secret = secret
                return len(changed)
        raise SettingsError("the shared values are being changed by workers; stop all of them first")

    def close(self) -> None:
        """Stop using the keys, and close the values."""
        self._closing.close()


def _check_secret(values: SharedValues, secret: SecretKey, *, only_reads: bool) -> None:
    """Raise `WrongSecret` if another worker has another key; the first one stores a value for that."""
    stored = values.get(_SECRET_CHECK)
    if stored is None and not only_reads:
        stored = values.put_if_absent(_SECRET_CHECK, secret.seal(_SECRET_CHECK, b""))
    if stored is not None:
        secret.unseal(_SECRET_CHECK, stored)
