"""A session folded from its log: its conversation, its turns and its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agenticx.cli.client.base import SessionReader
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import one_line
from agenticx.runtime.events import TRANSCRIPT_EVENTS, EventType
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.log.events import decode_line
from agenticx.sessions.log.turn_tree import LoggedTurn, TurnTree
from agenticx.sessions.log.usage import DailyUsage
from agenticx.tools.plurals import pluralize

__all__ = ["LogSummary", "SubagentList", "TurnEnd", "read_log_summary"]


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn; `ended` is the type of its terminal event, None while it runs or waits."""

    turn_id: str
    ended: str | None = None
    code: str | None = None
    text: str | None = None

    def describe(self) -> str:
        """Return a short description for the user."""
        match self.ended:
            case None:
                return "runs, or waits for an answer"
            case "error":
                return f"ended with error {self.code}: {self.text}"
            case _:
                return "ended with an answer" if self.code == "answer" else f"ended: {self.code}"


class LogSummary:
    """The messages, turns and sub-agents of a session, folded from its log; it keeps no event."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.tree = TurnTree()
        """The turns with their parents and terminal events, and nothing else of them."""
        self.subagents = SubagentList()
        self.returned: list[dict[str, str]] = []
        """The queued messages that were returned unsent and not sent since, as `{message_id, input}`."""
        self._root_starts: list[tuple[int, str]] = []  # the number of the first event of each root turn, and its id
        self._count = 0
        self.last_seq = 0
        self._is_rewound = False

    def feed(self, event: Envelope) -> None:
        """Fold the next event of the log."""
        self._count += 1
        self.last_seq = event.seq
        if event.type in TRANSCRIPT_EVENTS or event.terminal:
            entry = decode_line(event.line)
            self.conversation.feed_decoded([entry])
            if event.type == EventType.TURN_STARTED or event.terminal:
                self.tree.apply(entry.event)
        self.subagents.feed(event)
        self._feed_returned(event)
        if event.begins_root_turn and event.turn_id is not None:
            self._root_starts.append((self._count, event.turn_id))
            self._is_rewound = False
        elif event.type == EventType.SESSION_CHANGED and "rewound_to" in event.data:
            self._is_rewound = True

    def _feed_returned(self, event: Envelope) -> None:
        if event.type == EventType.HANDED_BACK:
            if event.data.get("removed"):  # the user does not want it
                return
            self.returned.append({name: event.data[name] for name in ("message_id", "input")})
        elif event.type in (EventType.TURN_STARTED, EventType.STEERED):
            text = event.data.get("input", event.data.get("text"))
            self.returned = [message for message in self.returned if message["input"] != text]

    def turn_ends(self) -> list[TurnEnd]:
        """Return the turns that messages of the user began, in order."""
        return [_turn_end(turn) for turn in self.tree.turns.values() if turn.parent_id is None]

    def event_count(self) -> int:
        """Return the number of events up to the last message of the conversation if it was rewound since it went on."""
        if not self._is_rewound:
            return self._count
        path = self.conversation.path()
        return path[-1].last_seq if path else 0

    def last_turn_ids(self) -> set[str]:
        """Return the ids of the last root turn of the conversation and of its child turns."""
        count = self.event_count()
        return self.tree.within([turn_id for start, turn_id in self._root_starts if start <= count][-1:])


async def read_log_summary(client: SessionReader, session_id: str) -> LogSummary:
    """Return the summary of a session's log as it is now."""
    summary = LogSummary()
    async with client.read_log(session_id) as log:
        async for event in log:
            summary.feed(event)
    return summary


def _turn_end(turn: LoggedTurn) -> TurnEnd:
    if turn.end is None:
        return TurnEnd(turn.id)
    data: Mapping[str, Any] = {**turn.end.data}
    return TurnEnd(turn.id, turn.end.type, data.get("code", data.get("reason")), data.get("text"))


# --- sub-agents -------------------------------------------------------------------------------------------------------

_STATES = {
    EventType.SUBAGENT_STARTED: "running",
    EventType.SUBAGENT_PAUSED: "paused",
    EventType.SUBAGENT_COMPLETED: "completed",
    EventType.SUBAGENT_ERROR: "error",
}


@dataclass(slots=True)
class _Subagent:
    """A sub-agent: the state and the task of its latest run, and the rounds of all of them."""

    agent_id: str
    state: str = ""
    rounds: int = 0
    task: str = ""
    parent_agent_id: str | None = None
    depth: int = 0
    code: str | None = None


class SubagentList:
    """The sub-agents of a session, in the order of their starts."""

    def __init__(self) -> None:
        self._agents: dict[str, _Subagent] = {}

    def feed(self, event: Envelope) -> None:
        """Fold the next event of the log."""
        if event.type == EventType.SUBAGENT_STARTED:
            agent = self._agents.setdefault(event.agent_id, _Subagent(event.agent_id))
            agent.task, agent.depth = str(event.data.get("task", "")), event.data.get("depth", 0)
            agent.parent_agent_id = event.data.get("parent_agent_id")
        elif event.agent_id not in self._agents:
            return
        agent = self._agents[event.agent_id]
        agent.rounds += event.type == EventType.ROUND_START
        if event.type in _STATES:
            agent.state, agent.code = _STATES[EventType(event.type)], event.data.get("code")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the sub-agents with the keys of `GET /api/sessions/{id}/subagents`."""
        return [
            {name: value for name, value in asdict(agent).items() if name != "code" or value is not None}
            for agent in self._agents.values()
        ]

    def lines(self, usage: Sequence[DailyUsage]) -> Iterator[str]:
        """Yield a line for each sub-agent: its id, state, rounds, tokens and the beginning of its task."""
        for agent in self._agents.values():
            counts = [row.counts for row in usage if row.agent_id == agent.agent_id]
            tokens = sum(count.input_tokens + count.output_tokens for count in counts)
            state = agent.state if agent.code is None else f"{agent.state} {agent.code}"
            work = f"{pluralize(agent.rounds, 'round')}, {tokens:,} tokens"
            yield f"{agent.agent_id}: {state}, {work}: {one_line(agent.task)}"
