"""Models at an address of their own, such as `openai-chat:qwen@http://127.0.0.1:8080/v1`.

A request to an address has the key of the model's provider, and names of models come over HTTP too. So only addresses
that the user has given on a command line (`--base-url`) can be part of a name; they are lines of a file in AGX_HOME.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from agenticx.errors import SettingsError
from agenticx.private_files import make_folders, replace_file

__all__ = ["allow_address", "check_address", "check_allowed", "split_address", "with_address"]

_FILE = "model_addresses"
_ADDRESS = re.compile(r"@(https?://[^\s]+)\Z")


def split_address(spec: str) -> tuple[str, str | None]:
    """Return the name of a model without its address, and the address, None if it has none.

    >>> split_address("openai-chat:qwen@http://127.0.0.1:8080/v1")
    ('openai-chat:qwen', 'http://127.0.0.1:8080/v1')
    """
    found = _ADDRESS.search(spec)
    return (spec, None) if found is None else (spec[: found.start()], found[1])


def with_address(spec: str, address: str) -> str:
    """Return the name of a model at that address, in place of its own; raise `SettingsError` for what is no address."""
    return f"{split_address(spec)[0]}@{check_address(address)}"


def check_address(address: str) -> str:
    """Return the address as names of models have it; raise `SettingsError` for what is no address."""
    address = address.rstrip("/")
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        is_address = False
    if not is_address or _ADDRESS.fullmatch(f"@{address}") is None:
        raise SettingsError(f"{address[:100]!r} is not an address such as http://127.0.0.1:8080/v1")
    return address


def allow_address(home: Path, address: str) -> None:
    """Let names of models have that address from now on, in all processes with this AGX_HOME."""
    address = address.rstrip("/")
    try:
        if address not in (allowed := _allowed(home)):
            make_folders(home, home)
            content = "".join(f"{one}\n" for one in (*allowed, address))
            replace_file(home / _FILE, content.encode(), home / f".{_FILE}.{os.getpid()}")
    except OSError as exc:
        raise SettingsError(f"{home / _FILE} cannot be written: {exc.strerror}") from exc


def check_allowed(home: Path, address: str) -> None:
    """Raise `SettingsError` unless the user has allowed that address."""
    if address not in _allowed(home):
        raise SettingsError(
            f"the model address {address[:200]!r} is not allowed; `agx chat --base-url {address[:200]}` allows it"
        )


def _allowed(home: Path) -> list[str]:
    try:
        return (home / _FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
