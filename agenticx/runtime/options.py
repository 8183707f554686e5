"""Options: several answers to one message, each made by a child turn with files of its own.

The turn that makes them does not go on after the end of the program, also where all that is left of it is an option
that waits for a person: nobody could pick one of the others while it waits. Options that are done stay; the others are
`interrupted` after a kill, and `stopped` where the program ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, cast

from agenticx.errors import SettingsError
from agenticx.llms.base import ChatModel, ModelRequest
from agenticx.messages import Message, SystemMessage, UserMessage, new_id
from agenticx.runtime.agent_runtime import AgentRuntime
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.budgets.budgeted_model import BudgetedModel, estimate_input
from agenticx.runtime.interrupts import StopSignal
from agenticx.runtime.session import Option, Session
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import TurnAgent
from agenticx.runtime.turn_context import TurnContext, TurnWork, WorkResult
from agenticx.threads import run_in_thread
from agenticx.tools.registry import Toolbox
from agenticx.untrusted_text import one_line

__all__ = ["DEFAULT_COUNT", "MAX_OPTIONS", "MIN_OPTIONS", "Variants", "check_variants", "options_work", "run_options"]

MIN_OPTIONS, MAX_OPTIONS = 2, 8
DEFAULT_COUNT = 3
_ROUNDS = 20
_OWN_TOOL = "run_variants"
_TASK = """

You make option {number}. {count} options are made of this message at the same time, each by itself, and the user
picks one of them: decide on one direction of your own, and say in one sentence which it is."""

Variants = int | Sequence[str]
"""The options that a message is to get: how many, or the names of their models."""


class _Named(NamedTuple):
    """A name of a model, as `TurnAgents.model_of` takes it."""

    model: str


def options_work(variants: Variants) -> TurnWork:
    """Return work for a turn that makes options of its message instead of calling a model, see `run_options`."""

    async def work(turn: Turn) -> WorkResult:
        return WorkResult(await run_options(turn, variants))

    return work


async def run_options(turn: Turn, variants: Variants, prompt: str | None = None) -> str:
    """Make options of the message of `turn`, or of a `prompt` in its place, and return a list of them as text.

    Each option is a child turn with at most 20 rounds, an agent `option-N` numbered in the session, and a branch of
    the session's files. An option that fails or is stopped does not affect the others. If `variants` is a
    number, the options use the turn's own model and the fallback models of the settings in rotation. The rest of the
    turn's budget is divided among them.

    Raises before any option begins: `SettingsError` for an unknown model, and in a child turn, because nobody could
    pick its options; `BudgetExceeded` if too little is left for a call of each. Raises `StoreError`.
    """
    if turn.context.parent is not None:
        raise SettingsError("only the main agent makes options, as one of them goes on as its session")
    base, message = _message_of(turn)
    if prompt is not None:
        message = UserMessage(content=prompt, attachments=message.attachments)
    models = await _models(turn, variants)
    session, first = turn.session, turn.session.next_option
    options = [
        Option(number, model.name, new_id("turn"), turn.id, session.artifacts.branch())
        for number, model in enumerate(models, start=first)
    ]
    agents = [_agent(turn.agent, option, model, len(options)) for option, model in zip(options, models, strict=True)]
    with await _divided(turn.usage.budget, agents, [*base, message]) as shares:
        session.options += options
        session.next_option, session.is_option_due = first + len(options), True
        runs = zip(options, agents, shares, strict=True)
        endings = await asyncio.gather(*(_run(turn, *run, base, message) for run in runs))
    return "\n".join(map(_line, options, endings))


async def _divided(
    budget: Budget | None, agents: Sequence[TurnAgent], messages: Sequence[Message]
) -> AbstractContextManager[Sequence[Budget | None]]:
    """Return a context manager with each agent's share of the budget, see `Budget.divided`."""
    if budget is None:
        return nullcontext([None] * len(agents))
    prompt, schemas = agents[0].system_prompt, [tool.schema for tool in agents[0].tools]
    if isinstance(prompt, str):
        messages = [SystemMessage(content=prompt), *messages]
    request = ModelRequest(messages=messages, tools=schemas)
    return budget.divided([agent.model for agent in agents], await estimate_input(request))


def _message_of(turn: Turn) -> tuple[Sequence[Message], UserMessage]:
    """Return the conversation before the turn's message, and that message."""
    messages = turn.session.messages
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage) and message.message_id == turn.history.message_id:
            return messages[:index], message
    return messages, UserMessage(content="")


async def _models(turn: Turn, variants: Variants) -> list[ChatModel]:
    def model_of(name: str) -> ChatModel:
        given = turn.context.model_of
        return turn.agents.model_of(_Named(name)) if given is None else given(name)

    names = turn.settings.fallback_models if isinstance(variants, int) else variants
    models = [await run_in_thread(model_of, name, name="agx models") for name in names]
    if not isinstance(variants, int):
        return models
    own = turn.agent.model
    own = own.unbudgeted if isinstance(own, BudgetedModel) else own
    rotation = list({model.name: model for model in (own, *models)}.values())
    return [rotation[index % len(rotation)] for index in range(variants)]


async def _run(
    turn: Turn, option: Option, agent: TurnAgent, share: Budget | None, base: Sequence[Message], message: UserMessage
) -> str:
    """Run the turn of an option; return a sentence on how it ended, "" if it is done."""
    session = Session(messages=base)
    session.inherit(turn.session, turn.permissions.mode)
    session.artifacts = option.artifacts
    stop = StopSignal()
    option.stop = stop.set
    runtime = AgentRuntime(agent.model, settings=turn.settings, clock=turn.clock, hooks=turn.agent.hooks)
    context = TurnContext(
        parent=turn,
        turn_id=option.turn_id,
        title=f"Option {option.number}",
        agent=agent,
        max_rounds=_ROUNDS,
        on_exhausted="error",
        budget=share,
    )
    ending: dict[str, Any] = {}
    message = _with_own_id(message)
    events = runtime.run_turn(message, session, stop, context=context)
    async with aclosing(events):
        async for event in events:
            if event.turn_id == option.turn_id and event.terminal:
                ending = dict(event.data)
    if "code" in ending or not ending:
        return ending.get("text", "it did not begin")
    option.text = ending["text"]
    return ""


def _with_own_id(message: UserMessage) -> UserMessage:
    """Return the same message as one of its own in another conversation."""
    return message.model_copy(update={"message_id": new_id("msg")})


def _agent(agent: TurnAgent, option: Option, model: ChatModel, count: int) -> TurnAgent:
    prompt = agent.system_prompt
    if prompt is None or isinstance(prompt, str):
        prompt = ((prompt or "") + _TASK.format(number=option.number, count=count)).lstrip("\n")
    tools = Toolbox(tool for tool in agent.tools if tool.schema.name != _OWN_TOOL)
    return replace(agent, name=option.agent_id, model=model, tools=tools, system_prompt=prompt, required_tool=None)


def _line(option: Option, ending: str) -> str:
    files = option.artifacts.summary() or "no files"
    return f"- Option {option.number} ({one_line(option.model)}): {one_line(ending) if ending else files}"


def check_variants(variants: object) -> None:
    """Raise `SettingsError` for anything but 2 to 8 options: a number, or a sequence of names of models."""
    match variants:
        case bool():
            count = 0
        case int():
            count = variants
        case str():
            count = 0
        case Sequence():
            count = len(cast("Sequence[object]", variants))
        case _:
            count = 0
    if not MIN_OPTIONS <= count <= MAX_OPTIONS:
        raise SettingsError(f"variants must be {MIN_OPTIONS} to {MAX_OPTIONS}, as a number or as names of models")
