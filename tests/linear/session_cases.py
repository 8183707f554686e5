"""Rows for sessions and the command line: storage, search, transcripts, export and display."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any

from agenticx.cli.terminal.event_text import (
    artifact_line,
    citation_line,
    citation_note,
    event_note,
    kinds_of,
    one_line,
    request_notes,
    unreadable_event_note,
    user_message_note,
)
from agenticx.cli.terminal.plain_output import PlainOutput
from agenticx.config_files.table import (
    ConfigTable,
    known_names,
    parse_table,
    problems,
    repeated_name,
    shortened,
)
from agenticx.core.agent_files import AgentConfig, parse_agent
from agenticx.errors import AgentConfigError
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import MemoryStore, SessionRecord, StoredEvent, transcript
from agenticx.sessions.history.export import as_markdown
from agenticx.sessions.history.speech_calls import SpeechCalls
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.hub.session_fields import derive_name
from agenticx.sessions.hub.writer import merge_deltas
from agenticx.sessions.log.events import encode_events
from agenticx.sessions.log.searchable_texts import SearchableText, searchable_texts
from agenticx.sessions.store.search import SearchQuery, normalize_words
from agenticx.sessions.store.segments import (
    PAGE_BYTES,
    CommitRow,
    Segment,
    decode_segment,
    encode_body,
    encode_segments,
    merge_commits,
)
from agenticx.teams import TeamConfigError
from agenticx.teams.configured.config import AssistantConfig, SelectorConfig, UserConfig, parse_team
from studio.relay import Relay
from tests.linear.case import LinearCase, Make
from tests.linear.histories import HISTORIES
from tests.linear.llm_cases import parsed
from tests.linear.texts import JSON, LINES, TEXTS
from tests.support.commits import append

__all__ = ["SESSION_CASES"]

_RECORD = SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00Z")
_TERMS = SearchQuery.parse("lorem zzz")


def _event(type_: EventType, data: dict[str, Any]) -> RuntimeEvent:
    return RuntimeEvent(type_, data)


def _tokens(size: int, text: str = "word ") -> list[RuntimeEvent]:
    return [
        _event(EventType.TOKEN, {"text": text, "message_id": "m", "offset": number * len(text)})
        for number in range(size // max(len(text), 10))
    ]


def _calls(size: int) -> list[RuntimeEvent]:
    rows: list[RuntimeEvent] = []
    for number in range(size // 400):
        call = {"tool_call_id": f"c{number}", "name": "look"}
        rows.append(_event(EventType.ROUND_START, {"round": number, "max_rounds": 9}))
        rows.append(_event(EventType.TOOL_CALL, {**call, "arguments": {"a": number}}))
        rows.append(_event(EventType.TOOL_RESULT, {**call, "result": "ok", "is_error": False, "outcome": "ok"}))
    return rows


def _team(participants: Callable[[int], str]) -> Make:
    return lambda size: f'kind = "swarm"\n{participants(size)}'


def _handoffs(size: int) -> str:
    names = ", ".join(f'"p{number}"' for number in range(size // 10))
    return f'[[participants]]\nname = "a"\nsystem_message = "A."\nhandoffs = [{names}]'


_TEAMS: Mapping[str, Make] = {
    "handoffs": _team(_handoffs),
    "participants": _team(lambda size: '[[participants]]\nname = "a"\nsystem_message = "A."\n' * (size // 50)),
    "no participants": _team(lambda size: f"participants = [{'1, ' * (size // 3)}]"),
    "unknown keys": _team(lambda size: "".join(f"key{number} = 1\n" for number in range(size // 14))),
    "keys of many parts": _team(lambda size: f"{'.'.join('a' * 1_900)} = 1\n" * (size // 3_800)),
    "a key of too many parts": _team(lambda size: f"{'.'.join('a' * (size // 2))} = 1"),
    "long name": _team(lambda size: f'[[participants]]\nname = "{"a" * size}"\nsystem_message = "A."'),
    "long message": _team(lambda size: f'[[participants]]\nname = "a"\nsystem_message = "{"a" * size}"'),
}


def _refused_team(text: str) -> None:
    with suppress(TeamConfigError):
        parse_team(text, "a.toml")


_AGENTS: Mapping[str, Make] = {
    "long prompt": lambda size: f'system_prompt = "{"a" * size}"',
    "tools": lambda size: (
        f'system_prompt = "A."\ntools = [{", ".join(f"{number!r}" for number in map(str, range(size // 9)))}]'
    ),
    "unknown keys": lambda size: "".join(f"key{number} = 1\n" for number in range(size // 14)),
    "not TOML": lambda size: "a" * size,
}


def _refused_agent(text: str) -> None:
    with suppress(AgentConfigError):
        parse_agent(text, "a.toml")


def _same_calls(size: int) -> list[RuntimeEvent]:
    call = {"tool_call_id": "c", "name": "look", "result": "ok", "is_error": False, "outcome": "ok"}
    return [_event(EventType.TOOL_RESULT, call)] * (size // 150)


def _stored(make: Callable[[int], list[RuntimeEvent]]) -> Make:
    return lambda size: encode_events("ses_1", "t", make(size), seq=0, position=0, ts="2026-01-01T00:00:00Z")


def _one(text: str) -> list[RuntimeEvent]:
    return [_event(EventType.FINAL, {"text": text, "message_id": "m", "reason": "answer", "usage": {}})]


def _stored_speech(size: int) -> list[StoredEvent]:
    """Return the log of a team's run with one speech, in which there are many calls."""
    begin = {"input": "Go.", "model": "m", "message_id": "m0"}
    run = [
        _event(EventType.TURN_STARTED, begin),
        _event(EventType.SPEAKER_SELECTED, {"team": "t", "speakers": ["a"]}),
    ]
    speech = [RuntimeEvent(EventType.TURN_STARTED, {**begin, "parent_turn_id": "t1"}, "a")]
    speech += [RuntimeEvent(one.type, one.data, "a") for one in (*_calls(size // 2), *_tokens(size // 2))]
    stored = encode_events("s", "t1", run, seq=0, position=0, ts="x")
    return [*stored, *encode_events("s", "t2", speech, seq=len(stored), position=len(stored), ts="x")]


_LOGS: dict[str, Make] = {
    "a speech": _stored_speech,
    "tokens": _stored(_tokens),
    "letters": _stored(lambda size: _tokens(size, "a")),
    "calls": _stored(_calls),
    "the same call": _stored(_same_calls),
    **{name: _stored(lambda size, make=make: _one(make(size))) for name, make in LINES.items()},
}


def _told(text: str) -> list[dict[str, Any]]:
    return [{"message_id": "m", "role": "assistant", "content": text, "tool_calls": _telling(text[:100], text)}]


def _telling(name: str, arguments: object) -> list[dict[str, Any]]:
    return [{"id": "c", "name": name, "arguments": arguments}]


_ARGUMENTS = {name: parsed(make) for name, make in JSON.items()}
_CONVERSATIONS: dict[str, Make] = {
    **{name: (lambda size, make=make: _told(make(size // 2))) for name, make in TEXTS.items()},
    **{
        f"arguments, {name}": (
            lambda size, value=value: [
                {"message_id": "m", "role": "assistant", "content": "", "tool_calls": _telling("look", value(size))}
            ]
        )
        for name, value in _ARGUMENTS.items()
    },
}


class _Event:
    terminal = False

    def __init__(self, type_: str, data: Mapping[str, Any]) -> None:
        self.type = type_
        self.data = data


def _shown(text: str) -> None:
    plain = PlainOutput(io.StringIO(), io.StringIO())
    result = {"is_error": True, "outcome": "error", "result": text}
    call = {"tool_call_id": "c", "name": text[:200], "arguments": {"a": text}, **result}
    plain.show(_Event(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0}))  # pyright: ignore[reportArgumentType]
    plain.show(_Event(EventType.TOOL_CALL, call))  # pyright: ignore[reportArgumentType]
    plain.show(_Event(EventType.TOOL_RESULT, call))  # pyright: ignore[reportArgumentType]


def _noted(text: str) -> object:
    call = {"tool_call_id": "c", "name": text, "is_error": True, "outcome": "error", "result": text, "arguments": text}
    notes = [event_note(_Event(type_, call)) for type_ in (EventType.TOOL_CALL, EventType.TOOL_RESULT)]
    return notes, event_note(_Event(EventType.ERROR, {"fatal": True, "code": text, "text": text}))


def _folded(events: list[StoredEvent]) -> Generator[None]:
    """Fold events into a conversation, `READ_BYTES` at a time, as a log is read."""
    conversation, piece, size = Conversation(), list[StoredEvent](), 0
    for event in events:
        piece.append(event)
        size += len(event.frame_json)
        if size > PAGE_BYTES:
            conversation.feed(piece)
            piece, size = [], 0
            yield
    conversation.feed(piece)
    conversation.messages()
    yield


def _excerpt(text: str) -> object:
    texts = SearchableText("m", "assistant", text), SearchableText("m", "assistant", f"{text} lorem zzz")
    return [_TERMS.excerpt(one) for one in texts if _TERMS.matches(one.text)]


def _asked(text: str) -> object:
    return list(request_notes({"question": text, "context": {"tool": "look", "arguments": {"a": text}}}))


async def _relayed(events: list[RuntimeEvent]) -> None:
    """Store events, and build the first chunk of their stream."""
    store, session = MemoryStore(), SessionRecord(workspace="/", created_at="now")
    await store.create(session)
    await append(store, session.id, None, events)
    await Relay(store).respond(session.id, None)


def _segments(events: list[StoredEvent]) -> list[Segment]:
    return list(encode_segments(events, 1, rev=1, commit_id="c", position=events[-1].position))


SESSION_CASES = [
    LinearCase(of=derive_name, run=derive_name, inputs=TEXTS),
    LinearCase(of=normalize_words, run=normalize_words, inputs=TEXTS, where="thread"),
    LinearCase(of=searchable_texts, run=searchable_texts, inputs=HISTORIES),
    LinearCase(of=SearchQuery, variant="a text", run=_excerpt, inputs=TEXTS, where="thread"),
    LinearCase(of=SearchQuery, variant="a query", run=SearchQuery.parse, inputs=TEXTS),
    LinearCase(of=Conversation, run=_folded, inputs=_LOGS, also=(transcript, SpeechCalls)),
    LinearCase(
        of=as_markdown, run=lambda messages: as_markdown(_RECORD, messages), inputs=_CONVERSATIONS, where="thread"
    ),
    LinearCase(
        of=merge_deltas, run=merge_deltas, inputs={"tokens": _tokens, "letters": lambda size: _tokens(size, "a")}
    ),
    LinearCase(
        of=encode_events,
        run=lambda events: encode_events("s", "t", events, seq=0, position=0, ts="x"),
        inputs={
            "tokens": lambda size: _tokens(size)[:1000],
            **{name: (lambda size, make=make: _one(make(size))) for name, make in LINES.items()},
        },
    ),
    LinearCase(
        of=encode_segments,
        run=_segments,
        inputs=_LOGS,
        where="thread",
    ),
    LinearCase(
        of=merge_commits,
        run=lambda commits: list(merge_commits(commits)),
        where="thread",
        inputs={
            name: (
                lambda size, make=make: [
                    CommitRow(event.position, 1, event.seq, "c", event.seq, encode_body([event]))
                    for event in make(size)
                ]
            )
            for name, make in _LOGS.items()
        },
    ),
    LinearCase(
        of=decode_segment,
        run=lambda segments: [
            decode_segment("s", segment.last_seq, segment.body, compressed=True) for segment in segments
        ],
        where="thread",
        inputs={name: (lambda size, make=make: _segments(make(size))) for name, make in _LOGS.items()},
    ),
    LinearCase(
        of=Relay,
        run=_relayed,
        inputs={
            **{name: (lambda size, make=make: _one(make(size))) for name, make in LINES.items()},
            **{
                f"arguments, {name}": (
                    lambda size, make=make: [
                        _event(EventType.TOOL_CALL, {"tool_call_id": "c", "name": "look", "arguments": make(size)})
                    ]
                )
                for name, make in _ARGUMENTS.items()
            },
            "letters": lambda size: _tokens(size, "a")[:512],
        },
        where="awaited",
    ),
    # --- the command line
    LinearCase(of=event_note, run=_noted, inputs=TEXTS, where="program"),
    LinearCase(of=one_line, run=one_line, inputs=TEXTS, where="program"),
    LinearCase(
        of=kinds_of,
        run=lambda text: kinds_of({"rules": [{"command": text}], "kinds": [text], "exact_rule": {}}),
        inputs=TEXTS,
        where="program",
    ),
    LinearCase(
        of=citation_note,
        run=lambda text: citation_note({"marker": 1, "status": "x", "path": text, "line_start": 1, "quote": text}),
        inputs=TEXTS,
        where="program",
        also=(citation_line,),
    ),
    LinearCase(
        of=artifact_line,
        run=lambda text: artifact_line({"path": text, "content": text, "revision": 1}),
        inputs=TEXTS,
        where="program",
    ),
    LinearCase(of=user_message_note, run=user_message_note, inputs=TEXTS, where="program"),
    LinearCase(
        of=unreadable_event_note,
        run=lambda value: unreadable_event_note(_Event("x", value)),
        inputs={name: parsed(JSON[name]) for name in ("numbers", "objects")},
        where="program",
    ),
    LinearCase(of=request_notes, run=_asked, inputs=TEXTS, where="program"),
    LinearCase(of=PlainOutput, run=_shown, inputs=TEXTS, where="program"),
    LinearCase(of=parse_agent, run=_refused_agent, inputs=_AGENTS, where="thread", also=(AgentConfig,)),
    LinearCase(
        of=parse_team,
        run=_refused_team,
        inputs=_TEAMS,
        where="thread",
        also=(
            *(AssistantConfig, SelectorConfig, UserConfig, ConfigTable),
            *(known_names, parse_table, problems, repeated_name, shortened),
        ),
    ),
]
