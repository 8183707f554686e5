"""What the model is sent in a round: the history compacted where it is due, repaired, and passed by the hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.logs import get_logger
from agenticx.messages import SystemMessage
from agenticx.runtime.compactor import Compacted, ContextCompactor
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.events import EventType
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.sanitize import sanitize
from agenticx.runtime.turn import Turn

__all__ = ["Requests"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Makes the requests of turns; a frozen set of collaborators."""

    model: ChatModel
    compactor: ContextCompactor
    hooks: HookRegistry
    clocks: ModelClocks

    async def prepare(self, turn: Turn) -> ModelRequest:
        """The next request. Raises `HookFailed` when a before_model hook fails."""
        await self._compact(turn)
        messages = sanitize(turn.session.messages)
        if turn.system_prompt:
            messages.insert(0, SystemMessage(content=turn.system_prompt, message_id="msg_system_prompt"))
        messages = await self.hooks.run_before_model(messages, turn.hook_context)
        request = ModelRequest(
            messages=messages,
            tools=turn.tools.schemas(),
            timeout=self.clocks.request_timeout,
            attempt_seconds=self.clocks.invoke,
        )
        return turn.output.ask(request)

    async def make_room(self, turn: Turn) -> bool:
        """Compact because a provider found the history too long; once per turn, and whether that gained anything."""
        if turn.overflowed:
            return False
        turn.overflowed = True
        with self._saying_that_it_takes_time(turn):
            compacted = await self.compactor.compact(turn.session.messages, self.model)
        if compacted is not None:
            await self._take(turn, compacted)
        return compacted is not None

    async def _compact(self, turn: Turn) -> None:
        messages, counted = turn.session.messages, turn.last_input_tokens
        if len(messages) < turn.compact_again_at:
            return
        if not self.compactor.is_due(messages, self.model, input_tokens=counted):
            return
        with self._saying_that_it_takes_time(turn):
            compacted = await self.compactor.maybe_compact(messages, self.model, input_tokens=counted)
        if compacted is None:  # it gained nothing
            turn.compact_again_at = len(messages) + self.compactor.retain_recent_messages
        else:
            await self._take(turn, compacted)

    async def _take(self, turn: Turn, compacted: Compacted) -> None:
        turn.session.messages[:] = compacted.messages
        turn.last_input_tokens = None
        if compacted.usage is not None:
            turn.spent(compacted.usage, turn.model_name)
        if compacted.compacted_count == 0:
            _log.info("old tool results were shortened", session=turn.session.id)
            return
        data = {
            "compacted_count": compacted.compacted_count,
            "summary": compacted.summary,
            "tokens_before": compacted.tokens_before,
            "tokens_after": compacted.tokens_after,
        }
        turn.emit(EventType.COMPACTION, data)
        count, summary = compacted.compacted_count, compacted.summary
        await self.hooks.run_on_compaction(count, summary, turn.hook_context, turn.report)

    @contextmanager
    def _saying_that_it_takes_time(self, turn: Turn) -> Generator[None]:
        """No silent wait: a summary that takes longer than the first feedback may is said to be waited for."""
        feedback = self.clocks.first_feedback
        data = {"elapsed_seconds": feedback, "limit_seconds": self.compactor.timeout, "action": "waiting"}

        def say() -> None:
            turn.emit(EventType.STALL, {"phase": "first_chunk", **data})

        timer = asyncio.get_running_loop().call_later(turn.clock.real(feedback), say)
        try:
            yield
        finally:
            timer.cancel()
