"""The sub-agents of one session of a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

from agenticx.errors import AgenticXError, SessionBusy
from agenticx.messages import Message, UserMessage
from agenticx.runtime import AgentRuntime, EventType, RuntimeEvent, Session
from agenticx.runtime.budgets.budget import Spent
from agenticx.runtime.resume import ResumedTurn
from agenticx.runtime.turn import Turn
from agenticx.sessions.history.model_history import messages_of_agent
from agenticx.sessions.hub.child_turns import SessionChildTurns
from agenticx.sessions.hub.commands import DirectSubagent, ListSubagents
from agenticx.sessions.hub.subagents.budgets import read_spent
from agenticx.sessions.hub.submission import TurnConflict
from agenticx.sessions.hub.turn_services import TurnServices
from agenticx.sessions.hub.writer import SessionWriter, delivered_facts, delivered_keys, run_to_completion
from agenticx.sessions.log.events import TokenMerger, decode
from agenticx.sessions.log.records import (
    Fact,
    SubagentAnnounced,
    SubagentEnded,
    SubagentFact,
    SubagentMessaged,
    SubagentMessageTaken,
    SubagentStarted,
    SubagentUnannounced,
)
from agenticx.sessions.log.subagent_runs import SubagentRuns
from agenticx.sessions.store.base import OwnershipLost, TurnEnded, find_fact, read_log_pages
from agenticx.subagents.limits import SubagentLimits
from agenticx.subagents.manager import AgentTeamManager
from agenticx.subagents.records import ModelUnavailable, SubagentEnding, SubagentRun, SubagentsClosed
from agenticx.subagents.tools import CURRENT_OWNER

__all__ = ["SessionSubagents"]

_INTERRUPTED = "The program ended before it had begun to work."


class SessionSubagents:
    """The manager of a session's sub-agents, and its `SubagentHost`, which records them as facts.

    The ending of a run is stored with the terminal event of its turn. Its delivery is stored with the conversation that
    has it; the event of the delivery follows in a later commit. Endings that are stored but not delivered, and missing
    events, follow after a restart.
    """

    is_durable = True

    def __init__(
        self,
        session: Session,
        writer: SessionWriter,
        services: TurnServices,
        turns: SessionChildTurns,
        ended_turn: Callable[[str, Sequence[str]], Awaitable[Turn]],
    ) -> None:
        self._session = session
        self._writer = writer
        self._services = services
        self._ended_turn = ended_turn
        self._runs = writer.stored.subagents
        self._known_endings = frozenset(self._runs.deliveries)
        self._begun_here = set[str]()
        self._retrying = asyncio.Lock()
        self._manager: AgentTeamManager | None = None
        self._turns = turns
        turns.records = turns.resumer = self
        session.notices += self._runs.notices()

    @property
    def manager(self) -> AgentTeamManager:
        """The manager, which is made when it is first needed."""
        if self._manager is None:
            self._manager = self._new_manager()
        return self._manager

    def _new_manager(self) -> AgentTeamManager:
        settings = self._services.settings
        limits = SubagentLimits(
            depth=settings.subagent_max_depth,
            children=settings.subagent_max_children,
            running=settings.subagent_max_running,
            seconds=settings.subagent_timeout_seconds,
            total=settings.subagent_max_total,
        )
        manager = AgentTeamManager(
            self._runtime,
            session=self._session,
            limits=limits,
            settings=settings,
            clock=self._services.clock,
            host=self,
        )
        endings = {turn_id: one.ending for turn_id, one in self._runs.deliveries.items()}
        manager.restore(self._runs.runs.values(), endings, self._runs.unread_messages())
        return manager

    async def _runtime(self, model: str | None) -> AgentRuntime:
        return await self._services.subagent_runtime(self._writer.record, model)

    @property
    def session_model_names(self) -> tuple[str, ...]:
        chosen = self._writer.record.model
        try:
            own = self._services.models(chosen).name
        except AgenticXError:  # it has become unknown, or its key is gone
            own = ""
        return (own,) if chosen is None else (chosen, own)

    def find_model_name(self, model: str, /) -> str | None:
        try:
            return self._services.models(model).name
        except AgenticXError as exc:
            raise ModelUnavailable(str(exc)) from exc

    @property
    def is_busy(self) -> bool:
        """True if the task of a sub-agent runs."""
        return bool(self._begun_here) and self.manager.is_busy

    def check_free(self) -> None:
        """Raise `SessionBusy` while a sub-agent works or is queued."""
        if self._begun_here and self.manager.is_at_work:
            raise SessionBusy(f"sub-agents of session {self._session.id!r} work; stop it, or wait for them")

    async def perform(
        self, command: ListSubagents | DirectSubagent, check_open: Callable[[], None], session_lock: asyncio.Lock
    ) -> Any:
        """Carry out a command and return its result; raises as the methods of the manager and `check_open` do.

        While the sub-agents are being ended, `check_open` raises the reason once the lock is free.
        """
        check_open()
        if isinstance(command, ListSubagents):
            return self.manager.list()
        try:
            return await self._direct(command)
        except (SubagentsClosed, OwnershipLost):
            async with session_lock:  # which a deletion holds until the session is gone
                check_open()
            if self.manager.reporter.is_abandoned:
                raise OwnershipLost(f"session {self._session.id!r} has another owner") from None
            raise

    async def _direct(self, command: DirectSubagent) -> dict[str, Any]:
        token = CURRENT_OWNER.set(self)  # for the task of a run that begins
        try:
            match command.action:
                case "cancel":
                    await self.manager.cancel(command.agent_id)
                case "retry":
                    async with self._retrying:  # or the second of two requests would find the sub-agent busy
                        if not self._has_retried(command):
                            await self.manager.retry(command.agent_id, turn_id=command.turn_id)
                case "message":
                    if not await self._has_message(command.message_id):
                        await self.manager.message(command.agent_id, command.text, message_id=command.message_id)
        finally:
            CURRENT_OWNER.reset(token)
        return self.manager.status(command.agent_id)

    def _has_retried(self, command: DirectSubagent) -> bool:
        """Return whether the retry has begun before, also at an earlier owner; raise `TurnConflict`."""
        run = self._runs.runs.get(command.turn_id)
        if run is not None and run.agent_id != command.agent_id:
            raise TurnConflict(
                f"client_turn_id {command.client_turn_id!r} was used for a retry of {run.agent_id!r};"
                " a retry of another sub-agent takes a new id"
            )
        return run is not None

    async def _has_message(self, message_id: str) -> bool:
        """Return whether a message was accepted by an earlier owner, whose answer was lost."""
        log, session_id = self._services.log, self._session.id
        posted = await find_fact(log, session_id, SubagentMessaged, message_id)
        return (posted or await find_fact(log, session_id, SubagentMessageTaken, message_id)) is not None

    def stop(self) -> None:
        """Stop all sub-agents."""
        if self._begun_here:
            self.manager.stop()

    async def close(self) -> None:
        """Stop all sub-agents and wait for them, at most 3 s."""
        if self._begun_here:
            await self.manager.aclose()

    async def abandon(self) -> None:
        """End all sub-agents without recording anything."""
        if self._begun_here:
            await self.manager.abandon()

    async def recover(self) -> None:
        """End the runs of an earlier process that had not begun, and append the missing events of endings.

        Runs whose turns are open end with their turns.
        """
        open_turns = self._writer.stored.open_turns.keys()
        pending = [ending for ending in self._runs.pending_events if ending.turn_id in self._known_endings]
        for run in self._runs.unended:
            if run.turn_id not in open_turns and run.turn_id not in self._begun_here:
                ending = SubagentEnding(
                    turn_id=run.turn_id, agent_id=run.agent_id, state="error", text=_INTERRUPTED, code="interrupted"
                )
                await self.record_ending(ending)
                await self.manager.reporter.deliver(ending)
        for ending in pending:
            await self.manager.reporter.report_ending(ending)

    @property
    def has_unended(self) -> bool:
        """True if a run of an earlier process has no ending."""
        return any(run.turn_id not in self._begun_here for run in self._runs.unended)

    def resume(self, resumed: ResumedTurn, /) -> bool:
        """Continue the turn of a sub-agent that waits for a person; return False if it is not one."""
        if resumed.turn_id not in self._runs.runs:
            return False
        token = CURRENT_OWNER.set(self)
        self._begun_here.add(resumed.turn_id)
        try:
            return self.manager.resume(resumed)
        finally:
            CURRENT_OWNER.reset(token)

    # --- records of turns ---------------------------------------------------------------------------------------------

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], round_: int, /) -> Sequence[Fact]:
        """Return the facts that the run has ended, and that its conversation has endings and messages for it."""
        run = self._runs.runs.get(turn_id)
        if run is None:
            return ()
        session = self.manager.session_of(turn_id)
        delivered = () if session is None else delivered_facts(session, turn_id)
        steered = (event.data["message_id"] for event in events if event.type is EventType.STEERED)
        facts = [*delivered, *(SubagentMessageTaken(key=id_) for id_ in steered)]
        if events[-1].terminal and turn_id not in self._runs.deliveries:
            facts += self._ended_facts(SubagentEnding.from_event(turn_id, run.agent_id, events[-1], round_, session))
        return facts

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        if delivered := delivered_keys(facts):
            self.manager.mark_delivered(delivered)

    async def on_ended(self, turn_id: str, /) -> None:
        """Deliver the ending of a run of an earlier process, unless that process recorded it before it died."""
        if turn_id in self._runs.runs and turn_id not in self._begun_here and turn_id not in self._known_endings:
            await self.manager.reporter.deliver(self._runs.deliveries[turn_id].ending)

    # --- the host of the manager --------------------------------------------------------------------------------------

    async def record_run(self, run: SubagentRun, events: Sequence[RuntimeEvent], taken: Sequence[str], /) -> None:
        self._begun_here.add(run.turn_id)
        await self._append(
            events, [SubagentStarted(key=run.turn_id, run=run), *(SubagentMessageTaken(key=id_) for id_ in taken)]
        )

    async def record_message(self, agent_id: str, message: UserMessage, event: RuntimeEvent, /) -> None:
        sources = tuple(message.sources)
        fact = SubagentMessaged(key=message.message_id, agent_id=agent_id, text=message.content, sources=sources)
        await self._append([event], [fact])

    async def record_ending(self, ending: SubagentEnding, /) -> None:
        if self._turns.awaits_resume(ending.turn_id):  # it could not go on after a restart
            return await self._turns.end_suspended(ending.turn_id, ending.code or "internal", ending.text)
        if ending.turn_id not in self._runs.deliveries:
            await run_to_completion(self._writer.commit(None, facts=self._ended_facts(ending)))

    def _ended_facts(self, ending: SubagentEnding) -> Sequence[Fact]:
        """Return the facts that a run has ended, and that the log lacks the event of that; a pause has none."""
        ended = SubagentEnded(key=ending.turn_id, ending=ending.shortened)
        has_event = ending.turn_id in self._runs.announced or ending.state == "paused"
        return (ended,) if has_event else (ended, SubagentUnannounced(key=ended.key))

    async def write(self, event: RuntimeEvent, /, *, ending_of: str | None = None) -> None:
        await self._append([event], [] if ending_of is None else [SubagentAnnounced(key=ending_of)])

    async def _append(self, events: Sequence[RuntimeEvent], facts: Sequence[Fact] = ()) -> None:
        """Append events to their turn, or to none if that has ended since they were made."""
        commit = partial(self._writer.commit, events=events, facts=facts, keeps_state=True)
        try:
            await run_to_completion(commit(events[0].turn_id or None))
        except TurnEnded:
            await run_to_completion(commit(None))

    async def read_messages(self, agent_id: str, turn_ids: Collection[str], /) -> list[Message]:
        log, session_id, merger = self._services.log, self._session.id, TokenMerger()
        async for page in read_log_pages(log, session_id, await self._seq_before(turn_ids)):
            for event in page:
                if event.turn_id in turn_ids:
                    merger.add(decode(event))
        messages = messages_of_agent(merger.events(), agent_id)
        deliveries = SubagentRuns.of(await log.facts(session_id, SubagentFact)).deliveries.values()
        delivered = [one.ending for one in deliveries if one.message_id and one.recipient_turn_id in turn_ids]
        if delivered:  # the log does not have them
            text = "\n\n".join(ending.to_model_text() for ending in delivered)
            sources = tuple(dict.fromkeys(source for ending in delivered for source in ending.sources))
            messages.append(UserMessage(content=text, injected=True, sources=sources))
        return messages

    async def read_spent(self, agent_id: str, /) -> Spent:
        turn_ids = {run.turn_id for run in self._runs.runs.values() if run.agent_id == agent_id}
        return await read_spent(self._services.log, self._session.id, turn_ids, await self._seq_before(turn_ids))

    async def _seq_before(self, turn_ids: Collection[str]) -> int:
        """Return the number of the event before the first one of these turns."""
        log, session_id = self._services.log, self._session.id
        found = [turn for turn_id in turn_ids if (turn := await log.turn(session_id, turn_id)) is not None]
        return min((turn.after_seq or 0 for turn in found), default=0)

    async def find_parent_turn(self, run: SubagentRun, /) -> Turn | None:
        return await self._ended_turn(run.parent_turn_id, run.parent_path)
