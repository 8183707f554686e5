"""What the model is sent in a round: the history compacted where it is due, repaired, and passed by the hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.logs import get_logger
from agenticx.messages import Message, SystemMessage
from agenticx.runtime.compactor import Compacted, ContextCompactor, Spent
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
        request = ModelRequest(
            messages=await self._messages(turn),
            tools=turn.tools.schemas(),
            timeout=self.clocks.request_timeout,
            attempt_seconds=self.clocks.invoke,
        )
        return turn.output.ask(request)

    async def shortened(self, turn: Turn, request: ModelRequest) -> ModelRequest | None:
        """The same request with a compacted history, because a provider found it too long.

        Once per turn; None where it was done already or gains nothing.
        """
        if turn.overflowed or not self._may_gain(turn):
            return None
        turn.overflowed = True
        with self._saying_that_it_takes_time(turn):
            compacted = await self.compactor.compact(turn.session.messages, self.model, spent=_account(turn))
        if compacted is None:
            turn.session.incompressible = self.compactor.measure(turn.session.messages)
            return None
        await self._take(turn, compacted)
        return replace(request, messages=await self._messages(turn))

    async def _messages(self, turn: Turn) -> list[Message]:
        """The history as the model gets it: repaired, the system prompt first, passed by the hooks."""
        messages = sanitize(turn.session.messages)
        if turn.system_prompt:
            messages.insert(0, SystemMessage(content=turn.system_prompt, message_id="msg_system_prompt"))
        return await self.hooks.run_before_model(messages, turn.hook_context)

    async def _compact(self, turn: Turn) -> None:
        messages, counted = turn.session.messages, turn.last_input_tokens
        if not self.compactor.is_due(messages, self.model, input_tokens=counted) or not self._may_gain(turn):
            return
        with self._saying_that_it_takes_time(turn):
            compacted = await self.compactor.maybe_compact(
                messages, self.model, input_tokens=counted, spent=_account(turn)
            )
        if compacted is not None:
            await self._take(turn, compacted)
        elif self.compactor.worth_asking(messages):  # so the model was asked, in vain
            turn.session.incompressible = self.compactor.measure(messages)

    def _may_gain(self, turn: Turn) -> bool:
        """Whether the history has changed since a summary of it gained nothing, in whichever turn that was."""
        before = turn.session.incompressible
        return before is None or self.compactor.has_changed(turn.session.messages, before)

    async def _take(self, turn: Turn, compacted: Compacted) -> None:
        turn.session.messages[:] = compacted.messages
        turn.session.incompressible = None
        turn.last_input_tokens = None
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


def _account(turn: Turn) -> Spent:
    return lambda usage: turn.spent(usage, turn.model_name)
