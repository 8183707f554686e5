"""Which session a person means: by its id, by the beginning of it, or as the one that was last used in a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from agenticx.cli.desk import Desk, Known
from agenticx.errors import SessionNotFound, SettingsError

__all__ = ["LAST", "NoneNamed", "all_sessions", "note_last", "session_named"]

LAST = "last"
_FILE_NAME = "last_session"
_PAGE = 200
_SHOWN = 5


class NoneNamed(SettingsError):
    """No session has that id, nor one that begins so."""


async def session_named(desk: Desk, word: str, home: Path) -> Known:
    """The session that `word` means; raises `NoneNamed`, or `SettingsError` if there are several."""
    if word == LAST:
        return await _last(desk, home)
    if re.fullmatch(r"\w+", word, re.ASCII):
        with suppress(SessionNotFound):
            return await desk.get(word)
        found = [known async for known in all_sessions(desk) if _begins(known.id, word)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(known.id for known in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
            raise SettingsError(f"{len(found)} sessions begin with {word!r}: {ids}")
    raise NoneNamed(f"no session has the id {word!r} or one that begins so; `agx sessions list` shows them")


async def all_sessions(desk: Desk) -> AsyncGenerator[Known]:
    """Every session, archived ones too."""
    before: str | None = None
    while page := await desk.sessions(limit=_PAGE, before=before, archived=True):
        for known in page:
            yield known
        before = page[-1].id


def note_last(home: Path, session_id: str) -> None:
    """Make it the one that `last` means."""
    with suppress(OSError):  # then `last` is the newest one
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = home / f".{_FILE_NAME}.{os.getpid()}"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{session_id}\n")
        temporary.replace(home / _FILE_NAME)


async def _last(desk: Desk, home: Path) -> Known:
    noted = _noted(home)
    if noted:
        try:
            return await desk.get(noted)
        except SessionNotFound as exc:  # another one is not what is meant, least of all by `delete last` again
            raise SettingsError(f"the last session, {noted}, is deleted; `agx sessions list` shows the others") from exc
    newest = max([known async for known in all_sessions(desk)], key=lambda known: known.record.created_at, default=None)
    if newest is None:
        raise SettingsError("there is no session yet; `agx run` and `agx chat` make one")
    return newest


def _noted(home: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (home / _FILE_NAME).read_text("ascii").strip()
    return ""


def _begins(session_id: str, word: str) -> bool:
    return session_id.startswith(word) or session_id.partition("_")[2].startswith(word)
