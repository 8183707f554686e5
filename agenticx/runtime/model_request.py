"""The model request of a round: history sanitized, compacted if due, passed through the hooks.

The steps are taken in this order. Sanitizing works on a copy. A compaction that follows makes its result, built from
that copy, the session's history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agenticx.llms.base import ModelRequest
from agenticx.llms.file_refusals import without_refused_files
from agenticx.logs import get_logger
from agenticx.messages import Message, SystemMessage
from agenticx.runtime.calls_as_text import calls_of_others_as_text
from agenticx.runtime.compactor import CompactionResult, ContextCompactor
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.events import EventType
from agenticx.runtime.history_sizes import estimate_tokens, message_count_size
from agenticx.runtime.sanitizing import sanitize
from agenticx.runtime.summaries import UsageCallback
from agenticx.runtime.turn import Turn
from agenticx.threads import run_sized

__all__ = ["RequestBuilder"]

T = TypeVar("T")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBuilder:
    """The builder of model requests; a frozen set of collaborators."""

    compactor: ContextCompactor
    clocks: ModelClocks

    async def prepare(self, turn: Turn) -> ModelRequest:
        """Return the next request; raise `HookFailed` when a before_model hook fails."""
        history, is_due = await _run_by_size(self._read_history, turn, turn.session.messages)
        if is_due:
            history = await self._compact(turn, history)
        agent = turn.agent
        required = None if turn.calling_replies else agent.required_tool
        request = ModelRequest(
            messages=await self._messages(turn, history),
            tools=agent.tools.schemas(),
            tool_choice="auto" if required is None else "required",
            required_tool=required or "",
            sampling=agent.sampling,
            timeout=self.clocks.request_timeout,
            attempt_seconds=self.clocks.invoke,
            parallel_calls=agent.parallel_calls,
        )
        return turn.output.extend_request(request) if turn.output.is_requested else request

    async def prepare_shortened(self, turn: Turn, request: ModelRequest, *, to_request: bool) -> ModelRequest | None:
        """Return the same request with a compacted history, because a provider found it too long.

        With `to_request`, or if compaction does not make the history smaller, all before the current request is
        compacted and long texts after it are cut. Returns None if that does not make it smaller either.
        """
        history = await _run_by_size(sanitize, list(turn.session.messages))
        model, on_usage, compacted = turn.agent.model, _usage_recorder(turn), None
        with self._summarizing(turn):
            if not to_request and await _run_by_size(self._may_shrink, turn, history):
                compacted = await self.compactor.compact(history, model, on_usage=on_usage)
                if compacted is None:
                    turn.session.size_at_failed_compaction = await _run_by_size(self.compactor.measure, history)
            if compacted is None:
                compacted = await self.compactor.compact_to_request(history, model, on_usage=on_usage)
        if compacted is None:
            return None
        await self._apply(turn, history, compacted)
        return replace(request, messages=await self._messages(turn, compacted.messages))

    async def compact(self, turn: Turn) -> str:
        """Compact the conversation at the user's request; return a sentence about it as the turn's answer."""
        history = await _run_by_size(sanitize, list(turn.session.messages))
        model, on_usage = turn.agent.model, _usage_recorder(turn)
        with self._summarizing(turn):
            compacted = await self.compactor.compact(history, model, on_usage=on_usage)
            if compacted is None:
                compacted = await self.compactor.compact_to_request(history, model, on_usage=on_usage)
        if compacted is None:
            tokens = await _run_by_size(estimate_tokens, history)
            return f"There is nothing to compact: the conversation has about {tokens:,} tokens."
        await self._apply(turn, history, compacted)
        return (
            f"The conversation now has about {compacted.tokens_after:,} tokens instead of {compacted.tokens_before:,}."
        )

    async def _messages(self, turn: Turn, history: Sequence[Message]) -> list[Message]:
        """Return the history as it is sent to the model: the system prompt first, passed through the hooks."""
        agent = turn.agent
        messages = without_refused_files(history, agent.model.name)
        if agent.shares_history:
            tool_names = (*agent.tools.names, *turn.output.tool_names)
            messages = await _run_by_size(calls_of_others_as_text, tool_names, turn.calling_replies, messages)
        prompt = agent.system_prompt
        if prompt is not None and not isinstance(prompt, str):
            prompt = await prompt(turn.session.state.context_variables)
        if prompt:
            messages.insert(0, SystemMessage(content=prompt, message_id="msg_system_prompt"))
        if "before_model" in turn.agent.hooks.overridden:
            messages = await turn.agent.hooks.run_before_model(messages, turn.hook_context())
        return messages

    def _read_history(self, turn: Turn, messages: Sequence[Message]) -> tuple[Sequence[Message], bool]:
        """Return the messages in a valid order, and whether they are over their limits and may be made smaller."""
        history = sanitize(messages)
        due = self.compactor.is_due(history, turn.agent.model, input_tokens=turn.last_input_tokens)
        return history, due and self._may_shrink(turn, history)

    async def _compact(self, turn: Turn, history: Sequence[Message]) -> Sequence[Message]:
        """Return the valid `history`, compacted if that makes it smaller."""
        counted = turn.last_input_tokens
        with self._summarizing(turn):
            compacted = await self.compactor.maybe_compact(
                history, turn.agent.model, input_tokens=counted, on_usage=_usage_recorder(turn)
            )
        if compacted is not None:
            await self._apply(turn, history, compacted)
            return compacted.messages
        if await _run_by_size(
            self.compactor.worth_asking, history
        ):  # the model was asked, but its summary gained nothing
            turn.session.size_at_failed_compaction = await _run_by_size(self.compactor.measure, history)
        return history

    def _may_shrink(self, turn: Turn, history: Sequence[Message]) -> bool:
        """Return whether the history has changed since a summary of it gained nothing, in this or an earlier turn."""
        before = turn.session.size_at_failed_compaction
        return before is None or self.compactor.has_changed(history, before)

    async def _apply(self, turn: Turn, history: Sequence[Message], compacted: CompactionResult[Message]) -> None:
        turn.session.apply_compaction(
            history, compacted.replaced_count, compacted.messages, compacted.replacement_count
        )
        turn.session.size_at_failed_compaction = None
        turn.last_input_tokens = None
        if compacted.compacted_count == 0:
            _log.info("long texts were shortened", session=turn.session.id)
            return
        data: dict[str, Any] = {
            "compacted_count": compacted.compacted_count,
            "summary": compacted.summary,
            "tokens_before": compacted.tokens_before,
            "tokens_after": compacted.tokens_after,
        }
        if compacted.tokens_spent is not None:
            data["tokens_spent"] = compacted.tokens_spent
        turn.emit(EventType.COMPACTION, data)
        count, summary = compacted.compacted_count, compacted.summary
        await turn.agent.hooks.run_on_compaction(count, summary, turn.hook_context(), turn.report_hook_failure)

    @contextmanager
    def _summarizing(self, turn: Turn) -> Generator[None]:
        """Emit that the turn compacts, and `stall` if the body takes longer than the limit for the first feedback.

        Afterwards emit the usage of a summary that was cut, if only a budget counts it.
        """
        turn.enter("compacting")
        feedback = self.clocks.first_feedback
        data = {"elapsed_seconds": feedback, "limit_seconds": self.compactor.timeout, "action": "waiting"}

        def emit_stall() -> None:
            turn.emit(EventType.STALL, {"phase": "first_chunk", **data})

        timer = asyncio.get_running_loop().call_later(turn.clock.real(feedback), emit_stall)
        try:
            yield
        finally:
            timer.cancel()
            turn.usage.record_unreported(turn.agent.model.name)


async def _run_by_size(function: Callable[..., T], /, *args: Any) -> T:
    """Return `function(*args)`, from a thread if the last argument is a history of many messages."""
    return await run_sized(function, *args, size=message_count_size(args[-1]), name="agx history")


def _usage_recorder(turn: Turn) -> UsageCallback:
    return lambda usage: turn.usage.record(usage, turn.agent.model.name)
