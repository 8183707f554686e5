"""The keys of providers: in variables, or stored by the user in the OS keyring or a private file.

`AGX_HOME/keys.json`, mode 0600, lists what is stored, by the variable that takes precedence over it:
`{"version": 1, "keys": {"OPENAI_API_KEY": {"key": "…"}, "GROQ_API_KEY": {"keyring": "5f0c…"}}}`. A key in the keyring
has a revision there that changes whenever it is stored, by which other processes know that they must read it again. The
file is replaced as a whole, under the lock of `keys.lock`, and every look-up compares its identity: a key that another
process stored is found by the next one. Where a database is shared by several workers, their keys are in it, and this
file is not read (`agenticx.shared_state.keys`). Nothing here writes a key to a log, an event or the environment.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from agenticx.credentials.os_keyring import KeyringFailure, OsKeyring
from agenticx.errors import SettingsError, error_text
from agenticx.logs import get_logger
from agenticx.private_files import acquire_lock, replace_file
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.settings import home_folder, provider_key, remember_secret

__all__ = [
    "InvalidKey",
    "KeySource",
    "KeyStore",
    "ProviderKey",
    "StoredKeySource",
    "StoredKeys",
    "check_format",
    "find_key",
    "find_key_source",
    "key_file_path",
    "key_store",
    "using_key_store",
]

StoredKeySource = Literal["keyring", "file", "database"]
KeySource = Literal["env", "keyring", "file", "database"]

_VERSION = 1
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_MAX_KEY_CHARS = 4096
_MAX_FILE_BYTES = 1024 * 1024
_LOCK_SECONDS = 60.0  # longer than the calls of a keyring that does not answer

_log = get_logger(__name__)


class InvalidKey(SettingsError):
    """A text that cannot be a key; the message says what one looks like and never repeats it."""


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A key, the variable that has it or would take precedence over it, and the place where it was found."""

    variable: str
    value: str = field(repr=False)
    source: KeySource

    @property
    def name(self) -> str:
        """The name of the key for the user, which begins a sentence about it."""
        return self.variable if self.source == "env" else f"the stored {self.variable}"

    @property
    def reason(self) -> str:
        """A clause that says why the key is used."""
        return f"{self.variable} is {'set' if self.source == 'env' else f'stored ({self.source})'}"


def find_key(variables: Sequence[str]) -> ProviderKey | None:
    """Return the key of a provider from the first of `variables` that is set, else the one stored for them, else None.

    The first look-up of a key in the keyring may take seconds. Raises `SettingsError` if the file of stored keys cannot
    be used.
    """
    for name in variables:
        if value := provider_key(name):
            return ProviderKey(name, value, "env")
    return key_store().find(variables) if variables else None


def find_key_source(variables: Sequence[str]) -> KeySource | None:
    """Return the source of the key that `find_key` returns, without reading the keyring."""
    if any(provider_key(name) for name in variables):
        return "env"
    return key_store().source(variables)


def check_format(key: str) -> str:
    """Return the key without blanks around it; raise `InvalidKey` for a text that cannot be one."""
    key = key.strip()
    if not key:
        raise InvalidKey("the key is empty")
    if len(key) > _MAX_KEY_CHARS:
        raise InvalidKey(f"the key has more than {_MAX_KEY_CHARS} characters")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidKey("the key has blanks, control or non-ASCII characters within it; paste the key alone")
    return key


class StoredKeys(Protocol):
    """A store of keys, by the variables that take precedence over them; for several threads and processes at once."""

    @property
    def place(self) -> str:
        """The place of keys that are not in the keyring, for the user."""
        ...

    @property
    def version(self) -> object:
        """A value that changes with every change of the stored keys."""
        ...

    def find(self, variables: Sequence[str]) -> ProviderKey | None:
        """Return the first key that is stored for one of `variables` and can be read; raises `SettingsError`."""
        ...

    def read_all(self) -> None:
        """Read every stored key, so that later look-ups need not wait; raises `SettingsError`, `StoreError`."""
        ...

    def source(self, variables: Sequence[str]) -> StoredKeySource | None:
        """Return the place of the first key that is stored for one of `variables`, else None."""
        ...

    def store(self, variable: str, key: str) -> StoredKeySource:
        """Store a key and return its place; raises `InvalidKey`, `SettingsError`, `StoreError`."""
        ...

    def remove(self, variables: Sequence[str]) -> bool:
        """Remove the keys that are stored for any of `variables`; return whether there were some."""
        ...


