"""Checks of a log against observations of clients and tools; each yields its findings as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.faults.log_file import LogFile, LoggedEvent

VOLATILE = frozenset(
    {
        "round_start",
        "state",
        "token",
        "thinking",
        "tool_call_delta",
        "tool_progress",
        "usage",
        "stall",
        "artifact",
    }
)
"""Events that a power cut may lose; all others are synced to the disk before any reader receives them."""

RAN = frozenset({"ok", "error", "timed_out", "unknown"})
UNKNOWN_EFFECT = "whether it took effect is not known"  # in the result of a call that was cancelled while it ran


@dataclass
class Transcript:
    """The frames that one client received of one stream, over all its connections: `data` of each frame with an id."""

    frames: list[bytes] = field(default_factory=list[bytes])
    unexpected: list[str] = field(default_factory=list[str])  # frames without id other than server_closing
    cursor: str | None = None


@dataclass
class Observations:
    """Everything that was observed outside the server."""

    sessions: dict[str, Transcript] = field(default_factory=dict[str, Transcript])
    everything: Transcript = field(default_factory=Transcript)
    accepted: set[str] = field(default_factory=set[str])  # client_turn_ids of accepted turns
    refused: set[str] = field(default_factory=set[str])
    answers: dict[str, bool] = field(default_factory=dict[str, bool])  # question → the returned decision
    marks: Path = Path("marks")  # a line "session call" for each time a tool ran

    def executions(self) -> Counter[tuple[str, str]]:
        """Return how often each call ran, by session and call id."""
        lines = self.marks.read_text().splitlines() if self.marks.exists() else []
        return Counter((line.split()[0], line.split()[1]) for line in lines)


def findings(log: LogFile, seen: Observations, *, over: bool = False, may_be_lost: Collection[str] = ()) -> list[str]:
    """Return all findings; with `over` no turn runs any more. Events of the types `may_be_lost` may be missing."""
    if log.integrity != "ok":
        return [f"integrity_check: {log.integrity}"]
    found = [
        *check_numbers(log),
        *_check_received_events(log, seen, may_be_lost),
        *_check_accepted_turns(log, seen),
        *_check_turns(log),
    ]
    found += [*_check_executions(log, seen), *_check_answers(log, seen)]
    return [*found, *_check_all_ended(log), *_check_decided_calls(log, seen)] if over else found


# --- A: the log -------------------------------------------------------------------------------------------------------


def check_numbers(log: LogFile) -> Iterator[str]:
    """Check that sequence numbers have no gaps, positions are unique and rise, and envelopes agree."""
    places: Counter[int] = Counter()
    for session, events in log.events.items():
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield f"{session}: numbers {[event.seq for event in events]}"
        positions = [event.position for event in events]
        places.update(positions)
        if positions != sorted(positions):
            yield f"{session}: positions fall"
        for event in events:
            envelope = event.envelope
            if (envelope["session_id"], envelope["seq"], envelope["type"]) != (session, event.seq, event.type):
                yield f"{session}: event {event.seq} has an envelope of {envelope['seq']} of {envelope['session_id']}"
    yield from (f"position {place} was given out {times} times" for place, times in places.items() if times > 1)


def _check_received_events(log: LogFile, seen: Observations, may_be_lost: Collection[str]) -> Iterator[str]:
    for session, transcript in seen.sessions.items():
        yield from _check_frames(f"client of {session}", log, transcript, may_be_lost)
        numbers = [json.loads(frame)["seq"] for frame in transcript.frames]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the client of {session} got the numbers {numbers}"
    yield from _check_frames("client of all sessions", log, seen.everything, may_be_lost)
    yield from _check_stream_of_all(log, seen.everything)


def _check_frames(who: str, log: LogFile, transcript: Transcript, may_be_lost: Collection[str]) -> Iterator[str]:
    yield from (f"{who}: {unexpected}" for unexpected in transcript.unexpected)
    for frame in transcript.frames:
        envelope: dict[str, Any] = json.loads(frame)
        events: list[LoggedEvent] = log.events.get(envelope["session_id"], [])
        if envelope["seq"] > len(events):
            if envelope["type"] not in may_be_lost:
                yield f"{who}: lost event {envelope['seq']} ({envelope['type']}) of {envelope['session_id']}"
        elif events[envelope["seq"] - 1].frame != frame:
            yield f"{who}: event {envelope['seq']} of {envelope['session_id']} is another one in the log"


def _check_stream_of_all(log: LogFile, everything: Transcript) -> Iterator[str]:
    """Check that the stream of all sessions is in the order of the log, without gap or duplicate."""
    places = [_position_in_log(log, frame) for frame in everything.frames]
    known = [place for place in places if place is not None]
    if not known:
        return
    if known != sorted(set(known)):
        yield "the stream of all sessions was not in the order of the log, or had an event twice"
    logged = {event.position for events in log.events.values() for event in events}
    if lacking := {place for place in logged if known[0] <= place <= known[-1]} - set(known):
        yield f"the stream of all sessions left out the positions {sorted(lacking)[:10]}"


def _position_in_log(log: LogFile, frame: bytes) -> int | None:
    envelope: dict[str, Any] = json.loads(frame)
    events: list[LoggedEvent] = log.events.get(envelope["session_id"], [])
    return events[envelope["seq"] - 1].position if envelope["seq"] <= len(events) else None


def _check_accepted_turns(log: LogFile, seen: Observations) -> Iterator[str]:
    started = {event.data.get("client_turn_id") for event in _of_type(log, "turn_started")}
    yield from (f"turn {id_} was accepted and is not there" for id_ in seen.accepted - started)
    yield from (f"turn {id_} was refused and is there" for id_ in seen.refused & (started | log.client_turn_ids.keys()))


# --- D: turns ---------------------------------------------------------------------------------------------------------


def _check_turns(log: LogFile) -> Iterator[str]:
    """Check that turns do not overlap, each begun by turn_started and closed by one terminal event."""
    for session, events in log.events.items():
        running = None
        for event in events:
            if event.type == "turn_started":
                if running is not None:
                    yield f"{session}: turn {event.turn} began while {running} ran"
                running = event.turn
            elif event.turn and event.turn != running:
                yield f"{session}: {event.type} of turn {event.turn} at {event.seq}, while {running} ran"
            if event.terminal:
                running = None
        kept = log.running.get(session)
        if kept != running:
            yield f"{session}: turn {kept} is kept as running, by its log it is {running}"


def _check_all_ended(log: LogFile) -> Iterator[str]:
    yield from (f"{session}: turn {turn} never ended" for session, turn in log.running.items())
    for session, events in log.events.items():
        calls: set[tuple[str, str]] = set()
        for event in events:
            if event.type == "tool_call":
                calls.add((event.turn, event.data["tool_call_id"]))
            elif event.type == "tool_result":
                calls.discard((event.turn, event.data["tool_call_id"]))
        if calls:
            yield f"{session}: calls without a result: {sorted(calls)}"


# --- E, F: answers and effects ----------------------------------------------------------------------------------------


def _check_executions(log: LogFile, seen: Observations) -> Iterator[str]:
    """Check that no call ran twice, and that each that ran has a fact and is not reported as not run."""
    began = {(fact.session, fact.data["call_id"]) for fact in log.facts_of("call_began")}
    outcomes = {
        (event.session, event.data["tool_call_id"]): event.data["outcome"] for event in _of_type(log, "tool_result")
    }
    doubted = {
        (event.session, event.data["tool_call_id"])
        for event in _of_type(log, "tool_result")
        if UNKNOWN_EFFECT in event.data["result"]
    }
    asked_for = {(event.session, event.data["tool_call_id"]) for event in _of_type(log, "tool_call")}
    for call, times in seen.executions().items():
        if call not in asked_for:
            yield f"call {call} ran and is not in the log"
        if times > 1:
            yield f"call {call} ran {times} times"
        if call not in began:
            yield f"call {call} ran and no fact says that it began"
        if outcomes.get(call, "ok") not in RAN and call not in doubted:
            yield f"call {call} ran and is reported as {outcomes[call]}"
    for call, outcome in outcomes.items():
        if outcome == "ok" and call in began and not seen.executions()[call]:
            yield f"call {call} is reported as done and never ran"


def _check_answers(log: LogFile, seen: Observations) -> Iterator[str]:
    """Check that reported decisions are stored; only a restart may have closed a question otherwise."""
    for question, approved in seen.answers.items():
        kept = [fact.data["approved"] for fact in log.facts_of("request_answered") if fact.key == question]
        closed = [fact.data for fact in log.facts_of("request_decided") if fact.key == question]
        if kept != [approved] and [data["approved"] for data in closed] != [approved]:
            yield f"question {question} was answered {approved} and is kept as {kept}"
        if closed and closed[0]["approved"] != approved and closed[0]["by"] != "restart":
            yield f"question {question} was answered {approved} and closed by {closed[0]['by']}"


def _check_decided_calls(log: LogFile, seen: Observations) -> Iterator[str]:
    """Check that each approved call ran, or is reported as unknown or denied by a restart; no denied one ran."""
    call_of = {
        event.data["id"]: (event.session, event.data["context"]["tool_call_id"])
        for event in _of_type(log, "confirm_required")
    }
    outcomes = {
        (event.session, event.data["tool_call_id"]): event.data["outcome"] for event in _of_type(log, "tool_result")
    }
    given_up = {fact.key for fact in log.facts_of("request_decided") if fact.data["by"] == "restart"}
    executions = seen.executions()
    for question, approved in seen.answers.items():
        call = call_of[question]
        outcome, ran = outcomes.get(call), executions[call]
        if question in given_up and ran:
            yield f"question {question} is reported as denied by a restart, and its call ran"
        if approved and outcome not in {"ok", "unknown"} and question not in given_up:
            yield f"question {question} was answered yes and its call is reported as {outcome}"
        if not approved and (outcome != "denied" or ran):
            yield f"question {question} was answered no and its call is reported as {outcome}, having run {ran} times"


def _of_type(log: LogFile, *types: str) -> Iterator[LoggedEvent]:
    return (event for events in log.events.values() for event in events if event.type in types)


Check = Callable[[LogFile, Observations], Iterable[str]]


def report_findings(found: Sequence[Any], most: int = 10) -> str:
    """Return findings as the message of a failed test."""
    return "\n".join([f"{len(found)} findings", *map(str, found[:most])])
