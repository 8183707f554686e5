"""Servers killed under agents, questions and waiting messages, and a check of what they leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.faults.agents_model import LAST
from tests.support.faults.checker import check_numbers
from tests.support.faults.kill_loop import KillLoop
from tests.support.faults.log_file import LogFile, LoggedEvent
from tests.support.teams.configured import team_file
from tests.support.timeouts import explained_timeout

__all__ = ["KilledAgents", "agents_findings"]

TEAM = """
kind = "round_robin"
max_turns = 2
[[participants]]
name = "lead"
system_message = "You are the lead."
tools = ["spawn_subagent", "wait_subagents", "mark", "look", "ask_user"]
[[participants]]
name = "critic"
system_message = "You are the critic."
tools = ["mark"]
"""
SERVER = {
    "model": "agents",
    "settings": {"compaction_threshold_messages": 100_000, "compaction_threshold_chars": 100_000_000},
}
KILLED_AFTER_ANSWER = 0.3
"""The part of the answers to confirmations right after which the server is killed."""
ENDS = ("subagent_completed", "subagent_error")


@dataclass
class Sent:
    """The messages that a user has sent, by their texts, which differ: True if accepted, None if not known."""

    accepted: dict[str, bool | None] = field(default_factory=dict[str, bool | None])


@dataclass
class KilledAgents(KillLoop):
    """A kill loop whose sessions have agents that start others; every third session has a team."""

    sessions: int = 6
    busy_sessions: int = 3
    check_every: int = 1
    max_uptime: float = 2.0
    server_options: dict[str, Any] = field(default_factory=lambda: dict(SERVER))
    sent: Sent = field(default_factory=Sent)

    @property
    def requests(self) -> Path:
        return self.recorded.home.parent / "requests"

    def check(self) -> list[str]:
        found = agents_findings(self.recorded.log(), read_requests(self.requests), self.sent.accepted)
        return [*found, *self.recorded.different_tables()]

    async def _populate(self) -> None:
        self.recorded.home.mkdir(mode=0o700, parents=True)
        team_file(self.recorded.home, TEAM, "pair")
        async with self.serve_without_fault() as (studio, _, client):
            for number in range(self.sessions):
                mode, team = ("auto", "default")[number % 2], "pair" if number % 3 == 2 else None
                await self.recorded.make_session(client, mode, team)
            await studio.end()

    async def cycle(self) -> None:
        chosen = self.rng.sample(sorted(self.recorded.seen.sessions), self.busy_sessions)
        async with self.serve() as (studio, _, client):
            self._running = studio
            kill = asyncio.create_task(self._kill_later(studio))
            async with asyncio.TaskGroup() as group:
                for session in chosen:
                    group.create_task(self._act_as_user(client, session))
            await kill

    async def _act_as_user(self, client: httpx.AsyncClient, session: str) -> None:
        rng, status = random.Random(self.rng.random()), 1
        while status:
            if rng.random() < 0.2:
                ways = ["reject", "queue", "queue", "steer", "steer", "interrupt"]
                status = await self.send(client, session, rng.choice(ways))
            answered = await self._answer_and_count(client, rng, session_id=session)
            if answered and rng.random() < KILLED_AFTER_ANSWER:
                await self._running.end()
            with suppress(httpx.TransportError):
                await asyncio.sleep(rng.uniform(0, 0.03))
                status = status and (await client.get("/api/health")).status_code
                continue
            status = 0

    async def send(self, client: httpx.AsyncClient, session: str, when_busy: str, kind: str = "go") -> int:
        """Send a message; return the status, 0 if the server died before it answered."""
        text = f"{kind} {session}#{len(self.sent.accepted)}"
        self.sent.accepted[text] = None
        mode = self.recorded.modes[session]
        body = {"input": text, "client_turn_id": text, "when_busy": when_busy, "permission_mode": mode}
        try:
            answer = await client.post(f"/api/sessions/{session}/turns", json=body)
        except httpx.TransportError:
            return 0
        self.sent.accepted[text] = answer.status_code == 202
        return answer.status_code

    async def _answer_and_count(self, client: httpx.AsyncClient, rng: random.Random, **of_session: str) -> int:
        """Answer open questions; return the number of confirmations among them."""
        before = len(self.recorded.seen.answers)
        await super()._answer_all(client, rng, **of_session)
        with suppress(httpx.TransportError):
            waiting = await client.get("/api/questions", params=of_session)
            for question in waiting.json()["questions"]:
                if rng.random() < 0.7:
                    await client.post(f"/api/questions/{question['id']}", json={"answer": "this one"})
        return len(self.recorded.seen.answers) - before

    async def finish(self) -> list[str]:
        """Let everything end, have each session answer a last message, and check everything."""
        async with self.serve_without_fault() as (studio, _, client):
            async with explained_timeout(lambda: f"these turns run: {unended_turns(self.recorded.log())}"):
                await self._wait_until_idle(client)
                for session in sorted(self.recorded.seen.sessions):
                    while await self.send(client, session, "reject", LAST) == 409:
                        await asyncio.sleep(0.02)
                await self._wait_until_idle(client)
            await studio.end()
        requests = read_requests(self.requests)
        return agents_findings(self.recorded.log(), requests, self.sent.accepted, over=True)

    async def _wait_until_idle(self, client: httpx.AsyncClient) -> None:
        while unended_turns(self.recorded.log()):
            await self._answer_and_count(client, self.rng)
            await asyncio.sleep(0.05)


def read_requests(file: Path) -> list[dict[str, Any]]:
    """Return the requests that models got."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def unended_turns(log: LogFile) -> set[str]:
    """Return the turns without a terminal event."""
    events = [event for some in log.events.values() for event in some if event.turn]
    return {event.turn for event in events} - {event.turn for event in events if event.terminal}