_in_use: list[StoredKeys] = []  # global like the environment, which has keys too


def key_store() -> StoredKeys:
    """Return the store that `using_key_store` was called with last, else that of AGX_HOME."""
    return _in_use[-1] if _in_use else _store_in(home_folder())


@contextmanager
def using_key_store(keys: StoredKeys) -> Generator[None]:
    """Use these keys in this process, in place of those in AGX_HOME, while the block runs."""
    _in_use.append(keys)
    try:
        yield
    finally:
        _in_use.remove(keys)


def key_file_path() -> Path:
    """Return the path of the file of stored keys in AGX_HOME."""
    return _store_in(home_folder()).path


@cache
def _store_in(home: Path) -> KeyStore:
    return KeyStore(home)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored key: the key itself, or the revision of the one in the keyring."""

    key: str = field(default="", repr=False)
    revision: str = ""

    def to_json(self) -> dict[str, str]:
        return {"key": self.key} if self.key else {"keyring": self.revision}


_Entries = Mapping[str, _Entry]


class KeyStore:
    """The stored keys below one folder, by variable; safe for several threads and processes at once."""

    def __init__(self, home: Path) -> None:
        self.path = home / "keys.json"
        self.place = str(self.path)
        self._home = home
        self._keyring = OsKeyring(f"agenticx {home}")
        self._read: tuple[object, _Entries] = (None, {})

    @property
    def version(self) -> object:
        """A value that changes with every change of the stored keys; None while there are none."""
        try:
            return _identity(self.path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            return exc.errno

    def find(self, variables: Sequence[str]) -> ProviderKey | None:
        """Return the first key that is stored for one of `variables` and can be read."""
        entries = self._entries()
        for name in variables:
            if (entry := entries.get(name)) is None:
                continue
            value = entry.key or self._keyring.read(name, entry.revision)
            if value:
                remember_secret(value)
                return ProviderKey(name, value, "file" if entry.key else "keyring")
        return None

    def read_all(self) -> None:
        """Read every stored key, so that later look-ups need not wait for the keyring; raises `SettingsError`."""
        entries = self._entries()
        for name, entry in entries.items():
            if entry.revision:
                self._keyring.begin_read(name, entry.revision)
        for name in entries:
            self.find([name])

    def source(self, variables: Sequence[str]) -> Literal["keyring", "file"] | None:
        """Return the place of the first key that is stored for one of `variables`, else None."""
        entries = self._entries()
        found = next((entries[name] for name in variables if name in entries), None)
        return None if found is None else "file" if found.key else "keyring"

    def store(self, variable: str, key: str) -> Literal["keyring", "file"]:
        """Store a key in the keyring if there is one, else in the file; return which of them.

        Takes up to half a minute where the keyring does not answer. Raises `InvalidKey`, and `SettingsError` if the
        file cannot be used.
        """
        key = check_format(key)
        remember_secret(key)
        with self._locked():
            entries = dict(self._entries())
            earlier = entries.get(variable)
            if self._is_in_keyring(variable, key):
                entries[variable] = _Entry(revision=secrets.token_hex(8))
            else:
                entries[variable] = _Entry(key=key)
            self._write(entries)
            if earlier is not None and earlier.revision and entries[variable].key:
                self._delete_from_keyring(variable)
        return "file" if entries[variable].key else "keyring"

    def remove(self, variables: Sequence[str]) -> bool:
        """Remove the keys that are stored for any of `variables`; return whether there were some."""
        if not any(name in self._entries() for name in variables):
            return False
        with self._locked():
            entries = dict(self._entries())
            removed = {name: entries.pop(name) for name in variables if name in entries}
            self._write(entries)
            for name, entry in removed.items():
                if entry.revision:
                    self._delete_from_keyring(name)
        return bool(removed)

    # --- the keyring

    def _is_in_keyring(self, variable: str, key: str) -> bool:
        """Store the key in the keyring; return False if there is none, or if it fails, which is logged."""
        if not self._keyring.is_available():
            return False
        try:
            self._keyring.write(variable, key)
        except KeyringFailure as exc:
            _log.warning("the keyring did not take a key; it is stored in the file", variable=variable, reason=str(exc))
            return False
        return True

    def _delete_from_keyring(self, variable: str) -> None:
        try:
            self._keyring.delete(variable)
        except KeyringFailure as exc:
            _log.warning("a key that is not used any more remains in the keyring", variable=variable, reason=str(exc))

    # --- the file

    def _entries(self) -> _Entries:
        """Return the content of the file, read again if it has changed; raises `SettingsError`."""
        version, (known, entries) = self.version, self._read
        if version is None:
            return {}
        if known != version:
            known, entries = _read_private(self.path)
            self._read = known, entries
        return entries

    def _write(self, entries: _Entries) -> None:
        """Replace the file; the caller holds the lock, so that the temporary file is its own."""
        content = {"version": _VERSION, "keys": {name: entry.to_json() for name, entry in sorted(entries.items())}}
        with self._errors_as_settings():
            text = json.dumps(content, indent=2) + "\n"
            replace_file(self.path, text.encode("ascii"), self.path.with_name(".keys.json.new"))

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the lock against other writers; raises `SettingsError` where it cannot be had."""
        with self._errors_as_settings():
            descriptor = acquire_lock(self._home / "keys.lock", _LOCK_SECONDS)
        if descriptor is None:
            raise SettingsError(f"another process has changed {self.path} for {_LOCK_SECONDS:g} s; end it")
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _errors_as_settings(self) -> Generator[None]:
        try:
            yield
        except OSError as exc:
            raise_if_exhausted(exc)
            raise SettingsError(f"{self.path} cannot be written: {error_text(exc)}") from exc


