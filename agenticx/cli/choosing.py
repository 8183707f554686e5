"""Which session a person means: by its id, by the beginning of it, or as the one that was last used in a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from agenticx.cli.desk import Client, SessionInfo
from agenticx.errors import SessionNotFound, SettingsError

__all__ = ["LAST", "UnknownSession", "all_sessions", "find_session", "remember_last_session"]

LAST = "last"
_FILE_NAME = "last_session"
_PAGE_SIZE = 200
_MAX_LISTED_IDS = 5


class UnknownSession(SettingsError):
    """No session has that id, nor one that begins so."""


async def find_session(desk: Client, reference: str, home: Path) -> SessionInfo:
    """The session that `word` means; raises `NoneNamed`, or `SettingsError` if there are several."""
    if reference == LAST:
        return await _find_last_session(desk, home)
    if re.fullmatch(r"\w+", reference, re.ASCII):
        with suppress(SessionNotFound):
            return await desk.get(reference)
        found = [known async for known in all_sessions(desk) if _has_prefix(known.id, reference)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(known.id for known in found[:_MAX_LISTED_IDS]) + (
                ", …" if len(found) > _MAX_LISTED_IDS else ""
            )
            raise SettingsError(f"{len(found)} sessions begin with {reference!r}: {ids}")
    raise UnknownSession(f"no session has the id {reference!r} or one that begins so; `agx sessions list` shows them")


async def all_sessions(desk: Client) -> AsyncGenerator[SessionInfo]:
    """Every session, archived ones too."""
    before: str | None = None
    while page := await desk.list_sessions(limit=_PAGE_SIZE, before=before, archived=True):
        for known in page:
            yield known
        before = page[-1].id


def remember_last_session(home: Path, session_id: str) -> None:
    """Make it the one that `last` means."""
    with suppress(OSError):  # then `last` is the newest one
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = home / f".{_FILE_NAME}.{os.getpid()}"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{session_id}\n")
        temporary.replace(home / _FILE_NAME)


async def _find_last_session(desk: Client, home: Path) -> SessionInfo:
    session_id = _read_last_session_id(home)
    if session_id:
        try:
            return await desk.get(session_id)
        except SessionNotFound as exc:  # another one is not what is meant, least of all by `delete last` again
            raise SettingsError(
                f"the last session, {session_id}, is deleted; `agx sessions list` shows the others"
            ) from exc
    newest = max([known async for known in all_sessions(desk)], key=lambda known: known.record.created_at, default=None)
    if newest is None:
        raise SettingsError("there is no session yet; `agx run` and `agx chat` make one")
    return newest


def _read_last_session_id(home: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (home / _FILE_NAME).read_text("ascii").strip()
    return ""


def _has_prefix(session_id: str, prefix: str) -> bool:
    return session_id.startswith(prefix) or session_id.partition("_")[2].startswith(prefix)
