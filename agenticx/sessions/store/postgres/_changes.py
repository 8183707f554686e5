"""Changes of the tables that are made of the log, as rows for the schema's `apply_changes`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agenticx.messages import Message, clean_text
from agenticx.runtime.events import EventType
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import (
    EventsCopied,
    Fact,
    MessageAdded,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    PartRemoved,
    SessionChanged,
    StoredRecord,
    TextsCopied,
    TextsRemoved,
    TurnAccepted,
    encode_record,
)
from agenticx.sessions.log.searchable_texts import SearchableText, searchable_texts
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.postgres._search import lexemes
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._writer import Changes
from agenticx.sessions.store.search import MAX_SEARCHED_CHARS

__all__ = ["LogHead", "changes_of", "session_row"]


@dataclass(slots=True, eq=False)
class LogHead:
    """The state of a session before a commit. The session's owner keeps it in memory, as no other process changes it.

    `messages` has the keys of the conversation's messages, `compacted` the keys of messages that summaries replace, and
    `known` the keys of all messages in the log. `parts` has the place of each part of the state, `turns` the ids of all
    turns.
    """

    messages: list[str] = field(default_factory=list[str])
    compacted: list[str] = field(default_factory=list[str])
    known: set[str] = field(default_factory=set[str])
    parts: dict[str, int] = field(default_factory=dict[str, int])
    turns: set[str] = field(default_factory=set[str])
    open_turns: set[str] = field(default_factory=set[str])

    @property
    def message_count(self) -> int:
        return len(self.messages)

    @property
    def compacted_count(self) -> int:
        return len(self.compacted)

    def has_message(self, key: str) -> bool:
        return key in self.known

    def part_place(self, name: str) -> int | None:
        return self.parts.get(name)

    def next_part_place(self) -> int:
        return max(self.parts.values(), default=0) + 1

    def apply(self, records: Iterable[StoredRecord]) -> None:
        """Take the records of a stored commit into account."""
        for stored in records:
            match stored.record:
                case MessageAdded(key=key):
                    self.known.add(key)
                    self.messages.append(key)
                case MessagesReplaced(keep=keep, messages=keys):
                    self.messages[keep:] = keys
                case MessagesCompacted(keep=keep, messages=keys):
                    self.compacted[keep:] = keys
                case PartChanged(key=name, place=place):
                    self.parts[name] = place
                case PartRemoved(key=name):
                    self.parts.pop(name, None)
                case TurnAccepted(key=turn_id):
                    self.turns.add(turn_id)
                    self.open_turns.add(turn_id)
                case Fact() | SessionChanged() | EventsCopied() | TextsCopied() | TextsRemoved():
                    pass


def changes_of(
    session: int,
    records: Sequence[StoredRecord],
    events: Sequence[StoredEvent] = (),
    *,
    ended_turn: str | None = None,
    restored: Sequence[Message] = (),
) -> Changes | None:
    """Return the changes to other tables by a commit with these records and events, None without any.

    `restored` are the messages that a `MessagesReplaced` of the commit names: a search finds them again.
    """
    changes: Changes = {}
    if ended_turn is not None:
        changes["ended"] = [{"session": session, "turn": to_text(ended_turn)}]
    usage = [_usage_row(session, DailyUsage.of_call(event)) for event in events if event.type is EventType.USAGE]
    if usage:
        changes["usage"] = usage
    for stored in records:
        changes.setdefault("records", []).append(_record_row(session, stored))
        match stored.record:
            case SessionChanged(record=record):
                changes.setdefault("sessions", []).append(session_row(session, record))
                texts = [SearchableText(None, "name", record.name)] if record.name else []
                rows = [_text_removal(session, ""), *(_text_row(session, text) for text in texts)]
                changes.setdefault("texts", []).extend(rows)
            case MessageAdded(message=message):
                _add_texts(changes, session, searchable_texts([message]))
            case MessagesReplaced():
                _add_texts(changes, session, searchable_texts(restored))
            case TextsCopied(texts=texts):
                _add_texts(changes, session, texts)
            case TextsRemoved(message_ids=ids):
                changes.setdefault("texts", []).extend(_text_removal(session, id_) for id_ in ids)
            case _:
                pass
    return changes or None


def session_row(session: int, record: SessionRecord) -> dict[str, object]:
    """Return the columns of a session that are made of its record."""
    return {
        "session": session,
        "pinned": record.pinned,
        "archived": record.archived,
        "workspace_host": None if record.workspace_host is None else to_text(record.workspace_host),
    }


def _record_row(session: int, stored: StoredRecord) -> dict[str, object]:
    record = stored.record
    row: dict[str, object] = {
        "session": session,
        "rev": stored.rev,
        "index": stored.record_index,
        "seq": stored.seq,
        "turn": to_text(record.turn_id),
        "kind": record.kind,
        "key": to_text(record.key),
        "rule": "a",
        "opens": False,
        "data": to_text(encode_record(record)),
    }
    match record:
        case Fact():
            row |= {"rule": "r" if record.is_replaced else "f", "opens": record.is_work}
            if record.closes is not None:
                row["closes"] = record.closes.kind
        case TurnAccepted(turn=turn):
            client_turn_id = None if turn.client_turn_id is None else to_text(turn.client_turn_id)
            row |= {"rule": "f", "opens": True, "client_turn_id": client_turn_id}
            row["runs"] = turn.parent_turn_id is None
        case PartChanged():
            row["rule"] = "r"
        case SessionChanged():
            row |= {"rule": "f", "closes": SessionChanged.kind}  # the one before it stays in the log
        case PartRemoved():
            row |= {"rule": "d", "closes": PartChanged.kind}
        case MessageAdded():
            row["rule"] = "f"
        case _:
            pass
    return row


def _add_texts(changes: Changes, session: int, texts: Sequence[SearchableText]) -> None:
    if texts:
        changes.setdefault("texts", []).extend(_text_row(session, text) for text in texts)


def _text_row(session: int, text: SearchableText) -> dict[str, object]:
    searched = text.text[:MAX_SEARCHED_CHARS]
    words, has_pairs = lexemes(searched)
    return {
        "session": session,
        "message_id": to_text(text.message_id or ""),
        "role": text.role,
        "text": to_text(searched),
        "words": None if words is None else "\n".join(words),
        "has_pairs": has_pairs,
    }


def _text_removal(session: int, message_id: str) -> dict[str, object]:
    return {"session": session, "message_id": to_text(message_id), "role": None}


def _usage_row(session: int, usage: DailyUsage) -> dict[str, object]:
    counts = usage.counts
    return {
        "session": session,
        "day": usage.day,
        "model": to_text(usage.model),
        "agent_id": to_text(clean_text(usage.agent_id)),
        "calls": counts.calls,
        "uncounted": counts.uncounted,
        "unpriced": counts.unpriced,
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "cached_tokens": counts.cached_tokens,
        "reasoning_tokens": counts.reasoning_tokens,
        "cost_usd": None if counts.cost_usd is None else str(counts.cost_usd),
    }
