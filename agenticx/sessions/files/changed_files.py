"""The files that the agent changed in a session, or in one turn, each with its diff from the first to the last edit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import AgenticXError
from agenticx.runtime.events import EventType, ToolCallEvent
from agenticx.sessions.files.changes import FileChange
from agenticx.sessions.files.snapshots import read_changes
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.log.records import FileEdited, FileRewound
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.turn_tree import TurnFilter
from agenticx.sessions.store.base import Log, Store, read_log_pages
from agenticx.sessions.store.blobs import TOO_LARGE
from agenticx.threads import run_in_thread
from agenticx.tools.diffs import Diff, unified_diff
from agenticx.tools.text_files import decode_text
from agenticx.tools.visible import visible_path

__all__ = ["CallNotFound", "ChangedFile", "TurnNotFound", "find_changed_files", "read_file_diff", "read_text_before"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file with the edits of it that hold; `before` and `after` are digests of its contents (None: no file).

    `path` is relative to the workspace, or absolute for a file outside. `last_key` is the key of the record of the last
    edit.
    """

    path: str
    before: str | None
    after: str | None
    call_ids: tuple[str, ...]
    last_key: str


class TurnNotFound(AgenticXError):
    """An error for a turn id that the session does not have."""


class CallNotFound(AgenticXError):
    """An error for the id of a tool call that the session, or the turn, does not have."""


async def find_changed_files(
    store: Store, record: SessionRecord, turn_id: str | None = None, call_id: str | None = None
) -> list[ChangedFile]:
    """Return the files that calls changed, the last changed one first.

    With a `turn_id` only that turn's calls count, with a `call_id` only that call. Edits that a rewind has undone are
    left out, and files that are as before. The calls of child turns are part of a turn. Raises `TurnNotFound`,
    `CallNotFound`, `DamagedData` and `StoreError`.
    """
    changes = await read_changes(store.log, record.id)
    if changes is None:
        raise DamagedData("the session's list of changed files is damaged; the log of the server says where")
    calls = None if turn_id is None else await _calls_of(store.log, record.id, turn_id)
    if call_id is not None:
        edited = (change.call_id for change in changes if isinstance(change, FileEdited))
        await _check_call(store.log, record.id, call_id, turn_id, edited if calls is None else calls)
        calls = {call_id}
    by_path = dict[str, list[FileChange]]()
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    files = (_changed_file(path, of_path, calls, record.workspace) for path, of_path in by_path.items())
    places = {change.key: place for place, change in enumerate(changes)}
    return sorted((file for file in files if file is not None), key=lambda file: places[file.last_key], reverse=True)


async def read_file_diff(store: Store, session_id: str, file: ChangedFile, max_chars: int) -> Diff | None:
    """Return the diff of a file, None if one of its contents is not stored or is no text."""
    before, after = [await _content(store, session_id, digest) for digest in (file.before, file.after)]
    if before is None or after is None:
        return None
    return await run_in_thread(_diff, before, after, file.path, max_chars, name="agx diff of a session's file")


async def read_text_before(store: Store, session_id: str, file: ChangedFile, max_chars: int) -> str | None:
    """Return the text that a file had, None if it is not stored, is no text or is longer than `max_chars`."""
    content = await _content(store, session_id, file.before)
    if content is None:
        return None
    before = await run_in_thread(decode_text, content, name="agx text of a session's file")
    return None if before is None or len(before.text) > max_chars else before.text


async def _content(store: Store, session_id: str, digest: str | None) -> bytes | None:
    """Return a stored content, empty where there was no file; None if it is not stored."""
    if digest is None:
        return b""
    if digest == TOO_LARGE or store.blobs is None:
        return None
    return await store.blobs.get(session_id, digest)


def _diff(before: bytes, after: bytes, path: str, max_chars: int) -> Diff | None:
    old, new = decode_text(before), decode_text(after)
    if old is None or new is None:
        return None
    return unified_diff(old.text, new.text, path, max_chars=max_chars)


def _changed_file(
    path: str, changes: Sequence[FileChange], calls: Collection[str] | None, workspace: str
) -> ChangedFile | None:
    edits, undone = list[FileEdited](), set[str]()
    for change in changes:
        match change:
            case FileEdited():
                edits.append(change)
            case FileRewound():
                undone = undone.difference(change.redone).union(change.undone)
    kept = [edit for edit in edits if edit.call_id not in undone and (calls is None or edit.call_id in calls)]
    if not kept or (kept[0].before == kept[-1].after != TOO_LARGE):
        return None
    shown = Path(path)
    if shown.is_relative_to(workspace):
        shown = shown.relative_to(workspace)
    call_ids = tuple(dict.fromkeys(edit.call_id for edit in kept))
    return ChangedFile(
        path=visible_path(str(shown)),
        before=kept[0].before,
        after=kept[-1].after,
        call_ids=call_ids,
        last_key=kept[-1].key,
    )


async def _check_call(log: Log, session_id: str, call_id: str, turn_id: str | None, known: Iterable[str]) -> None:
    """Raise `CallNotFound` for a call that is not `known` and, without a `turn_id`, not in the log either."""
    if call_id in known:
        return
    if turn_id is not None:
        raise CallNotFound(f"no call of turn {turn_id!r} has the id {call_id!r}")
    async for page in read_log_pages(log, session_id, 0):
        if call_id in _calls_in(page):
            return
    raise CallNotFound(f"no call of this session has the id {call_id!r}")


async def _calls_of(log: Log, session_id: str, turn_id: str) -> set[str]:
    """Return the ids of the calls of a turn and its child turns; raise `TurnNotFound`."""
    turn, calls = await log.turn(session_id, turn_id), set[str]()
    if turn is None:
        raise TurnNotFound(f"no turn of this session has the id {turn_id!r}")
    turns = TurnFilter({turn_id})
    async for page in read_log_pages(log, session_id, turn.after_seq or 0):
        for event in page:
            if turns.includes(event):
                calls |= _calls_in([event])
            if event.terminal and event.turn_id == turn_id:
                return calls
    return calls


def _calls_in(events: Iterable[StoredEvent]) -> set[str]:
    """Return the ids of the calls whose `tool_call` is one of the events."""
    called = (decode(event).event for event in events if event.type == EventType.TOOL_CALL)
    return {event.data["tool_call_id"] for event in called if isinstance(event, ToolCallEvent)}
