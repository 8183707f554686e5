"""One turn of an agent: a stream of events that can be answered, and then a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol

from agenticx.argument_types import check_mapping, check_type, wrong_type
from agenticx.clocks import SystemClock
from agenticx.core.context_variables import copied_variables
from agenticx.core.handoffs import AnyAgent
from agenticx.core.run_agents import Models, RunAgents, find_parent_turn
from agenticx.errors import AgenticXError
from agenticx.llms.base import close_model
from agenticx.llms.openai_rows import user_message
from agenticx.llms.sampling import Sampling, check_sampling
from agenticx.logs import get_logger
from agenticx.messages import UserMessage
from agenticx.runtime.agent_runtime import AgentRuntime
from agenticx.runtime.events import Event
from agenticx.runtime.gates.pending import AsyncConfirmGate
from agenticx.runtime.gates.terminal import DefaultConfirmGate
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.interrupts import StopSignal, cancel_and_wait, check_stop_signal, watch_stop
from agenticx.runtime.run_results import RunResult, UserInput, run_result
from agenticx.runtime.session import Session, runnable_session
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn import current_turn
from agenticx.runtime.turn_agent import OutputT
from agenticx.runtime.turn_context import TurnContext
from agenticx.runtime.turn_task import wait_for_abandoned_turn
from agenticx.runtime.user_requests.kinds import kind_of
from agenticx.runtime.user_requests.requests import (
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    UserAnswer,
)
from agenticx.settings import load_settings
from agenticx.tools.registry import check_deps

if TYPE_CHECKING:
    from agenticx.core.agent import Agent
    from agenticx.sessions.hub.open_hubs import OpenHub

__all__ = ["AgentTurn", "MemoryTurn", "RunArguments", "StoredTurn", "agent_turn", "run_to_end"]

_END_SECONDS = 10.0  # a turn that is stopped ends within 200 ms, unless its store does not answer
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """The arguments of a run, checked; `session` is one in memory, the id of a stored one, or None for a new one."""

    message: UserMessage
    session: Session | str | None
    context_variables: dict[str, Any]
    deps: Any
    model: Any
    output: OutputType | None
    sampling: Sampling | None

    @classmethod
    def checked(
        cls,
        user_input: UserInput,
        *,
        session: object,
        context_variables: Mapping[str, Any] | None,
        deps: Any,
        model: Any,
        output_type: Any,
        sampling: Sampling | None,
    ) -> RunArguments:
        """Return the arguments; raise `TypeError` for one of another type."""
        if context_variables is not None:
            check_mapping("context_variables", context_variables)
        if sampling is not None:
            check_type("sampling", sampling, Sampling, "a Sampling")
        return cls(
            message=user_message(user_input),
            session=_checked_session(session),
            context_variables=copied_variables(context_variables or {}),
            deps=deps,
            model=model,
            output=None if output_type is None else OutputType(output_type),
            sampling=sampling,
        )


def _checked_session(session: object) -> Session | str | None:
    if session is None or isinstance(session, str):
        return session
    if isinstance(session, Session):
        return runnable_session(session)
    from agenticx.sessions.log.session_record import SessionRecord  # on first use: its package imports the stores

    if isinstance(session, SessionRecord):
        return session.id
    raise wrong_type("session", session, "a Session, or a stored session of an open hub or its id")


class _Source(Protocol):
    """A running turn: in memory, or in a hub."""

    async def begin(self) -> AsyncGenerator[Event, None]:
        """Return the events of the turn, which begins with the first one."""
        ...

    def go_on(self, request_ids: Sequence[str]) -> None:
        """Note that the consumer goes on after these requests, whether it has answered them or not."""
        ...

    def answer(self, request_id: str, digest: str, answer: UserAnswer) -> None:
        """Answer a confirmation or a question that waits."""
        ...

    async def result(self, events: Sequence[Event]) -> RunResult[Any]:
        """Return the result of the turn; raise `TurnError` if it failed."""
        ...

    async def close(self) -> None:
        """Release what the turn has opened; its events are closed already."""
        ...


def agent_turn(
    agent: Agent[Any, Any],
    user_input: UserInput,
    *,
    should_stop: StopSignal | Callable[[], bool] | None,
    model: Any,
    **options: Any,
) -> AgentTurn[Any]:
    """Return the turn of `Agent.stream`, which has these arguments and errors."""
    check_stop_signal(should_stop)
    arguments = RunArguments.checked(user_input, model=model, **options)
    if not isinstance(arguments.session, str):
        return AgentTurn(partial(MemoryTurn, agent, arguments), should_stop)
    acting = agent if model is None or isinstance(model, str) else agent.model_copy(update={"model": model})
    return AgentTurn(partial(StoredTurn, acting, arguments), should_stop)


def run_to_end(run: Coroutine[Any, Any, RunResult[OutputT]]) -> RunResult[OutputT]:
    """Return the result of a run: on the event loop of the current tool's turn, else on a new one."""
    turn = current_turn()
    if turn is not None and turn.children.is_open and turn.event_loop is not None:
        return asyncio.run_coroutine_threadsafe(run, turn.event_loop).result()
    return asyncio.run(run)


