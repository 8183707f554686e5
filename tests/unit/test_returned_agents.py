"""A returned `Agent` or `Result` hands over in every way to run, and nothing of an agent is a result."""

from __future__ import annotations

import asyncio
import json
from collections import ChainMap, UserDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx import AgentRuntime, AutoApproveConfirmGate, ConfirmAnswer, Session, open_hub
from agenticx.core import Agent, AgentExecutor, ChatResponse, Result, Task
from agenticx.runtime import AgentHook, Block, StopSignal
from agenticx.runtime.turn_agent import ToolResult, TurnAgent
from agenticx.sessions import Hub, TurnRequest
from agenticx.sessions.log.events import decode
from agenticx.settings import Settings, load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat
from agenticx.teams.replay import uncommitted_answer
from agenticx.testing import ScriptedModel, call, check_grammar, collect, outline
from agenticx.tools import tool
from tests.support.sessions import wait_for_event

pytestmark = pytest.mark.anyio

SECRET = "Never say this aloud."


def pay(invoice: int, context_variables: dict[str, Any]) -> str:
    return f"invoice {invoice} is paid by {context_variables['customer']}"


guest = Agent(name="Guest", instructions=SECRET, tools=[pay])


def transfer() -> Result:
    return Result(value="The guest takes over.", agent=guest, context_variables={"customer": "Ann"})


def invite() -> Agent:
    return guest


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home", "workspace_root": folder}, environ={})


def results(model: ScriptedModel) -> list[str]:
    return [message.content for message in model.requests[-1].messages if message.role == "tool"]


def answers(events: Sequence[Any]) -> list[str]:
    return [event.data["result"] for event in events if event.type == "tool_result"]


def instructions(model: ScriptedModel) -> list[str]:
    return [request.messages[0].content for request in model.requests]


# --- handing over -----------------------------------------------------------------------------------------------------


async def test_a_runtime_hands_over_to_the_end_of_the_turn_and_merges_variables() -> None:
    model = ScriptedModel([call("transfer"), call("pay", {"invoice": 7}), "Paid.", "Hello."])
    runtime, session = AgentRuntime(model, tools=[transfer], system_prompt="Be brief."), Session()
    events = await collect(runtime.run_turn("Pay 7", session))
    check_grammar(events)
    handoffs = [event.data for event in events if event.type == "handoff"]
    assert handoffs == [{"from_agent": "meta", "to_agent": "Guest"}]
    assert (events[-1].agent_id, events[-1].data["text"]) == ("Guest", "Paid.")
    assert answers(events) == ["The guest takes over.", "invoice 7 is paid by Ann"]
    assert (session.state.context_variables, session.active_agent) == ({"customer": "Ann"}, None)
    assert (await runtime.run("Hi", session)).text == "Hello."
    assert instructions(model) == ["Be brief.", SECRET, SECRET, "Be brief."]
    told = [message.content for message in model.requests[-1].messages if "used pay" in message.content]
    assert told == ['[history] Earlier work:\n- Guest used pay with {"invoice": 7}: invoice 7 is paid by Ann']


async def test_the_agent_that_takes_over_has_its_own_model_and_hooks() -> None:
    seen: list[str] = []

    class Watch(AgentHook):
        async def before_model(self, messages: Any, context: Any) -> None:
            seen.append(context.agent_id)

    own = ScriptedModel(["From my own model."])
    runtime = AgentRuntime(ScriptedModel([call("invite")]), tools=[lambda_tool(guest, model=own, hooks=(Watch(),))])
    assert (await runtime.run("Go")).text == "From my own model."
    named = lambda_tool(guest, model="demo")
    runtime = AgentRuntime(ScriptedModel([call("invite")]), tools=[named])
    assert "hello" in (await runtime.run("say hello")).text.lower()
    await runtime.aclose()
    assert seen == ["Guest"]


def lambda_tool(agent: Agent, **changes: Any) -> Any:
    return tool(lambda: agent.model_copy(update=changes), name="invite", risk="read")


async def test_an_unknown_model_of_the_returned_agent_is_the_result_of_the_call() -> None:
    model = ScriptedModel([call("invite"), "I go on."])
    runtime = AgentRuntime(model, tools=[lambda_tool(guest, model="nobody:nothing")])
    assert (await runtime.run("Go")).text == "I go on."
    assert results(model)[0].startswith("Error: ")
    assert SECRET not in results(model)[0]


