"""The events that report on sub-agents, and the delivery of their endings to their ancestors."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import UserMessage
from agenticx.runtime import EventType, Session
from agenticx.runtime.events import EVENT_CLASSES, Event
from agenticx.runtime.session import Notice
from agenticx.runtime.turn import Turn
from agenticx.subagents.host import SubagentHost
from agenticx.subagents.records import SubagentEnding
from agenticx.subagents.tree import Subagent, SubagentTree

__all__ = ["SubagentReporter"]

_log = get_logger(__name__)


class SubagentReporter:
    """A writer of events and notices about the sub-agents of a tree, whose main agent has `session`."""

    def __init__(self, host: SubagentHost, tree: SubagentTree, session: Session) -> None:
        self.is_abandoned = False
        self._host = host
        self._tree = tree
        self._session = session

    async def record_start(
        self, agent: Subagent, taken: Sequence[UserMessage], new: UserMessage | None, sender_id: str | None
    ) -> None:
        """Record an agent's run before it begins, with the event of its start and the messages that it takes.

        The last of these is `new` if that is not recorded yet.
        """
        ids = [message.message_id for message in taken]
        data: dict[str, Any] = {"task": agent.run.task}
        if ids:
            data["message_ids"] = ids
        if agent.run.is_anew and agent.ending is not None:
            data["anew"] = True
        sent = [] if new is None else [self._message_event(agent, new, sender_id)]
        events = [*sent, self._event(agent, EventType.SUBAGENT_STARTED, data)]
        await self._host.record_run(agent.run, events, ids)
        for event in events:
            self._put(agent.parent_turn, event)

    async def record_message(self, agent: Subagent, message: UserMessage, sender_id: str | None) -> None:
        """Record a message for an agent, with its event; `sender_id` is None for the user."""
        event = self._message_event(agent, message, sender_id)
        await self._host.record_message(agent.id, message, event)
        self._put(agent.parent_turn, event)

    async def report_progress(self, agent: Subagent) -> None:
        """Write an event about an agent's progress."""
        event = self._event(agent, EventType.SUBAGENT_PROGRESS, {"text": agent.activity})
        await self._write(agent.parent_turn, event)

    async def finish(self, agent: Subagent, ending: SubagentEnding, *, is_recorded: bool) -> None:
        """Record the ending, deliver it together with the agent's unread notices, then write its event."""
        if not (is_recorded or self.is_abandoned):
            await self._store(self._host.record_ending(ending))
        event, parent_turn = self._ending_event(agent, ending), agent.parent_turn
        self._tree.end(agent, ending)
        left: list[Notice] = []
        if agent.session is not None:
            agent.session.return_notices()
            left, agent.session.notices = agent.session.notices, []
        notice = ending.notice(is_stored=self._host.is_durable, reader=agent.run.reader)
        self._inbox(agent.parent).extend([notice, *left])
        agent.ended.set()
        if self._host.is_durable:
            self._tree.drop_conversations()
        _log.info("subagent", agent=agent.id, state=ending.state, code=ending.code)
        await self._write(parent_turn, event, ending_of=ending.turn_id)

    async def deliver(self, ending: SubagentEnding) -> None:
        """Deliver the recorded ending of a run of an earlier process."""
        self._tree.end(agent := self._tree.find(ending.agent_id, None), ending)
        self._inbox(agent.parent).append(ending.notice(is_stored=True, reader=agent.run.reader))
        await self.report_ending(ending)

    async def report_ending(self, ending: SubagentEnding) -> None:
        """Write the event of an ending of an earlier process."""
        event = self._ending_event(self._tree.find(ending.agent_id, None), ending)
        await self._write(None, event, ending_of=ending.turn_id)

    def _ending_event(self, agent: Subagent, ending: SubagentEnding) -> Event | None:
        """Return the event of an ending, None for a pause."""
        return None if ending.state == "paused" else self._event(agent, *ending.event)

    def _message_event(self, agent: Subagent, message: UserMessage, sender_id: str | None) -> Event:
        data = {"message_id": message.message_id, "text": message.content, "from_agent_id": sender_id}
        return self._event(agent, EventType.SUBAGENT_MESSAGE, data)

    def _event(self, agent: Subagent, type_: EventType, data: Mapping[str, Any]) -> Event:
        """Return an event of the parent turn, or of no turn if the parent turn has ended."""
        turn, tree = agent.parent_turn, {"parent_agent_id": agent.run.parent_id, "depth": agent.depth}
        turn_id = turn.id if turn is not None and turn.children.is_open else ""
        return EVENT_CLASSES[type_](type_, {**data, **tree}, agent.id, turn_id)

    async def _write(self, parent_turn: Turn | None, event: Event | None, *, ending_of: str | None = None) -> None:
        """Write an event; `ending_of` is the run whose ending it reports."""
        if event is not None and not self.is_abandoned:
            self._put(parent_turn, event)
            await self._store(self._host.write(event, ending_of=ending_of))

    def _put(self, parent_turn: Turn | None, event: Event) -> None:
        """Have the parent turn emit its event if the host does not write it."""
        if parent_turn is not None and event.turn_id and not self._host.is_durable:
            parent_turn.channel.put(event)

    def _inbox(self, agent: Subagent | None) -> list[Notice]:
        """Return the notices of an agent, or of its nearest ancestor that has not ended; None is the main agent."""
        while agent is not None and (agent.has_ended or agent.session is None):
            agent = agent.parent
        session = self._session if agent is None else agent.session
        assert session is not None
        return session.notices

    async def _store(self, write: Awaitable[None]) -> None:
        """Await a write and log its failure: the work of a sub-agent does not depend on it."""
        try:
            await write
        except StoreError as exc:
            _log.error("event or ending of a sub-agent could not be stored", error=str(exc))
