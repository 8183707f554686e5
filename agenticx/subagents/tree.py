"""The sub-agents of a session, as a tree below its main agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agenticx.messages import UserMessage
from agenticx.runtime import AgentRuntime, Budget, Session, Steering, StopSignal
from agenticx.runtime.turn import Turn
from agenticx.subagents.records import (
    SubagentEnding,
    SubagentNotFound,
    SubagentRun,
    SubagentState,
    first_message,
    sources_read,
)
from agenticx.tools.registry import Toolbox

__all__ = ["Subagent", "SubagentTree"]

_KEPT_CONVERSATIONS = 50
_STATUS_CHARS = 500


@dataclass(slots=True, kw_only=True, eq=False)
class Subagent:
    """One sub-agent.

    - `parent` is the sub-agent that started it, None if the main agent did. `parent_turn` is that of its run.
    - `run` is its latest run, with `run_rounds` rounds so far.
    - `session` has its conversation, of the turns `turn_ids`; None if only the host has it.
    - `tools` and its own `budget` are None until its first run in this process.
    - `unread` are messages for it that no run has taken yet. `open_requests` counts its requests to the user.
    """

    run: SubagentRun
    parent: Subagent | None
    parent_turn: Turn | None = None
    tools: Toolbox | None = None
    budget: Budget | None = None
    session: Session | None = None
    runtime: AgentRuntime | None = None
    turn_ids: tuple[str, ...] = ()
    state: SubagentState = "queued"
    ending: SubagentEnding | None = None
    run_rounds: int = 0
    activity: str = ""
    has_slot: bool = False
    open_requests: int = 0
    unread: list[UserMessage] = field(default_factory=list[UserMessage])
    steering: Steering = field(default_factory=Steering)
    stop: StopSignal = field(default_factory=StopSignal)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.run.agent_id

    @property
    def rounds(self) -> int:
        """The rounds of its conversation."""
        return self.run.earlier_rounds + self.run_rounds

    @property
    def depth(self) -> int:
        """1 for a sub-agent of the main agent."""
        return self.run.depth

    @property
    def has_ended(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def undelivered_messages(self) -> list[str]:
        """The messages that `session` lacks: the message of a run that did not begin, and unread messages."""
        known = () if self.session is None else self.session.all_messages
        has_begun = any(one.message_id == self.run.message_id for one in known)
        return [*([] if has_begun else [self.run.message]), *self._unread_texts]

    @property
    def messages_of_retry(self) -> list[str]:
        """The messages with which a retry begins: the task, and those that no model call has had."""
        first = first_message(self.run.task, self.run.context)
        if self.run_rounds == 0:  # its first message was not heard either, which has the task if it began anew
            return [*([] if self.run.is_anew else [first]), self.run.message, *self._unread_texts]
        return [first, *self._unread_texts]

    @property
    def _unread_texts(self) -> list[str]:
        return [message.content for message in self.unread]

    def go_to_work(self) -> None:
        """Have the run take the unread messages, and all messages from now on."""
        self.state = "running"
        for message in self.unread:
            self.steering.put(message)
        self.unread = []

    def close_steering(self) -> None:
        """Take back the messages that the run has not taken; later messages are `unread`."""
        self.steering.close()
        self.unread = [*self.steering.take(), *self.unread]

    @property
    def ancestors(self) -> list[Subagent]:
        """Its ancestors among the sub-agents, the nearest first."""
        return [] if self.parent is None else [self.parent, *self.parent.ancestors]

    @property
    def top(self) -> Subagent:
        """Its farthest ancestor among the sub-agents, or itself."""
        return [self, *self.ancestors][-1]

    def failure(self, code: str, text: str) -> SubagentEnding:
        """Return an ending of the run with an error."""
        turn_id, rounds = self.run.turn_id, self.run_rounds
        return SubagentEnding(
            turn_id=turn_id,
            agent_id=self.id,
            state="error",
            text=text,
            code=code,
            rounds=rounds,
            sources=sources_read(self.session),
        )

    def status(self) -> dict[str, Any]:
        """Return the state as JSON."""
        status: dict[str, Any] = {
            "agent_id": self.id,
            "state": self.state,
            "rounds": self.rounds,
            "task": self.run.task if len(self.run.task) <= _STATUS_CHARS else f"{self.run.task[:_STATUS_CHARS]}…",
            "parent_agent_id": self.run.parent_id,
            "depth": self.depth,
        }
        if self.has_ended and self.ending is not None and self.ending.code is not None:
            status["code"] = self.ending.code
        if self.open_requests:
            status["waits_for_user"] = True
        return status | ({"activity": self.activity} if self.activity and not self.has_ended else {})


class SubagentTree:
    """All sub-agents, by id, and by the id of the turn in which they work."""

    def __init__(self) -> None:
        self._agents: dict[str, Subagent] = {}
        self._by_turn: dict[str, Subagent] = {}
        self._number = 0

    def __iter__(self) -> Iterator[Subagent]:
        return iter(list(self._agents.values()))

    def new_id(self, name: str) -> str:
        """Return an id for a sub-agent, which begins with `name`."""
        self._number += 1
        return f"{name}-{self._number}"

    def add(self, agent: Subagent) -> None:
        """Add a sub-agent."""
        self._agents[agent.id] = agent

    def remove(self, agent: Subagent) -> None:
        """Remove a sub-agent that could not be started."""
        self._agents.pop(agent.id, None)

    def begin(self, agent: Subagent) -> None:
        """Record that a run of an agent works."""
        self._by_turn[agent.run.turn_id] = agent

    def end(self, agent: Subagent, ending: SubagentEnding) -> None:
        """Record the ending of an agent's run."""
        self._by_turn.pop(ending.turn_id, None)
        agent.state, agent.ending, agent.run_rounds = ending.state, ending, ending.rounds
        agent.parent_turn = agent.runtime = None
        agent.activity, agent.open_requests = "", 0

    def drop_conversations(self) -> None:
        """Drop old conversations of ended agents, since the host has them too; a paused agent keeps its own."""
        ended = [agent for agent in self if agent.session is not None and agent.state in ("completed", "error")]
        for agent in ended[:-_KEPT_CONVERSATIONS]:
            agent.session = None

    def get(self, agent_id: str) -> Subagent | None:
        """Return the sub-agent with this id, or None."""
        return self._agents.get(agent_id)

    def in_turn(self, turn_id: str) -> Subagent | None:
        """Return the sub-agent that works in this turn, or None."""
        return self._by_turn.get(turn_id)

    def caller(self, turn: Turn | None) -> Subagent | None:
        """Return the sub-agent whose turn, or a child turn of it, is current; None for the main agent."""
        agents = (self._by_turn.get(each.id) for each in (() if turn is None else turn.lineage))
        return next((agent for agent in agents if agent is not None), None)

    def below(self, agent: Subagent) -> Sequence[Subagent]:
        """Return the sub-agents of a sub-agent, at all levels."""
        return [other for other in self if agent in other.ancestors]

    def visible(self, turn: Turn | None) -> Sequence[Subagent]:
        """Return the sub-agents that the agent of a turn may direct: all for the main agent and outside of turns.

        Any other agent, such as a participant of a team, may direct its own sub-agents, at all levels.
        """
        if (caller := self.caller(turn)) is not None:
            return self.below(caller)
        path = _path_below_main(turn)
        return [agent for agent in self if agent.top.run.parent_path[: len(path)] == path]

    def working(self, parent: Subagent | None) -> Sequence[Subagent]:
        """Return the sub-agents of an agent that have not ended."""
        return [agent for agent in self if agent.parent is parent and not agent.has_ended]

    def unreported(self, turn: Turn | None, session: Session) -> Sequence[Subagent]:
        """Return the sub-agents that the agent of a turn started and whose endings are not delivered to it.

        Outside of turns these are the sub-agents of all agents that are not sub-agents themselves.
        """
        waiting = {notice.data.get("agent_id") for notice in session.notices}
        started = self._started(turn)
        return [agent for agent in started if not agent.has_ended or agent.id in waiting]

    def _started(self, turn: Turn | None) -> Sequence[Subagent]:
        parent, starter = self.caller(turn), _path_below_main(turn)
        started = [agent for agent in self if agent.parent is parent]
        if parent is not None or turn is None:
            return started
        return [agent for agent in started if agent.run.starter_path == starter]

    def find(self, agent_id: str, turn: Turn | None) -> Subagent:
        """Return a sub-agent that the agent of a turn may direct; raise `SubagentNotFound`."""
        visible = {agent.id: agent for agent in self.visible(turn)}
        if agent_id not in visible:
            raise SubagentNotFound(f"there is no sub-agent {agent_id!r}; known: {', '.join(visible) or 'none'}")
        return visible[agent_id]

    def restore(
        self,
        runs: Iterable[SubagentRun],
        endings: Mapping[str, SubagentEnding],
        unread: Mapping[str, Sequence[UserMessage]],
    ) -> None:
        """Add the sub-agents of an earlier process by their runs, in order.

        `endings` are by turn id, `unread` messages by the ids of the agents.
        """
        for run in runs:
            agent = self._agents.get(run.agent_id) or Subagent(run=run, parent=self._parent_of(run))
            agent.run, agent.unread = run, list(unread.get(run.agent_id, ()))
            agent.turn_ids = (run.turn_id,) if run.is_anew else (*agent.turn_ids, run.turn_id)
            self.add(agent)
            lost = agent.failure("interrupted", "The program ended while it worked.")
            self.end(agent, endings.get(run.turn_id, lost))
        ids = {ending.agent_id for ending in endings.values()}  # with the sub-agents that a fork does not have
        self._number = max((int(id_.rpartition("-")[2]) for id_ in ids | self._agents.keys()), default=0)

    def _parent_of(self, run: SubagentRun) -> Subagent | None:
        """Return the nearest sub-agent in the path of a run, which may name agents of tools between the two."""
        ancestors = reversed(run.parent_path if run.depth > 1 else ())
        return next((agent for id_ in ancestors if (agent := self._agents.get(id_)) is not None), None)


def _path_below_main(turn: Turn | None) -> tuple[str, ...]:
    """Return the path of the agent of a turn, empty for the main agent and outside of turns."""
    path = () if turn is None else turn.lineage.agent_path
    return path if len(path) > 1 else ()
