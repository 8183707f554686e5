"""The sub-agents of a session, folded from its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import one_line
from agenticx.runtime.events import EventType
from agenticx.sessions.log.usage import DailyUsage
from agenticx.tools.plurals import pluralize

__all__ = ["SubagentList"]

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
