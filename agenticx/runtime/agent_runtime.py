"""The think-act loop: one user message becomes a stream of typed events that ends in exactly one terminal event.

    run_turn            the edge: the one async generator; drains a channel and cleans up
    └── _run            every way a turn can end, translated into its terminal event
        └── _turn       the loop, on one screen
            ├── _prepare   compact, sanitise, before_model
            ├── _think     call the model under its clocks, after_model
            ├── _act       run the calls, watch for loops
            ├── _finish    no calls, or the one that gives the object that was asked for: the answer
            └── _exhausted out of rounds

The steps are coroutines that return values and emit events through `turn.emit`; none of them is a generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from agenticx import foreign
from agenticx.attachments import check_attachments
from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import AgenticXError, ClockExpired, HookFailed, ModelError
from agenticx.llms.base import ChatModel, ModelRequest, Reply, Usage
from agenticx.llms.duck import adapt
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, UserMessage, clean_text
from agenticx.runtime.compactor import ContextCompactor
from agenticx.runtime.confirm import ConfirmGate, SyncConfirmGate
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.runtime.hooks import AgentHook, HookRegistry
from agenticx.runtime.inline_calls import inline_calls
from agenticx.runtime.interrupts import Interrupts, StopSignal, TurnInterrupted
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.model_call import call_model
from agenticx.runtime.output import TurnOutput
from agenticx.runtime.permits import Permits
from agenticx.runtime.sanitize import sanitize
from agenticx.runtime.session import Session
from agenticx.runtime.tool_calls import CallOutcome, ToolCalls
from agenticx.runtime.turn import Turn, usage_data
from agenticx.settings import Settings, load_settings
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["AgentRuntime"]

CHECKPOINT_ROUNDS = 8
STOP_POLL_SECONDS = 0.05
STOPPED_HOOK_SECONDS = 0.1

_log = get_logger(__name__)


class AgentRuntime:
    """Runs turns. Holds only collaborators, so that one runtime can serve many sessions at once.

    `llm` is a `ChatModel` or a duck-typed model with `stream_with_tools`, `stream` or `invoke`. `confirm_gate` is asked
    before risky calls; the terminal is the default. What is not given comes from `settings`, which by default are read
    from `AGX_*` variables and the settings files (`SettingsError` if they cannot be used).
    """

    def __init__(
        self,
        llm: Any,
        confirm_gate: ConfirmGate | None = None,
        *,
        max_tool_rounds: int = 10,
        loop_warning_threshold: int = 4,
        loop_critical_threshold: int = 8,
        hooks: HookRegistry | Sequence[AgentHook] | None = None,
        compactor: ContextCompactor | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_tool_rounds < 1:
            raise ValueError(f"max_tool_rounds must be at least 1, not {max_tool_rounds}")
        self._model: ChatModel = adapt(llm)
        self._settings = settings or load_settings()
        self._clock = clock or SystemClock()
        self._max_rounds = max_tool_rounds
        self._loop_thresholds = (loop_warning_threshold, loop_critical_threshold)
        LoopDetector(*self._loop_thresholds)  # refuses bad thresholds here rather than in the first turn
        self._hooks = HookRegistry.of(hooks).bounded(self._clock.real(self._settings.hook_timeout_seconds))
        self._compactor = compactor or ContextCompactor(
            threshold_messages=self._settings.compaction_threshold_messages,
            threshold_chars=self._settings.compaction_threshold_chars,
            retain_recent_messages=self._settings.compaction_retain_messages,
            timeout=self._settings.compaction_timeout_seconds,
            prune_tool_result_chars=self._settings.prune_tool_result_chars,
            clock=self._clock,
        )
        self._clocks = ModelClocks.from_settings(self._settings)
        permits = Permits(gate=confirm_gate or SyncConfirmGate(), settings=self._settings, clock=self._clock)
        self._calls = ToolCalls(permits=permits, hooks=self._hooks, settings=self._settings, clock=self._clock)

    async def run_turn(
        self,
        user_input: str | UserMessage,
        session: Session,
        should_stop: StopSignal | Callable[[], bool] | None = None,
        *,
        agent_id: str = "meta",
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None = None,
        system_prompt: str | None = None,
        output_type: Any = None,
        client_turn_id: str | None = None,
        parent_turn_id: str | None = None,
    ) -> AsyncGenerator[RuntimeEvent, None]:
        """Run one turn of `session`; yields its events, from `turn_started` to the one terminal event.

        `should_stop` ends the turn within 200 ms at any await; a plain callable is asked every 50 ms. Closing the
        generator early ends the turn and everything it started. After the terminal event the generator may take up
        to 3 s to end while processes are being ended. A bug of AgenticX itself is raised, not yielded.

        With an `output_type` (a pydantic model, dataclass or TypedDict) the answer is an object of that type, whose
        JSON value is the `output` of `final`. Raises `TypeError` for a type that has no object to offer, and
        `AttachmentRefused` for attachments that are not let in, both before the turn begins.
        """
        message = UserMessage(content=clean_text(user_input)) if isinstance(user_input, str) else user_input
        check_attachments(message.attachments)
        turn = self._new_turn(session, tools, agent_id, system_prompt, output_type)
        started = {"input": message.content, "model": turn.model_name, "message_id": message.message_id}
        attached = [dict(attachment.summary) for attachment in message.attachments]
        optional = {"client_turn_id": client_turn_id, "parent_turn_id": parent_turn_id, "attachments": attached}
        session.begin_turn(turn)
        turn.emit(EventType.TURN_STARTED, started | {key: value for key, value in optional.items() if value})
        turn.remember(message)
        forget_stop = _watch_stop(turn, should_stop)
        task = asyncio.create_task(self._run(turn), name=f"agx turn {session.id}")
        task.add_done_callback(lambda _: turn.channel.close())
        try:
            while batch := await turn.channel.take():
                for event in batch:
                    yield event
            await task  # raises what is a bug of ours
        finally:
            forget_stop()
            await _end(task)
            session.end_turn(turn)
            await turn.finish_afterwork()

    def _new_turn(
        self,
        session: Session,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None,
        agent_id: str,
        system_prompt: str | None,
        output_type: Any,
    ) -> Turn:
        toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools or ())
        return Turn(
            session=session,
            agent_id=agent_id,
            tools=toolbox,
            output=TurnOutput(output_type, self._model, toolbox.names),
            system_prompt=system_prompt,
            model_name=self._model.name,
            max_rounds=self._max_rounds,
            clock=self._clock,
            loops=LoopDetector(*self._loop_thresholds),
            interrupts=Interrupts(self._clock.real(self._settings.turn_timeout_seconds)),
        )

    async def _run(self, turn: Turn) -> None:
        """Every ending of a turn. What is not translated here is a bug and propagates."""
        try:
            await self._interruptible(turn)
        except TurnInterrupted as exc:
            await self._fail(turn, exc.reason, str(exc))
        except ModelError as exc:
            await self._fail(turn, exc.code, str(exc), **_retry_data(exc, self._clock))
        except HookFailed as exc:
            await self._fail(turn, "hook_failed", str(exc))
        except _LoopStop as exc:
            await self._fail(turn, "loop_detected", str(exc), detector=exc.detector)
        except AgenticXError as exc:
            _log.error("the turn failed", exc_info=exc)
            await self._fail(turn, "internal", str(exc))
        finally:
            turn.session.end_turn(turn)

    async def _interruptible(self, turn: Turn) -> None:
        """The loop under the stop signal and the turn's time-out, whose end may be one last answer."""
        try:
            async with turn.interrupts:
                await self._turn(turn)
        except TurnInterrupted as exc:
            if exc.reason != "timeout.turn" or self._settings.on_exhausted != "partial":
                raise
            async with turn.renew_interrupts():
                await self._partial_answer(turn)

    # --- the turn on one screen ---------------------------------------------------------------------------------------

    async def _turn(self, turn: Turn) -> None:
        while turn.round < turn.max_rounds:
            turn.round += 1
            turn.emit(EventType.ROUND_START, {"round": turn.round, "max_rounds": turn.max_rounds})
            request = await self._prepare(turn)
            reply, message_id = await self._think(turn, request)
            calls = self._usable_calls(turn, reply)
            if calls is None:
                self._tell_about_tools(turn, reply, message_id)
            elif calls:
                await self._act(turn, reply, message_id, calls)
            elif fault := turn.output.fault(reply):
                self._ask_again(turn, reply, message_id, fault)
            else:
                return await self._finish(turn, reply, message_id)
            if turn.output.settled():
                return await self._final(turn, reply.text, message_id, "answer")
            self._checkpoint(turn)
        await self._exhausted(turn)

    async def _prepare(self, turn: Turn) -> ModelRequest:
        await self._compact(turn)
        messages = sanitize(turn.session.messages)
        if turn.system_prompt:
            messages.insert(0, SystemMessage(content=turn.system_prompt, message_id="msg_system_prompt"))
        messages = await self._hooks.run_before_model(messages, turn.hook_context)
        request = ModelRequest(
            messages=messages,
            tools=turn.tools.schemas(),
            timeout=self._clocks.request_timeout,
            attempt_seconds=self._clocks.invoke,
        )
        return turn.output.ask(request)

    async def _think(self, turn: Turn, request: ModelRequest) -> tuple[Reply, str]:
        reply, message_id = await call_model(turn, self._model, request, self._clocks)
        turn.last_text = reply.text
        try:
            await self._hooks.run_after_model(reply, turn.hook_context, turn.report)
        except asyncio.CancelledError:  # its calls are not acted upon any more, but what was shown stays
            if reply.text:
                turn.remember(_assistant_message(replace(reply, provider_state=None), message_id, ()))
            raise
        if request.tools and not reply.tool_calls and reply.stop == "end":
            reply = _with_inline_calls(turn, reply, [tool.name for tool in request.tools])
        return reply, message_id

    async def _act(self, turn: Turn, reply: Reply, message_id: str, calls: Sequence[ToolCall]) -> None:
        turn.remember(_assistant_message(reply, message_id, tuple(calls)))
        outcomes = await self._calls.run(turn, calls, cut=reply.stop == "length")
        self._watch(turn, calls, outcomes)

    def _watch(self, turn: Turn, calls: Sequence[ToolCall], outcomes: Sequence[CallOutcome]) -> None:
        """Look for a loop: a warning reminds the model behind the results, a critical one ends the turn."""
        for index, (call, outcome) in enumerate(zip(calls, outcomes, strict=True)):
            failed, beside = outcome.outcome != "ok", index > 0
            turn.loops.record_call(call.name, call.arguments, outcome.text, failed=failed, same_round=beside)
            verdict = turn.loops.check()
            if verdict is None:
                continue
            if verdict.level == "critical":
                raise _LoopStop(f"The turn was ended because {verdict.text}.", verdict.detector)
            data = {"text": f"Loop warning: {verdict.text}.", "code": "loop_warning", "fatal": False}
            turn.emit(EventType.ERROR, data | {"detector": verdict.detector})
            turn.remember(
                _reminder(f"{verdict.text}. Try something else, or answer with what you have and say what is missing.")
            )

    def _ask_again(self, turn: Turn, reply: Reply, message_id: str, fault: str) -> None:
        """The answer is not the object that was asked for: the model is told why, behind what it said."""
        if reply.text:
            turn.remember(_assistant_message(reply, message_id, ()))
        turn.remember(_reminder(fault))

    async def _finish(self, turn: Turn, reply: Reply, message_id: str) -> None:
        if reply.text:
            turn.remember(_assistant_message(reply, message_id, ()))
        await self._final(turn, reply.text, message_id, "partial" if reply.stop == "length" else "answer")

    async def _exhausted(self, turn: Turn) -> None:
        if not turn.is_meta:
            return await self._pause(turn)
        if self._settings.on_exhausted == "partial":
            return await self._partial_answer(turn)
        text = f"The turn used all of its {turn.max_rounds} rounds without coming to an answer."
        await self._fail(turn, "max_rounds", text)

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _compact(self, turn: Turn) -> None:
        messages = turn.session.messages
        counted = turn.last_input_tokens
        if len(messages) < turn.compact_again_at:
            return
        if not self._compactor.is_due(messages, self._model, input_tokens=counted):
            return
        compacted = await self._compactor.maybe_compact(messages, self._model, input_tokens=counted)
        if compacted is None:  # it gained nothing
            turn.compact_again_at = len(messages) + self._compactor.retain_recent_messages
            return
        messages[:] = compacted.messages
        turn.last_input_tokens = None
        if compacted.usage is not None:
            turn.spent(compacted.usage, turn.model_name)
        if compacted.compacted_count == 0:
            _log.info("old tool results were shortened", session=turn.session.id)
            return
        turn.emit(
            EventType.COMPACTION,
            {
                "compacted_count": compacted.compacted_count,
                "summary": compacted.summary,
                "tokens_before": compacted.tokens_before,
                "tokens_after": compacted.tokens_after,
            },
        )
        await self._hooks.run_on_compaction(
            compacted.compacted_count, compacted.summary, turn.hook_context, turn.report
        )

    def _usable_calls(self, turn: Turn, reply: Reply) -> Sequence[ToolCall] | None:
        """The calls that name something; empty if the model made none; None if it made some and none can be used.

        A reply that stopped for calls and holds neither calls nor text is one whose call the provider could not read.
        """
        usable = [call for call in reply.tool_calls if call.name.strip().lower() not in {"", "none"}]
        made_some = reply.tool_calls or (reply.stop == "tool_calls" and not reply.text)
        return usable if usable or not made_some else None

    def _tell_about_tools(self, turn: Turn, reply: Reply, message_id: str) -> None:
        """Once per turn: the model called something without a name, or in a way that nobody could read."""
        if turn.told_about_tools:
            raise ModelError(
                "the model keeps making calls that name no tool or cannot be read", code="provider.bad_reply"
            )
        turn.told_about_tools = True
        if reply.text:
            turn.remember(_assistant_message(reply, message_id, ()))
        known = ", ".join(turn.tools.names) or "none; answer in text"
        turn.remember(_reminder(f"Your last call named no tool or could not be read. The tools are: {known}."))

    def _checkpoint(self, turn: Turn) -> None:
        if not turn.is_meta and turn.round % CHECKPOINT_ROUNDS == 0:
            turn.emit(EventType.SUBAGENT_CHECKPOINT, _subagent_data(turn))

    async def _partial_answer(self, turn: Turn) -> None:
        """Seed 004's graceful ending: one more call, without tools, that says what was found."""
        turn.remember(
            _reminder("You are out of rounds or time. Without calling tools, say what you found and what is missing.")
        )
        request = replace(await self._prepare(turn), tools=(), tool_choice="none", output_schema=None)
        reply, message_id = await self._think(turn, request)
        if reply.text:
            turn.remember(_assistant_message(reply, message_id, ()))
        await self._final(turn, reply.text, message_id, "partial")

    # --- endings ------------------------------------------------------------------------------------------------------

    async def _final(self, turn: Turn, text: str, message_id: str, reason: Literal["answer", "partial"]) -> None:
        await self._say_end(turn, reason, text)
        turn.enter("done")
        data = {"text": text, "message_id": message_id, "reason": reason, "usage": usage_data(turn.usage or Usage())}
        turn.emit(EventType.FINAL, {**data, **turn.output.data})

    async def _fail(self, turn: Turn, code: str, text: str, **more: Any) -> None:
        await self._say_end(turn, code, turn.last_text)
        turn.enter("done")
        turn.emit(EventType.ERROR, {"text": text, "code": code, "fatal": True, **more})

    async def _pause(self, turn: Turn) -> None:
        await self._say_end(turn, "paused", turn.last_text)
        turn.enter("done")
        checkpoint = {
            "messages": len(turn.session.messages),
            "last_text": turn.last_text,
            "todos": [dict(row) for row in turn.session.state.todos],
        }
        turn.emit(EventType.SUBAGENT_PAUSED, {**_subagent_data(turn), "checkpoint": checkpoint})

    async def _say_end(self, turn: Turn, reason: str, text: str) -> None:
        """Run the on_agent_end hooks; a person who pressed stop waits for them 100 ms, then they go on behind."""
        work = self._hooks.run_on_agent_end(reason, text, turn.hook_context, turn.report)
        task = asyncio.create_task(work, name="agx on_agent_end")
        try:
            with suppress(TurnInterrupted):
                async with turn.renew_interrupts():
                    await asyncio.wait({task})
            await asyncio.wait({task}, timeout=STOPPED_HOOK_SECONDS)
        except asyncio.CancelledError:
            await _end(task)
            raise
        if task.done():
            return task.result()
        turn.afterwards(_joined(task))


