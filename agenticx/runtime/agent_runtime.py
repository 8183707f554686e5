"""The think-act loop: one user message becomes a stream of typed events with one terminal event.

    write_turn                  passes the events to a sink in batches; run_turn, the only async generator, yields them
    └── _run (in a TurnTask)   every failure becomes the turn's terminal event (endings)
        └── _turn       the loop, on one screen
            ├── prepare    sanitize, compact, before_model (model_request)
            ├── _think     call the model within its time limits (model_call), after_model
            ├── _act       run the calls (calls.tool_calls), watch for loops
            ├── _finish    no calls: the answer
            └── _end_out_of_rounds  another call without tools, or an ending (AGX_ON_EXHAUSTED)

The steps are coroutines that return values and emit events through `turn.emit`; none of them is a generator. A step has
a result, and an async generator cannot return one; a time-out around a `yield` stays active while the consumer's code
runs and may cancel that instead (PEP 789); and tools that run concurrently need a channel for their events anyway.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agenticx.argument_types import check_int, check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, ModelError
from agenticx.llms.base import ChatModel, ModelRequest, Reply, ToolSchema, close_model, inline_forms
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.openai_rows import user_message
from agenticx.llms.sampling import NO_SAMPLING, Sampling, check_sampling
from agenticx.logs import get_logger
from agenticx.messages import MAIN_AGENT, Message, ToolCall
from agenticx.runtime.budgets.budget import settings_budget
from agenticx.runtime.calls.asking import close_resumed
from agenticx.runtime.calls.inline import read_inline_calls
from agenticx.runtime.calls.loop_check import check_for_loop
from agenticx.runtime.calls.tool_calls import ToolCalls
from agenticx.runtime.channel import EventSink
from agenticx.runtime.child_turns import TurnSuspended
from agenticx.runtime.compactor import ContextCompactor
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.endings import Endings
from agenticx.runtime.events import Event, EventType
from agenticx.runtime.gates.base import ConfirmGate, GateFunction, checked_gate
from agenticx.runtime.gates.terminal import DefaultConfirmGate
from agenticx.runtime.history_sizes import message_count_size
from agenticx.runtime.hooks import AgentHook, HookRegistry
from agenticx.runtime.interrupts import Interrupts, StopSignal, TurnInterrupted, check_stop_signal
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.model_call import call_model
from agenticx.runtime.model_request import RequestBuilder
from agenticx.runtime.partial_answer import answer_from_results
from agenticx.runtime.refused_files import record_refused_files
from agenticx.runtime.resume import ResumePoint
from agenticx.runtime.run_results import RunMethods, UserInput
from agenticx.runtime.session import Session, checked_session, runnable_session
from agenticx.runtime.structured_output import TurnOutput
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import AgentDefinition, TurnAgent, TurnAgents
from agenticx.runtime.turn_context import TurnContext, TurnWork, WorkResult
from agenticx.runtime.turn_task import TurnTask, begin_turn, wait_for_abandoned_turn
from agenticx.settings import Settings, load_settings
from agenticx.threads import run_sized
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["AgentRuntime"]

_DEFAULT_TOOL_ROUNDS = 10

_log = get_logger(__name__)


@explain_calls
class AgentRuntime(RunMethods):
    """The engine that runs turns. It holds only collaborators, so one runtime can serve many sessions at once.

    - `llm` is the name of a model (`"demo"`, `"openai:gpt-4o"`), a `ChatModel` such as `resolve_model(name, api_key=…)`
      returns, or a duck-typed model of another library with `stream_with_tools`, `stream` or `invoke`.
    - `confirm_gate` is asked before calls that write or execute, or whose risk is not declared: a `ConfirmGate`, or a
      function of the request (`ConfirmRequest`) that returns True, False or a `ConfirmAnswer`. Without a gate the user
      is asked at the terminal, and without a terminal the call is denied; a function that declares no risk runs unasked
      then, as the application's own code.
    - `tools` and `system_prompt` are the defaults of all turns.
    - `sampling` applies to all turns; `UnsupportedSampling` is raised if the model does not take it.
    - Other arguments default to `settings`, by default read from `AGX_*` variables and the settings files
      (`SettingsError` if they are not valid). If these do not set `max_tool_rounds`, it is 10 here, 30 in the studio
      and on the command line.
    """

    def __init__(
        self,
        llm: Any,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        *,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox = (),
        system_prompt: str | None = None,
        sampling: Sampling | None = None,
        max_tool_rounds: int | None = None,
        loop_warning_threshold: int = 4,
        loop_critical_threshold: int = 8,
        hooks: HookRegistry | Sequence[AgentHook] | None = None,
        compactor: ContextCompactor | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check_arguments(system_prompt, max_tool_rounds, compactor, settings)
        self._settings = settings or load_settings()
        self._clock = clock or SystemClock()
        self._model = _resolve(llm, self._settings) if isinstance(llm, str) else adapt(llm)
        self._models_by_name: dict[str, ChatModel] = {}  # of agents that tools returned
        self._max_rounds = max_tool_rounds or _max_tool_rounds(self._settings)
        self._turn_seconds = self._clock.real(self._settings.turn_timeout_seconds)
        self._loop_thresholds = (loop_warning_threshold, loop_critical_threshold)
        LoopDetector(*self._loop_thresholds)  # raises for invalid thresholds here rather than in the first turn
        hook_limit = self._clock.real(self._settings.hook_timeout_seconds)
        self.agent = TurnAgent(
            name=MAIN_AGENT,
            model=self._model,
            tools=tools if isinstance(tools, Toolbox) else Toolbox(tools),
            hooks=HookRegistry.from_hooks(hooks).with_default_limit(hook_limit),
            system_prompt=system_prompt,
            sampling=NO_SAMPLING if sampling is None else self._checked_sampling(sampling),
        )
        self._compactor = compactor or ContextCompactor(
            threshold_messages=self._settings.compaction_threshold_messages,
            threshold_chars=self._settings.compaction_threshold_chars,
            retain_recent_messages=self._settings.compaction_retain_messages,
            timeout=self._settings.compaction_timeout_seconds,
            prune_tool_result_chars=self._settings.prune_tool_result_chars,
            clock=self._clock,
        )
        self._clocks = ModelClocks.from_settings(self._settings)
        self._request_builder = RequestBuilder(compactor=self._compactor, clocks=self._clocks)
        self._endings = Endings(clock=self._clock)
        self._gate = checked_gate(confirm_gate) or DefaultConfirmGate()
        self._calls = ToolCalls(settings=self._settings, clock=self._clock)

    async def run_turn(
        self,
        user_input: UserInput,
        session: Session | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
        *,
        agent_id: str = MAIN_AGENT,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None = None,
        system_prompt: str | None = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        context: TurnContext | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run one turn of `session` and yield its events, from `turn_started` to the one terminal event.

        `user_input` is text, a `UserMessage` or a dict row with role `user`. Without a `session` the turn runs in a new
        one.

        `agent_id` names the agent in the events; `meta` is the main agent, the one that the user talks to. No call runs
        before the consumer has taken its `tool_call` and asks for the next event. `context.agent` replaces the five
        arguments that describe an agent. With a `context.parent` it is a child turn (`child_turns`). The events of the
        turn's own child turns are yielded too, with a `turn_id` of their own.

        `should_stop` ends the turn within 200 ms at any await; a plain callable is polled every 50 ms. Closing the
        generator early ends the turn and everything it started. After the terminal event the generator may take up to 3
        s to end while processes are being ended. A bug of AgenticX itself is raised, not yielded.

        With an `output_type`, anything that pydantic can validate or a JSON Schema as a dict, the answer is an object
        of that type, and the `output` of `final` is its JSON value. The parameters of `sampling` replace the runtime's
        for this turn. Raises `ValueError` for a schema that is not valid, `TypeError` for a type that pydantic
        cannot validate and for an input, session, tools or sampling of another type, `UnsupportedSampling` for sampling
        that the model does not take, `AttachmentRefused` for attachments that are not accepted, `SettingsError` for a
        session whose workspace is not a folder, and `SessionBusy` while it runs another turn, all before the turn
        begins. A turn whose generator was left by a `break` is waited for, at most 3 s.
        """
        message, session = user_message(user_input), Session() if session is None else runnable_session(session)
        check_stop_signal(should_stop)
        _check_turn_arguments(agent_id, system_prompt, context)
        context = await _with_shared_history(context, session)
        turn = self._new_turn(session, tools, agent_id, system_prompt, output_type, context, sampling)
        await wait_for_abandoned_turn(session)
        calls = begin_turn(turn, message)
        running = TurnTask(turn, self._run(turn, calls), should_stop)
        try:
            while batch := await running.take():
                for event in batch:
                    yield event
            await running.join()
        finally:
            await running.close(drop_events=True)

    async def write_turn(
        self,
        turn_input: UserInput | ResumePoint,
        session: Session,
        sink: EventSink,
        should_stop: StopSignal | Callable[[], bool] | None = None,
        *,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None = None,
        system_prompt: str | None = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        context: TurnContext | None = None,
    ) -> None:
        """Run one turn as `run_turn` does, with `sink` as the consumer; no call runs before its events are written.

        A `ResumePoint` is where an interrupted turn goes on; `sink` gets its next events.

        An exception of `sink` ends the turn and is raised. A cancellation ends it too; it is raised once all events are
        written.
        """
        message = turn_input if isinstance(turn_input, ResumePoint) else user_message(turn_input)
        context = await _with_shared_history(context, checked_session(session))
        turn = self._new_turn(session, tools, MAIN_AGENT, system_prompt, output_type, context, sampling)
        if isinstance(message, ResumePoint):
            turn.resume(message)
            calls = message.calls
        else:
            turn.begin(message)
            calls = ()
        await TurnTask(turn, self._run(turn, calls), should_stop).write_to(sink)

    def ended_turn(
        self,
        session: Session,
        *,
        agent_path: Sequence[str] = (MAIN_AGENT,),
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None = None,
        context: TurnContext | None = None,
    ) -> Turn:
        """Return an ended turn, for example of an earlier process, as the parent of detached child turns.

        `agent_path` has the agents from the root turn to this one. Its id, gate, budget, permission mode and
        `child_turns` are those of the `context`.
        """
        *ancestors, agent_id = agent_path
        context = context or TurnContext()
        if ancestors:
            parent = self.ended_turn(session, agent_path=ancestors, tools=tools, context=replace(context, turn_id=None))
            context = replace(context, parent=parent, budget=None)
        turn = self._new_turn(session, tools, agent_id, None, None, context)
        turn.children.close()
        return turn

    @property
    def settings(self) -> Settings:
        """The settings of its turns."""
        return self._settings

    async def aclose(self) -> None:
        """Close the connections of its models on the running event loop."""
        for model in (self._model, *self._models_by_name.values()):
            await close_model(model)

    def _new_turn(
        self,
        session: Session,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None,
        agent_id: str,
        system_prompt: str | None,
        output_type: Any,
        context: TurnContext,
        sampling: Sampling | None = None,
    ) -> Turn:
        agent = context.agent or self._agent_with(agent_id, tools, system_prompt, sampling, context.shares_history)
        if context.parent is not None and agent.name == MAIN_AGENT:
            raise ValueError(f"a child turn needs an agent_id of its own; {MAIN_AGENT!r} is the main agent")
        if context.parent is not None and agent.organization_id is None:
            agent = replace(agent, organization_id=context.parent.agent.organization_id)
        if context.parent is None and context.budget is None:
            context = replace(context, budget=settings_budget(self._settings))
        output_type = agent.output_type if output_type is None else output_type
        return Turn(
            session=session,
            agent=agent,
            output=TurnOutput(output_type, agent.model, agent.tools.names),
            max_rounds=min(context.max_rounds or self._max_rounds, agent.max_rounds or sys.maxsize),
            on_exhausted=context.on_exhausted or ("pause" if agent.name != MAIN_AGENT else self._settings.on_exhausted),
            clock=self._clock,
            loop_detector=self._new_loop_detector(session),
            interrupts=Interrupts(self._seconds_of(context)),
            settings=self._settings,
            gate=context.gate or (self._gate if context.parent is None else context.parent.permissions.gate),
            agents=context.agents or TurnAgents(partial(self._model_of, agent, context.parent), self.agent.hooks),
            context=context,
        )

    def _seconds_of(self, context: TurnContext) -> float:
        """Return the longest time of a turn, in real seconds; 0 for no limit."""
        return self._turn_seconds if context.turn_seconds is None else self._clock.real(context.turn_seconds)

    def _agent_with(
        self,
        name: str,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None,
        system_prompt: str | None,
        sampling: Sampling | None,
        shares_history: bool,
    ) -> TurnAgent:
        """Return the runtime's agent with this name and the arguments that are not None."""
        agent = self.agent
        return replace(
            agent,
            name=name,
            tools=agent.tools if tools is None else tools if isinstance(tools, Toolbox) else Toolbox(tools),
            system_prompt=agent.system_prompt if system_prompt is None else system_prompt,
            sampling=agent.sampling if sampling is None else agent.sampling.updated(self._checked_sampling(sampling)),
            shares_history=shares_history,
        )

    def _model_of(self, acting: TurnAgent, parent: Turn | None, agent: AgentDefinition[Any, Any]) -> ChatModel:
        """Return the model of an agent that a tool returned, by default the `acting` agent's.

        The parent turn, if there is one, resolves a name.
        """
        if agent.model is None:
            return acting.model
        if parent is not None:
            return parent.agents.model_of(agent)
        if not isinstance(agent.model, str):
            return adapt(agent.model)
        if agent.model not in self._models_by_name:
            self._models_by_name[agent.model] = _resolve(agent.model, self._settings)
        return self._models_by_name[agent.model]

    def _checked_sampling(self, sampling: Sampling) -> Sampling:
        """Return `sampling`; raise `TypeError`, or `UnsupportedSampling` if the model does not take it."""
        check_type("sampling", sampling, Sampling, "a Sampling")
        check_sampling(self._model, sampling)
        return sampling

    def _new_loop_detector(self, session: Session) -> LoopDetector:
        plan, detector = session.state.plan, LoopDetector(*self._loop_thresholds)
        detector.record_state(*plan)
        detector.record_variables(session.state.context_variables)
        return detector

    async def _run(self, turn: Turn, calls: Sequence[ToolCall]) -> None:
        """Run the turn and emit the terminal event of every failure.

        An exception that is not translated here is a bug and propagates.
        """
        try:
            await self._interruptible(turn, calls)
        except TurnSuspended:
            raise  # it has no end: it goes on after the next start
        except AgenticXError as failure:
            await self._endings.failed(turn, failure)
        finally:
            turn.steering.close()
            if turn.context.agents is None and turn.session.active_agent == turn.agent_id:
                turn.session.active_agent = None  # the next turn could not find that agent by its name
            turn.session.end_turn(turn)

    async def _interruptible(self, turn: Turn, calls: Sequence[ToolCall]) -> None:
        """Run the loop under the stop signal and the turn's time-out.

        A partial answer after the time-out has the same limit again.
        """
        turn.artifact_events.drop_previews()  # of an earlier process; the calls show their files again
        if turn.interrupts.fired:
            self._calls.cancel(turn, calls)
        try:
            async with turn.interrupts:
                if calls:
                    await check_for_loop(turn, calls, await self._calls.resume(turn, calls))
                await self._turn(turn)
        except TurnInterrupted as exc:
            if exc.reason != "timeout.turn" or turn.on_exhausted != "partial":
                raise
            try:
                async with turn.renew_interrupts(self._seconds_of(turn.context)):
                    await self._partial_answer(turn)
            except TurnInterrupted as again:
                if again.reason != "timeout.turn":
                    raise
                async with turn.renew_interrupts():
                    await self._answer_from_results(turn, again)

    # --- the turn on one screen ---------------------------------------------------------------------------------------

    async def _turn(self, turn: Turn) -> None:
        if (work := turn.context.work) is not None:
            return await self._endings.work_done(turn, await self._done_work(turn, work))
        if turn.context.notes is not None and turn.round == 0:
            await turn.context.notes.begin(turn.session, turn.agent.model.context_window)
        while turn.round < turn.max_rounds:
            await self._append_steering(turn)
            turn.round += 1
            turn.emit(EventType.ROUND_START, {"round": turn.round, "max_rounds": turn.max_rounds})
            request = await self._request_builder.prepare(turn)
            reply, message_id = await self._think(turn, request)
            calls = self._usable_calls(turn, reply)
            if calls is None:
                self._remind_of_tools(turn, reply, message_id)
            elif calls:
                if not (turn.context.execute_tools or turn.output.is_submitted_by(calls)):
                    return await self._finish(turn, reply, message_id, calls)
                await self._act(turn, reply, message_id, calls)
            elif turn.output.is_requested and (problem := await self._submit_text(turn, reply)):
                self._request_correction(turn, reply, message_id, problem)
            elif turn.has_steering:
                turn.history.append_reply(reply, message_id)
            else:
                return await self._finish(turn, reply, message_id)
            turn.output.check_attempts()
            if turn.output.is_complete or turn.change.ending is not None:
                return await self._endings.ended_by_call(turn, reply.text, message_id)
            turn.apply_handoff()
            self._endings.checkpoint(turn)
        await self._end_out_of_rounds(turn)

    async def _append_steering(self, turn: Turn) -> None:
        """Append the messages sent since the last model call, with the notes that they name."""
        messages = await turn.append_steering()
        if (notes := turn.context.notes) is not None:
            for message in messages:
                await notes.pin(turn.session, message, turn.agent.model.context_window)

    async def _done_work(self, turn: Turn, work: TurnWork) -> WorkResult:
        """Return the result of `work`; close the requests of an earlier process that it has not asked again."""
        try:
            result = await work(turn)
            return WorkResult(result) if isinstance(result, str) else result
        finally:
            close_resumed(turn, "restart")

    async def _think(self, turn: Turn, request: ModelRequest) -> tuple[Reply, str]:
        reply, message_id = await self._call(turn, request)
        turn.last_text = reply.text
        if "after_model" in turn.agent.hooks.overridden:
            try:
                await turn.agent.hooks.run_after_model(reply, turn.hook_context(), turn.report_hook_failure)
            except asyncio.CancelledError:  # its calls will not run, but text that was streamed stays in the history
                turn.history.append_reply(replace(reply, provider_state=None), message_id)
                raise
        if request.tools and not reply.tool_calls and reply.stop == "end":
            reply = await self._with_inline_calls(turn, reply, request.tools)
        return reply, message_id

    async def _with_inline_calls(self, turn: Turn, reply: Reply, tools: Sequence[ToolSchema]) -> Reply:
        """Return the reply with the calls that its model wrote into the text, if any."""
        forms = inline_forms(turn.agent.model, turn.answering_model)
        text, calls = await read_inline_calls(reply.text, tools, forms)
        if not calls:
            return reply
        named = tuple(call.model_copy(update={"id": turn.session.assign_call_id("")}) for call in calls)
        return replace(reply, text=text, tool_calls=named)

    async def _call(self, turn: Turn, request: ModelRequest) -> tuple[Reply, str]:
        """Call the model; record the files that it refuses, which later requests leave out."""
        try:
            return await self._call_or_shorten(turn, request)
        except ModelError as error:
            record_refused_files(turn, error)
            raise

    async def _call_or_shorten(self, turn: Turn, request: ModelRequest) -> tuple[Reply, str]:
        """Call the model; if it finds the history too long, shorten it and call again, at most twice."""
        for to_request in (False, True):
            try:
                return await call_model(turn, turn.agent.model, request, self._clocks)
            except ModelError as exc:
                if exc.code != "context_overflow" or turn.overflowed_in_reply:
                    raise
                shorter = await self._request_builder.prepare_shortened(turn, request, to_request=to_request)
                if shorter is None:
                    raise
            request = shorter
        return await call_model(turn, turn.agent.model, request, self._clocks)

    async def _act(self, turn: Turn, reply: Reply, message_id: str, calls: Sequence[ToolCall]) -> None:
        turn.history.append_reply(reply, message_id, calls)
        turn.calling_replies.add(message_id)
        outcomes = await self._calls.run(turn, calls, cut=not reply.is_whole)
        await check_for_loop(turn, calls, outcomes)

    async def _submit_text(self, turn: Turn, reply: Reply) -> str | None:
        """Submit a reply without calls as the requested object; return its problem, None if it can be the answer."""
        return await run_sized(turn.output.submit_text, reply, size=len(reply.text), name="agx output")

    def _request_correction(self, turn: Turn, reply: Reply, message_id: str, problem: str) -> None:
        """Append a reply that is not the requested object, and a reminder that tells the model why."""
        turn.history.append_reply(reply, message_id)
        turn.history.append_reminder(problem)

    async def _finish(self, turn: Turn, reply: Reply, message_id: str, calls: Sequence[ToolCall] = ()) -> None:
        """End the turn with a reply: the answer, or `calls` for the application to run."""
        turn.steering.close()
        turn.history.append_reply(reply, message_id, calls)
        reason = "answer" if reply.is_whole else "partial"
        if turn.agent.endings_by_text:
            reason = turn.agent.ending_of(reply.text) or reason
        await self._endings.final(turn, reply.text, message_id, reason)

    async def _end_out_of_rounds(self, turn: Turn) -> None:
        if turn.on_exhausted == "partial":
            return await self._partial_answer(turn)
        if turn.on_exhausted != "answer":
            return await self._endings.out_of_rounds(turn)
        turn.drop_tools()
        await self._turn(turn)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _usable_calls(self, turn: Turn, reply: Reply) -> Sequence[ToolCall] | None:
        """Return the calls that name a tool; empty if the model made none, None if none of its calls is usable.

        If a reply stopped for calls and has neither calls nor text, the provider could not read the call.
        """
        usable = [call for call in reply.tool_calls if call.name.strip().lower() not in {"", "none"}]
        made_calls = reply.tool_calls or (reply.stop == "tool_calls" and not reply.text)
        return usable if usable or not made_calls else None

    def _remind_of_tools(self, turn: Turn, reply: Reply, message_id: str) -> None:
        """Remind the model of its tools after a call that names no tool or cannot be read.

        Raises `ModelError` the second time in a turn.
        """
        if turn.reminded_of_tools:
            raise ModelError(
                "the model keeps making calls that name no tool or cannot be read", code="provider.bad_reply"
            )
        turn.reminded_of_tools = True
        turn.history.append_reply(reply, message_id)
        tool_names = ", ".join([*turn.agent.tools.names, *turn.output.tool_names]) or "none; answer in text"
        turn.history.append_reminder(f"Your last call named no tool or could not be read. The tools are: {tool_names}.")

    async def _partial_answer(self, turn: Turn) -> None:
        """Make one more model call, without tools, for an answer from the results so far."""
        text = "You are out of rounds or time. Without calling tools, say what you found and what is missing."
        turn.history.append_reminder(text)
        request = replace(await self._request_builder.prepare(turn), tools=(), tool_choice="none", output_schema=None)
        try:
            reply, message_id = await self._think(turn, request)
        except ModelError as failure:
            return await self._answer_from_results(turn, failure)
        turn.history.append_reply(reply, message_id)
        if not reply.text.strip() and (text := self._results_as_answer(turn)):
            return await self._endings.partial_answer(turn, text)
        await self._endings.final(turn, reply.text, message_id, "partial")

    async def _answer_from_results(self, turn: Turn, failure: AgenticXError) -> None:
        """End the turn with an answer made of the results so far; raise `failure` if there are none."""
        if not (text := self._results_as_answer(turn)):
            raise failure
        _log.warning("a partial answer was made from the results, without the model", reason=str(failure))
        await self._endings.partial_answer(turn, text)

    def _results_as_answer(self, turn: Turn) -> str:
        return answer_from_results(turn.history.own_messages(), turn.session.state.passages)


