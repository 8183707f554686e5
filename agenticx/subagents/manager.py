"""The manager of a tree of sub-agents, which starts them and delivers each ending once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Any, Literal

from agenticx.argument_types import check_str
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, InvalidArguments, ToolError
from agenticx.logs import get_logger
from agenticx.runtime import AgentRuntime, Budget, EventType, Session, Steering, StopSignal, TurnContext, current_turn
from agenticx.runtime.events import EVENT_CLASSES, Event
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings, load_settings
from agenticx.subagents.meta_tools import meta_tools
from agenticx.subagents.records import Subagent, SubagentEnding, SubagentLimits
from agenticx.tools.registry import FunctionTool, Toolbox

__all__ = ["AgentTeamManager"]

_CLOSING_SECONDS = 3.0
_NAME_CHARS = 40

_log = get_logger(__name__)


class AgentTeamManager:
    """A tree of sub-agents below the main agent, whose conversation is `session`.

    `runtime_for` is the `AgentRuntime` of all sub-agents, or a function that returns the one for the name of a model
    (None: the default). A sub-agent has a conversation of its own, a part of its parent's tools, and permissions that
    do not exceed its parent's; it asks the gate of the turn in which it was started. The main agent gets `meta_tools()`
    to start sub-agents and to talk to them; sub-agents have those of their parent too.

    A sub-agent works beside its parent. Each ending is delivered once, in a message that the engine writes: between two
    rounds of the parent if it is at work, else at the start of its next turn; that of a sub-agent whose parent has
    ended is delivered to the agent above. A stop of the parent stops its sub-agents, and without a hub so does its end.
    All model calls are made within `budget`.
    """

    def __init__(
        self,
        runtime_for: AgentRuntime | Callable[[str | None], AgentRuntime],
        *,
        session: Session,
        limits: SubagentLimits | None = None,
        budget: Budget | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._runtime_for = runtime_for
        self._session = session
        self.limits = limits or SubagentLimits()
        self._budget = budget
        self.settings = settings or load_settings()
        self.clock = clock or SystemClock()
        self._agents: dict[str, Subagent] = {}
        self._slots = asyncio.Semaphore(self.limits.running)
        self._numbers = count(1)
        self._is_closed = False

    def meta_tools(self) -> Sequence[FunctionTool]:
        """Return the tools by which an agent starts sub-agents and talks to them."""
        return meta_tools(self)

    async def spawn(
        self,
        task: str,
        *,
        name: str = "agent",
        tools: Sequence[str] | None = None,
        model: str | None = None,
        budget: Budget | None = None,
        context: str | None = None,
    ) -> str:
        """Start a sub-agent of the agent that calls this, and return its id.

        `tools` are names of the parent's tools, by default all of them. `context` is put before the task. The model
        calls are made within `budget` too. Raises `ToolError` beyond the limits, and `InvalidArguments` for tools that
        the parent does not have and for a list of none.
        """
        check_str("task", task)
        above = current_turn()
        parent = self._caller(above)
        depth = 1 if parent is None else parent.depth + 1
        if self._is_closed:
            raise ToolError("no sub-agent can be started any more: the program is ending")
        if depth > self.limits.depth:
            raise ToolError(f"sub-agents may be {self.limits.depth} deep; do the work yourself")
        siblings = [agent for agent in self._agents.values() if agent.parent is parent and not agent.has_ended]
        if len(siblings) >= self.limits.children:
            raise ToolError(f"queue_full: {len(siblings)} sub-agents have not ended; wait for one of them")
        agent = Subagent(
            id=f"{re.sub(r'[^A-Za-z0-9_-]+', '_', name)[:_NAME_CHARS] or 'agent'}-{next(self._numbers)}",
            task=task,
            parent=parent,
            above=above,
            model=model,
            tools=_checked_tools(above, tools),
            budget=Budget.joined(budget, self._budget),
            session=self._new_session(above),
        )
        self._agents[agent.id] = agent
        self._emit(agent, EventType.SUBAGENT_STARTED, {"task": task})
        self._start(agent, task if context is None else f"{context}\n\n{task}")
        return agent.id

    async def cancel(self, agent_id: str) -> None:
        """Stop a sub-agent and those below it; do nothing if it has ended."""
        agent = self._find(agent_id)
        if agent.has_ended:
            return
        agent.stop.set()
        for below in self._below(agent):
            below.stop.set()

    async def retry(self, agent_id: str) -> None:
        """Have a sub-agent that has ended begin its task anew, with an empty conversation; `ToolError` if it works."""
        agent = self._find(agent_id)
        if not agent.has_ended:
            raise ToolError(f"{agent_id} has not ended; cancel it first")
        above = current_turn()
        agent.above, agent.session, agent.rounds = above, self._new_session(above), 0
        self._emit(agent, EventType.SUBAGENT_STARTED, {"task": agent.task})
        self._start(agent, agent.task)

    async def message(self, agent_id: str, text: str) -> None:
        """Send a message to a sub-agent.

        One at work gets it with its next model call, one that has ended goes on with it.
        """
        check_str("text", text)
        agent = self._find(agent_id)
        if agent.state == "running" and agent.steering.put(text):
            return
        if not agent.has_ended:
            agent.unread.append(text)
            return
        agent.above = current_turn()
        self._emit(agent, EventType.SUBAGENT_STARTED, {"task": agent.task})
        self._start(agent, text)

    def status(self, agent_id: str) -> dict[str, Any]:
        """Return the state of a sub-agent as JSON: agent_id, state, rounds, task; code after an error."""
        return self._find(agent_id).status()

    def list(self) -> Sequence[dict[str, Any]]:
        """Return the states of all sub-agents below the agent that calls this, the main one outside of turns."""
        return [agent.status() for agent in self._visible()]

    async def wait(
        self,
        ids: Collection[str] | None = None,
        mode: Literal["any", "all"] = "all",
        timeout: float | None = None,
    ) -> Sequence[dict[str, Any]]:
        """Wait until one or all of the sub-agents have ended, by default those of the caller that work; return states.

        Their results are delivered as after any ending. After `timeout` seconds the states are returned as they are.
        """
        caller = self._caller(current_turn())
        agents = [self._find(agent_id) for agent_id in ids or ()]
        if not agents:
            agents = [agent for agent in self._agents.values() if agent.parent is caller and not agent.has_ended]
        waiting = {asyncio.create_task(agent.ended.wait()) for agent in agents}
        until = asyncio.FIRST_COMPLETED if mode == "any" else asyncio.ALL_COMPLETED
        try:
            async with self._without_slot(caller):
                if waiting:
                    limit = None if timeout is None else self.clock.real(timeout)
                    await asyncio.wait(waiting, return_when=until, timeout=limit)
        finally:
            for task in waiting:
                task.cancel()
        return [agent.status() for agent in agents]

    async def aclose(self) -> None:
        """End all sub-agents, at most 3 s; none can be started any more."""
        self._is_closed = True
        for agent in self._agents.values():
            agent.stop.set()
        tasks = {agent.work for agent in self._agents.values() if agent.work is not None and not agent.work.done()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)

    def resources(self) -> dict[str, Any]:
        """Return the numbers of sub-agents at work and queued, the limits, and what is used of the budget, as JSON."""
        states = [agent.state for agent in self._agents.values()]
        used: dict[str, Any] = {}
        if self._budget is not None:
            spent = self._budget.spent
            used = {"tokens_used": spent.tokens, "tokens": self._budget.tokens, "cost_usd_used": str(spent.cost_usd)}
        limits = self.limits
        return {
            "running": states.count("running"),
            "queued": states.count("queued"),
            "limits": {"running": limits.running, "children": limits.children, "depth": limits.depth},
            **used,
        }

    # --- the work of one sub-agent ------------------------------------------------------------------------------------

    def _start(self, agent: Subagent, message: str) -> None:
        agent.state, agent.ending = "queued", None
        agent.stop, agent.ended = StopSignal(), asyncio.Event()
        agent.work = asyncio.create_task(self._work(agent, message), name=f"agx sub-agent {agent.id}")

    async def _work(self, agent: Subagent, message: str) -> None:
        """Run turns of the agent until no message for it is left, and deliver its ending, whatever it is."""
        ending = _failure(agent, "internal", "The work failed because of an error in AgenticX.")
        try:
            async with self._slot(agent):
                ending = await self._turn(agent, message)
                while ending.state != "error" and agent.unread:
                    text = "\n\n".join(agent.unread)
                    agent.unread.clear()
                    ending = await self._turn(agent, text)
        except AgenticXError as exc:
            ending = _failure(agent, "stopped" if agent.stop.is_set() else "internal", str(exc))
        except asyncio.CancelledError:
            ending = _failure(agent, "stopped", "The work was cancelled.")
            raise
        finally:
            self._end(agent, ending)

    async def _turn(self, agent: Subagent, message: str) -> SubagentEnding:
        """Run one turn and return its ending."""
        if agent.stop.is_set() or (agent.above is not None and agent.above.stopped):
            return SubagentEnding(
                agent_id=agent.id, state="error", text="It was stopped before it began.", code="stopped"
            )
        agent.state, agent.steering = "running", Steering()
        runtime = self._runtime_for if isinstance(self._runtime_for, AgentRuntime) else self._runtime_for(agent.model)
        context = TurnContext(
            parent=agent.above,
            outlives_parent=True,
            steering=agent.steering,
            on_exhausted="pause",
            budget=agent.budget,
            work_seconds=self.limits.seconds,
        )
        last: Event | None = None
        turn = runtime.run_turn(
            message, agent.session, agent.stop, agent_id=agent.id, tools=agent.tools, context=context
        )
        async with aclosing(turn):
            async for event in turn:
                self._observe(agent, event)
                last = event
        agent.unread += [steered.content for steered in agent.steering.take()]
        assert last is not None
        return _ending(agent, last)

    def _observe(self, agent: Subagent, event: Event) -> None:
        if event.type == "round_start":
            agent.rounds += 1
            if agent.activity:
                self._emit(agent, EventType.SUBAGENT_PROGRESS, {"text": agent.activity})
        elif event.type == "tool_call":
            agent.activity = f"round {agent.rounds}: {event.data['name']}"

    def _end(self, agent: Subagent, ending: SubagentEnding) -> None:
        """Record the ending and deliver it, with the endings that the agent was not told of."""
        agent.state, agent.ending = ending.state, ending
        if ending.state == "completed":
            self._emit(agent, EventType.SUBAGENT_COMPLETED, {"result": ending.text})
        elif ending.state == "error":
            self._emit(agent, EventType.SUBAGENT_ERROR, {"text": ending.text, "code": ending.code or "internal"})
        self._inbox(agent).extend([ending.to_model_text(), *agent.session.take_notices()])
        agent.ended.set()
        _log.info("subagent", agent=agent.id, state=ending.state, code=ending.code)

    def _inbox(self, agent: Subagent) -> list[str]:
        """Return the notices of the nearest agent above that has not ended."""
        above = agent.parent
        while above is not None and above.has_ended:
            above = above.parent
        return self._session.notices if above is None else above.session.notices

    def _emit(self, agent: Subagent, type_: EventType, data: dict[str, Any]) -> None:
        """Emit an event of a sub-agent in the turn above it, unless that is over."""
        turn = agent.above
        if turn is not None and turn.accepts_children:
            tree = {"parent_agent_id": turn.agent_id, "depth": agent.depth}
            turn.channel.put(EVENT_CLASSES[type_](type_, data | tree, agent.id, turn.id))

    # --- places to work -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _slot(self, agent: Subagent) -> AsyncGenerator[None]:
        """Wait for a place to work, and give it up at the end; a stop ends the waiting."""
        taking = asyncio.ensure_future(self._slots.acquire())
        stopping = asyncio.ensure_future(agent.stop.wait())
        try:
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            agent.has_slot = taking.done() or not taking.cancel()
        try:
            yield
        finally:
            if agent.has_slot:
                agent.has_slot = False
                self._slots.release()

    @asynccontextmanager
    async def _without_slot(self, agent: Subagent | None) -> AsyncGenerator[None]:
        """Give up the place of an agent while it waits for others, which may need one."""
        if agent is None or not agent.has_slot:
            yield
            return
        agent.has_slot = False
        self._slots.release()
        yield
        await self._slots.acquire()
        agent.has_slot = True

    # --- looking up ---------------------------------------------------------------------------------------------------

    def _caller(self, turn: Turn | None) -> Subagent | None:
        """Return the sub-agent whose turn it is, None for the main agent."""
        return None if turn is None else self._agents.get(turn.agent_id)

    def _below(self, agent: Subagent | None) -> Sequence[Subagent]:
        return [other for other in self._agents.values() if agent is None or agent in _ancestors(other)]

    def _visible(self) -> Sequence[Subagent]:
        return self._below(self._caller(current_turn()))

    def _find(self, agent_id: str) -> Subagent:
        known = {agent.id: agent for agent in self._visible()}
        if agent_id not in known:
            raise ToolError(f"there is no sub-agent {agent_id!r}; known: {', '.join(known) or 'none'}")
        return known[agent_id]

    def _new_session(self, above: Turn | None) -> Session:
        near = self._session if above is None else above.session
        return Session(workspace=near.workspace, permission_mode=near.permission_mode, snapshots=near.snapshots)


def _checked_tools(above: Turn | None, names: Sequence[str] | None) -> Toolbox | None:
    """Return the tools of the turn above by their names; `InvalidArguments` for others and for a list of none."""
    if names is None:
        return None if above is None else above.tools
    known = Toolbox() if above is None else above.tools
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        problem = f"unknown tools {', '.join(unknown)}" if unknown else "tools must name at least one"
        raise InvalidArguments(f"{problem}; those that can be given are: {', '.join(known.names) or 'none'}")
    return known.only(names)


def _ancestors(agent: Subagent) -> Sequence[Subagent]:
    return [] if agent.parent is None else [agent.parent, *_ancestors(agent.parent)]


def _failure(agent: Subagent, code: str, text: str) -> SubagentEnding:
    return SubagentEnding(agent_id=agent.id, state="error", text=text, code=code)


def _ending(agent: Subagent, event: Event) -> SubagentEnding:
    """Return the ending of a sub-agent's work by the terminal event of its turn."""
    if event.type == "final":
        return SubagentEnding(agent_id=agent.id, state="completed", text=event.data["text"])
    if event.type == "subagent_paused":
        text = f"It used its {event.data['max_rounds']} rounds. Its last words: {event.data['checkpoint']['last_text']}"
        return SubagentEnding(agent_id=agent.id, state="paused", text=text)
    assert event.type == "error"
    return _failure(agent, event.data["code"], event.data["text"])
