"""Fork of a session: its log up to a message, ended as if the user had stopped the turn there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agenticx.errors import StoreError
from agenticx.messages import Message, new_id
from agenticx.runtime import Session
from agenticx.runtime.events import REQUEST_EVENTS, RuntimeEvent, TurnStartedEvent
from agenticx.sessions.files.artifacts import share_artifacts
from agenticx.sessions.files.changes import damaged_change
from agenticx.sessions.files.options import fork_options
from agenticx.sessions.files.snapshots import read_changes, share_contents
from agenticx.sessions.history.interrupted import InterruptedTurn
from agenticx.sessions.history.model_history import CurrentHistory, not_run_result, rebuild_history
from agenticx.sessions.history.subagent_notices import HistoryWithSubagents, deliveries_of_fork
from agenticx.sessions.history.transcript import searchable_path_texts
from agenticx.sessions.history.turns_on_path import TurnsOnPath, read_logged_session
from agenticx.sessions.log.commits import SessionState, StateChange
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode, encode
from agenticx.sessions.log.records import (
    FORKED_CLASSES,
    Fact,
    FileEdited,
    FileFact,
    ForkedPath,
    SubagentDelivered,
    SubagentFact,
)
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.tool_state import decode_replacement_counts, encode_state, load_files, load_state
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.sessions.store.attachments import attachment_digests
from agenticx.sessions.store.base import Log, OutcomeUnknown, Store, read_log_pages

__all__ = ["fork", "forked_facts"]

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

    The old log is read twice, page by page: first for the conversation, then for the events to copy. No session is
    created if an error, a cancellation or the end of the process comes before the last one. Raises `SessionNotFound`
    and `MessageNotFound`.
    """
    old = await store.catalog.get(session_id)
    state = await store.log.state(session_id)
    logged = await read_logged_session(store.log, session_id)
    conversation = logged.conversation
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
    turns = TurnsOnPath(logged, path)
    copy = _LogCopy(record.id, turns)
    history = HistoryWithSubagents.on_path(turns, conversation, current.ids_of(messages))
    deliveries = deliveries_of_fork(await store.log.facts(session_id, SubagentFact), history)
    forked_path = ForkedPath(turns.calls(), copy.turn_id)
    facts = await forked_facts(store.log, session_id, forked_path, deliveries)
    blobs = store.blobs
    session = _forked_session(state, turns, copy.turn_ids, has_files=blobs is not None)
    forked = _forked_state(messages, current, session)

    async def initial_events() -> AsyncGenerator[Sequence[StoredEvent]]:
        async for page in read_log_pages(store.log, session_id, until=logged.last_seq):
            yield copy.copied(page)
        yield copy.closing_events()
        if blobs is not None:  # only now, so that a process which ends in between leaves none behind
            await share_artifacts(session.artifacts, blobs, session_id, record.id)
            await share_contents(blobs, session_id, record.id, [one for one in facts if isinstance(one, FileEdited)])
            if digests := attachment_digests([*forked.messages, *forked.compacted]):
                await blobs.share(session_id, record.id, digests)

    texts = searchable_path_texts(path)
    try:
        await store.create(record, initial_events=initial_events(), texts=texts, state=forked, facts=facts)
    except StoreError as exc:
        if blobs is not None and not isinstance(exc, OutcomeUnknown):
            await blobs.forget(record.id)
        raise
    return record


async def forked_facts(
    log: Log, session_id: str, path: ForkedPath, deliveries: Iterable[SubagentDelivered]
) -> list[Fact]:
    """Return the facts that a fork with that path has: of each fact what its `forked` returns.

    The `deliveries` of the path take the place of those in the log. If a change of a file is damaged, the fork has a
    damaged change instead of its edits: which files are unchanged is unknown there too.
    """
    changes = await read_changes(log, session_id)
    others = [each for each in FORKED_CLASSES if each is not SubagentDelivered and not issubclass(each, FileFact)]
    facts: list[Fact] = [*deliveries, *(changes or ()), *await log.facts(session_id, *others)]
    damaged = [damaged_change()] if changes is None else []
    return [*damaged, *filter(None, (fact.forked(path) for fact in facts))]


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
    session.rules.clear()
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


class _LogCopy:
    """The log of a new session, made of the pages of an old one; `turn_ids` are the new ids of turns by the old ones.

    A turn without an end is ended where the path leaves it: before the events of the next turn, or at the end.
    """

    def __init__(self, session_id: str, turns: TurnsOnPath) -> None:
        self._session_id = session_id
        self._turns = turns
        self.turn_ids = {old: new_id("turn") for old in turns.turn_ids()}
        self._request_ids: dict[str, str] = {}
        self._open = TurnTree()  # the copied turns without an end so far
        self._cuts = turns.cuts[::-1]
        self._seq = 0

    def copied(self, page: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Return the copies of those events of the next page that the path has, with the ends of turns among them."""
        found = list[StoredEvent]()
        for stored in page:
            while self._cuts and self._cuts[-1][0] < stored.seq:
                _, turn_id = self._cuts.pop()
                found += self._ends(self._open.within({turn_id}))
            if self._turns.has(stored) or stored.seq in self._turns.picked:
                found.append(self._copy(decode(stored)))
        return found

    def closing_events(self) -> list[StoredEvent]:
        """Return the ends of the turns that are open after the last page."""
        return list(self._ends(self._open.turns.keys()))

    def turn_id(self, old: str) -> str:
        """Return the id of the turn that had another one in the old session."""
        if (new := self.turn_ids.get(old)) is None:
            new = self.turn_ids[old] = new_id("turn")
        return new

    def _copy(self, entry: SessionEvent) -> StoredEvent:
        event, turn_id = entry.event, entry.turn_id
        with map_decode_errors(f"the log of turn {turn_id!r}"):
            self._open.apply(event, entry.ts)
        if turn_id is not None and event.terminal:
            self._open.remove(turn_id)
        if isinstance(event, TurnStartedEvent) and "parent_turn_id" in event.data:
            event.data["parent_turn_id"] = self.turn_id(event.data["parent_turn_id"])
        return self._encode(event, None if turn_id is None else self.turn_id(turn_id), entry.ts)

    def _ends(self, turn_ids: Collection[str]) -> Iterator[StoredEvent]:
        """Yield the events that end these open turns, child turns before their parents."""
        for turn in reversed([turn for turn in self._open.turns.values() if turn.id in turn_ids]):
            self._open.remove(turn.id)
            cut = InterruptedTurn(self._session_id, turn)
            results = [not_run_result(call_id, name) for call_id, name in turn.open_calls.items()]
            for event in cut.closing_events(results, "stopped", "The conversation was forked here."):
                yield self._encode(event, self.turn_id(turn.id), turn.last_ts)

    def _encode(self, event: RuntimeEvent, turn_id: str | None, ts: str) -> StoredEvent:
        if event.type in REQUEST_EVENTS:
            event.data["id"] = self._request_id(event.data["id"])
        self._seq += 1
        return encode(event, session_id=self._session_id, turn_id=turn_id, seq=self._seq, position=0, ts=ts)

    def _request_id(self, old: str) -> str:
        if (new := self._request_ids.get(old)) is None:
            new = self._request_ids[old] = new_id(old.partition("_")[0])
        return new
