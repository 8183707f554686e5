"""A team in which a model or a function chooses the next speaker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from agenticx import user_code
from agenticx.argument_types import check_int
from agenticx.clocks import Clock
from agenticx.llms.base import ChatModel, Delta, ModelRequest, ReplyBuilder, TextDelta, receive_reply
from agenticx.llms.duck_typed.model import adapt
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.runtime import Budget, ConfirmGate, Session, current_turn
from agenticx.runtime.budgets.budgeted_model import BudgetedModel
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.turn_log import LlmCallLine
from agenticx.settings import Settings, load_settings
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.agents.protocols import ChatAgent, Team
from agenticx.teams.agents.spending import current_budget, report_usage
from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.speaker_names import MAX_REPLY_CHARS, named_candidates
from agenticx.teams.group_chats.team_run import Speaking, TeamRun
from agenticx.teams.group_chats.transcript import TeamTranscript
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent, SelectorEvent
from agenticx.teams.termination.base import TerminationCondition

__all__ = ["SelectorGroupChat"]

_PROMPT = """Several roles take part in a conversation:
{roles}

The conversation so far:
{history}

Choose the next role to speak from {participants}. Answer with the name of that role and nothing else."""

_HISTORY_MESSAGES = 40
_HISTORY_CHARS = 24_000
_MESSAGE_CHARS = 4_000

_log = get_logger(__name__)

SelectorFunction = Callable[[Sequence[Speaking]], str | Awaitable[str | None] | None]
CandidateFunction = Callable[[Sequence[Speaking]], Sequence[str] | Awaitable[Sequence[str]]]


class SelectorGroupChat(BaseGroupChat):
    """A team in which a model chooses the next speaker by one call.

    A single candidate speaks without a call. All participants are candidates, except that nobody speaks twice in a row
    without `allow_repeated_speaker`; `candidate_func(messages)` returns the names of others. A reply that does not name
    exactly one candidate goes back to the model with what is wrong; after `max_selector_attempts` replies the previous
    speaker goes on, or the first participant begins. `selector_func(messages)` returns the name of the next speaker, or
    None to ask the model. Both functions get all messages of the team and are plain or async.

    In `selector_prompt`, `{roles}`, `{participants}` and `{history}` are replaced: names with descriptions, candidates,
    and the last 40 messages, at most 24,000 characters. With `emit_team_events` each fallback is a `SelectorEvent` with
    the model's words, which `speaker_selected` in the log of a session always has; with `model_client_streaming` too,
    each reply comes in chunks and is one. The other options are those of `BaseGroupChat`.
    """

    def __init__(
        self,
        participants: Sequence[ChatAgent | Team],
        model_client: Any,
        *,
        selector_prompt: str | None = None,
        allow_repeated_speaker: bool = False,
        max_selector_attempts: int = 3,
        selector_func: SelectorFunction | None = None,
        candidate_func: CandidateFunction | None = None,
        model_client_streaming: bool = False,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: MessageRuntime | None = None,
        custom_message_types: Sequence[type[BaseChatMessage | BaseAgentEvent]] | None = None,
        emit_team_events: bool = False,
        confirm_gate: ConfirmGate | None = None,
        budget: Budget | None = None,
        session: Session | str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or load_settings()
        super().__init__(
            participants,
            name=name,
            description=description,
            termination_condition=termination_condition,
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
        self._prompt = selector_prompt or _PROMPT
        self._repeats = allow_repeated_speaker
        self._attempts = max_selector_attempts
        self._selector = selector_func
        self._candidates = candidate_func
        self._streams = model_client_streaming and self._emits_events

    async def select_speaker(self, transcript: TeamTranscript, run: TeamRun) -> str:
        """Return the next speaker; raises `TeamError` if a function returns no name, and what a model call raises."""
        if self._selector is not None:
            chosen: object = await self._call(self._selector, transcript, "selector_func")
            if chosen is not None:
                return self._checked(chosen, "selector_func")
        candidates = await self._next_candidates(transcript)
        return candidates[0] if len(candidates) == 1 else await self._ask(candidates, transcript, run)

    async def _next_candidates(self, transcript: TeamTranscript) -> Sequence[str]:
        if self._candidates is not None:
            names: object = await self._call(self._candidates, transcript, "candidate_func")
            if not isinstance(names, list | tuple) or not names:
                raise TeamError(f"candidate_func returned {names!r}; right would be a list of names, at least one")
            checked = [self._checked(name, "candidate_func") for name in cast("Sequence[object]", names)]
            return list(dict.fromkeys(checked))
        others = [name for name in self._participants if self._repeats or name != transcript.speaker]
        return others or [*self._participants]

    async def _ask(self, candidates: Sequence[str], transcript: TeamTranscript, run: TeamRun) -> str:
        """Return the candidate that the model names, else the previous speaker or the first participant."""
        messages: list[Message] = [UserMessage(content=self._question(candidates, transcript))]
        text = ""
        for _ in range(self._attempts):
            text = await self._reply(messages, run)
            named = named_candidates(text, candidates)
            if len(named) == 1:
                return named[0]
            choice = f"Choose one of {', '.join(candidates)}, and answer with its name and nothing else."
            problem = f"Your answer {self._problem(named, text)}. {choice}"
            messages += [AssistantMessage(content=truncate(text, MAX_REPLY_CHARS)[0]), UserMessage(content=problem)]
        fallback = transcript.speaker or next(iter(self._participants))
        _log.info("no speaker was chosen", team=self.name, reply=text[:200], speaker=fallback)
        run.fallback = truncate(text, MAX_REPLY_CHARS)[0]
        if self._emits_events and not self._streams:
            await run.emit(SelectorEvent(content=text, source=self.name))
        return fallback

    def _problem(self, named: Sequence[str], text: str) -> str:
        if named:
            return f"names more than one role: {', '.join(named)}"
        if len(text) > MAX_REPLY_CHARS:
            return f"has more than {MAX_REPLY_CHARS:,} characters"
        if others := named_candidates(text, [*self._participants]):
            return f"names a role that cannot speak next: {', '.join(others)}"
        return "names none of the roles"

    def _question(self, candidates: Sequence[str], transcript: TeamTranscript) -> str:
        roles = [f"{name}: {self._participants[name].description}".strip() for name in self._participants]
        prompt = self._prompt.replace("{roles}", "\n".join(roles)).replace("{participants}", str([*candidates]))
        return prompt.replace("{history}", _history(transcript.chat_messages()))

    async def _reply(self, messages: Sequence[Message], run: TeamRun) -> str:
        """Return the text of one model call."""
        turn, builder, model = current_turn(), ReplyBuilder(), self._model
        budget = Budget.joined(current_budget(), None if turn is None else turn.budget)
        if budget is not None:
            model = BudgetedModel(model, budget, (lambda _: None) if turn is None else turn.add_unreported)

        async def take(batch: Sequence[Delta]) -> None:
            builder.add(*batch)
            for delta in batch:
                if self._streams and isinstance(delta, TextDelta):
                    await run.emit(ModelClientStreamingChunkEvent(content=delta.text, source=self.name))

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
                    turn.record_usage(usage, self._model.name)
        text = builder.reply().text
        if self._streams:
            await run.emit(SelectorEvent(content=text, source=self.name))
        return text

    async def _call(self, function: Callable[..., Any], transcript: TeamTranscript, what: str) -> object:
        with user_code.translated_errors(what):
            return await user_code.call_in_place(function, transcript.messages, what=what)

    def _checked(self, name: object, what: str) -> str:
        if not isinstance(name, str) or name not in self._participants:
            raise TeamError(f"{what} returned {name!r}, which is no participant; known: {[*self._participants]}")
        return name


def _history(messages: Sequence[BaseChatMessage]) -> str:
    """Return the last messages as `source: text`, each shortened in its middle."""
    lines: list[str] = []
    left = _HISTORY_CHARS
    for message in reversed(messages[-_HISTORY_MESSAGES:]):
        text = message.to_model_text()
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
