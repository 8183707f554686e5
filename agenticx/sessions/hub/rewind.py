"""Rewinding of a conversation to one of its messages, with the files that the agent changed.

A rewind is an event, because the log only grows: `session_changed{rewound_to}` moves the end of the conversation to an
earlier message, of this branch or another one. So a rewind can be reversed by another rewind, and a fork copies one
path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.sessions.files.restore import RestoredFile, restore_files
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.history.rebuild import CurrentHistory, rebuild_history
from agenticx.sessions.history.transcript import read_conversation, tool_call_ids
from agenticx.sessions.hub.writer import SessionWriter
from agenticx.sessions.store.base import Log

__all__ = ["RewindResult", "rewind"]


@dataclass(frozen=True, slots=True)
class RewindResult:
    """The result of a rewind; a rewind to `undo` reverses it, None being the beginning, before any message."""

    rewound_to: str | None
    undo: str | None
    files: Sequence[RestoredFile] = ()


async def rewind(
    log: Log,
    session: Session,
    writer: SessionWriter,
    message_id: str | None,
    snapshots: SessionSnapshots | None,
    *,
    private: Collection[Path] = (),
) -> RewindResult:
    """Make that message, which may be one that was rewound away, the last of the conversation; no turn may run.

    Files come first: if the process ends in between, the same rewind finds them already restored. Raises
    `MessageNotFound`; and `DamagedData`, with nothing changed, if the changes of files by the calls in between
    cannot be read: the conversation would no longer match the files. Files in `private` are not restored.
    """
    _, conversation = await read_conversation(log, session.id)
    current_path, target_path = conversation.path(), conversation.path(message_id) if message_id is not None else []
    if message_id == conversation.head:
        return RewindResult(message_id, message_id)
    current = CurrentHistory(session.messages, session.replacement_count, await log.compacted_messages(session.id))
    messages = rebuild_history(target_path, conversation, current)
    files: list[RestoredFile] = []
    if snapshots is not None:
        current_calls, target_calls = tool_call_ids(current_path), tool_call_ids(target_path)
        undone, redone = current_calls - target_calls, target_calls - current_calls
        files = await restore_files(snapshots, session.workspace, undone=undone, redone=redone, private=private)
        _update_known_versions(session, files)
    previous, session.messages = session.messages, messages
    try:
        event = RuntimeEvent(EventType.SESSION_CHANGED, {"rewound_to": message_id})
        await writer.commit(None, [event], searchable_ids=frozenset(entry.id for entry in target_path))
    except BaseException:
        session.messages = previous
        raise
    return RewindResult(message_id, conversation.head, files)


def _update_known_versions(session: Session, files: Sequence[RestoredFile]) -> None:
    """Set the versions of restored files in the tool state, so that they do not count as changed from outside."""
    versions = session.state.files
    for file in files:
        path = str(session.workspace.resolve() / file.path)
        if file.version is not None and path in versions:
            versions[path] = file.version
        elif file.outcome == "removed":
            versions.pop(path, None)