def agents_findings(
    log: LogFile, requests: Sequence[dict[str, Any]], sent: dict[str, bool | None], *, over: bool = False
) -> list[str]:
    """Return all findings; with `over` nothing runs any more, and each session has answered a last message."""
    if log.integrity != "ok":
        return [f"integrity_check: {log.integrity}"]
    found = [*check_numbers(log), *_check_ends(log), *_check_messages(log, sent, over=over)]
    for request in requests:
        told, users = Counter[str](request["told"]), Counter[str](request["users"])
        doubled = [text for text in (*told, *(sent.keys() & users.keys())) if told[text] + users[text] > 1]
        found += (f"{request['reader']} of {request['session']} was sent {text!r} twice" for text in doubled)
    if over:
        found += (f"turn {turn} never ended" for turn in unended_turns(log) | set(log.running.values()))
        found += _check_endings(log, requests)
    return found


def _check_ends(log: LogFile) -> Iterator[str]:
    """Check that each turn has one beginning and one end, and no event behind that."""
    for session, events in log.events.items():
        ended = set[str]()
        for event in events:
            if event.turn in ended:
                yield f"{session}: {event.type} of turn {event.turn} at {event.seq} comes after its end"
            if event.turn and event.terminal:
                ended.add(event.turn)
        started = Counter(event.turn for event in events if event.type == "turn_started")
        yield from (f"{session}: turn {turn} began {times} times" for turn, times in started.items() if times > 1)


def _check_messages(log: LogFile, sent: dict[str, bool | None], *, over: bool) -> Iterator[str]:
    """Check that each accepted message began a turn, steered one or was handed back, and no other did."""
    outcomes = defaultdict[str, list[str]](list)
    for event in (event for events in log.events.values() for event in events):
        if event.type == "turn_started" and "parent_turn_id" not in event.data:
            outcomes[event.data["input"]].append("started")
        elif event.type == "steered" and not event.data.get("injected"):
            outcomes[event.data["text"]].append("steered")
        elif event.type == "handed_back":
            outcomes[event.data["input"]].append("handed back")
    for text, is_accepted in sent.items():
        if len(outcomes[text]) > 1 or (is_accepted is False and outcomes[text]):
            yield f"message {text!r}, accepted: {is_accepted}, has the outcomes {outcomes[text]}"
        if over and is_accepted and not outcomes[text]:
            yield f"message {text!r} was accepted and is lost"


def _check_endings(log: LogFile, requests: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Check that each sub-agent has one reported end, and that the last request of who started it has it."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for request in requests:
        last[request["session"], request["reader"]] = request
    for session, events in log.events.items():
        starts, ends = _by_agent(events, ("subagent_started",)), _by_agent(events, ENDS)
        paused = {event.data["agent_id"] for event in events if event.type == "subagent_paused"}
        for agent, started in starts.items():
            if len(ends.get(agent, ())) != len(started) and agent not in paused:
                yield f"{session}: {agent} began {len(started)} times and has {len(ends.get(agent, ()))} reported ends"
            reader = last.get((session, "lead"), last.get((session, "main")))
            told = [text for text in reader["told"] if text.startswith(f"{agent} ")] if reader else []
            if started[0].data["depth"] == 1 and len(told) != 1:
                yield f"{session}: the last request has {told} of {agent}"
        lost = _told_before(requests, session) - set(last.get((session, "lead"), {"told": ()})["told"])
        if (session, "lead") in last and lost:
            yield f"{session}: the last request of the lead lacks {sorted(lost)}, which earlier ones had"


def _told_before(requests: Sequence[dict[str, Any]], session: str) -> set[str]:
    """Return what the lead of a team was told in any request."""
    return {text for one in requests if (one["session"], one["reader"]) == (session, "lead") for text in one["told"]}


def _by_agent(events: Sequence[LoggedEvent], types: Sequence[str]) -> dict[str, list[LoggedEvent]]:
    found: dict[str, list[LoggedEvent]] = {}
    for event in events:
        if event.type in types:
            found.setdefault(event.envelope["agent_id"], []).append(event)
    return found