async def _with_shared_history(context: TurnContext | None, session: Session) -> TurnContext:
    """Return the context, with `shares_history` if replies of the history name agents that were handed off to."""
    context, messages = context or TurnContext(), session.messages
    if context.shares_history or context.agent is not None:
        return context
    has_senders = await run_sized(_have_senders, messages, size=message_count_size(messages), name="agx history")
    return replace(context, shares_history=True) if has_senders else context


def _have_senders(messages: Sequence[Message]) -> bool:
    return any(message.sender for message in messages if message.role == "assistant")


def _resolve(name: str, settings: Settings) -> ChatModel:
    from agenticx.llms.assembly import resolve_model  # on first use: it imports the HTTP client

    return resolve_model(name, settings=settings)


def _check_arguments(system_prompt: object, max_tool_rounds: int | None, compactor: object, settings: object) -> None:
    if max_tool_rounds is not None:
        check_int("max_tool_rounds", max_tool_rounds)
        if max_tool_rounds < 1:
            raise ValueError(f"max_tool_rounds must be at least 1, not {max_tool_rounds}")
    check_type("system_prompt", system_prompt, (str, type(None)), "a str")
    check_type("compactor", compactor, (ContextCompactor, type(None)), "a ContextCompactor")
    check_type("settings", settings, (Settings, type(None)), "Settings, as load_settings returns them")


def _check_turn_arguments(agent_id: object, system_prompt: object, context: object) -> None:
    """Raise `TypeError` for an argument of another type."""
    check_str("agent_id", agent_id)
    check_type("system_prompt", system_prompt, (str, type(None)), "a str")
    check_type("context", context, (TurnContext, type(None)), "a TurnContext")


def _max_tool_rounds(settings: Settings) -> int:
    """Return the configured number of rounds, or the default of a bare runtime if none is configured."""
    return settings.max_tool_rounds if "max_tool_rounds" in settings.model_fields_set else _DEFAULT_TOOL_ROUNDS
