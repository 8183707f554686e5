"""A team in which a model or a function chooses the next speaker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from agenticx import user_code
from agenticx.argument_types import check_callable, check_int, checked_text
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock
from agenticx.core.agent import Agent
from agenticx.llms.base import ChatModel, Delta, ModelRequest, ReplyBuilder, TextDelta, receive_reply
from agenticx.llms.duck_typed.model import adapt
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, SystemMessage, UserMessage
from agenticx.runtime import Budget, ConfirmGate, Session, current_turn
from agenticx.runtime.budgets.budgeted_model import BudgetedModel
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.gates.base import GateFunction
from agenticx.runtime.turn_log import LlmCallLine
from agenticx.settings import Settings, load_settings
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.agents.protocols import ChatAgent, Team
from agenticx.teams.agents.spending import current_budget, report_usage
from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.speaker_names import MAX_REPLY_CHARS, named_candidates
from agenticx.teams.group_chats.team_run import Speaking
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent, SelectorEvent
from agenticx.teams.termination.base import TerminationCondition

__all__ = ["SelectorGroupChat"]

_PROMPT = """Several roles take part in a conversation:
{roles}

The conversation so far:
{history}

Choose the next role to speak from {participants}. Answer with the name of that role and nothing else."""

_PLACEHOLDER = re.compile(r"\{(?:roles|participants|history)\}")
_HISTORY_MESSAGES = 40
_HISTORY_CHARS = 24_000
_MESSAGE_CHARS = 4_000

_log = get_logger(__name__)

SelectorFunction = Callable[[Sequence[Speaking]], str | Awaitable[str | None] | None]
CandidateFunction = Callable[[Sequence[Speaking]], Sequence[str] | Awaitable[Sequence[str]]]


@explain_calls
class SelectorGroupChat(BaseGroupChat):
    """A team in which a model chooses the next speaker by one call.

    A single candidate speaks without a call. All participants are candidates, except that nobody speaks twice in a row
    without `allow_repeated_speaker`; `candidate_func(messages)` returns the names of others. A reply that does not name
    exactly one candidate goes back to the model with what is wrong; after `max_selector_attempts` replies the previous
    speaker goes on, or the first participant begins. `selector_func(messages)` returns the name of the next speaker, or
    None to ask the model. Both functions get all messages of the team and are plain or async.

    In `selector_prompt`, `{roles}`, `{participants}` and `{history}` are replaced: names with descriptions, candidates,
    and the last 40 messages, at most 24,000 characters. Without any of the three it is the system message before the
    built-in prompt. With `emit_team_events` each fallback is a `SelectorEvent` with
    the model's words, which `speaker_selected` in the log of a session always has; with `model_client_streaming` too,
    each reply comes in chunks and is one. The other options are those of `BaseGroupChat`.
    """

    def __init__(
        self,
        participants: Sequence[ChatAgent | Team | Agent[Any, Any]],
        model_client: Any,
        termination_condition: TerminationCondition | None = None,
        selector_prompt: str | None = None,
        *,
        allow_repeated_speaker: bool = False,
        max_selector_attempts: int = 3,
        selector_func: SelectorFunction | None = None,
        candidate_func: CandidateFunction | None = None,
        model_client_streaming: bool = False,
        name: str | None = None,
        description: str | None = None,
        max_turns: int | None = None,
        runtime: MessageRuntime | None = None,
        custom_message_types: Sequence[type[BaseChatMessage | BaseAgentEvent]] | None = None,
        emit_team_events: bool = False,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        budget: Budget | None = None,
        session: Session | str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or load_settings()
        super().__init__(
            participants,
            termination_condition,
            name=name,
            description=description,
            max_turns=max_turns,
            runtime=runtime,
            custom_message_types=custom_message_types,
            emit_team_events=emit_team_events,
            confirm_gate=confirm_gate,
            budget=budget,
            session=session,
            settings=settings,
            clock=clock,
        )
        check_int("max_selector_attempts", max_selector_attempts)
        if max_selector_attempts < 1:
            raise ValueError(f"max_selector_attempts must be at least 1, not {max_selector_attempts}")
        self._model = _resolved(model_client, settings)
        self._limit = self._clock.real(settings.llm_hard_timeout_seconds)
        self._prompt = checked_text("selector_prompt", selector_prompt, _PROMPT)
        self._repeats = allow_repeated_speaker
        self._attempts = max_selector_attempts
        for option, function in {"selector_func": selector_func, "candidate_func": candidate_func}.items():
            if function is not None:
                check_callable(option, function, "a function of the messages")
        self._selector = selector_func
        self._candidates = candidate_func
        self._streams = model_client_streaming and self._emits_events

    async def _select_speaker(self, messages: Sequence[Speaking]) -> str:
        """Return the next speaker; raises `TeamError` if a function returns no name, and what a model call raises."""
        if self._selector is not None:
            chosen: object = await self._call(self._selector, messages, "selector_func")
            if chosen is not None:
                return self._checked_name(chosen, "selector_func")
        candidates = await self._next_candidates(messages)
        return candidates[0] if len(candidates) == 1 else await self._ask(candidates)

    async def _next_candidates(self, messages: Sequence[Speaking]) -> Sequence[str]:
        if self._candidates is not None:
            names: object = await self._call(self._candidates, messages, "candidate_func")
            if not isinstance(names, list | tuple) or not names:
                raise TeamError(f"candidate_func returned {names!r}; right would be a list of names, at least one")
            checked = [self._checked_name(name, "candidate_func") for name in cast("Sequence[object]", names)]
            return list(dict.fromkeys(checked))
        others = [name for name in self._members if self._repeats or name != self._transcript.speaker]
        return others or [*self._members]

    async def _ask(self, candidates: Sequence[str]) -> str:
        """Return the candidate that the model names, else the previous speaker or the first participant."""
        messages: list[Message] = [*self._question(candidates)]
        text = ""
        for _ in range(self._attempts):
            text = await self._reply(messages)
            named = named_candidates(text, candidates)
            if len(named) == 1:
                return named[0]
            choice = f"Choose one of {', '.join(candidates)}, and answer with its name and nothing else."
            problem = f"Your answer {self._problem(named, text)}. {choice}"
            messages += [AssistantMessage(content=truncate(text, MAX_REPLY_CHARS)[0]), UserMessage(content=problem)]
        fallback = self._transcript.speaker or next(iter(self._members))
        _log.info("no speaker was chosen", team=self.name, reply=text[:200], speaker=fallback)
        if self._running is not None:
            self._running.fallback = truncate(text, MAX_REPLY_CHARS)[0]
        if self._emits_events and not self._streams:
            await self._emit(SelectorEvent(content=text, source=self.name))
        return fallback

    async def _emit(self, message: Speaking) -> None:
        if self._running is not None:
            await self._running.emit(message)

    def _problem(self, named: Sequence[str], text: str) -> str:
        if named:
            return f"names more than one role: {', '.join(named)}"
        if len(text) > MAX_REPLY_CHARS:
            return f"has more than {MAX_REPLY_CHARS:,} characters"
        if others := named_candidates(text, [*self._members]):
            return f"names a role that cannot speak next: {', '.join(others)}"
        return "names none of the roles"

    def _question(self, candidates: Sequence[str]) -> Iterator[Message]:
        """Yield the filled-in prompt; one without placeholders becomes the system message before the built-in one."""
        values = {
            "{roles}": "\n".join(f"{name}: {self._members[name].description}".strip() for name in self._members),
            "{participants}": str([*candidates]),
            "{history}": _history(self._transcript.chat_messages()),
        }
        prompt = self._prompt
        if not any(placeholder in prompt for placeholder in values):
            yield SystemMessage(content=prompt)
            prompt = _PROMPT
        yield UserMessage(content=_PLACEHOLDER.sub(lambda found: values[found[0]], prompt))

    async def _reply(self, messages: Sequence[Message]) -> str:
        """Return the text of one model call."""
        turn, builder, model = current_turn(), ReplyBuilder(), self._model
        budget = Budget.joined(current_budget(), None if turn is None else turn.usage.budget)
        if budget is not None:
            model = BudgetedModel(model, budget, (lambda _: None) if turn is None else turn.usage.add_unreported)

        async def take(batch: Sequence[Delta]) -> None:
            builder.add(*batch)
            for delta in batch:
                if self._streams and isinstance(delta, TextDelta):
                    await self._emit(ModelClientStreamingChunkEvent(content=delta.text, source=self.name))

        try:
            with LlmCallLine(self._clock, lambda: (self._model.name, builder.usage), purpose="speaker"):
                async with asyncio.timeout(self._limit):
                    await receive_reply(model, ModelRequest(messages=tuple(messages)), take)
        except TimeoutError as exc:
            raise TeamError(f"the choice of the next speaker took longer than {self._limit:g} s") from exc
        finally:
            for usage in (*builder.failed_usages, builder.usage):
                report_usage(usage)
                if turn is not None:
                    turn.usage.record(usage, self._model.name)
        text = builder.reply().text
        if self._streams:
            await self._emit(SelectorEvent(content=text, source=self.name))
        return text

    async def _call(self, function: Callable[..., Any], messages: Sequence[Speaking], what: str) -> object:
        with user_code.translated_errors(what):
            return await user_code.call_in_place(function, messages, what=what)


def _history(messages: Sequence[BaseChatMessage]) -> str:
    """Return the last messages as `source: text`, each shortened in its middle."""
    lines: list[str] = []
    left = _HISTORY_CHARS
    for message in reversed(messages[-_HISTORY_MESSAGES:]):
        text = message.to_transcript_text()
        half = _MESSAGE_CHARS // 2
        line = f"{message.source}: {text if len(text) <= _MESSAGE_CHARS else f'{text[:half]} … {text[-half:]}'}"
        left -= len(line)
        if left < 0 and lines:
            break
        lines.insert(0, line)
    return "\n\n".join(lines)


def _resolved(model: Any, settings: Settings) -> ChatModel:
    if not isinstance(model, str):
        return adapt(model)
    from agenticx.llms.assembly import resolve_model  # on first use: it imports the HTTP client

    return resolve_model(model, settings=settings)
