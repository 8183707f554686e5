"""Fork of a session: its log up to a message, ended as if the user had stopped the turn there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agenticx.errors import StoreError
from agenticx.messages import Message, new_id
from agenticx.runtime import Session
from agenticx.runtime.events import REQUEST_EVENTS, RuntimeEvent, TurnStartedEvent
from agenticx.sessions.files.artifacts import share_artifacts
from agenticx.sessions.files.options import fork_options
from agenticx.sessions.files.snapshots import forked_edits, share_contents
from agenticx.sessions.history.interrupted import InterruptedTurn
from agenticx.sessions.history.model_history import CurrentHistory, not_run_result, rebuild_history
from agenticx.sessions.history.subagent_notices import HistoryWithSubagents, deliveries_of_fork
from agenticx.sessions.history.transcript import (
    read_conversation,
    searchable_path_texts,
)
from agenticx.sessions.history.turns_on_path import TurnsOnPath
from agenticx.sessions.store.attachments import attachment_digests
from agenticx.sessions.store.base import Doubtful, Log, Store
from agenticx.sessions.store.commits import SessionState, StateChange
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.events import SessionEvent, StoredEvent, decode, encode
from agenticx.sessions.store.records import Fact, ForkedPath, SubagentFact
from agenticx.sessions.store.session_record import SessionRecord
from agenticx.sessions.store.tool_state import decode_replacement_counts, encode_state, load_files, load_state
from agenticx.sessions.turn_tree import LoggedTurn, TurnTree
from agenticx.threads import run_sized

__all__ = ["fork"]

_MAX_NAME_CHARS = 200


async def fork(
    store: Store,
    session_id: str,
    message_id: str | None = None,
    *,
    now: str,
) -> SessionRecord:
    """Create a session with the conversation of this one, up to and including that message, by default the last.

    Its log is one of its own: sequence numbers from 1, every turn ended, ids of its own for turns and requests, the
    times and message ids of the old one; branches that were rewound away are not in it. Permissions given for the old
    session are not given for it; files that the calls in its log changed can be restored in it too. Sub-agents stay
    with the old one; the next turn is told of their endings that the conversation lacks. `now` is its `created_at`.
    Raises `SessionNotFound` and `MessageNotFound`.
    """
    old = await store.catalog.get(session_id)
    state = await store.log.state(session_id)
    events, conversation = await read_conversation(store.log, session_id)
    path = conversation.path(message_id)
    name = None if old.name is None else f"{old.name[: _MAX_NAME_CHARS - 7]} (fork)"
    record = replace(
        old,
        id=new_id("ses"),
        name=name,
        pinned=False,
        archived=False,
        forked_from=session_id,
        created_at=now,
    )
    current = await _current_history(store.log, session_id, state)
    messages = rebuild_history(path, conversation, current)
    turns = TurnsOnPath(events, conversation, path)
    size = sum(len(event.frame_json) for event in events)
    log = await run_sized(_forked_log, record.id, turns, events, size=size, name="agx fork")
    history = HistoryWithSubagents.on_path(turns, conversation, current.ids_of(messages))
    deliveries = deliveries_of_fork(await store.log.facts(session_id, SubagentFact), history)
    forked_path = ForkedPath(turns.calls(), log.turn_id)
    edits = await forked_edits(store.log, session_id, forked_path)
    facts: list[Fact] = [*filter(None, (one.forked(forked_path) for one in deliveries)), *edits]
    blobs = store.blobs
    session = _forked_session(state, turns, log.turn_ids, has_files=blobs is not None)
    forked = _forked_state(messages, current, session)
    if blobs is not None:
        await share_artifacts(session.artifacts, blobs, session_id, record.id)
        await share_contents(blobs, session_id, record.id, edits)
        if digests := attachment_digests([*forked.messages, *forked.compacted]):
            await blobs.share(session_id, record.id, digests)
    try:
        await store.create(
            record, initial_events=log.events, texts=searchable_path_texts(path), state=forked, facts=facts
        )
    except StoreError as exc:
        if blobs is not None and not isinstance(exc, Doubtful):
            await blobs.forget(record.id)
        raise
    return record


async def _current_history(log: Log, session_id: str, state: SessionState) -> CurrentHistory:
    with map_decode_errors("the state of a session"):
        summary_count, _ = decode_replacement_counts(state.parts)
    return CurrentHistory(state.messages, summary_count, await log.compacted_messages(session_id))


def _forked_session(
    state: SessionState, turns: TurnsOnPath, turn_ids: Mapping[str, str], *, has_files: bool
) -> Session:
    """Return a session with the state of the fork apart from its messages: with files if it `has_files`.

    It has no permissions.
    """
    session = Session()
    with map_decode_errors("the state of a session"):
        load_state(session, state.parts)
    session.allowed.clear()
    if has_files:
        session.artifacts.return_to(turns.revisions(session.options))
        fork_options(session, turn_ids)
    else:
        load_files(session, {})
    return session


def _forked_state(messages: Sequence[Message], current: CurrentHistory, session: Session) -> StateChange:
    """Return the state of the fork; it has compacted messages only if it has their summaries."""
    summary_count, compacted = current.summary_count, current.compacted
    if not current.keeps_summaries(messages):
        summary_count, compacted = 0, ()
    parts = encode_state(session, (summary_count, len(compacted)))
    return StateChange(messages, parts, compacted=compacted, keep_compacted=0)


def _forked_log(session_id: str, turns: TurnsOnPath, events: Sequence[StoredEvent]) -> _ForkedLog:
    """Return the log of a new session with these turns, and with the picks among `events` that are on their path."""
    log = _ForkedLog(session_id)
    parts = [*turns.turns, *([event] for event in events if event.seq in turns.picked)]
    for part in sorted(filter(None, parts), key=lambda part: part[0].seq):
        log.add(part)
    return log


class _ForkedLog:
    """The log of a new session, built turn by turn."""

    def __init__(self, session_id: str) -> None:
        self.events: list[StoredEvent] = []
        self._session_id = session_id
        self.turn_ids: dict[str, str] = {}
        self._request_ids: dict[str, str] = {}

    def add(self, turn: Sequence[StoredEvent]) -> None:
        """Copy a turn with those below it, and end those that have no terminal event."""
        tree = TurnTree()
        for event in turn:
            entry = decode(event)
            with map_decode_errors(f"the log of turn {entry.turn_id!r}"):
                tree.apply(entry.event, entry.ts)
            self._copy(entry)
        for one in reversed(tree.turns.values()):  # those below others first
            if one.end is None:
                self._end(one)

    def _copy(self, entry: SessionEvent) -> None:
        if isinstance(entry.event, TurnStartedEvent) and "parent_turn_id" in (data := entry.event.data):
            data["parent_turn_id"] = self.turn_id(data["parent_turn_id"])
        self._append(entry.event, None if entry.turn_id is None else self.turn_id(entry.turn_id), entry.ts)

    def _append(self, event: RuntimeEvent, turn_id: str | None, ts: str) -> None:
        if event.type in REQUEST_EVENTS:
            event.data["id"] = self._request_id(event.data["id"])
        seq = len(self.events) + 1
        self.events.append(encode(event, session_id=self._session_id, turn_id=turn_id, seq=seq, position=seq, ts=ts))

    def turn_id(self, old: str) -> str:
        """Return the id of the turn that had another one in the old session."""
        if (new := self.turn_ids.get(old)) is None:
            new = self.turn_ids[old] = new_id("turn")
        return new

    def _request_id(self, old: str) -> str:
        if (new := self._request_ids.get(old)) is None:
            new = self._request_ids[old] = new_id(old.partition("_")[0])
        return new

    def _end(self, turn: LoggedTurn) -> None:
        cut = InterruptedTurn(self._session_id, turn)
        results = [not_run_result(call_id, name) for call_id, name in turn.open_calls.items()]
        for event in cut.closing_events(results, "stopped", "The conversation was forked here."):
            self._append(event, self.turn_ids[turn.id], turn.last_ts)
