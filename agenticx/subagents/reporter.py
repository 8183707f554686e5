"""The events that report on sub-agents, and the delivery of their endings to the agents above."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.runtime import EventType, Session
from agenticx.runtime.events import EVENT_CLASSES, Event
from agenticx.runtime.session import Notice
from agenticx.subagents.host import SubagentHost
from agenticx.subagents.records import Subagent, SubagentEnding, SubagentRun
from agenticx.subagents.tree import SubagentTree

__all__ = ["SubagentReporter"]

_log = get_logger(__name__)


class SubagentReporter:
    """The source of reports on the sub-agents of a tree, whose main agent has `session`, until it is abandoned."""

    def __init__(self, host: SubagentHost, tree: SubagentTree, session: Session) -> None:
        self.is_abandoned = False
        self._host = host
        self._tree = tree
        self._session = session

    def emit(self, agent: Subagent, type_: EventType, data: Mapping[str, Any], *, of_run: str = "") -> Sequence[Event]:
        """Emit an event in the turn above; if that is over, return the event, which has no turn then, to be written.

        It reports the start or the ending of the run `of_run`, if that is given.
        """
        turn, tree = agent.above, {"parent_agent_id": agent.run.parent_id, "depth": agent.depth}
        in_turn = turn is not None and turn.accepts_children
        event = EVENT_CLASSES[type_](type_, {**data, **tree}, agent.id, turn.id if turn is not None and in_turn else "")
        if of_run:
            self._host.expect_event(of_run, event)
        if turn is None or not in_turn:
            return [event]
        turn.channel.put(event)
        return ()

    def emit_start(self, agent: Subagent, run: SubagentRun) -> Sequence[Event]:
        """Emit the event of the start of an agent's run, as `emit` does."""
        return self.emit(agent, EventType.SUBAGENT_STARTED, {"task": run.task}, of_run=run.turn_id)

    async def finish(self, agent: Subagent, ending: SubagentEnding, *, is_recorded: bool) -> None:
        """Record the ending, then deliver it with the endings that the agent was not told of, then write its event."""
        if not (is_recorded or self.is_abandoned):
            await self._store(self._host.record_ending(ending))
        event = self._emit_ending(agent, ending)
        self._tree.end(agent, ending)
        left: list[Notice] = []
        if agent.session is not None:
            agent.session.return_notices()
            left, agent.session.notices = agent.session.notices, []
        self._inbox(agent.parent).extend([ending.notice(is_stored=self._host.is_durable), *left])
        agent.ended.set()
        if self._host.is_durable:
            self._tree.drop_conversations()
        _log.info("subagent", agent=agent.id, state=ending.state, code=ending.code)
        await self.write(event)

    async def deliver(self, ending: SubagentEnding) -> None:
        """Deliver the ending of a run of an earlier process, which is recorded."""
        self._tree.end(agent := self._tree.find(ending.agent_id, None), ending)
        self._inbox(agent.parent).append(ending.notice(is_stored=True))
        await self.report_ending(ending)

    async def report_start(self, run: SubagentRun) -> None:
        """Write the event of the start of a run of an earlier process."""
        await self.write(self.emit_start(self._tree.find(run.agent_id, None), run))

    async def report_ending(self, ending: SubagentEnding) -> None:
        """Write the event of an ending of an earlier process."""
        await self.write(self._emit_ending(self._tree.find(ending.agent_id, None), ending))

    def _emit_ending(self, agent: Subagent, ending: SubagentEnding) -> Sequence[Event]:
        return () if ending.state == "paused" else self.emit(agent, *ending.event, of_run=ending.turn_id)

    async def write(self, events: Sequence[Event]) -> None:
        """Write events that belong to no turn."""
        if events and not self.is_abandoned:
            await self._store(self._host.write(events))

    def _inbox(self, agent: Subagent | None) -> list[Notice]:
        """Return the notices of an agent, or of the nearest one above it that has not ended; None is the main agent."""
        while agent is not None and (agent.has_ended or agent.session is None):
            agent = agent.parent
        session = self._session if agent is None else agent.session
        assert session is not None
        return session.notices

    async def _store(self, write: Awaitable[None]) -> None:
        """Await a write; one that fails is logged, as the work of a sub-agent does not depend on it."""
        try:
            await write
        except StoreError as exc:
            _log.error("event or ending of a sub-agent could not be stored", error=str(exc))
