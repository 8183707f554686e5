"""Rewinding of a conversation to one of its messages, with the files that the agent changed.

A rewind is an event and removes none from the log: `session_changed{rewound_to}` moves the end of the conversation to
an earlier message, of this branch or another one. So a rewind can be reversed by another rewind, and a fork copies one
path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.sessions.files.restore import RestoredFile, restore_files
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.history.model_history import CurrentHistory, rebuild_history
from agenticx.sessions.history.subagent_notices import HistoryWithSubagents, rewound_deliveries
from agenticx.sessions.history.turns_on_path import TurnsOnPath, read_logged_session
from agenticx.sessions.hub.writer import SessionWriter
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.records import Fact, FileFact, RewindBegan, RewindEnded, SubagentFact
from agenticx.sessions.store.attachments import load_attachments
from agenticx.sessions.store.base import Lease, Log, Store
from agenticx.sessions.store.hosts import check_workspace, is_this_host

__all__ = ["RewindResult", "complete_rewind", "rewind", "session_snapshots"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RewindResult:
    """The result of a rewind; a rewind to `undo` reverses it, None being the beginning, before any message."""

    rewound_to: str | None
    undo: str | None
    files: Sequence[RestoredFile] = ()


def session_snapshots(lease: Lease, store: Store, writer: SessionWriter) -> SessionSnapshots | None:
    """Return the snapshots of a session, None in a store without contents."""
    blobs = store.blobs
    if blobs is None:
        return None

    async def read() -> Sequence[FileFact]:
        await lease.check()
        return await store.log.facts(lease.session_id, FileFact)

    return SessionSnapshots(
        lease.session_id,
        blobs,
        lambda: Path(writer.record.workspace),
        read=read,
        commit=lambda facts: writer.commit(None, facts=facts),
    )


async def rewind(
    log: Log,
    session: Session,
    writer: SessionWriter,
    message_id: str | None,
    snapshots: SessionSnapshots | None,
    *,
    note_folders: Collection[Path] = (),
    private: Collection[Path] = (),
    earlier: Sequence[Fact] = (),
) -> RewindResult:
    """Make that message, also a rewound one, the last of the conversation; no turn may run.

    Files are restored first. The fact `rewind_began` is stored before the first file is changed: if the process ends in
    between, `complete_rewind` finishes the rewind, and finds restored files as they should be.

    - Files in `private` are not restored, and files outside the workspace only in `note_folders`.
    - `earlier` are facts of unfinished rewinds; this one replaces them.
    - Endings of sub-agents that the conversation lacks afterwards are reported again, unless it lacks their start too.

    Raises `MessageNotFound`, `WorkspaceElsewhere`, and `DamagedData`, with nothing changed, if the changes of files by
    the calls in between cannot be read: the conversation would no longer match the files.
    """
    check_workspace(writer.record, log)
    logged = await read_logged_session(log, session.id)
    conversation = logged.conversation
    if message_id == conversation.head:
        return RewindResult(message_id, message_id)
    target_path = [] if message_id is None else conversation.path(message_id)
    current = CurrentHistory(session.messages, session.replacement_count, await log.compacted_messages(session.id))
    messages = rebuild_history(target_path, conversation, current)
    turns = TurnsOnPath(logged, target_path)
    history = HistoryWithSubagents.on_path(turns, conversation, current.ids_of(messages))
    deliveries = rewound_deliveries(await log.facts(session.id, SubagentFact), history)
    files, began = list[RestoredFile](), _began(message_id, writer.seq)
    if snapshots is not None:
        messages = await load_attachments(messages, snapshots.read_content)  # compacted messages have no contents
        current_calls = TurnsOnPath(logged, conversation.path()).calls()
        target_calls = turns.calls()
        undone, redone = current_calls - target_calls, target_calls - current_calls
        files = await restore_files(
            snapshots,
            session.workspace,
            undone=undone,
            redone=redone,
            note_folders=note_folders,
            private=private,
            began=[began],
            is_here=lambda host: is_this_host(host, log),
        )
        _update_known_versions(session, files)
    previous, session.messages = session.messages, messages
    previous_files, was_option_due = session.artifacts.current, session.is_option_due
    session.artifacts.return_to(turns.revisions(session.options))
    session.is_option_due = False

    def on_stored() -> None:  # after `OutcomeUnknown` that is known only later
        session.messages = messages
        session.notices = deliveries.notices(session.notices)

    try:
        event = RuntimeEvent(EventType.SESSION_CHANGED, {"rewound_to": message_id})
        facts = (*_ended([*earlier, began] if files else earlier), *deliveries.facts)
        removed = {entry.id for entry in conversation.path()}.difference(entry.id for entry in target_path)
        await writer.commit(None, [event], facts=facts, has_state=True, removed_texts=removed, on_stored=on_stored)
    except BaseException:
        session.messages = previous
        session.artifacts.return_to(previous_files)
        session.is_option_due = was_option_due
        raise
    return RewindResult(message_id, conversation.head, files)


async def complete_rewind(
    log: Log,
    session: Session,
    writer: SessionWriter,
    snapshots: SessionSnapshots | None,
    *,
    note_folders: Collection[Path],
    private: Collection[Path],
) -> None:
    """Complete a rewind that the end of an earlier process cut off, unless the session has gone on since.

    A failure is logged; the next owner of the session tries again.
    """
    began = writer.stored.open_facts_of(RewindBegan)
    if not began:
        return
    try:
        with map_decode_errors(f"a fact of session {session.id!r}"):
            message_id, after_seq = began[-1].message_id, began[-1].after_seq
        if after_seq == writer.seq:
            await rewind(
                log,
                session,
                writer,
                message_id,
                snapshots,
                note_folders=note_folders,
                private=private,
                earlier=began,
            )
            _log.warning("rewind completed that an earlier process began", message=message_id)
        else:
            await writer.commit(None, facts=_ended(began))
            _log.warning("rewind did not end; files may be as it left them", message=message_id)
    except AgenticXError as exc:
        _log.error("rewind that an earlier process began could not be completed", error=str(exc))


def _began(message_id: str | None, seq: int) -> Fact:
    return RewindBegan(key=new_id("rwd"), message_id=message_id, after_seq=seq)


def _ended(began: Sequence[Fact]) -> list[Fact]:
    return [RewindEnded(key=fact.key) for fact in began]


def _update_known_versions(session: Session, files: Sequence[RestoredFile]) -> None:
    """Set the versions of restored files in the tool state, so that they do not count as changed from outside."""
    versions = session.state.files
    for file in files:
        path = str(session.workspace.resolve() / file.path)
        if file.version is not None and path in versions:
            versions[path] = file.version
        elif file.outcome == "removed":
            versions.pop(path, None)