class _LoopStop(AgenticXError):
    """The loop detector's critical verdict."""

    def __init__(self, message: str, detector: str) -> None:
        super().__init__(message)
        self.detector = detector


def _watch_stop(turn: Turn, should_stop: StopSignal | Callable[[], bool] | None) -> Callable[[], object]:
    """Have the stop signal end the turn; returns the undo."""
    if should_stop is None:
        return lambda: None
    if isinstance(should_stop, StopSignal):
        return should_stop.watch(turn.stop)
    return _StopPoll(turn, should_stop).end


class _StopPoll:
    """Asks a bare callable, which offers nothing to wait for, every 50 ms. One that raises stops the turn."""

    def __init__(self, turn: Turn, should_stop: Callable[[], bool]) -> None:
        self._turn = turn
        self._should_stop = should_stop
        self._timer: asyncio.TimerHandle | None = None
        self._ask()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        if self._wanted():
            self._turn.stop()
        else:
            self._timer = asyncio.get_running_loop().call_later(STOP_POLL_SECONDS, self._ask)

    def _wanted(self) -> bool:
        try:
            return foreign.call_now(lambda: bool(self._should_stop()), what="should_stop")
        except AgenticXError as exc:
            _log.error("should_stop failed, which counts as stop", exc_info=exc)
            return True


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the turn's task if it still runs and wait until it has cleaned up."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _joined(task: asyncio.Task[None]) -> None:
    await task


def _with_inline_calls(turn: Turn, reply: Reply, known: Sequence[str]) -> Reply:
    text, calls = inline_calls(reply.text, known)
    if not calls:
        return reply
    named = tuple(call.model_copy(update={"id": turn.session.call_id("")}) for call in calls)
    return replace(reply, text=text, tool_calls=named)


def _assistant_message(reply: Reply, message_id: str, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    return AssistantMessage(
        content=reply.text,
        reasoning=reply.reasoning,
        tool_calls=calls,
        provider_state=reply.provider_state,
        message_id=message_id,
    )


def _reminder(text: str) -> Message:
    return UserMessage(content=f"[reminder] {text[0].upper()}{text[1:]}", injected=True)


def _retry_data(exc: ModelError, clock: Clock) -> dict[str, Any]:
    if isinstance(exc, ClockExpired):
        return {"retryable": True}
    data: dict[str, Any] = {"retryable": exc.retryable}
    if exc.retry_after is not None:
        at = clock.now() + timedelta(seconds=exc.retry_after)
        data["retry_at"] = rfc3339(at)
    return data


def _subagent_data(turn: Turn) -> dict[str, Any]:
    return {"round": turn.round, "max_rounds": turn.max_rounds, "parent_agent_id": None, "depth": 0}
