"""A chat among agents: a conversation in rows is continued by one turn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agenticx.core.agent import Agent
from agenticx.core.results import ChatResponse
from agenticx.core.run_agents import find_parent_turn
from agenticx.llms.message_attachments import with_files_after_results
from agenticx.llms.openai_rows import messages_to_rows
from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.runtime import AgentRuntime, Budget, ConfirmGate, Session, TurnContext
from agenticx.runtime.budgets.budget import settings_budget
from agenticx.runtime.events import Event
from agenticx.runtime.run_results import own_events, turn_error
from agenticx.runtime.turn_agent import TurnAgent, TurnAgents

__all__ = ["chat_response", "run_chat"]


async def run_chat(
    runtime: AgentRuntime,
    session: Session,
    acting: TurnAgent,
    agents: TurnAgents,
    *,
    max_rounds: int,
    execute: bool,
    budget: Budget | None,
    gate: ConfirmGate | None,
) -> None:
    """Run a turn of `session` that answers its last messages, and append what it adds.

    The last messages are one of the user, or results of calls that the application made itself. Inside a turn this is a
    child turn, which asks `gate` or its parent's gate. Running out of model calls ends it without an error.

    Raises `TurnError` for another fatal error, and `ValueError` if there are no messages.
    """
    if not session.messages:
        raise ValueError("messages must not be empty: the last one is what is answered")
    context = TurnContext(
        agent=acting,
        agents=agents,
        max_rounds=max_rounds,
        on_exhausted="error",
        execute_tools=execute,
        budget=budget,
    )
    if (parent := find_parent_turn()) is None:
        context = replace(context, budget=settings_budget(runtime.settings, budget))
    else:
        context = replace(context, parent=parent, gate=gate)
        session.inherit(parent.session, parent.permissions.mode)
    if isinstance(message := session.messages[-1], UserMessage):
        session.messages.pop()
    else:
        message, context = _last_of_user(session.messages), replace(context, continues=True)
    async with aclosing(runtime.run_turn(message, session, context=context)) as turn:
        events = [event async for event in turn]
    own = own_events(events)
    end = own[-1]
    if end.type == "final" and session.messages[-1].message_id == end.data["message_id"] and _is_ended_by_call(own):
        session.messages.pop()  # as in MetaChain, the rows end with the result of the call
    if end.type == "error" and end.data["code"] != "max_rounds":
        raise turn_error(events)


def _is_ended_by_call(events: Sequence[Event]) -> bool:
    """Return whether the last round of a turn made calls."""
    types = (event.type for event in reversed(events) if event.type in ("round_start", "tool_result"))
    return next(types, "") == "tool_result"


def _last_of_user(messages: Sequence[Message]) -> UserMessage:
    """Return the last message of the user, an empty one if there is none."""
    spoken = (message for message in reversed(messages) if isinstance(message, UserMessage))
    return next(spoken, UserMessage(content=""))


def chat_response(session: Session, before: set[str], agent: Agent[Any, Any]) -> ChatResponse:
    """Return the messages of `session` whose ids are not in `before`, without reminders of the engine, as rows."""
    added = [message for message in session.all_messages if message.message_id not in before]
    kept = [message for message in added if not (isinstance(message, UserMessage) and message.injected)]
    rows: list[dict[str, Any]] = []
    kept = with_files_after_results(kept)
    for message, row in zip(kept, messages_to_rows(kept), strict=True):
        rows.append(row | {"sender": message.sender} if isinstance(message, AssistantMessage) else row)
    return ChatResponse(messages=rows, agent=agent, context_variables=dict(session.state.context_variables))
