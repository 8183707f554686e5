"""The key of AGX_SECRET_FILE, which encrypts what workers share through a database.

A sealed value is a version byte, a nonce of 12 random bytes, and the output of AES-256-GCM (NIST SP 800-38D), whose
associated data is the name of the value: one that was copied to another name cannot be opened there.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path

from agenticx.errors import SettingsError, error_text
from agenticx.home_permissions import check_private
from agenticx.resource_exhaustion import raise_if_exhausted

__all__ = ["KEY_COMMAND", "SecretKey", "WrongSecret", "read_secret_key"]

KEY_COMMAND = "`(umask 077 && openssl rand -hex 32 > FILE)`"
"""A shell command that makes the file."""

_VERSION = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_MAX_FILE_BYTES = 4096


class WrongSecret(SettingsError):
    """A stored value that the key of AGX_SECRET_FILE does not open."""


class SecretKey:
    """A key of 32 bytes; raises `SettingsError` if the extra with the cipher is not installed."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # of an extra
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as exc:
            raise SettingsError(
                "AGX_SECRET_FILE needs the extra `postgres`: install it, for example by pip install '.[postgres]' in"
                " the folder of AgenticX"
            ) from exc
        self._cipher = AESGCM(key)
        self._invalid_tag = InvalidTag

    def seal(self, name: str, value: bytes) -> bytes:
        """Return the value of that name, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, value, name.encode())

    def unseal(self, name: str, sealed: bytes) -> bytes:
        """Return the value that `seal` encrypted under that name; raises `WrongSecret` for anything else."""
        version, nonce, content = sealed[:1], sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        if version != _VERSION:
            raise WrongSecret(
                f"the stored value {name!r} has another format than this version of AgenticX writes; run one version on"
                " all workers"
            )
        try:
            return self._cipher.decrypt(nonce, content, name.encode())
        except (self._invalid_tag, ValueError) as exc:  # the latter for a nonce that is cut short
            raise WrongSecret(
                f"the key of AGX_SECRET_FILE does not open the stored value {name!r}: it was encrypted with another"
                " key, or changed; give each worker the same file"
            ) from exc


def read_secret_key(path: Path, source: str = "AGX_SECRET_FILE") -> SecretKey:
    """Return the key of the file at `path`: 32 bytes as 64 hexadecimal digits, or in base64.

    Raises `SettingsError`, which says that `source` names it, for a file without one, and for one that others can read
    or own.
    """
    subject = f"{source} names {str(path)!r}"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"{subject}, which is not a regular file; {KEY_COMMAND} makes one")
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES)
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"{subject}, which cannot be read: {error_text(exc)}; {KEY_COMMAND} makes one") from exc
    check_private(path, status, subject)
    if (key := _decode(content.strip())) is None:
        raise SettingsError(
            f"{subject}, which must hold 32 random bytes as 64 hexadecimal digits or in base64; {KEY_COMMAND} makes one"
        )
    return SecretKey(key)


def _decode(content: bytes) -> bytes | None:
    """Return the 32 bytes that the text stands for, else None."""
    try:
        text = content.decode("ascii")
        if _HEX.fullmatch(text):
            return bytes.fromhex(text)
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (UnicodeDecodeError, binascii.Error):
        return None
    return key if len(key) == _KEY_BYTES else None
