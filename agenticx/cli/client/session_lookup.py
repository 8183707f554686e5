"""Session lookup by id, by id prefix, or as the one last used in a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from agenticx.cli.client.base import SessionInfo, SessionReader
from agenticx.cli.options import LAST
from agenticx.errors import SessionNotFound, SettingsError

__all__ = ["UnknownSession", "all_sessions", "find_session", "remember_last_session"]

_FILE_NAME = "last_session"
_PAGE_SIZE = 200
_MAX_LISTED_IDS = 5


class UnknownSession(SettingsError):
    """Raised when no session has the given id or id prefix."""


async def find_session(client: SessionReader, reference: str, home: Path) -> SessionInfo:
    """Return the session for an id, an id prefix or `last`.

    Raise `UnknownSession` if there is none, `SettingsError` if a prefix is ambiguous or `last` has no session.
    """
    if reference == LAST:
        return await _find_last_session(client, home)
    if re.fullmatch(r"\w+", reference, re.ASCII):
        with suppress(SessionNotFound):
            return await client.get(reference)
        matches = [session async for session in all_sessions(client) if _has_prefix(session.id, reference)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            ids = ", ".join(session.id for session in matches[:_MAX_LISTED_IDS]) + (
                ", …" if len(matches) > _MAX_LISTED_IDS else ""
            )
            raise SettingsError(f"{reference!r} is the prefix of {len(matches)} session ids: {ids}")
    raise UnknownSession(f"no session has the id or id prefix {reference!r}; `agx sessions list` lists the sessions")


async def all_sessions(client: SessionReader) -> AsyncGenerator[SessionInfo]:
    """Yield every session, archived ones too."""
    before: str | None = None
    while page := await client.list_sessions(limit=_PAGE_SIZE, before=before, archived=True):
        for session in page:
            yield session
        before = page[-1].id


def remember_last_session(home: Path, session_id: str) -> None:
    """Store the id of the session that `last` refers to; a failure to write is ignored."""
    with suppress(OSError):  # `last` then refers to the newest session
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = home / f".{_FILE_NAME}.{os.getpid()}"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{session_id}\n")
        temporary.replace(home / _FILE_NAME)


async def _find_last_session(client: SessionReader, home: Path) -> SessionInfo:
    session_id = _read_last_session_id(home)
    if session_id:
        try:
            return await client.get(session_id)
        except (
            SessionNotFound
        ) as exc:  # falling back to another session would make a repeated `delete last` delete that one
            raise SettingsError(
                f"the last session, {session_id}, was deleted; `agx sessions list` lists the others"
            ) from exc
    newest = max(
        [session async for session in all_sessions(client)], key=lambda session: session.record.created_at, default=None
    )
    if newest is None:
        raise SettingsError("there is no session yet; `agx run` and `agx chat` create one")
    return newest


def _read_last_session_id(home: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (home / _FILE_NAME).read_text("ascii").strip()
    return ""


def _has_prefix(session_id: str, prefix: str) -> bool:
    return session_id.startswith(prefix) or session_id.partition("_")[2].startswith(prefix)
