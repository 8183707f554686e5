"""A new session out of an old one: its log is the old one's up to a message, as if the turn had been stopped there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Any

from agenticx.messages import Message, new_id
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.runtime.events import encode_envelope
from agenticx.sessions.base import Keepsake, SessionRecord, Store, StoredEvent
from agenticx.sessions.damage import readable
from agenticx.sessions.keeping import read_front
from agenticx.sessions.recovery import InterruptedTurn
from agenticx.sessions.retelling import NEVER_RUN, AtHand, messages_up_to
from agenticx.sessions.snapshots import SnapshotFolder
from agenticx.sessions.transcript import Conversation, Entry, calls_on, read_conversation, said_on
from agenticx.threads import run_in_thread

__all__ = ["fork"]

_NAME_CHARS = 200
_OF_QUESTIONS = frozenset({EventType.CONFIRM_REQUIRED, EventType.CONFIRM_RESPONSE})


async def fork(
    store: Store,
    session_id: str,
    message_id: str | None = None,
    *,
    now: str,
    snapshots: SnapshotFolder | None = None,
) -> SessionRecord:
    """Make a session that has been told what this one was, up to and with that message, by default the last.

    Its log is one of its own: sequence numbers from 1, every turn ended, ids of its own for turns and questions, the
    times and message ids of the old one; what was rewound away is not in it. Permissions given for the old session are
    not given for it; what the calls in its log changed can be taken back in it too. `now` is its `created_at`.
    Raises `SessionNotFound` and `MessageNotFound`.
    """
    old = await store.get(session_id)
    kept, (events, conversation) = await store.keepsake(session_id), await read_conversation(store, session_id)
    path = conversation.path(message_id)
    name = None if old.name is None else f"{old.name[: _NAME_CHARS - 7]} (fork)"
    record = replace(
        old,
        id=new_id("ses"),
        name=name,
        pinned=False,
        archived=False,
        forked_from=session_id,
        created_at=now,
    )
    at_hand = await _at_hand(store, session_id, kept)
    messages = messages_up_to(path, conversation, at_hand)
    past = _Past(record.id)
    for turn in _turns(events, conversation, path):
        past.add(turn)
    kept = _keepsake(messages, at_hand, kept.state)
    await store.create(record, past=past.events, said=said_on(path), kept=kept)
    if snapshots is not None:
        await run_in_thread(snapshots.copy, session_id, record.id, calls_on(path))
    return record


async def _at_hand(store: Store, session_id: str, kept: Keepsake) -> AtHand:
    with readable("what a session keeps"):
        front, _ = read_front(kept.state)
    return AtHand(kept.messages, front, await store.compacted(session_id))


def _keepsake(messages: Sequence[Message], at_hand: AtHand, state: str | None) -> Keepsake:
    """Return what the fork keeps: no permissions, and what was compacted only where its messages stand for that."""
    front, compacted = at_hand.front, at_hand.compacted
    if not (front and len(messages) >= front and all(map(is_, messages, at_hand.messages[:front]))):
        front, compacted = 0, ()
    if state is not None:
        with readable("what a session keeps"):
            new = {"allowed": [], "front": [front, len(compacted)]}
            state = json.dumps(json.loads(state) | new, separators=(",", ":"))
    return Keepsake(messages, state, compacted=compacted, compacted_keep=0)


def _turns(events: Sequence[StoredEvent], conversation: Conversation, path: Sequence[Entry]) -> list[list[StoredEvent]]:
    """The events of each turn that is part of the path, up to where the path leaves it."""
    leaves = {entry.turn_id: entry for entry in path}
    whole = {entry.turn_id: entry.id for entry in conversation.entries.values()}
    turns: dict[str | None, list[StoredEvent]] = {turn_id: [] for turn_id in leaves}
    within: dict[str | None, str | None] = {turn_id: turn_id for turn_id in leaves}  # a sub-agent's turn → its root's
    for event in events:
        if event.type == "turn_started" and event.turn_id not in within:
            parent = json.loads(event.frame_json)["data"].get("parent_turn_id")
            if parent in within:
                within[event.turn_id] = within[parent]
        root = within.get(event.turn_id)
        if root is not None and (whole[root] == leaves[root].id or event.seq <= leaves[root].last_seq):
            turns[root].append(event)
    return list(turns.values())


class _Past:
    """The events of a new session, put together turn by turn."""

    def __init__(self, session_id: str) -> None:
        self.events: list[StoredEvent] = []
        self._session_id = session_id
        self._turn_ids: dict[str, str] = {}
        self._question_ids: dict[str, str] = {}

    def add(self, turn: Sequence[StoredEvent]) -> None:
        """Copy a turn, and end it if it has no end."""
        for event in turn:
            self._copy(event)
        root = self._turn_ids[turn[0].turn_id or ""]
        if not any(event.terminal and event.turn_id == root for event in self.events[-len(turn) :]):
            self._end(turn, root)

    def _copy(self, event: StoredEvent) -> None:
        envelope: dict[str, Any] = json.loads(event.frame_json)
        data: dict[str, Any] = envelope["data"]
        if "parent_turn_id" in data:
            data["parent_turn_id"] = self._turn_id(data["parent_turn_id"])
        if event.type in _OF_QUESTIONS:
            data["id"] = self._question_id(data["id"])
        turn_id, seq = self._turn_id(event.turn_id or ""), len(self.events) + 1
        envelope |= {"session_id": self._session_id, "turn_id": turn_id, "seq": seq}
        frame = json.dumps(envelope, separators=(",", ":")).encode()
        self.events.append(
            event._replace(session_id=self._session_id, turn_id=turn_id, seq=seq, position=seq, frame_json=frame)
        )

    def _turn_id(self, old: str) -> str:
        return self._turn_ids.setdefault(old, new_id("turn"))

    def _question_id(self, old: str) -> str:
        return self._question_ids.setdefault(old, new_id("cnf"))

    def _end(self, turn: Sequence[StoredEvent], turn_id: str) -> None:
        ts = json.loads(turn[-1].frame_json)["ts"]
        for event in _ending(
            InterruptedTurn.from_log([event for event in turn if event.turn_id == turn[0].turn_id], [])
        ):
            if event.type in _OF_QUESTIONS:
                event.data["id"] = self._question_id(event.data["id"])
            seq = len(self.events) + 1
            frame = encode_envelope(event, session_id=self._session_id, turn_id=turn_id, seq=seq, ts=ts)
            self.events.append(
                StoredEvent(self._session_id, turn_id, seq, seq, event.type, event.terminal, frame),
            )


def _ending(cut: InterruptedTurn) -> list[RuntimeEvent]:
    """The events of a turn that a person stops there."""
    events: list[RuntimeEvent] = []
    for id_ in cut.questions.keys() - cut.responses.keys():
        events.append(RuntimeEvent(EventType.CONFIRM_RESPONSE, {"id": id_, "approved": False, "by": "stop"}))
    events += (
        RuntimeEvent(EventType.TOOL_RESULT, _cancelled(call_id, name)) for call_id, name in cut.open_calls.items()
    )
    if cut.state != "done":
        events.append(RuntimeEvent(EventType.STATE, {"state": "done"}))
    text = "The conversation was forked here."
    return [*events, RuntimeEvent(EventType.ERROR, {"text": text, "code": "stopped", "fatal": True})]


def _cancelled(call_id: str, name: str) -> dict[str, Any]:
    return {"tool_call_id": call_id, "name": name, "result": NEVER_RUN, "is_error": True, "outcome": "cancelled"}
