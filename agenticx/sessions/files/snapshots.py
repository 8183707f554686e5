"""Snapshots of files before and after the agent changed them.

The contents are blobs of the session, the changes facts. A change is committed before the file is touched, so that no
file is changed without a fact; a content is stored before the commit that names it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agenticx.errors import AgenticXError, StoreError, ToolError
from agenticx.logs import get_logger
from agenticx.sessions.files.changes import (
    FileChange,
    checked_changes,
    damaged_list_error,
    file_edited,
    reversed_edit,
)
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import Fact, FileEdited, FileFact, FileRewound
from agenticx.sessions.store.base import Log, OutcomeUnknown
from agenticx.sessions.store.blobs import LARGEST_CONTENT, TOO_LARGE, Blobs, content_digest
from agenticx.threads import run_in_thread

__all__ = ["SessionSnapshots", "read_changes", "share_contents"]

_log = get_logger(__name__)


class SessionSnapshots:
    """The `Snapshots` of one session, for its owner: `read` returns its facts about files, `commit` stores some.

    Edits of files outside `workspace()` are recorded with the folder in which the call could make them.
    """

    def __init__(
        self,
        session_id: str,
        blobs: Blobs,
        workspace: Callable[[], Path],
        *,
        read: Callable[[], Awaitable[Sequence[Fact]]],
        commit: Callable[[Sequence[Fact]], Awaitable[object]],
    ) -> None:
        self._session_id = session_id
        self._blobs = blobs
        self._workspace = workspace
        self._read = read
        self._commit = commit
        self._recordings = set[asyncio.Future[None]]()

    async def record_edit(
        self,
        call_id: str,
        path: Path,
        before: bytes | None,
        after: bytes,
        *,
        in_place: bool = False,
        root: Path | None = None,
    ) -> None:
        """Store the edit, and both contents as far as there is room; raise `ToolError` if the storage fails.

        For one `in_place` there is always room, but a content that is too large to be stored is refused. Where the call
        is cancelled meanwhile, or the outcome is unknown, the edit is recorded as not made.
        """
        digests = (None if before is None else content_digest(before)), content_digest(after)
        if in_place and TOO_LARGE in digests:
            raise ToolError(
                f"nothing was changed: the file can only be written in place, and contents of more than"
                f" {LARGEST_CONTENT:,} bytes cannot be stored before that"
            )
        outside = root is not None and await run_in_thread(_is_outside, path, self._workspace(), name="agx snapshot")
        edit = file_edited(call_id, str(path), *digests, in_place=in_place, root=str(root) if outside else None)
        recording = self._track(self._record_edit(edit, before, after))
        try:
            await asyncio.shield(recording)
        except asyncio.CancelledError:
            await asyncio.shield(self._track(self._cancel_edit(recording, edit)))
            raise
        except StoreError as exc:
            if isinstance(exc, OutcomeUnknown):
                await asyncio.shield(self._track(self._cancel_edit(recording, edit)))
            raise ToolError(f"nothing was changed, because a snapshot could not be stored: {exc}") from exc

    def _track(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Return a task that goes on if its caller is cancelled, and that `delete` waits for."""
        task = asyncio.ensure_future(work)
        self._recordings.add(task)
        task.add_done_callback(self._recordings.discard)
        return task

    async def _record_edit(self, edit: FileEdited, before: bytes | None, after: bytes) -> None:
        retention = "kept" if edit.in_place else "limited"
        if before is not None:
            await self._blobs.put(self._session_id, before, retention=retention)
        # Otherwise it need not be synced, as it is about to be written to the file as well.
        await self._blobs.put(self._session_id, after, synced=edit.in_place, retention=retention)
        await self._commit([edit])

    async def _cancel_edit(self, recording: asyncio.Future[None], edit: FileEdited) -> None:
        """Record the reverse of an edit that is not made, unless it is known that the edit is not recorded."""
        await asyncio.wait({recording})
        try:
            with suppress(OutcomeUnknown):
                recording.result()
            await self._commit([edit, reversed_edit(edit)])  # the record of the edit is stored once, in either case
        except AgenticXError as exc:
            _log.warning("file edit that is not made may be recorded", error=str(exc))

    async def record_rewind(self, began: Sequence[Fact], change: FileRewound) -> None:
        """Store the facts that a rewind began, and a change that it is about to make; raise `StoreError`."""
        await self._commit([*began, change])

    async def keep(self, *contents: bytes) -> None:
        """Store contents whatever room is left, before a file with one of them is written in place."""
        for content in contents:
            await self._blobs.put(self._session_id, content, retention="kept")

    async def changes(self) -> list[FileChange]:
        """Return all changes of files, in order; raise `DamagedData`."""
        return await _read_changes(self._read)

    async def delete(self) -> None:
        """Delete all contents of the session, whose turn was stopped, once no edit is being recorded."""
        while self._recordings:
            await asyncio.wait(self._recordings)
        await self._blobs.forget(self._session_id)

    async def read_content(self, digest: str) -> bytes | None:
        """Return the content of that digest, None if it is not stored."""
        return await self._blobs.get(self._session_id, digest)


def _is_outside(path: Path, folder: Path) -> bool:
    return not path.is_relative_to(os.path.realpath(folder))


async def read_changes(log: Log, session_id: str) -> list[FileChange] | None:
    """Return all changes of the session's files, in order; None, and log why, if one is damaged."""
    try:
        return await _read_changes(lambda: log.facts(session_id, FileFact))
    except DamagedData as exc:
        _log.error("changes of files cannot be read", session=session_id, error=str(exc))
        return None


async def share_contents(blobs: Blobs, session_id: str, other_id: str, edits: Sequence[FileEdited]) -> None:
    """Give another session the contents of these edits; raise `StoreError`."""
    if digests := {digest for edit in edits for digest in (edit.before, edit.after) if digest}:
        await blobs.share(session_id, other_id, digests)


async def _read_changes(read: Callable[[], Awaitable[Sequence[Fact]]]) -> list[FileChange]:
    try:
        facts = await read()
    except DamagedData as exc:
        raise damaged_list_error("facts", "one cannot be decoded") from exc
    return checked_changes(facts)
