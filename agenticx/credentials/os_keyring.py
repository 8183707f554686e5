"""The keyring of the operating system, through the optional package `keyring` (extra `keyring`).

Its calls may wait for a service of the desktop, or for the user to unlock the keyring. Therefore each runs in a thread
of its own, is given some seconds and is abandoned then. Backends that store nothing (`fail`, `null`) or store
passwords in a file of their own have a priority below 1 and do not count as a keyring.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from threading import Event
from typing import Any, Generic, TypeVar

from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.threads import start_thread

__all__ = ["KeyringCall", "KeyringFailure", "OsKeyring"]

_READ_SECONDS = 5.0
_WRITE_SECONDS = 30.0  # the user is there, and may be asked to unlock it
_RETRY_SECONDS = 60.0
_LEAST_PRIORITY = 1.0

_log = get_logger(__name__)

T = TypeVar("T")


class KeyringFailure(AgenticXError):
    """A keyring that refused a call, or did not answer in time."""


class OsKeyring:
    """The passwords of one service in the keyring; `read` keeps what it has read in memory."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._reads: dict[str, tuple[str, KeyringCall[str | None]]] = {}

    def is_available(self) -> bool:
        """Return whether there is a keyring; one that does not answer is logged and counts as none."""
        try:
            return KeyringCall(_find_backend).result() is not None
        except KeyringFailure as exc:
            _log.warning("the keyring cannot be used", reason=str(exc))
            return False

    def read(self, name: str, revision: str) -> str | None:
        """Return the password called `name`, None if it cannot be read, which is logged.

        It is read once for each `revision`, and again a minute after a failure. A call that takes longer than the
        time-out goes on: later calls return its result, and do not wait for it.
        """
        call = self.begin_read(name, revision)
        try:
            password = call.result()
        except KeyringFailure as exc:
            call.log_once("a key cannot be read from the keyring", variable=name, reason=str(exc))
            return None
        if password is None:
            call.log_once("a key is missing in the keyring; store it again", variable=name)
        return password

    def begin_read(self, name: str, revision: str) -> KeyringCall[str | None]:
        """Begin what `read` waits for, so that several passwords are read at once."""
        known_revision, call = self._reads.get(name, ("", None))
        if call is None or known_revision != revision or call.failed_seconds_ago() > _RETRY_SECONDS:
            call = KeyringCall[str | None](lambda: _backend().get_password(self._service, name))
            self._reads[name] = (revision, call)
        return call

    def write(self, name: str, password: str) -> None:
        """Store a password and read it back; raise `KeyringFailure` if that fails."""

        def write() -> None:
            backend = _backend()
            backend.set_password(self._service, name, password)
            if backend.get_password(self._service, name) != password:
                raise KeyringFailure("it did not keep what was stored")

        KeyringCall(write, _WRITE_SECONDS).result()

    def delete(self, name: str) -> None:
        """Delete the password called `name`; raise `KeyringFailure` if that fails, also if there is none."""
        KeyringCall(lambda: _backend().delete_password(self._service, name)).result()


def _find_backend() -> Any:
    """Return the backend of the keyring, None without the package or without a real keyring."""
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        return None
    backend = keyring.get_keyring()
    chained = getattr(backend, "backends", None) or [backend]  # a chain has a high priority itself, whatever is in it
    return next((one for one in chained if one.priority >= _LEAST_PRIORITY), None)


def _backend() -> Any:
    """Return the backend of the keyring; raise `KeyringFailure` if there is none."""
    backend = _find_backend()
    if backend is None:
        raise KeyringFailure("there is none: is the extra `keyring` installed, and does the desktop have a keyring?")
    return backend


class KeyringCall(Generic[T]):
    """A call that runs in a daemon thread, and its outcome."""

    def __init__(self, function: Callable[[], T], seconds: float | None = None) -> None:
        self._seconds = _READ_SECONDS if seconds is None else seconds
        self._deadline = time.monotonic() + self._seconds
        self._done = Event()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._ended = 0.0
        self._has_logged = False

        def run() -> None:
            try:
                self._results.append(function())
            except BaseException as exc:  # noqa: BLE001 - raised by `result` in the thread that waits
                self._error = exc
            self._ended = time.monotonic()
            self._done.set()

        start_thread(run, name="agx-keyring")

    def result(self) -> T:
        """Return what the function returned; raise `KeyringFailure` if it raised, or has not ended in time."""
        if not self._done.wait(max(0.0, self._deadline - time.monotonic())):
            raise KeyringFailure(f"it did not answer within {self._seconds:g} s; is it locked?")
        if isinstance(self._error, KeyringFailure):
            raise self._error
        if self._error is not None:
            raise KeyringFailure(f"{type(self._error).__name__}: {self._error}") from self._error
        return self._results[0]

    def failed_seconds_ago(self) -> float:
        """Return the seconds since the call failed or found nothing; 0 if it has not."""
        has_failed = self._done.is_set() and (self._error is not None or self._results == [None])
        return time.monotonic() - self._ended if has_failed else 0.0

    def log_once(self, event: str, **fields: object) -> None:
        """Log a warning, for the first of several readers of this outcome."""
        if not self._has_logged:
            self._has_logged = True
            _log.warning(event, **fields)
