"""The manager of a tree of sub-agents, which starts them and delivers each ending once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, cast

from agenticx.argument_types import check_sequence, check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, InvalidArguments, StoreError
from agenticx.logs import get_logger
from agenticx.messages import UserMessage, clean_text, new_id, sources_of
from agenticx.runtime import AgentRuntime, Budget, Session, Steering, StopSignal, TurnContext, current_turn
from agenticx.runtime.budgets.budget import checked_budget
from agenticx.runtime.child_turns import TurnSuspended
from agenticx.runtime.events import ANSWERING_EVENTS, ASKING_EVENTS, Event
from agenticx.runtime.resume import ResumedTurn
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings, load_settings
from agenticx.subagents.disclosure import ModelNames
from agenticx.subagents.host import MemoryHost, SubagentHost
from agenticx.subagents.inheritance import can_start_child, given_tools, new_session, remaining_tools
from agenticx.subagents.limits import RunSlots, StartLimits, StatusQueries, SubagentLimits
from agenticx.subagents.records import (
    ModelUnavailable,
    SubagentBusy,
    SubagentEnding,
    SubagentNotFound,
    SubagentRun,
    SubagentsClosed,
    first_message,
    sources_read,
)
from agenticx.subagents.reporter import SubagentReporter
from agenticx.subagents.runtimes import Runtimes, RuntimeSource
from agenticx.subagents.tools import meta_tools
from agenticx.subagents.tree import Subagent, SubagentTree
from agenticx.tools.registry import FunctionTool

__all__ = ["AgentTeamManager"]

_CLOSING_SECONDS = 3.0
_NAME_CHARS = 40
_MAX_CHARS = 200_000  # of a task or a message

_log = get_logger(__name__)


@explain_calls
class AgentTeamManager:
    """A tree of sub-agents below the main agent, whose conversation is `session`.

    `runtime_for` is the `Agent` or `AgentRuntime` of all sub-agents, or a function that returns a runtime for the name
    of a model (None: the default), or an awaitable of it. A sub-agent has a conversation of its own, a part of its
    parent's tools, and permissions that do not exceed its parent's; it asks the gate of the turn in which it was
    started. The main agent gets `meta_tools()` to start sub-agents and to talk to them, and so does each sub-agent.

    A sub-agent works while its parent goes on. Its ending is delivered once, in a message that the engine writes:
    between two rounds of the parent if it is at work, else at the start of its next turn. If the parent has ended, the
    nearest ancestor that is at work gets it. A stop of the parent stops its sub-agents, and without a hub so does
    its end. All model calls are made within `budget`. `host` keeps the records of runs and endings; by default they are
    not kept.
    """

    def __init__(
        self,
        runtime_for: RuntimeSource,
        *,
        session: Session,
        limits: SubagentLimits | None = None,
        budget: Budget | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        host: SubagentHost | None = None,
    ) -> None:
        check_type("session", session, Session, "a Session")
        if limits is not None:
            check_type("limits", limits, SubagentLimits, "SubagentLimits")
        if settings is not None:
            check_type("settings", settings, Settings, "Settings, as load_settings returns them")
        self._session = session
        self.limits = limits or SubagentLimits()
        self._budget = checked_budget(budget)
        self.settings = settings or load_settings()
        self.clock = clock or SystemClock()
        self._runtimes = Runtimes(runtime_for, self.settings, self.clock)
        self._host = host or MemoryHost()
        self._tree = SubagentTree()
        self.reporter = SubagentReporter(self._host, self._tree, session)
        self._start_limits = StartLimits(self.limits, self._tree)
        self.status_queries = StatusQueries(self.settings, self.clock)
        self._slots = RunSlots(self.limits.running)
        self._is_closed = False

    def meta_tools(self) -> Sequence[FunctionTool]:
        """Return the tools by which an agent starts sub-agents and talks to them."""
        return meta_tools(lambda: self)

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

        `tools` are names of the parent's tools (outside of turns, of the runtime's), by default all. `context` is put
        before the task. `budget` limits its model calls too, and goes on after a restart. Raises `TypeError`,
        `SubagentLimitReached`, `ModelUnavailable`, and `InvalidArguments` for tools that the parent does not have and
        for an empty list.
        """
        _check_spawn(task, name, tools, model, context)
        checked_budget(budget)
        parent_turn = current_turn()
        toolbox = None if parent_turn is None else given_tools(parent_turn.agent.tools, tools)
        parent = self._tree.caller(parent_turn)
        self._check_open()
        self._start_limits.check(parent, parent_turn)
        agent_id = self._tree.new_id(re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:_NAME_CHARS] or "agent")
        runtime = await self._runtimes.get(model)
        if parent_turn is None and tools is not None:
            toolbox = given_tools(runtime.agent.tools, tools)
        self._check_open()
        self._start_limits.check(parent, parent_turn)
        run = SubagentRun(
            turn_id=new_id("turn"),
            agent_id=agent_id,
            task=task,
            message=first_message(task, context),
            context=context,
            parent_path=() if parent_turn is None else parent_turn.lineage.agent_path,
            parent_turn_id="" if parent_turn is None else parent_turn.id,
            depth=1 if parent is None else parent.depth + 1,
            tools=None if toolbox is None else toolbox.names,
            model=model,
            permission_mode=self._session.permission_mode if parent_turn is None else parent_turn.permissions.mode,
            budget=None if budget is None else budget.limits,
            sources=_sources(parent_turn),
        )
        agent = Subagent(run=run, parent=parent, tools=toolbox, budget=budget)
        self._tree.add(agent)
        try:
            await self._begin(agent, parent_turn, runtime)
        except (AgenticXError, asyncio.CancelledError):
            if agent.work is None:
                self._tree.remove(agent)
                agent.ended.set()
            raise
        return agent.id

    async def cancel(self, agent_id: str) -> None:
        """Stop a sub-agent and its own sub-agents, at all levels."""
        agent = self._find(agent_id)
        for each in (agent, *self._tree.below(agent)):
            if not each.has_ended:
                each.stop.set()

    async def retry(self, agent_id: str, *, turn_id: str | None = None) -> None:
        """Have a sub-agent that has ended begin its task anew, with an empty conversation, in a new turn `turn_id`.

        Messages that it has not heard follow the task. Raises `SubagentBusy` if it works, `SubagentLimitReached`.
        """
        agent = self._find(agent_id)
        if not (agent.has_ended and await self._begin_again(agent, is_anew=True, turn_id=turn_id)):
            raise SubagentBusy(f"{agent_id} has not ended; cancel it first")

    async def message(self, agent_id: str, text: str, *, message_id: str | None = None) -> None:
        """Send a message to a sub-agent, with a new `message_id` by default.

        One at work gets it with its next model call, one that has ended or is being stopped goes on with it. Raises
        `SubagentLimitReached`, `SubagentsClosed`.
        """
        _check_text("text", text)
        agent, sources = self._find(agent_id), _sources(current_turn())
        message = UserMessage(content=clean_text(text), message_id=message_id or new_id("msg"), sources=sources)
        if agent.stop.is_set():
            self._check_open()
        while agent.has_ended or await self._has_stopped(agent):
            if await self._begin_again(agent, message):
                return
        await self.reporter.record_message(agent, message, _agent_id(current_turn()))
        if agent.stop.is_set() or not (agent.state == "running" and agent.steering.put(message)):
            agent.unread.append(message)
            if agent.has_ended or await self._has_stopped(agent):  # while the message was recorded
                await self._answer_unread(agent)

    def model_names(self, model: str | None) -> ModelNames | None:
        """Return the names of the models between which text passes to a sub-agent with the chosen `model`.

        Returns None without a chosen model, for one that cannot be used, and outside of turns.
        """
        turn = current_turn()
        if model is None or turn is None or self._runtimes.is_fixed:
            return None
        acting, top = turn.agent.model.name, turn.lineage.root.agent.model.name
        try:
            chosen = self._host.find_model_name(model)
        except ModelUnavailable:
            return None
        session = self._host.session_model_names or (top,)
        return ModelNames((model,) if chosen is None else (model, chosen), session, (acting,))

    def model_names_of(self, agent_id: str) -> ModelNames | None:
        """Return what `model_names` returns for the model of a sub-agent, None for an unknown sub-agent."""
        try:
            agent = self._find(agent_id)
        except SubagentNotFound:
            return None
        names = self.model_names(agent.run.model)
        return None if names is None else replace(names, task=agent.run.task)

    def status(self, agent_id: str) -> dict[str, Any]:
        """Return the state of a sub-agent as JSON: agent_id, state, rounds, task; code after an error."""
        return self._find(agent_id).status()

    def sources_of(self, agent_ids: Collection[str]) -> tuple[str, ...]:
        """Return the names of the texts of others that these sub-agents, and the authors of their tasks, have read."""
        agents = [agent for agent in self._tree if agent.id in agent_ids]
        read = (source for agent in agents for source in (*agent.run.sources, *sources_read(agent.session)))
        return tuple(dict.fromkeys(read))

    def list(self) -> Sequence[dict[str, Any]]:
        """Return the states of the sub-agents that the calling agent may direct; outside of turns of all."""
        return [agent.status() for agent in self._tree.visible(current_turn())]

    async def wait(
        self,
        ids: Collection[str] | None = None,
        mode: Literal["any", "all"] = "all",
        timeout: float | None = None,
    ) -> Sequence[dict[str, Any]]:
        """Wait until one or all of the sub-agents have ended, and return their states; after `timeout` s as they are.

        By default it waits for the caller's sub-agents whose ending is not delivered. Their results follow as notices.
        """
        if isinstance(ids, str):
            raise TypeError(f"ids must be a list of ids, not the text {ids!r}")
        if mode not in ("any", "all"):
            raise InvalidArguments(f"mode must be 'any' or 'all', not {mode!r}")
        if timeout is not None and not timeout >= 0:
            raise InvalidArguments(f"timeout must be 0 or more seconds, not {timeout}")
        caller = self._tree.caller(turn := current_turn())
        session = self._session if caller is None else caller.session or self._session
        agents = [self._find(agent_id) for agent_id in ids or ()] or self._tree.unreported(turn, session)
        pending = [agent for agent in agents if not agent.has_ended]
        if pending and (mode == "all" or pending == agents):
            async with self._slots.released(caller):
                await self._wait_for(pending, mode, timeout)
        return [agent.status() for agent in agents]

    async def _wait_for(self, agents: Sequence[Subagent], mode: Literal["any", "all"], timeout: float | None) -> None:
        """Wait until one or all of the agents have ended, at most `timeout` s."""
        waiting = {asyncio.create_task(agent.ended.wait()) for agent in agents}
        until = asyncio.FIRST_COMPLETED if mode == "any" else asyncio.ALL_COMPLETED
        limit = None if timeout is None else self.clock.real(timeout)
        try:
            await asyncio.wait(waiting, return_when=until, timeout=limit)
        finally:
            for task in waiting:
                task.cancel()

    def stop(self) -> None:
        """Stop all sub-agents."""
        for agent in self._tree:
            agent.stop.set()

    async def aclose(self) -> None:
        """End all sub-agents, at most 3 s; none can be started any more."""
        self._is_closed = True
        self.stop()
        if tasks := self._tasks():
            _, late = await asyncio.wait(tasks, timeout=self.clock.real(_CLOSING_SECONDS))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)

    async def abandon(self) -> None:
        """End all sub-agents without recording anything: their session belongs to another process."""
        self._is_closed = self.reporter.is_abandoned = True
        self.stop()
        for task in (tasks := self._tasks()):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.clock.real(_CLOSING_SECONDS))

    def resources(self) -> dict[str, Any]:
        """Return the numbers of sub-agents at work and queued, the limits, and what is used of the budget, as JSON.

        The budget is that of this manager, else that of the main agent's turn in which the code runs.
        """
        states = [agent.state for agent in self._tree]
        used: dict[str, Any] = {}
        turn = current_turn()
        if (budget := self._budget or (None if turn is None else turn.lineage.root.context.budget)) is not None:
            spent, most = budget.spent, budget.limits
            used = {"tokens_used": spent.tokens, "tokens": most["tokens"]}
            used |= {"cost_usd_used": str(spent.cost_usd), "cost_usd": most["cost_usd"]}
        limits = self.limits
        return {
            "running": states.count("running"),
            "queued": states.count("queued"),
            "limits": {"running": limits.running, "children": limits.children, "depth": limits.depth},
            **used,
        }

    # --- for the host -------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """True if the task of a sub-agent runs; it ends a moment after the event of the ending."""
        return bool(self._tasks())

    @property
    def is_at_work(self) -> bool:
        """True if a sub-agent works or is queued."""
        return not all(agent.has_ended for agent in self._tree)

    def session_of(self, turn_id: str) -> Session | None:
        """Return the conversation of the sub-agent that works in that turn, None if none does."""
        return None if (agent := self._tree.in_turn(turn_id)) is None else agent.session

    def mark_delivered(self, keys: Collection[str]) -> None:
        """Forget the notices with these keys, which are stored as delivered, in all conversations."""
        for session in (self._session, *(agent.session for agent in self._tree)):
            if session is not None:
                session.mark_delivered(keys)

    def restore(
        self,
        runs: Iterable[SubagentRun],
        endings: Mapping[str, SubagentEnding],
        unread: Mapping[str, Sequence[UserMessage]],
    ) -> None:
        """Add the sub-agents of an earlier process, see `SubagentTree.restore`."""
        self._tree.restore(runs, endings, unread)

    def resume(self, resumed: ResumedTurn) -> bool:
        """Go on with a run of an earlier process that waits for a person; return False if there is no such run."""
        agent = self._tree.get(resumed.agent_id)
        if self._is_closed or agent is None or agent.run.turn_id != resumed.turn_id:
            return False
        agent.ending, agent.session, agent.run_rounds = None, new_session(self._session), resumed.point.round
        agent.stop, agent.ended, agent.steering = StopSignal(), asyncio.Event(), Steering()
        agent.go_to_work()
        agent.open_requests = sum(not request.is_response_logged for request in resumed.point.requests.values())
        children = {other.id for other in self._tree if other.parent is agent}
        notices = self._session.notices
        agent.session.notices = [notice for notice in notices if notice.data.get("agent_id") in children]
        self._session.notices = [notice for notice in notices if notice.data.get("agent_id") not in children]
        self._tree.begin(agent)
        agent.work = asyncio.create_task(self._work(agent, resumed), name=f"agx sub-agent {agent.id}")
        return True

    # --- the work of one sub-agent ------------------------------------------------------------------------------------

    async def _has_stopped(self, agent: Subagent) -> bool:
        """Wait for the end of an agent that is being stopped; return False for one that is not, or waits on."""
        if agent.stop.is_set():
            ended = asyncio.create_task(agent.ended.wait())
            work = () if agent.work is None or agent.work.done() else (agent.work,)
            try:
                await asyncio.wait({ended, *work}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
        return agent.has_ended

    async def _answer_unread(self, agent: Subagent) -> None:
        """Begin another run of an agent that has ended, if it has unread messages."""
        if agent.unread:
            try:
                await self._begin_again(agent)
            except AgenticXError as exc:
                _log.warning("a sub-agent could not go on with its messages", agent=agent.id, error=str(exc))

    async def _begin_again(
        self,
        agent: Subagent,
        message: UserMessage | None = None,
        *,
        is_anew: bool = False,
        turn_id: str | None = None,
    ) -> bool:
        """Begin another run of an agent that has ended; return False if it has begun one meanwhile.

        It begins with its task if it `is_anew`, then with the messages that its conversation lacks and `message`.
        Raises `SubagentLimitReached`.
        """
        self._start_limits.check(agent.parent, current_turn())
        runtime = await self._runtimes.get(agent.run.model)
        earlier = 0 if is_anew else agent.rounds
        run = replace(agent.run, turn_id=turn_id or new_id("turn"), is_anew=is_anew, earlier_rounds=earlier)
        parent_turn = current_turn() or await self._host.find_parent_turn(run)
        if not is_anew and agent.session is None:
            messages = await self._host.read_messages(agent.id, agent.turn_ids)
            agent.session = agent.session or new_session(self._parent_session(parent_turn), messages)
        self._check_open()
        if not agent.has_ended:
            return False
        self._start_limits.check(agent.parent, current_turn())
        new = () if message is None else (message,)
        undelivered = agent.messages_of_retry if is_anew else agent.undelivered_messages
        sources = dict.fromkeys([*run.sources, *_sources(parent_turn), *sources_of([*agent.unread, *new])])
        before, work = replace(agent), agent.work
        texts = "\n\n".join([*undelivered, *(one.content for one in new)])
        agent.run = replace(run, message=texts, sources=tuple(sources))
        agent.state, agent.unread = "queued", []
        agent.stop, agent.ended = StopSignal(), asyncio.Event()
        try:
            await self._begin(agent, parent_turn, runtime, before.unread, message)
        except (AgenticXError, asyncio.CancelledError):
            if agent.work is work:
                agent.run, agent.state, agent.session = before.run, before.state, before.session
                agent.turn_ids, agent.run_rounds = before.turn_ids, before.run_rounds
                agent.unread = [*before.unread, *agent.unread]
                agent.ended.set()
            raise
        return True

    def _parent_session(self, parent_turn: Turn | None) -> Session:
        return self._session if parent_turn is None else parent_turn.session

    async def _begin(
        self,
        agent: Subagent,
        parent_turn: Turn | None,
        runtime: AgentRuntime,
        unread: Sequence[UserMessage] = (),
        new: UserMessage | None = None,
    ) -> None:
        """Record the run of an agent, which takes the `unread` messages and a `new` one, and begin it in a task.

        A run that may be recorded gets an ending in any case.
        """
        self._start_limits.count(parent_turn)
        run, agent.parent_turn, agent.runtime = agent.run, parent_turn, runtime
        agent.tools, agent.steering = remaining_tools(agent, parent_turn), Steering()
        parent_session = self._parent_session(parent_turn)
        if run.is_anew:
            agent.session, agent.turn_ids = new_session(parent_session), ()
        elif agent.session is not None:
            agent.session.workspace = parent_session.workspace  # the session may have been moved
        agent.turn_ids, agent.run_rounds = (*agent.turn_ids, run.turn_id), 0
        try:
            taken = unread if new is None else [*unread, new]
            await self.reporter.record_start(agent, taken, new, _agent_id(current_turn()))
        except asyncio.CancelledError:
            agent.stop.set()
            self._launch(agent)
            raise
        self._launch(agent)

    def _launch(self, agent: Subagent) -> None:
        self._tree.begin(agent)
        agent.work = asyncio.create_task(self._work(agent), name=f"agx sub-agent {agent.id}")

    async def _work(self, agent: Subagent, resumed: ResumedTurn | None = None) -> None:
        """Run the turn of the agent, deliver its ending, and go on with the messages that it has not read."""
        ending, is_recorded = agent.failure("internal", "The work failed because of an error in AgenticX."), False
        is_suspended = False
        try:
            last = await self._turn(agent, resumed)
            is_recorded = last is not None
            ending = (
                agent.failure("stopped", "It was stopped before it began.")
                if last is None
                else SubagentEnding.from_event(agent.run.turn_id, agent.id, last, agent.run_rounds, agent.session)
            )
        except TurnSuspended:
            is_suspended = True
        except AgenticXError as exc:
            code = "stopped" if agent.stop.is_set() else "storage" if isinstance(exc, StoreError) else "internal"
            ending = agent.failure(code, str(exc))
        except asyncio.CancelledError:
            ending = agent.failure("stopped", "The work was cancelled.")
            raise
        finally:
            self._slots.release(agent)
            agent.close_steering()
            if not is_suspended:
                await self.reporter.finish(agent, ending, is_recorded=is_recorded)
        if agent.has_ended and ending.state != "error" and not self._is_closed:
            await self._answer_unread(agent)

    async def _turn(self, agent: Subagent, resumed: ResumedTurn | None) -> Event | None:
        """Run the turn and return its terminal event, None if it does not begin."""
        if resumed is not None:
            agent.runtime = await self._runtimes.get(agent.run.model)
            agent.parent_turn = await self._host.find_parent_turn(agent.run)
            agent.tools = remaining_tools(agent, agent.parent_turn)
        else:
            await self._slots.acquire(agent)
        parent_turn, session, runtime = agent.parent_turn, agent.session, agent.runtime
        assert session is not None
        assert runtime is not None
        if resumed is None and (agent.stop.is_set() or (parent_turn is not None and not can_start_child(parent_turn))):
            return None
        agent.go_to_work()
        budget = await self._budget_of(agent)
        context = TurnContext(
            turn_id=agent.run.turn_id,
            parent=parent_turn,
            detached=True,
            steering=agent.steering,
            on_exhausted="pause",
            budget=budget,
            work_seconds=self.limits.seconds,
            permission_mode=agent.run.permission_mode,
            resumed=resumed,
        )
        run = agent.run
        message = UserMessage(content=clean_text(run.message), message_id=run.message_id, sources=run.sources)
        last: Event | None = None
        events_before = 0 if resumed is None else len(resumed.events)
        turn = runtime.run_turn(message, session, agent.stop, agent_id=agent.id, tools=agent.tools, context=context)
        async with aclosing(turn):
            async for event in turn:
                if events_before <= 0:
                    await self._observe(agent, event)
                events_before -= 1
                last = event
        return last

    async def _observe(self, agent: Subagent, event: Event) -> None:
        """Follow the work of an agent by its events, and report its progress."""
        if event.type == "round_start":
            agent.run_rounds += 1
            if agent.activity:
                await self.reporter.report_progress(agent)
        elif event.type == "tool_call":
            agent.activity = f"round {agent.rounds}: {event.data['name']}"
        elif event.type in ASKING_EVENTS:
            agent.open_requests += 1
            self._slots.release(agent)
        elif event.type in ANSWERING_EVENTS:
            agent.open_requests -= 1
            if agent.open_requests == 0:
                self._slots.reacquire(agent)

    async def _budget_of(self, agent: Subagent) -> Budget | None:
        """Return the budget of an agent, joined with its ancestors'; after a restart with what it had spent before."""
        if agent.budget is None and agent.run.budget is not None:
            budget = Budget(**agent.run.budget)
            budget.add_spent(await self._host.read_spent(agent.id))
            agent.budget = agent.budget or budget
        outer = self._budget if agent.parent is None else await self._budget_of(agent.parent)
        return Budget.joined(agent.budget, outer)

    # --- looking up ---------------------------------------------------------------------------------------------------

    def _find(self, agent_id: str) -> Subagent:
        return self._tree.find(agent_id, current_turn())

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {agent.work for agent in self._tree if agent.work is not None and not agent.work.done()}

    def _check_open(self) -> None:
        if self._is_closed:
            raise SubagentsClosed("no sub-agent can be started any more: the session, or the program, is being closed")


def _agent_id(turn: Turn | None) -> str | None:
    """Return the id of the agent of a turn, None outside of turns."""
    return None if turn is None else turn.lineage.agent_path[-1]


def _sources(turn: Turn | None) -> tuple[str, ...]:
    """Return the names of the texts of others that the agent of a turn may act on."""
    return () if turn is None else turn.sources.names()


def _check_text(name: str, text: str) -> None:
    """Raise `TypeError` for anything but a text, and `InvalidArguments` for a blank one and one that is too long."""
    check_str(name, text)
    if not text.strip():
        raise InvalidArguments(f"{name} must not be blank")
    if len(text) > _MAX_CHARS:
        raise InvalidArguments(f"{name} must have at most {_MAX_CHARS:,} characters, not {len(text):,}")


def _check_spawn(task: str, name: object, tools: object, model: object, context: object) -> None:
    """Raise `TypeError` for arguments of another type, and `InvalidArguments` as `_check_text` does for the task."""
    _check_text("task", task)
    check_str("name", name)
    if tools is not None:
        check_sequence("tools", tools, "names of tools")
        for position, tool in enumerate(cast("Sequence[object]", tools)):
            check_str(f"tools[{position}]", tool)
    for optional, value in (("model", model), ("context", context)):
        if value is not None:
            check_str(optional, value)
