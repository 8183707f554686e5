"""Agents of stored sessions: who answers the next message, after a handoff, a choice, a crash."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from agenticx import ConfirmAnswer, open_hub
from agenticx.core import Agent, Result
from agenticx.errors import SettingsError
from agenticx.messages import AssistantMessage
from agenticx.sessions import Hub
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, check_grammar, collect, hang, outline, say
from agenticx.tools import tool
from tests.support.sessions import wait_for_event

pytestmark = pytest.mark.anyio

YES = ConfirmAnswer(approved=True)


@tool(risk="read")
def transfer_to_billing() -> Agent:
    """Hand over questions about invoices."""
    return billing


@tool(risk="read")
def transfer_to_triage() -> Result:
    """Hand back what is not about invoices."""
    return Result(value="Back.", agent=triage)


@tool(risk="write")
def pay(invoice: int) -> str:
    """Pay an invoice."""
    return f"invoice {invoice} is paid"


billing = Agent(name="Billing", instructions="You do invoices.", tools=(pay, transfer_to_triage))
triage = Agent(name="Triage", instructions="You find the agent.", tools=(transfer_to_billing,))
AGENTS = (billing, triage)


def opened(
    folder: Path, model: ScriptedModel, agents: Sequence[Agent] = AGENTS, **options: Any
) -> AbstractAsyncContextManager[Hub]:
    """Open a hub over the same file each time; its main agent can hand over to billing."""
    settings = load_settings({"home": folder / "home"}, environ={})
    url, tools = f"sqlite:///{folder}/chat.db", [transfer_to_billing]
    return open_hub(url, model=model, tools=tools, agents=agents, workspace=folder, settings=settings, **options)


def prompts(model: ScriptedModel) -> list[str]:
    """Return the beginning of the system prompt of each request."""
    return [request.messages[0].content.split(".")[0] for request in model.requests]


async def session_changes(hub: Hub, session_id: str) -> list[tuple[str | None, dict[str, Any]]]:
    stored = [json.loads(event.frame_json) for event in await hub.store.log.read(session_id, 0, 10_000)]
    return [(event["turn_id"], event["data"]) for event in stored if event["type"] == "session_changed"]


async def test_the_agent_that_took_over_answers_the_next_message_also_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([call("transfer_to_billing"), "Which one?"])) as hub:
        session = await hub.create(name="Invoices", system_prompt="You are the main agent.")
        events = await collect(hub.run_turn(session.id, "An invoice!"))
        check_grammar(events)
        assert [event.agent_id for event in events if event.type == "final"] == ["Billing"]
        assert (await hub.store.catalog.get(session.id)).agent == "Billing"
        assert await session_changes(hub, session.id) == [(None, {"agent": "Billing"})]
    model = ScriptedModel(["It is due."])
    async with opened(tmp_path, model) as hub:
        events = await collect(hub.run_turn(session.id, "Number 7."))
        assert outline(events, agents=True) == [
            f"Billing:{type_}" for type_ in ("turn_started", "round_start", "token", "final")
        ] or {event.agent_id for event in events} == {"Billing"}
    assert prompts(model) == ["You do invoices"]