class AgentTurn(Generic[OutputT]):
    """A turn of an agent; it runs in the block of `async with agent.stream("…") as turn`, and ends with it.

    `async for event in turn` yields its events and the events of its child turns, `turn.text()` its text. At the end
    `turn.result` is the `RunResult`.

    The loop answers a `confirm_required` by `event.approve()` or `event.deny(reason)`, and a `question_asked` by
    `event.answer(text)`. A request that it leaves unanswered goes to the hub of a stored session, else to the terminal.
    An agent with a `confirm_gate` has the gate asked instead of the loop; if that is an `AsyncConfirmGate`, the loop
    may also answer later, until the request expires.
    """

    def __init__(
        self, source: Callable[[StopSignal], _Source], should_stop: StopSignal | Callable[[], bool] | None
    ) -> None:
        self._make_source = source
        self._should_stop = should_stop
        self._unwatch_stop: Callable[[], object] = lambda: None
        self._source: _Source | None = None
        self._events: AsyncGenerator[Event, None] | None = None
        self._first: Event | None = None
        self._seen: list[Event] = []
        self._asked: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._result: RunResult[OutputT] | None = None
        self._failure: AgenticXError | None = None
        self._stop = StopSignal()
        self._has_ended = self._is_closed = False

    async def __aenter__(self) -> AgentTurn[OutputT]:
        if self._source is not None:
            raise RuntimeError("a turn runs once; call agent.stream again for another one")
        self._loop = asyncio.get_running_loop()
        self._source = self._make_source(self._stop)
        self._unwatch_stop = watch_stop(self._should_stop, self._stop.set)
        try:
            self._events = await self._source.begin()
            self._first = await anext(self._events)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._is_closed = True
        self._unwatch_stop()
        try:
            if self._events is not None:
                await self._events.aclose()
        finally:
            if self._source is not None:
                await self._source.close()

    def __aiter__(self) -> AgentTurn[OutputT]:
        return self

    async def __anext__(self) -> Event:
        if self._events is None or self._source is None:
            raise RuntimeError("write `async with agent.stream(...) as turn:`, and iterate in that block")
        asked, self._asked = self._asked, []
        self._source.go_on(asked)
        if (event := self._first) is not None:
            self._first = None
        else:
            try:
                event = await anext(self._events)
            except StopAsyncIteration:
                await self._end()
                raise
        self._seen.append(event)
        if event.type == "confirm_required":
            request_id, digest = event.data["id"], event.data["digest"]
            self._asked.append(request_id)
            return event.answered_by(
                lambda approved, reason: self._answer(
                    request_id, digest, ConfirmAnswer(approved=approved, reason=reason)
                )
            )
        if event.type == "question_asked":
            question_id = event.data["id"]
            self._asked.append(question_id)
            return event.answered_by(lambda text: self._answer(question_id, "", QuestionAnswer(answer=text)))
        return event

    async def _end(self) -> None:
        """Make the result, once."""
        if self._has_ended or self._source is None or self._is_closed:
            return
        self._has_ended = True
        try:
            self._result = await self._source.result(self._seen)
        except AgenticXError as exc:
            self._failure = exc

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the turn's replies as it is received, with a blank line between two replies.

        Raises `TurnError` if the turn fails.
        """
        message_id: str | None = None
        async for event in self:
            if event.type != "token" or event.turn_id != self._seen[0].turn_id or not event.data["text"]:
                continue
            if message_id not in (None, event.data["message_id"]):
                yield "\n\n"
            message_id = event.data["message_id"]
            yield event.data["text"]
        _ = self.result

    @property
    def result(self) -> RunResult[OutputT]:
        """The result of the turn. Raises `TurnError` if it failed, `AgenticXError` before its end."""
        if self._result is not None:
            return self._result
        raise self._failure or AgenticXError(
            "the turn has no result before its end: iterate over all of its events first"
        )

    def stop(self) -> None:
        """End the turn: its last event is an `error` with the code `stopped`."""
        self._stop.set()

    def _answer(self, request_id: str, digest: str, answer: UserAnswer) -> None:
        if self._source is None or self._has_ended or self._is_closed:
            raise AgenticXError("the turn that asked has ended: its events are answered while its stream runs")
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if not is_here:
            raise AgenticXError(
                "an event is answered on the event loop of the stream; in another thread write "
                "loop.call_soon_threadsafe(event.approve)"
            )
        self._source.answer(request_id, digest, answer)


# --- turns in memory --------------------------------------------------------------------------------------------------


class MemoryTurn:
    """A turn in memory; inside another turn it is a child turn."""

    def __init__(self, agent: AnyAgent, arguments: RunArguments, stop: StopSignal) -> None:
        self._agent, self._arguments, self._stop = agent, arguments, stop
        self._parent = parent = find_parent_turn()
        self._settings = load_settings() if parent is None else parent.settings
        self._clock = SystemClock() if parent is None else parent.clock
        self._models = Models(None, self._settings)
        limit = self._clock.real(self._settings.hook_timeout_seconds)
        self._agents = RunAgents(self._model_of, HookRegistry(limit=limit))
        self._session = arguments.session if isinstance(arguments.session, Session) else Session()
        if parent is not None and arguments.session is None:
            self._session.inherit(parent.session, parent.permissions.mode)
        self._before = {message.message_id for message in self._session.all_messages}
        self._gate: LoopGate | None = None
        outer = None if parent is None else parent.permissions.gate
        if outer is None or not outer.is_given:
            self._gate = LoopGate(outer if isinstance(outer, LoopGate) else None)

    def _model_of(self, agent: AnyAgent) -> Any:
        if self._arguments.model is not None:
            return self._models.resolve(self._arguments.model)
        if self._parent is not None:
            return self._parent.agents.model_of(agent)
        return self._models.of(self._agent if agent.model is None else agent)

    async def begin(self) -> AsyncGenerator[Event, None]:
        arguments, session, settings = self._arguments, self._session, self._settings
        acting = await self._agents.prepare_handoff(self._agent)
        if (sampling := arguments.sampling) is not None:
            check_sampling(acting.model, sampling)
            acting = replace(acting, sampling=acting.sampling.updated(sampling))
        parent = self._parent
        check_deps(acting.tools, parent.deps if arguments.deps is None and parent is not None else arguments.deps)
        await wait_for_abandoned_turn(session)
        session.check_free()
        session.state.context_variables.update(arguments.context_variables)
        limit = settings.max_tool_rounds if "max_tool_rounds" in settings.model_fields_set else acting.max_rounds
        context = TurnContext(
            agent=acting,
            agents=self._agents,
            parent=self._parent,
            gate=self._gate,
            deps=arguments.deps,
            max_rounds=limit,
            on_exhausted=settings.on_exhausted,
        )
        runtime = AgentRuntime(acting.model, settings=settings, clock=self._clock)
        return runtime.run_turn(arguments.message, session, self._stop, output_type=arguments.output, context=context)

    def go_on(self, request_ids: Sequence[str]) -> None:
        if self._gate is not None:
            self._gate.go_on(request_ids)

    def answer(self, request_id: str, digest: str, answer: UserAnswer) -> None:
        if self._gate is not None and self._gate.give(request_id, answer):
            return
        for gate in self._other_gates():
            if isinstance(gate, AsyncConfirmGate) and any(one.id == request_id for one in gate.pending_requests()):
                gate.decide(request_id, answer)
                return
        kind = kind_of(answer)
        raise kind.closed(
            f"{kind.name} {request_id!r} does not wait for the loop: it was answered or has expired, the loop went on "
            "without an answer, or a confirm_gate of its agent decides"
        )

    def _other_gates(self) -> Iterator[object]:
        """Yield the gates of the agents that have acted, then the gates of the parent turns."""
        yield from (agent.confirm_gate for agent in [self._agent, *self._agents.taken_over])
        for turn in () if self._parent is None else self._parent.lineage:
            yield from (turn.permissions.gate, turn.permissions.turn_gate)

    async def result(self, events: Sequence[Event]) -> RunResult[Any]:
        session = self._session
        added = [message for message in session.all_messages if message.message_id not in self._before]
        agent, variables = self._agents.active or self._agent, session.state.context_variables
        return run_result(events, added, self._arguments.output, agent=agent, context_variables=variables)

    async def close(self) -> None:
        for model in self._models:
            await close_model(model)


# --- turns of stored sessions -----------------------------------------------------------------------------------------


class StoredTurn:
    """A turn of a session that an open hub stores; the hub is the gate of an agent without one of its own."""

    def __init__(self, agent: AnyAgent, arguments: RunArguments, stop: StopSignal) -> None:
        self._agent, self._arguments, self._stop = agent, arguments, stop
        self._tasks = set[asyncio.Task[None]]()
        self._hub: OpenHub | None = None
        self._unwatch: Callable[[], object] = lambda: None

    async def begin(self) -> AsyncGenerator[Event, None]:
        from agenticx.sessions.hub.open_hubs import hub_of  # on first use: it imports the stores

        self._hub = hub = await hub_of(self._session_id)
        return self._read(hub)

    @property
    def _session_id(self) -> str:
        assert isinstance(self._arguments.session, str)
        return self._arguments.session

    async def _read(self, hub: OpenHub) -> AsyncGenerator[Event, None]:
        arguments = self._arguments
        events = hub.run_turn(
            self._session_id,
            arguments.message,
            agent=self._agent,
            deps=arguments.deps,
            context_variables=arguments.context_variables,
            model=arguments.model if isinstance(arguments.model, str) else None,  # an object is the agent's own here
            output_type=arguments.output,
            sampling=arguments.sampling,
        )
        beginning, has_ended = asyncio.create_task(anext(events, None), name="agx turn"), False
        try:
            await asyncio.wait({beginning})  # not cancelled with the consumer: the message may be stored already
            event = beginning.result()
            if event is not None:
                turn_id = event.turn_id
                assert turn_id is not None
                self._unwatch = self._stop.watch(lambda: self._run(self._stop_turn(hub, turn_id)))
                while event is not None:
                    has_ended = event.terminal and event.turn_id == turn_id
                    yield event
                    event = await self._next(events)
        finally:
            if not has_ended:
                await self._end(hub, beginning)
            await events.aclose()

    async def _end(self, hub: OpenHub, beginning: asyncio.Task[Event | None]) -> None:
        """End the turn that the consumer leaves, and wait for its end; another cancellation ends the wait."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.wait({beginning})
                first = None if beginning.exception() is not None else beginning.result()
                turn_id = None if first is None else first.turn_id
                if turn_id is not None and await self._stop_turn(hub, turn_id):
                    await hub.wait_for_turn(self._session_id, turn_id)
        except TimeoutError:
            _log.warning("a turn that was left has not ended yet", session_id=self._session_id, seconds=_END_SECONDS)
        finally:
            await cancel_and_wait(beginning)

    async def _stop_turn(self, hub: OpenHub, turn_id: str) -> bool:
        """Request the end of the turn; return False if the session does not run it any more."""
        if hub.running_turn_id(self._session_id) != turn_id:
            return False
        await hub.stop(self._session_id)
        return True

    async def _next(self, events: AsyncGenerator[Event, None]) -> Event | None:
        """Return the next event, None at the end; raise the error of an answer that was given."""
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while not coming.done():
                await asyncio.wait({coming, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                done = {task for task in self._tasks if task.done()}
                self._tasks -= done
                await asyncio.gather(*done)
            return await coming
        finally:
            await cancel_and_wait(coming)

    def go_on(self, request_ids: Sequence[str]) -> None:
        return None

    def answer(self, request_id: str, digest: str, answer: UserAnswer) -> None:
        """Answer a request in a task; the next event comes, or its error is raised, once that is done."""
        assert self._hub is not None
        self._run(self._hub.answer(request_id, answer, digest=digest))

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._tasks.add(asyncio.create_task(work, name=f"agx answer {self._session_id}"))

    async def result(self, events: Sequence[Event]) -> RunResult[Any]:
        assert self._hub is not None
        return await self._hub.turn_result(self._session_id, events, self._arguments.output, agent=self._agent)

    async def close(self) -> None:
        self._unwatch()
        if self._tasks:
            await asyncio.wait(self._tasks)


# --- the gate of a loop -----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Asked:
    """A request to the user that waits for the loops that have not gone on yet."""

    answer: asyncio.Future[Any]
    loops: set[LoopGate]


class LoopGate(DefaultConfirmGate):
    """The gate of a stream whose agent has none: the loop that iterates over the stream may answer.

    A stream in a tool asks the loop of the stream `outside` too. When all loops have gone on without an answer, the
    terminal is asked, as without a gate.
    """

    def __init__(self, outside: LoopGate | None) -> None:
        super().__init__()
        self._outside = outside
        self._asked: dict[str, _Asked] = {}

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        answer: ConfirmAnswer | None = await self._ask_loops(request.id, announce)
        return await super().ask(request, announce) if answer is None else answer

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        answer: QuestionAnswer | None = await self._ask_loops(request.id, announce)
        return await super().ask_question(request, announce) if answer is None else answer

    async def _ask_loops(self, request_id: str, announce: Callable[[], None]) -> Any:
        """Return the answer of the first loop that answers, None if all have gone on."""
        gates, outside = list[LoopGate]([self]), self._outside
        while outside is not None:
            gates.append(outside)
            outside = outside._outside
        asked = _Asked(asyncio.get_running_loop().create_future(), set(gates))
        for gate in gates:
            gate._asked[request_id] = asked
        try:
            announce()
            return await asked.answer
        finally:
            for gate in gates:
                del gate._asked[request_id]

    def go_on(self, request_ids: Sequence[str]) -> None:
        """Take note that the loop has seen these requests and goes on."""
        for request_id in request_ids:
            if (asked := self._asked.get(request_id)) is not None:
                asked.loops.discard(self)
                if not asked.loops and not asked.answer.done():
                    asked.answer.set_result(None)

    def give(self, request_id: str, answer: UserAnswer) -> bool:
        """Answer a request; return False if it does not wait for the loop."""
        asked = self._asked.get(request_id)
        if asked is None or asked.answer.done():
            return False
        asked.answer.set_result(answer)
        return True