async def test_the_first_of_parallel_calls_hands_over() -> None:
    other = Agent(name="Other", instructions=SECRET)
    tools = [tool(invite, risk="read"), tool(lambda: other, name="second", risk="read")]
    model = ScriptedModel([[call("second"), call("invite")], "Hi."])
    result = await AgentRuntime(model, tools=tools).run("Go")
    assert result.events[-1].agent_id == "Other"
    assert answers(result.events) == [
        '{"assistant": "Other"}',
        "Blocked: an earlier call of this round has handed over to 'Other'.",
    ]


async def test_an_assistant_agent_hands_over_to_the_end_of_its_answer() -> None:
    model = ScriptedModel([call("transfer"), call("pay", {"invoice": 7}), "Paid.", "Hello."])
    agent = AssistantAgent("helper", model, tools=[transfer], system_message="Help.")
    texts = [(await agent.run(task=task)).messages[-1].to_text() for task in ("Pay 7", "Hi")]
    assert texts == ["Paid.", "Hello."]
    assert instructions(model) == ["Help.", SECRET, SECRET, "Help."]


async def test_an_answer_of_a_guest_in_a_team_that_a_crash_left_unreported_is_found(tmp_path: Path) -> None:
    model = ScriptedModel([call("invite"), "Paid."])
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Talk", permission_mode="auto")
        agent = AssistantAgent("helper", model, tools=[tool(invite, risk="read")])
        await RoundRobinGroupChat([agent], max_turns=1, session=session.id).run(task="Pay 7")
        stored = await hub.store.log.read(session.id, 0, 10_000)
    entries = [decode(event) for event in stored]
    assert uncommitted_answer(entries, "helper") is None
    until_final = entries[: [event.type for event in stored].index("final") + 1]
    events = uncommitted_answer(until_final, "helper")
    assert events is not None
    assert (events[-1].agent_id, events[-1].data["text"]) == ("Guest", "Paid.")


# --- in a hub ---------------------------------------------------------------------------------------------------------


async def changes(hub: Hub, session_id: str) -> list[tuple[str, Any]]:
    """Return the events by which the session says who acts and when a turn ends."""
    events = [json.loads(event.frame_json) for event in await hub.store.log.read(session_id, 0, 10_000)]
    check_grammar(events)
    kept = {"handoff": "to_agent", "session_changed": "agent", "final": "reason", "error": "code"}
    return [(event["type"], event["data"][kept[event["type"]]]) for event in events if event["type"] in kept]


billing = Agent(name="Billing", instructions="You do invoices.", tools=[invite])


def ask_billing() -> Agent:
    return billing


@pytest.mark.parametrize("agents", [[], [billing]], ids=["no agents", "others"])
async def test_in_a_hub_an_agent_that_it_does_not_have_acts_to_the_end_of_the_turn(
    agents: Sequence[Agent], tmp_path: Path
) -> None:
    model = ScriptedModel([call("transfer"), call("pay", {"invoice": 7}), "Paid.", "Hello."])
    options: Any = {"agents": agents, "tools": [transfer], "settings": settings_in(tmp_path)}
    async with open_hub("memory://", model=model, **options) as hub:
        session = await hub.create(name="Talk", system_prompt="Be brief.", permission_mode="auto")
        events = await collect(hub.run_turn(session.id, "Pay 7"))
        assert (events[-1].agent_id, events[-1].data["text"]) == ("Guest", "Paid.")
        assert await changes(hub, session.id) == [
            ("handoff", "Guest"),
            ("session_changed", None),
            ("final", "answer"),
        ]
        assert (await hub.store.catalog.get(session.id)).agent is None
        assert (await collect(hub.run_turn(session.id, "Hi")))[-1].agent_id == "meta"
    assert instructions(model) == ["Be brief.", SECRET, SECRET, "Be brief."]
    assert results(model) == ["The guest takes over."]


