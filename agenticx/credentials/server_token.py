"""The file that holds the server's token: its path and its checks."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from agenticx.errors import SettingsError, error_text
from agenticx.home_permissions import check_private
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.settings import Settings

__all__ = ["read_token", "token_path"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,}")


def token_path(settings: Settings) -> Path:
    """Return AGX_TOKEN_FILE, else `token` in AGX_HOME, which a server creates at its first start."""
    return settings.token_file or settings.home / "token"


def read_token(settings: Settings) -> str:
    """Return the token.

    Raises `FileNotFoundError`, and `SettingsError` for a file without a token, or one that others can read or own.
    """
    path = token_path(settings)
    named = settings.token_file is not None
    subject = f"AGX_TOKEN_FILE names {str(path)!r}" if named else f"The server's token is kept in {str(path)!r}"
    try:
        status = path.stat()
        content = path.read_text("ascii").strip() if stat.S_ISREG(status.st_mode) else ""
    except (OSError, UnicodeDecodeError) as exc:
        if isinstance(exc, FileNotFoundError) and not named and not path.is_symlink():
            raise
        raise_if_exhausted(exc)
        raise SettingsError(f"{subject}, which cannot be read as text: {error_text(exc)}") from exc
    check_private(path, status, subject)
    if not _TOKEN.fullmatch(content):
        raise SettingsError(f"{subject}, which must hold at least 32 letters, digits, '-' or '_'")
    return content
