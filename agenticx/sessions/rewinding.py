"""A conversation taken back to one of its messages, and the files that the agent changed with it; or forth again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.base import Store
from agenticx.sessions.live import LiveSession
from agenticx.sessions.restoring import RestoredFile, restore_files
from agenticx.sessions.retelling import AtHand, messages_up_to
from agenticx.sessions.snapshots import SnapshotFolder
from agenticx.sessions.transcript import calls_on, read_conversation
from agenticx.threads import run_in_thread

__all__ = ["Rewound", "rewind"]


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did; a rewind to `undo` takes it back. None stands for the beginning, before any message."""

    rewound_to: str | None
    undo: str | None
    files: Sequence[RestoredFile] = ()


async def rewind(
    store: Store,
    live: LiveSession,
    message_id: str | None,
    snapshots: SnapshotFolder | None,
    *,
    private: Collection[Path] = (),
) -> Rewound:
    """Let the conversation end with that message, which may be one that was rewound away; no turn may run.

    Files come first: should the program end in between, the same rewind again finds them as they should be. Raises
    `MessageNotFound`; and `Damaged`, with nothing changed, where it cannot be read which files the calls in between
    changed: a conversation that says less than the files hold helps nobody. What lies in `private` is not restored.
    """
    _, conversation = await read_conversation(store, live.session.id)
    now, then = conversation.path(), conversation.path(message_id) if message_id is not None else []
    if message_id == conversation.head:
        return Rewound(message_id, message_id)
    at_hand = AtHand(live.session.messages, live.session.replacement_count, await store.compacted(live.session.id))
    messages = messages_up_to(then, conversation, at_hand)
    files: list[RestoredFile] = []
    if snapshots is not None:
        undone, redone = calls_on(now) - calls_on(then), calls_on(then) - calls_on(now)
        of_session, workspace = snapshots.of(live.session.id), live.session.workspace
        files = await run_in_thread(restore_files, of_session, workspace, undone=undone, redone=redone, private=private)
        _know(live, files)
    before, live.session.messages = live.session.messages, messages
    try:
        event = RuntimeEvent(EventType.SESSION_CHANGED, {"rewound_to": message_id})
        await live.append(None, [event], findable=frozenset(entry.id for entry in then))
    except BaseException:
        live.session.messages = before
        raise
    return Rewound(message_id, conversation.head, files)


def _know(live: LiveSession, files: Sequence[RestoredFile]) -> None:
    """Let the tools know of the files as they are now, so that they are not taken for somebody else's change."""
    known = live.session.state.files
    for file in files:
        path = str(live.session.workspace.resolve() / file.path)
        if file.version is not None and path in known:
            known[path] = file.version
        elif file.outcome == "removed":
            known.pop(path, None)
