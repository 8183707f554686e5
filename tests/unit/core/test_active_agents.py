"""Agents of stored sessions: who answers the next message, after a handoff, a choice, a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from agenticx import ConfirmAnswer, open_hub
from agenticx.core import Agent, Result, case_resolved
from agenticx.core.session_agents import SessionAgents
from agenticx.errors import UnknownAgent
from agenticx.messages import AssistantMessage
from agenticx.runtime import HookRegistry
from agenticx.sessions import Hub, MemoryStore, StoredEvent, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, check_grammar, collect, hang, outline, say
from agenticx.tools import tool
from studio import create_app
from tests.support.intercepted_store import InterceptedStore, Write
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
    folder: Path, model: ScriptedModel, agents: Sequence[Agent] = AGENTS, tools: Sequence[Any] = (transfer_to_billing,)
) -> AbstractAsyncContextManager[Hub]:
    """Open a hub over the same file each time; its main agent can hand over to billing."""
    settings = load_settings({"home": folder / "home", "max_tool_rounds": 10}, environ={})
    url = f"sqlite:///{folder}/chat.db"
    return open_hub(url, model=model, tools=tools, agents=agents, workspace=folder, settings=settings)


def prompts(model: ScriptedModel) -> list[str]:
    """Return the beginning of the system prompt of each request."""
    return [request.messages[0].content.split(".")[0] for request in model.requests]


async def envelopes(hub: Hub, session_id: str) -> list[dict[str, Any]]:
    return [json.loads(event.frame_json) for event in await hub.store.log.read(session_id, 0, 10_000)]


async def session_changes(hub: Hub, session_id: str) -> list[tuple[str | None, dict[str, Any]]]:
    events = await envelopes(hub, session_id)
    return [(event["turn_id"], event["data"]) for event in events if event["type"] == "session_changed"]


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
        assert {event.agent_id for event in events} == {"Billing"}
        texts = [message["content"] for message in await hub.messages(session.id) if message["role"] != "tool"]
        assert texts == ["An invoice!", "", "Which one?", "Number 7.", "It is due."]
    assert prompts(model) == ["You do invoices"]


async def test_the_agent_that_took_over_answers_a_message_sent_before_the_commit_of_the_handoff_returns(
    tmp_path: Path,
) -> None:
    async def return_late(write: Write) -> Sequence[StoredEvent]:
        stored = await write.make()
        for _ in range(100):  # readers have the events meanwhile
            await asyncio.sleep(0)
        return stored

    calls = [call("transfer_to_billing")] * 2  # the result of the first is stored while the turn goes on to its end
    model = ScriptedModel([calls, "Which one?", "It is due."])
    store = InterceptedStore(MemoryStore(), return_late)
    agents = SessionAgents(AGENTS, models=lambda _: model, hooks=HookRegistry())
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    hub = Hub(store, models=lambda _: model, tools=lambda _: [transfer_to_billing], agents=agents, settings=settings)
    session = await hub.create(system_prompt="You are the main agent.")
    await collect(hub.run_turn(session.id, "An invoice!"))
    await collect(hub.run_turn(session.id, "Number 7."))
    await hub.close()
    assert prompts(model) == ["You are the main agent", "You do invoices", "You do invoices"]


async def test_an_agent_whose_handoff_was_blocked_does_not_answer_for_another_one_of_its_name(tmp_path: Path) -> None:
    @tool(risk="read")
    def transfer_to_refunds() -> Agent:
        """Hand over what is to be paid back."""
        return Agent(name="Billing", instructions="You do refunds.")

    model = ScriptedModel([[call("transfer_to_billing"), call("transfer_to_refunds")], "Which one?", "Seven."])
    async with opened(tmp_path, model, tools=(transfer_to_billing, transfer_to_refunds)) as hub:
        session = await hub.create(system_prompt="You are the main agent.")
        await collect(hub.run_turn(session.id, "An invoice!"))
        await collect(hub.run_turn(session.id, "The last one."))
    assert prompts(model) == ["You are the main agent", "You do invoices", "You do invoices"]


async def test_an_agent_that_took_over_in_one_session_does_not_answer_in_another(tmp_path: Path) -> None:
    customers = iter(["Ann", "Ben"])

    @tool(risk="read")
    def transfer_to_own_billing() -> Agent:
        """Hand over to an agent that knows the customer."""
        return billing.model_copy(update={"instructions": f"You serve {next(customers)}."})

    calls = [call("transfer_to_own_billing"), "Yes?"]
    model = ScriptedModel([*calls, *calls, "To Ann.", "To Ben."])
    async with opened(tmp_path, model, tools=(transfer_to_own_billing,)) as hub:
        sessions = [await hub.create(name=name, system_prompt="You are the main agent.") for name in ("Ann", "Ben")]
        for session in (*sessions, *sessions):
            await collect(hub.run_turn(session.id, "An invoice!"))
    main = "You are the main agent"
    assert prompts(model) == [main, "You serve Ann", main, "You serve Ben", "You serve Ann", "You serve Ben"]


async def test_agents_hand_back_and_forth_over_several_messages(tmp_path: Path) -> None:
    script = [call("transfer_to_billing"), "Yes?", call("transfer_to_triage"), "What else?", "Hello."]
    model = ScriptedModel(script)
    async with opened(tmp_path, model) as hub:
        session = await hub.create(name="Talk", agent="Triage")
        for text in ("An invoice!", "No, something else.", "Hi"):
            await collect(hub.run_turn(session.id, text))
        changes = [data for _, data in await session_changes(hub, session.id)]
        assert changes == [{"agent": "Billing"}, {"agent": "Triage"}]
    answering = ["You find the agent", "You do invoices", "You do invoices", "You find the agent", "You find the agent"]
    assert prompts(model) == answering


async def test_the_user_chooses_the_main_agent_again_which_reads_the_calls_of_others_as_text(tmp_path: Path) -> None:
    script = [call("transfer_to_billing"), call("pay", {"invoice": 7}), "Paid.", "Hello."]
    model = ScriptedModel(script)
    async with opened(tmp_path, model) as hub:
        session = await hub.create(name="Talk", system_prompt="You are the main agent.", permission_mode="auto")
        await collect(hub.run_turn(session.id, "Pay 7."))
        assert (await hub.change(session.id, {"agent": None})).agent is None
        await collect(hub.run_turn(session.id, "Hi"))
        assert [data for _, data in await session_changes(hub, session.id)] == [{"agent": "Billing"}, {"agent": None}]
    last = model.requests[-1]
    assert last.messages[0].content == "You are the main agent."
    replies = [message for message in last.messages if isinstance(message, AssistantMessage)]
    assert [call.name for reply in replies for call in reply.tool_calls] == ["transfer_to_billing"]
    assert 'used pay with {"invoice": 7}: invoice 7 is paid' in last.messages[4].content


async def test_an_active_agent_that_nobody_knows_any_more_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([call("transfer_to_billing"), "Yes?"])) as hub:
        session = await hub.create(name="Talk")
        await collect(hub.run_turn(session.id, "An invoice!"))
    async with opened(tmp_path, ScriptedModel(["Hello."]), agents=[triage]) as hub:
        with pytest.raises(UnknownAgent, match="unknown agent 'Billing'; known agents: 'Triage'; null stands for"):
            await collect(hub.run_turn(session.id, "Hi"))
        await hub.change(session.id, {"agent": None})
        assert outline(await collect(hub.run_turn(session.id, "Hi")))[-1] == "final"
    async with opened(tmp_path, ScriptedModel([]), agents=()) as hub:
        with pytest.raises(UnknownAgent, match="unknown agent 'Billing': the session has its main agent only"):
            await hub.change(session.id, {"agent": "Billing"})
        with pytest.raises(ValueError, match="1 to 200 characters"):
            await hub.create(agent="")


async def test_a_call_that_waits_at_a_restart_is_run_by_the_agent_that_made_it(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([call("transfer_to_billing"), call("pay", {"invoice": 7})])) as hub:
        session = await hub.create(name="Talk")
        turn = await hub.start(session.id, TurnRequest(input="Pay 7."))
        asked = await wait_for_event(hub.store, session.id, "confirm_required")
    model = ScriptedModel(["Paid."])
    async with opened(tmp_path, model) as hub:
        await hub.answer(asked["id"], YES, digest=asked["digest"])
        await hub.wait_for_turn(session.id, turn.id)
        events = await envelopes(hub, session.id)
        check_grammar(events)
        results = [event["data"]["result"] for event in events if event["type"] == "tool_result"]
        assert results == ['{"assistant": "Billing"}', "invoice 7 is paid"]
        assert events[-1]["agent_id"] == "Billing"
    assert prompts(model) == ["You do invoices"]


async def test_a_turn_that_is_interrupted_after_a_handoff_leaves_the_new_agent_active(tmp_path: Path) -> None:
    model = ScriptedModel([call("transfer_to_billing"), [say("Let me"), hang()], "Yes?"])
    async with opened(tmp_path, model) as hub:
        session = await hub.create(name="Talk")
        async for event in hub.run_turn(session.id, "An invoice!"):
            if event.type == "token" and event.data["text"]:
                await hub.stop(session.id)
        assert {event.agent_id for event in await collect(hub.run_turn(session.id, "Go on"))} == {"Billing"}


async def test_an_active_agent_that_is_out_of_rounds_ends_the_turn_as_the_main_agent_does(tmp_path: Path) -> None:
    calls = [call("pay", {"invoice": number}) for number in range(10)]
    async with opened(tmp_path, ScriptedModel(calls)) as hub:
        session = await hub.create(agent="Billing", permission_mode="auto", workspace=tmp_path)
        end = (await collect(hub.run_turn(session.id, "Pay all.")))[-1]
    assert (end.type, end.data.get("code")) == ("error", "max_rounds")


async def test_agents_have_the_model_of_the_session_unless_they_or_the_turn_name_one(tmp_path: Path) -> None:
    default, own = ScriptedModel(["a"]), ScriptedModel(["b"])
    agents = [Agent(name="Plain"), Agent(name="Own", model=own)]
    async with opened(tmp_path, default, agents=agents) as hub:
        answers: list[str] = []
        for name, model in (("Plain", None), ("Own", None), ("Own", "demo")):
            session = await hub.create(agent=name)
            answers.append((await collect(hub.run_turn(session.id, "Say hello", model=model)))[-1].data["text"])
    assert answers == ["a", "b", "hello"]


def test_agents_of_a_hub_have_names_of_their_own(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path}, environ={})
    with pytest.raises(ValueError, match="more than one is called 'Agent'"):
        create_app(agents=[Agent(), Agent()], settings=settings)
    with pytest.raises(ValueError, match="'meta' is the main agent"):
        create_app(agents=[Agent(name="meta")], settings=settings)
    with pytest.raises(TypeError, match=r"agents\[0\] must be an Agent, not str"):
        create_app(agents=["Billing"], settings=settings)  # pyright: ignore[reportArgumentType]


async def test_the_result_with_which_a_call_ends_the_case_is_the_answer_also_to_a_later_process(tmp_path: Path) -> None:
    model = ScriptedModel([call("case_resolved", {"result": "All paid."})])
    async with opened(tmp_path, model, tools=(case_resolved,)) as hub:
        session = await hub.create()
        events = await collect(hub.run_turn(session.id, "Pay."))
        check_grammar(events)
        assert (events[-1].data["reason"], events[-1].data["text"]) == ("resolved", "All paid.")
    model = ScriptedModel(["Yes."])
    async with opened(tmp_path, model, tools=(case_resolved,)) as hub:
        await collect(hub.run_turn(session.id, "Sure?"))
    assert [(message.role, message.content) for message in model.requests[0].messages[-5:]] == [
        ("user", "Pay."),
        ("assistant", ""),
        ("tool", "The case is resolved. All paid."),
        ("assistant", "All paid."),
        ("user", "Sure?"),
    ]