async def test_a_known_agent_that_hands_over_to_an_unknown_one_leaves_the_session_to_the_main_agent(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([call("ask_billing"), call("invite"), "Hi."])
    options: Any = {"agents": [billing], "tools": [ask_billing], "settings": settings_in(tmp_path)}
    async with open_hub("memory://", model=model, **options) as hub:
        session = await hub.create(name="Talk", permission_mode="auto")
        await collect(hub.run_turn(session.id, "Go"))
        assert await changes(hub, session.id) == [
            ("handoff", "Billing"),
            ("session_changed", "Billing"),
            ("session_changed", None),
            ("handoff", "Guest"),
            ("session_changed", None),
            ("final", "answer"),
        ]
        assert (await hub.store.catalog.get(session.id)).agent is None


async def test_a_stopped_turn_of_an_unknown_agent_says_that_the_main_agent_is_back(tmp_path: Path) -> None:
    model = ScriptedModel([call("transfer"), call("pay", {"invoice": 7})])
    async with open_hub("memory://", model=model, tools=[transfer], settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Talk")
        async for event in hub.run_turn(session.id, "Pay 7"):
            if event.type == "confirm_required":
                answer = event.data["context"]["tool"] == "transfer"
                if answer:
                    await hub.answer(event.data["id"], ConfirmAnswer(approved=True), digest=event.data["digest"])
                else:
                    await hub.stop(session.id)
        assert await changes(hub, session.id) == [
            ("handoff", "Guest"),
            ("session_changed", None),
            ("error", "stopped"),
        ]


@pytest.mark.promise("E3")
async def test_a_question_of_an_unknown_agent_ends_with_the_program_and_never_runs_for_another(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(name="pay", risk="write")
    def main_pays(invoice: int) -> str:
        """Pay as the main agent."""
        ran.append("main")
        return "paid by the main agent"

    url, settings = f"sqlite:///{tmp_path}/chat.db", settings_in(tmp_path)
    options: Any = {"tools": [tool(transfer, risk="read"), main_pays], "settings": settings}
    async with open_hub(url, model=ScriptedModel([call("transfer"), call("pay", {"invoice": 7})]), **options) as hub:
        session = await hub.create(name="Talk")
        await hub.start(session.id, TurnRequest(input="Pay 7."))
        await wait_for_event(hub.store, session.id, "confirm_required")
    async with open_hub(url, model=ScriptedModel(["Hello."]), **options) as hub:
        assert await changes(hub, session.id) == [
            ("handoff", "Guest"),
            ("session_changed", None),
            ("error", "interrupted"),
        ]
        assert (await collect(hub.run_turn(session.id, "Hi")))[-1].agent_id == "meta"
    assert ran == []


async def test_the_asking_agent_goes_on_after_a_restart_also_if_the_user_chose_another_meanwhile(
    tmp_path: Path,
) -> None:
    @tool(risk="write")
    def send(invoice: int) -> str:
        """Send an invoice."""
        return f"{invoice} is sent"

    sender = Agent(name="Sender", instructions="You send.", tools=[send])
    url, settings = f"sqlite:///{tmp_path}/chat.db", settings_in(tmp_path)
    options: Any = {"agents": [sender], "tools": [tool(lambda: sender, name="to_sender", risk="read")]}
    first = ScriptedModel([call("to_sender"), call("send", {"invoice": 7})])
    async with open_hub(url, model=first, settings=settings, **options) as hub:
        session = await hub.create(name="Talk")
        turn = await hub.start(session.id, TurnRequest(input="Send 7."))
        asked = await wait_for_event(hub.store, session.id, "confirm_required")
        await hub.change(session.id, {"agent": None})
    model = ScriptedModel(["Sent."])
    async with open_hub(url, model=model, settings=settings, **options) as hub:
        await hub.answer(asked["id"], ConfirmAnswer(approved=True), digest=asked["digest"])
        await hub.wait_for_turn(session.id, turn.id)
    assert (instructions(model), results(model)[-1]) == (["You send."], "7 is sent")


# --- nothing of an agent is a result ----------------------------------------------------------------------------------


@dataclass
class Holder:
    agent: Any


class Model(BaseModel):
    agent: Any = None


class Attributes:
    """A class with the mark of the library attrs."""

    __attrs_attrs__ = (SimpleNamespace(name="agent"),)

    def __init__(self, agent: Any) -> None:
        self.agent = agent


class Plain:
    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def __repr__(self) -> str:
        return f"Plain({self.agent!r})"


def cyclic() -> list[Any]:
    values: list[Any] = [guest]
    values.append(values)
    return values


NESTED: list[Callable[[], Any]] = [
    lambda: [guest],
    lambda: (1, guest),
    lambda: {"agent": guest},
    lambda: {"a": [{"b": (guest,)}]},
    lambda: {guest.name: deque([guest])},
    lambda: MappingProxyType({"agent": guest}),
    lambda: UserDict(agent=guest),
    lambda: ChainMap({}, {"agent": guest}),
    lambda: {"agent": guest}.values(),
    lambda: {"agent": guest}.items(),
    lambda: [{guest.name: [guest]}.values()],
    lambda: partial(print, guest),
    lambda: partial(print, agent=[guest]),
    lambda: Attributes(guest),
    lambda: SimpleNamespace(agent=guest),
    lambda: Holder(guest),
    lambda: Holder([Model(agent=guest)]),
    lambda: Model(agent=guest),
    lambda: Model(agent={"x": Holder(guest)}),
    lambda: [Result(value="x", agent=guest)],
    lambda: Holder(Result(agent=guest)),
    lambda: [ToolResult(text="x")],
    lambda: ChatResponse(agent=guest, context_variables={"key": SECRET}),
    lambda: [*range(100_000), guest],
    cyclic,
    lambda: [TurnAgent(name="x", model=ScriptedModel([]), tools=(), hooks=(), system_prompt=SECRET)],  # type: ignore[arg-type]
]


@pytest.mark.parametrize("value", NESTED)
async def test_a_value_with_an_agent_in_it_is_refused_and_hands_over_nothing(value: Callable[[], Any]) -> None:
    model = ScriptedModel([call("look"), "I go on."])
    runtime = AgentRuntime(model, tools=[tool(value, name="look", description="Look.", risk="read")])
    events = (await runtime.run("Go")).events
    (text,) = results(model)
    assert text.startswith("Error: the tool returned a value of type ")
    assert text.endswith("else return a text or plain values.")
    assert "Guest" not in text
    assert SECRET not in text
    assert "handoff" not in outline(events)


@pytest.mark.parametrize(
    "look",
    [
        lambda: Plain(guest),
        lambda: f"the agent is {guest}",
        lambda: repr([guest, Result(agent=guest, context_variables={"key": SECRET})]),
        lambda: (_ for _ in ()).throw(ValueError(guest)),
        lambda: ValueError(guest),
        lambda: guest.system_prompt,
    ],
)
async def test_the_text_of_an_agent_has_no_more_than_its_name(look: Callable[[], Any]) -> None:
    model = ScriptedModel([call("look"), "I go on."])
    runtime = AgentRuntime(model, tools=[tool(look, name="look", description="Look.", risk="read")])
    await runtime.run("Go")
    assert SECRET not in results(model)[0]


async def test_a_result_of_a_task_is_refused_with_what_would_be_right() -> None:
    async def delegate() -> Any:
        return await AgentExecutor(ScriptedModel(["Done."])).arun(guest, Task(description="Go"))

    model = ScriptedModel([call("delegate"), "I go on."])
    await AgentRuntime(model, tools=[delegate]).run("Go")
    assert results(model)[0].startswith("Error: the tool returned a value of type Agent in a ExecutionResult, which")


async def test_a_very_long_value_of_a_result_is_shortened_and_hands_over() -> None:
    model = ScriptedModel([call("look"), "Hi."])

    def look() -> Result:
        return Result(value="x" * 1_000_000, agent=guest)

    result = await AgentRuntime(model, tools=[look]).run("Go")
    assert result.events[-1].agent_id == "Guest"
    assert len(answers(result.events)[0]) < 100_000


class Rewriting(AgentHook):
    """A hook that returns what it is given."""

    def __init__(self, returned: Any) -> None:
        self._returned = returned

    async def after_tool_call(self, name: str, arguments: Any, result: str, context: Any) -> Any:
        return self._returned


class Blocking(AgentHook):
    """A hook that blocks each call with an agent as the reason."""

    async def before_tool_call(self, name: str, arguments: Any, context: Any) -> Any:
        reason: Any = guest
        return Block(reason)


async def test_a_hook_may_rewrite_the_text_of_a_handoff() -> None:
    model = ScriptedModel([call("transfer"), "Hi."])
    result = await AgentRuntime(model, tools=[transfer], hooks=[Rewriting("Rewritten.")]).run("Go")
    assert (result.events[-1].agent_id, answers(result.events)) == ("Guest", ["Rewritten."])


@pytest.mark.parametrize("hook", [Rewriting(guest), Rewriting([guest]), Rewriting(Result(agent=guest)), Blocking()])
async def test_an_agent_that_a_hook_returns_is_neither_a_result_nor_a_handoff(hook: AgentHook) -> None:
    model = ScriptedModel([call("transfer"), "I go on."])
    result = await AgentRuntime(model, AutoApproveConfirmGate(), tools=[transfer], hooks=[hook]).run("Go")
    assert result.events[-1].agent_id == "meta"
    assert SECRET not in results(model)[0]


async def test_a_turn_that_is_stopped_while_its_tool_returns_an_agent_tells_nothing_of_it() -> None:
    session, stop = Session(), StopSignal()

    async def slow() -> Agent:
        stop.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return guest

    runtime = AgentRuntime(ScriptedModel([call("slow")]), tools=[slow])
    events = await collect(runtime.run_turn("Go", session, stop))
    assert outline(events)[-1] == "error"
    assert all(SECRET not in message.content for message in session.messages)