# --- the file ---------------------------------------------------------------------------------------------------------


def _identity(status: os.stat_result) -> object:
    """Return a value that differs for each content of a file that is replaced as a whole, and each mode."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode


def _read_private(path: Path) -> tuple[object, _Entries]:
    """Return the identity of the file and its entries; raise `SettingsError` for one that is damaged or not private."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # do not wait for a pipe
    if path.is_symlink():
        raise SettingsError(f"{path} is a symbolic link, which is refused; put the file itself there")
    try:
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            _check_private(path, status)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None, {}
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"{path} cannot be read: {exc.strerror}") from exc
    return _identity(status), _parse(path, content)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"{path} is not a regular file; remove it")
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid():
        raise SettingsError(f"{path} belongs to another user (id {status.st_uid}); only your own file is read")
    if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        raise SettingsError(f"{path} has mode {mode:04o}; only its owner may read it: chmod 600")


def _parse(path: Path, content: bytes) -> _Entries:
    try:
        if len(content) > _MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {_MAX_FILE_BYTES} bytes")
        document: Any = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        fields = cast("dict[str, Any]", document)
        if fields.get("version") != _VERSION or not isinstance(fields.get("keys"), dict):
            raise ValueError(f'it must have "version": {_VERSION} and an object "keys"')
        return {name: _parse_entry(name, entry) for name, entry in cast("dict[str, Any]", fields["keys"]).items()}
    except (ValueError, RecursionError) as exc:
        problem = "it is nested too deeply" if isinstance(exc, RecursionError) else exc
        advice = "repair it, or delete it and store the keys again with `agx keys set PROVIDER`"
        raise SettingsError(f"{path} is damaged: {problem}; {advice}") from None  # the cause would have the content


def _parse_entry(name: str, entry: object) -> _Entry:
    if not _VARIABLE.fullmatch(name):
        raise ValueError('the names in "keys" must be those of variables, such as OPENAI_API_KEY')
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    match fields:
        case {"key": str(key)} if len(fields) == 1:
            try:
                return _Entry(key=check_format(key))
            except InvalidKey as exc:
                raise ValueError(f"at {name!r} {exc}") from None
        case {"keyring": str(revision)} if len(fields) == 1 and revision:
            return _Entry(revision=revision)
        case _:
            raise ValueError(f'{name!r} must be {{"key": "…"}} or {{"keyring": "…"}}')
