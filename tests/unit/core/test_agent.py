"""`Agent` by itself: runs, streams with answers, gates, handoffs, and stored sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx import (
    Agent,
    AgenticXError,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    ConfirmAnswer,
    Event,
    Sampling,
    Session,
    ToolContext,
    TurnError,
    builtin_tools,
    open_hub,
    tool,
)
from agenticx.core import AgentExecutor
from agenticx.errors import SettingsError, UnknownAgent
from agenticx.permissions import PermissionMode, Rule
from agenticx.runtime import AgentRuntime, Budget, ConfirmRequest, StopSignal
from agenticx.sessions import Hub, HubClosed, SessionEvent, SessionRecord
from agenticx.teams import (
    AgentTeamManager,
    AssistantAgent,
    CancellationToken,
    RoundRobinGroupChat,
    Swarm,
    TeamError,
)
from agenticx.testing import ScriptedModel, call, outline, say, usage
from agenticx.tools.builtin import ask_user

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str


@dataclass
class Stock:
    apples: int


@tool(risk="read")
def count(context: ToolContext[Stock]) -> int:
    """Count the apples."""
    return context.deps.apples


@tool(risk="write")
def change(text: str) -> str:
    """Change something."""
    return f"changed {text}"


def changing(**fields: Any) -> Agent[Any, str]:
    """Return an agent that makes one call which writes, and says "Done."."""
    model = ScriptedModel([call("change", {"text": "it"}), say("Done.")])
    return Agent(name="writer", model=model, tools=[change], **fields)


def results(events: Sequence[Event]) -> list[str]:
    return [event.data["result"] for event in events if event.type == "tool_result"]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_an_agent_runs_by_itself_and_its_output_is_the_text() -> None:
    result = Agent(model="demo", instructions="Be brief.").run_sync("say hello")
    assert (result.output, result.text, result.reason) == ("hello", "hello", "answer")
    assert [message.role for message in result.messages] == ["user", "assistant"]


async def test_a_session_keeps_the_conversation_and_the_context_variables() -> None:
    def greet(context_variables: dict[str, Any]) -> str:
        context_variables["greeted"] = True
        return f"Hello {context_variables['customer']}"

    model, session = ScriptedModel([call("greet"), "Hi Ann.", "Again."]), Session()
    agent = Agent(
        model=model,
        instructions=lambda variables: f"The customer is {variables['customer']}.",
        context_variables_description="Tools find the customer in them.",
        tools=[greet],
    )
    result = await agent.run("Hi", session=session, context_variables={"customer": "Ann"})
    assert (result.output, results(result.events)) == ("Hi Ann.", ["Hello Ann"])
    assert result.context_variables == {"customer": "Ann", "greeted": True}
    await agent.run("And again", session=session)
    assert model.requests[2].messages[0].content == "The customer is Ann.\n\nTools find the customer in them."
    assert [message.content for message in model.requests[2].messages[1:]] == [
        "Hi",
        "",
        "Hello Ann",
        "Hi Ann.",
        "And again",
    ]


async def test_the_output_is_of_the_type_of_the_agent_or_of_the_run() -> None:
    agent = Agent(model="demo", output_type=City)
    assert (await agent.run('Say {"name": "Lyon"}')).output == City(name="Lyon")
    assert (await agent.run('Say {"value": [1, 2]}', output_type=list[int])).output == [1, 2]


async def test_model_and_sampling_of_a_run_take_the_place_of_those_of_the_agent() -> None:
    model = ScriptedModel(["One.", "Two."])
    agent = Agent(model="demo", sampling=Sampling(temperature=0.5, top_p=0.9))
    await agent.run("Hi", model=model)
    await agent.run("Hi", model=model, sampling=Sampling(temperature=0.1))
    assert [request.sampling for request in model.requests] == [
        Sampling(temperature=0.5, top_p=0.9),
        Sampling(temperature=0.1, top_p=0.9),
    ]


async def test_a_turn_that_fails_is_raised_and_the_smaller_round_limit_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> ScriptedModel:
        return ScriptedModel([call("change", {"text": str(number)}) for number in range(11)])

    agent = Agent(tools=[change], confirm_gate=AutoApproveConfirmGate(), max_iterations=3)
    with pytest.raises(TurnError) as failure:
        await agent.run("go", model=endless())
    assert (failure.value.code, outline(failure.value.events).count("round_start")) == ("max_rounds", 3)
    monkeypatch.setenv("AGX_MAX_TOOL_ROUNDS", "10")
    with pytest.raises(TurnError) as failure:
        await agent.model_copy(update={"max_iterations": 25}).run("go", model=endless())
    assert outline(failure.value.events).count("round_start") == 10


async def test_the_budget_of_the_settings_is_that_of_a_run_and_of_the_agents_that_it_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGX_TURN_BUDGET_TOKENS", "100000")
    reader = Agent(name="reader", model=ScriptedModel([[say("Read."), usage(99_900, 10)]]))
    model = ScriptedModel([call("ask_reader", {"task": "Read"})])
    boss = Agent(model=model, tools=[reader.as_tool("ask_reader")])
    with pytest.raises(TurnError, match="budget of 100000 tokens is exceeded") as refused:
        await boss.run("go")
    assert refused.value.code == "budget_exceeded"


async def test_the_budget_of_the_settings_bounds_every_way_to_run_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGX_TURN_BUDGET_TOKENS", "100000")

    def spender() -> ScriptedModel:
        return ScriptedModel([[call("act"), usage(99_900, 10)], "Done."])

    @tool(risk="read")
    def act() -> str:
        """Act."""
        return "acted"

    events = [event async for event in AgentRuntime(spender(), tools=[act]).run_turn("go", Session())]
    assert (events[-1].type, events[-1].data["code"]) == ("error", "budget_exceeded")
    large = Budget(tokens=10_000_000)
    result = await AgentExecutor(spender(), budget=large).arun(Agent(tools=[act]), "go")
    assert "budget of 100000 tokens is exceeded" in str(result.error)
    chatty = AssistantAgent("one", spender(), tools=[act], budget=large)
    with pytest.raises(TurnError, match="budget of 100000 tokens is exceeded"):
        await chatty.run(task="go")
    members = [AssistantAgent(name, ScriptedModel([[say("Hi."), usage(99_900, 10)]])) for name in ("one", "two")]
    with pytest.raises(TeamError, match="budget of 100000 tokens is exceeded"):
        await RoundRobinGroupChat(members, max_turns=2).run(task="go")


async def test_deps_reach_the_tools_and_no_model() -> None:
    model = ScriptedModel([call("count"), "Three."])
    agent = Agent(name="shop", model=model, tools=[count], deps_type=Stock)
    result = await agent.run("How many?", deps=Stock(3))
    assert (result.output, results(result.events)) == ("Three.", ["3"])
    assert model.requests[0].tools[0].parameters["properties"] == {}
    assert "Stock" not in repr(model.requests)
    with pytest.raises(
        TypeError, match=r"deps must be a Stock, not NoneType: the tool 'count' takes ToolContext\[Stock\]"
    ):
        await agent.run("How many?")


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_the_loop_over_a_stream_approves_and_denies() -> None:
    async with changing().stream("go") as turn:
        async for event in turn:
            if event.type == "confirm_required":
                event.approve()
    assert (turn.result.output, results(turn.result.events)) == ("Done.", ["changed it"])
    async with changing().stream("go") as turn:
        async for event in turn:
            if event.type == "confirm_required":
                event.deny("Not today.")
    assert results(turn.result.events) == ["Denied by the user. Reason: Not today."]


async def test_a_confirmation_that_the_loop_leaves_unanswered_is_denied_where_nobody_can_be_asked() -> None:
    async with changing().stream("go") as turn:
        assert [text async for text in turn.text()] == ["Done."]
    assert results(turn.result.events)[0].startswith("Denied by policy. Reason: Nobody can be asked")


def asking(**fields: Any) -> Agent[Any, str]:
    """Return an agent that asks the user for a color, and says "Done."."""
    model = ScriptedModel([call("ask_user", {"text": "Which color?", "options": ["red", "blue"]}), say("Done.")])
    return Agent(name="asker", model=model, tools=[ask_user], **fields)


@pytest.mark.parametrize("place", ["memory", "hub", "gate", "function", "function, hub", "tool"])
async def test_the_loop_over_a_stream_answers_questions(place: str) -> None:
    gates = {"gate": AsyncConfirmGate(), "function": lambda request: True, "function, hub": lambda request: True}
    agent = asking(confirm_gate=gates.get(place))
    if place == "tool":
        asked = ScriptedModel([call("asker", {"task": "Ask."}), say("Ok.")])
        agent = Agent(name="boss", model=asked, tools=[agent.as_tool()])
    async with open_hub("memory://", model="demo") as hub:
        session = await hub.create() if "hub" in place else None
        async with agent.stream("go", session=session) as turn:
            async for event in turn:
                if event.type == "question_asked":
                    assert event.data["options"] == ["red", "blue"]
                    event.answer("green")
    answers = [event.data for event in turn.result.events if event.type == "question_answered"]
    assert [(data["answer"], data["by"]) for data in answers] == [("green", "user")]
    assert results(turn.result.events)[0] == "green"


async def test_a_question_that_the_loop_leaves_unanswered_has_no_answer_where_nobody_can_be_asked() -> None:
    async with asking().stream("go") as turn:
        events = [event async for event in turn]
    assert results(events)[0].startswith("No answer: nobody can be asked now.")
    (asked,) = [event for event in events if event.type == "question_asked"]
    with pytest.raises(AgenticXError, match="the turn that asked has ended"):
        asked.answer("red")
    (copy,) = [event for event in turn.result.events if event.type == "question_asked"]
    with pytest.raises(AgenticXError, match=r"async with agent\.stream.*AsyncConfirmGate\.answer_question"):
        copy.answer("red")
    with pytest.raises(TypeError, match="text must be a str"):
        copy.answer(1)  # type: ignore[arg-type]


async def test_an_event_can_be_answered_only_in_its_own_running_stream() -> None:
    async with changing().stream("go") as turn:
        events = [event async for event in turn]
    asked = next(event for event in events if event.type == "confirm_required")
    with pytest.raises(AgenticXError, match="the turn that asked has ended"):
        asked.approve()
    (copy,) = [event for event in turn.result.events if event.type == "confirm_required"]
    with pytest.raises(AgenticXError, match=r"async with agent\.stream"):
        copy.deny()


async def test_a_stream_yields_text_and_has_its_result_after_its_end() -> None:
    agent = Agent(model=ScriptedModel([[say("Let me look."), call("bare")], "Found."]), tools=[bare])
    async with agent.stream("Look") as turn:
        with pytest.raises(AgenticXError, match="before its end"):
            _ = turn.result
        assert "".join([text async for text in turn.text()]) == "Let me look.\n\nFound."
    assert turn.result.output == "Found."


def bare() -> str:
    """Do something that declares no risk."""
    return "done"


async def test_a_stream_that_is_stopped_ends_with_an_error() -> None:
    stop = StopSignal()
    async with Agent(model="demo").stream("count to 1000", should_stop=stop) as turn:
        async for event in turn:
            if event.type == "token":
                stop.set()
    with pytest.raises(TurnError) as failure:
        _ = turn.result
    assert failure.value.code == "stopped"


async def test_leaving_the_block_ends_the_turn_and_frees_the_session() -> None:
    session = Session()
    async with Agent(model="demo").stream("count to 1000", session=session) as turn:
        async for event in turn:
            if event.type == "token":
                break
    assert (await Agent(model="demo").run("say hi", session=session)).output == "hi"


# --- gates ------------------------------------------------------------------------------------------------------------


async def test_a_gate_is_a_plain_or_async_function_of_the_request() -> None:
    seen: list[ConfirmRequest] = []

    def plain(request: ConfirmRequest) -> bool:
        seen.append(request)
        return request.arguments == {"text": "it"}

    async def deny(request: ConfirmRequest) -> ConfirmAnswer:
        return ConfirmAnswer(approved=False, reason="Too late.")

    assert results((await changing(confirm_gate=plain).run("go")).events) == ["changed it"]
    assert (seen[0].tool, seen[0].risk, seen[0].command, seen[0].agent_id) == ("change", "write", None, "writer")
    assert results((await changing(confirm_gate=deny).run("go")).events) == ["Denied by the user. Reason: Too late."]
    odd: Any = lambda request: "yes"  # noqa: E731
    assert (
        "must return True, False or a ConfirmAnswer" in results((await changing(confirm_gate=odd).run("go")).events)[0]
    )


@pytest.mark.parametrize("gate", [AutoApproveConfirmGate, 5, lambda question, context: True])
def test_what_is_no_gate_is_refused(gate: Any) -> None:
    with pytest.raises(TypeError, match="confirm_gate"):
        Agent(confirm_gate=gate)


async def test_an_agent_with_a_gate_that_waits_can_be_approved_while_the_loop_goes_on() -> None:
    async with changing(confirm_gate=AsyncConfirmGate()).stream("go") as turn:
        async for event in turn:
            if event.type == "confirm_required":
                asyncio.get_running_loop().call_later(0.01, event.approve)
    assert results(turn.result.events) == ["changed it"]


async def test_the_mode_and_protected_paths_come_before_the_gate_of_an_agent(tmp_path: Path) -> None:
    asked: list[str] = []

    def yes(request: ConfirmRequest) -> bool:
        asked.append(request.tool)
        return True

    planned = await changing(confirm_gate=yes).run("go", session=Session(permission_mode="plan"))
    assert results(planned.events)[0].startswith("Denied: The session is in plan mode")
    assert asked == []
    model = ScriptedModel([call("file_write", {"path": ".git/hooks/x", "content": "x"}), say("Done.")])
    agent = Agent(name="writer", model=model, tools=builtin_tools(), confirm_gate=yes)
    (tmp_path / ".git").mkdir()
    async with open_hub("memory://", model="demo", workspace=tmp_path) as hub:
        session = await hub.create(permission_mode="auto")
        async with agent.stream("go", session=session) as turn:
            async for event in turn:
                if event.type == "confirm_required":
                    event.deny("Not there.")
    assert results(turn.result.events) == ["Denied by the user. Reason: Not there."]
    assert asked == []


def gate_that_denies(asked: list[str]) -> Callable[[ConfirmRequest], bool]:
    def deny(request: ConfirmRequest) -> bool:
        asked.append(f"{request.agent_id}: {request.tool}")
        return False

    return deny


@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto"])
async def test_the_gate_of_an_agent_is_asked_about_risky_calls_that_a_mode_or_a_rule_allows(
    mode: PermissionMode, tmp_path: Path
) -> None:
    asked: list[str] = []
    script = [
        [call("file_list"), call("file_write", {"path": "a.txt", "content": "x"}), call("change", {"text": "it"})]
    ]
    agent = Agent(
        name="writer",
        model=ScriptedModel([*script, say("Done.")]),
        tools=[*builtin_tools(), change],
        confirm_gate=gate_that_denies(asked),
    )
    rules = [Rule(decision="allow", tool="change", scope="session")]
    result = await agent.run("go", session=Session(workspace=tmp_path, permission_mode=mode, rules=rules))
    assert asked == ["writer: file_write", "writer: change"]
    assert results(result.events)[1:] == ["Denied by the user."] * 2
    assert list(tmp_path.iterdir()) == []


async def test_the_gate_of_an_agent_is_asked_about_agents_that_it_calls_or_hands_over_to_in_mode_auto() -> None:
    asked: list[str] = []
    calling = ScriptedModel([call("writer", {"task": "Go."}), "Ok."])
    boss = Agent(name="boss", model=calling, tools=[changing().as_tool()], confirm_gate=gate_that_denies(asked))
    handing = ScriptedModel([call("handoff_to_writer")])
    triage = Agent(name="triage", model=handing, handoffs=[changing()], confirm_gate=gate_that_denies(asked))
    for agent in (boss, triage):
        result = await agent.run("go", session=Session(permission_mode="auto"))
        assert "Denied by the user." in results(result.events)
    assert asked == ["writer: change", "writer: change"]


async def test_an_assistant_s_own_gate_is_asked_in_mode_auto_too(tmp_path: Path) -> None:
    asked: list[str] = []
    model = ScriptedModel([call("change", {"text": "it"}), "Done."])
    helper = AssistantAgent("helper", model, tools=[change], confirm_gate=gate_that_denies(asked))
    team = RoundRobinGroupChat([helper], max_turns=1, session=Session(workspace=tmp_path, permission_mode="auto"))
    await team.run(task="go")
    assert asked == ["helper: change"]


# --- several agents ---------------------------------------------------------------------------------------------------


async def test_agents_hand_over_by_declaration_and_back_by_name_or_function() -> None:
    back = ScriptedModel([call("handoff_to_triage", {"reason": "Not an invoice."}), "Paid."])
    billing = Agent(name="billing", model=back, handoffs=["triage"])
    triage = Agent(name="triage", model=ScriptedModel([call("handoff_to_billing"), "Hello again."]), handoffs=[billing])
    result = await triage.run("Pay")
    assert (result.output, result.agent) == ("Hello again.", triage)
    assert [event.data for event in result.events if event.type == "handoff"] == [
        {"from_agent": "triage", "to_agent": "billing"},
        {"from_agent": "billing", "to_agent": "triage", "reason": "Not an invoice."},
    ]
    one: Agent = Agent(name="one", model=ScriptedModel([call("handoff_to_two")]), handoffs=[lambda: two])
    two: Agent = Agent(name="two", model=ScriptedModel(["Two."]), handoffs=[lambda: one])
    assert (await one.run("Go")).output == "Two."


async def test_an_agent_without_a_model_takes_that_of_the_agent_that_began_the_run() -> None:
    billing = Agent(name="billing")
    script = [call("handoff_to_billing"), "Paid.", call("billing", {"task": "Is it paid?"}), "It is.", "Yes."]
    model = ScriptedModel(script)
    assert (await Agent(model=model, handoffs=[billing]).run("Is it paid?")).output == "Paid."
    asking = Agent(model=model, tools=[billing.as_tool()])
    result = await asking.run("Is it paid?")
    assert (result.output, model.unplayed) == ("Yes.", 0)


async def test_a_handoff_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ValueError, match="'nobody', which names no agent here; known agents: 'triage'"):
        await Agent(name="triage", model="demo", handoffs=["nobody"]).run("Hi")
    with pytest.raises(TypeError, match="handoffs must be agents, names of agents, or functions"):
        Agent(handoffs=[5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="belongs in tools"):
        Agent(handoffs=[lambda context_variables: Agent()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="two tools or handoffs called 'handoff_to_a'"):
        Agent(handoffs=["a", Agent(name="a")])


async def test_the_gate_of_the_agent_that_acts_is_asked() -> None:
    writer = changing(confirm_gate=lambda request: True)
    triage = Agent(name="triage", model=ScriptedModel([call("handoff_to_writer")]), handoffs=[writer])
    assert results((await triage.run("go")).events) == [
        "Transferred to writer, adopting the role of writer immediately.",
        "changed it",
    ]


async def test_an_agent_without_a_gate_has_that_of_the_agent_that_handed_over_to_it() -> None:
    asked: list[str] = []

    def gate(name: str) -> Callable[[ConfirmRequest], bool]:
        return lambda request: asked.append(f"{name}: {request.agent_id}") is None

    change_once = [call("change", {"text": "it"}), call("handoff_to_last")]
    last = changing(confirm_gate=gate("last")).model_copy(update={"name": "last"})
    middle = Agent(name="middle", model=ScriptedModel(change_once), tools=[change], handoffs=[last])
    first = Agent(
        name="first", model=ScriptedModel([call("handoff_to_middle")]), handoffs=[middle], confirm_gate=gate("first")
    )
    result = await first.run("go")
    assert [text for text in results(result.events) if text.startswith("changed")] == ["changed it"] * 2
    assert asked == ["first: middle", "last: last"]


async def test_an_agent_is_a_tool_of_another_one_with_the_same_deps() -> None:
    counter = Agent(name="counter", model=ScriptedModel([call("count"), "three"]), tools=[count], goal="Count apples.")
    assert counter.as_tool().schema.description == "Ask the agent counter. Count apples."
    boss = Agent(
        name="boss", model=ScriptedModel([call("counter", {"task": "Count."}), "Three."]), tools=[counter.as_tool()]
    )
    result = await boss.run("How many?", deps=Stock(3))
    assert (result.output, results(result.events)) == ("Three.", ["3", "three"])
    assert [event.agent_id for event in result.events if event.type == "turn_started"] == ["boss", "counter"]


async def test_the_loop_answers_for_the_agents_below_too() -> None:
    boss = Agent(
        name="boss", model=ScriptedModel([call("writer", {"task": "Go."}), "Ok."]), tools=[changing().as_tool()]
    )
    async with boss.stream("go") as turn:
        async for event in turn:
            if event.type == "confirm_required":
                event.approve()
    assert results(turn.result.events) == ["changed it", "Done."]


async def test_an_executor_runs_an_agent_on_a_text() -> None:
    result = await AgentExecutor("demo").arun(Agent(output_type=City), 'Say {"name": "Lyon"}')
    assert result.output == City(name="Lyon")


# --- stored sessions --------------------------------------------------------------------------------------------------


async def test_a_hub_runs_an_agent_as_it_is_in_a_stored_session() -> None:
    agent = Agent(
        name="shop", model=ScriptedModel([call("count"), '{"name": "Lyon"}']), tools=[count], output_type=City
    )
    async with open_hub("memory://", model="demo") as hub:
        session = await hub.create()
        assert (await hub.run(session.id, "say hi")).output == "hi"
        result = await agent.run("Where?", session=session, deps=Stock(4))
        assert (result.output, results(result.events), result.agent) == (City(name="Lyon"), ["4"], agent)
        assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
        assert [row["role"] for row in await hub.messages(session.id)].count("user") == 2
        denied = await hub.run(session.id, "go", agent=changing(confirm_gate=lambda request: False))
        assert results(denied.events) == ["Denied by the user."]
        async with changing().stream("go", session=session.id) as turn:
            async for event in turn:
                if event.type == "confirm_required":
                    event.approve()
        assert results(turn.result.events) == ["changed it"]
        with pytest.raises(SettingsError, match=r"deps must be a Stock, not NoneType.*open the hub with deps="):
            await agent.run("Where?", session=session)
        with pytest.raises(TypeError, match="deps must be a Stock, not int"):
            await agent.run("Where?", session=session, deps=4)


def slow(started: asyncio.Event) -> Agent[Any, str]:
    """Return an agent whose tool begins and waits for ever, and whose next reply is "Done."."""

    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    return Agent(name="slow", model=ScriptedModel([call("wait"), say("Done.")]), tools=[wait])


@pytest.mark.parametrize("left_at", ["turn_started", "confirm_required", "final"])
@pytest.mark.parametrize("raises", [False, True])
async def test_the_end_of_the_block_ends_a_stored_turn(left_at: str, raises: bool) -> None:
    agent = changing()
    async with open_hub("memory://", model="demo") as hub:
        session = await hub.create()
        with suppress(ZeroDivisionError):
            async with agent.stream("go", session=session) as turn:
                async for event in turn:
                    if event.type == "confirm_required" != left_at:
                        event.approve()
                    if event.type == left_at:
                        if raises:
                            raise ZeroDivisionError
                        break
        assert hub.running_turn_id(session.id) is None or left_at == "final"
        assert await hub.open_requests(session.id) == []
        assert (await Agent(model="demo").run("say hi", session=session)).output == "hi"
        first_end = [event.event async for event in _until_final(hub, session.id)][-1]
        assert first_end.data.get("code") == (None if left_at == "final" else "stopped")


async def test_a_cancelled_run_of_a_stored_session_has_ended_its_turn() -> None:
    async with open_hub("memory://", model="demo") as hub:
        session = await hub.create()
        for count_of_steps in range(40):  # at any step, also before the first event
            run = asyncio.create_task(slow(asyncio.Event()).run("go", session=session))
            for _ in range(count_of_steps):
                await asyncio.sleep(0)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert hub.running_turn_id(session.id) is None, count_of_steps
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await slow(asyncio.Event()).run("go", session=session)
        signal = StopSignal()
        signal.set()
        with pytest.raises(TurnError) as stopped:
            await slow(asyncio.Event()).run("go", session=session, should_stop=signal)
        assert stopped.value.code == "stopped"
        assert (await Agent(model="demo").run("say hi", session=session)).output == "hi"


async def test_a_hub_has_deps_for_the_turns_that_are_given_none() -> None:
    shop = Agent(name="shop", model=ScriptedModel([call("count"), "Seven.", call("count"), "Two."]), tools=[count])
    asked = list[str | None]()

    def stock_of(session: SessionRecord) -> Stock:
        asked.append(session.agent)
        return Stock(7)

    async with open_hub("memory://", model="demo", agents=[shop], deps=stock_of) as hub:
        session = await hub.create(agent=shop)
        assert (session.agent, asked) == ("shop", [])
        assert results((await hub.run(session.id, "How many?")).events) == ["7"]
        assert results((await hub.run(session.id, "How many?", deps=Stock(2))).events) == ["2"]
        assert asked == ["shop"]
        with pytest.raises(ValueError, match="the hub has another agent called 'shop'"):
            await hub.create(agent=shop.model_copy(update={"role": "another one"}))
    async with open_hub("memory://", model="demo", agents=[shop]) as hub:
        session = await hub.create(agent="shop")
        with pytest.raises(SettingsError, match="deps must be a Stock, not NoneType"):
            await hub.run(session.id, "How many?")
    with pytest.raises(TypeError, match="deps must be a function of the SessionRecord, not Stock"):
        async with open_hub("memory://", model="demo", deps=Stock(1)):  # type: ignore[arg-type]
            pass


async def test_a_session_can_be_created_with_an_agent_that_the_hub_does_not_know_yet(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    billing = Agent(name="billing", model=ScriptedModel(["Paid.", "Paid again."]))
    keeper = Agent(name="keeper", model=ScriptedModel(["Hello.", call("handoff_to_billing")]), handoffs=[billing])
    async with open_hub(url, model="demo") as hub:
        session = await hub.create(agent=keeper)
        assert [(await hub.run(session.id, text)).text for text in ("Hi", "Pay", "Pay")] == [
            "Hello.",
            "Paid.",
            "Paid again.",
        ]
        assert (await hub.create(agent=keeper)).agent == (await hub.create(agent="keeper")).agent == "keeper"
    async with open_hub(url, model="demo") as hub:
        with pytest.raises(UnknownAgent, match=r"unknown agent 'billing': .*open_hub\(agents=\[…\]\)"):
            await hub.run(session.id, "Hi")
        await hub.create(agent=keeper)
        with pytest.raises(UnknownAgent, match=r"'who'; known agents: 'keeper', 'billing'; .*open_hub\(agents=\[…\]\)"):
            await hub.change(session.id, {"agent": "who"})


@tool(risk="write")
def sell(context: ToolContext[Stock]) -> str:
    """Sell an apple."""
    context.deps.apples -= 1
    return f"{context.deps.apples} left"


def fails(session: SessionRecord) -> Stock:
    raise ConnectionError("no database yet")


@pytest.mark.parametrize(
    ("deps", "result"),
    [
        (lambda session: Stock(5), "4 left"),
        (None, "Error: deps must be a Stock, not NoneType: the tool 'sell' takes ToolContext[Stock]"),
        (fails, "Error: deps must be a Stock, not NoneType: the tool 'sell' takes ToolContext[Stock]"),
    ],
    ids=["deps", "no deps", "deps that raise"],
)
@pytest.mark.cases(quick=3)
async def test_a_turn_that_goes_on_after_a_restart_has_the_deps_of_the_new_hub(
    tmp_path: Path, deps: Any, result: str
) -> None:
    def shop(*replies: Any) -> Agent[Any, Any]:
        return Agent(name="shop", model=ScriptedModel(replies), tools=[sell])

    url = f"sqlite:///{tmp_path}/chat.db"
    async with open_hub(url, model="demo", agents=[agent := shop(call("sell"))]) as hub:
        session = await hub.create(agent=agent)
        turn = asyncio.create_task(hub.run(session.id, "Sell one", deps=Stock(9)))
        async for event in hub.follow(session.id):
            if event.event.type == "confirm_required":
                break
    with pytest.raises(HubClosed):
        await turn
    async with open_hub(url, model="demo", agents=[shop()]) as hub:  # without deps the question stays open
        assert [request.tool for request in await hub.open_requests(session.id)] == ["sell"]
    async with open_hub(url, model="demo", agents=[shop("Sold.")], deps=deps) as hub:
        (request,) = await hub.open_requests(session.id)
        await hub.answer(request.id, ConfirmAnswer(approved=True), digest=request.digest)
        events = [event.event async for event in _until_final(hub, session.id)]
    assert (events[-1].type, results(events)) == ("final", [result])


async def test_a_hub_knows_the_agents_to_which_its_agents_hand_over() -> None:
    billing = Agent(name="billing", model=ScriptedModel(["Paid.", '{"name": "Lyon"}']), output_type=City)
    triage = Agent(name="triage", model=ScriptedModel([call("handoff_to_billing")]), handoffs=[billing])
    async with open_hub("memory://", model="demo", agents=[triage]) as hub:
        session = await hub.create(agent="triage")
        first = await hub.run(session.id, "Pay")
        assert (first.output, first.agent) == ("Paid.", billing)
        second = await hub.run(session.id, "Where?")
        assert (second.output, second.agent) == (City(name="Lyon"), billing)


@pytest.mark.ci_lane
async def test_a_turn_of_an_agent_that_waits_goes_on_in_the_next_hub_that_knows_the_agent(tmp_path: Path) -> None:
    async def ask(name: str) -> str:
        """Return the id of a session whose turn waits for an answer, and was left by the hub that it ran in."""
        async with open_hub(f"sqlite:///{tmp_path}/{name}.db", model="demo") as hub:
            session = await hub.create()
            turn = asyncio.create_task(hub.run(session.id, "go", agent=changing()))
            async for event in hub.follow(session.id):
                if event.event.type == "confirm_required":
                    break
        with pytest.raises(HubClosed, match="it goes on in the next one"):
            await turn
        return session.id

    session_id = await ask("known")
    again = Agent(name="writer", model=ScriptedModel(["Done."]), tools=[change])
    async with open_hub(f"sqlite:///{tmp_path}/known.db", model="demo", agents=[again]) as hub:
        (request,) = await hub.open_requests(session_id)
        await hub.answer(request.id, ConfirmAnswer(approved=True), digest=request.digest)
        events = [event.event async for event in _until_final(hub, session_id)]
        assert (results(events), events[-1].data["text"]) == (["changed it"], "Done.")
    session_id = await ask("unknown")
    async with open_hub(f"sqlite:///{tmp_path}/unknown.db", model="demo") as hub:
        assert await hub.open_requests(session_id) == []
        events = [event.event async for event in _until_final(hub, session_id)]
        assert (events[-1].type, events[-1].data["code"]) == ("error", "interrupted")
        assert "It cannot go on: unknown agent 'writer'" in events[-1].data["text"]


async def _until_final(hub: Hub, session_id: str) -> AsyncGenerator[SessionEvent]:
    async for event in hub.follow(session_id):
        yield event
        if event.event.terminal:
            return


# --- adapters ---------------------------------------------------------------------------------------------------------


async def test_a_team_has_agents_as_they_are() -> None:
    writer = Agent(name="writer", role="a writer", model=ScriptedModel(["Leaves fall."]), instructions=lambda: "Write.")
    critic = changing(confirm_gate=lambda request: True).model_copy(update={"name": "critic", "output_type": None})
    result = await RoundRobinGroupChat([writer, critic], max_turns=2).run(task="Write about autumn.")
    assert [(message.source, message.to_text()) for message in result.messages] == [
        ("user", "Write about autumn."),
        ("writer", "Leaves fall."),
        ("critic", 'change({"text": "it"})'),
        ("critic", "changed it"),
        ("critic", "Done."),
    ]
    assert writer.model.requests[0].messages[0].content == "You are writer, a writer.\n\nWrite."


async def test_agents_of_a_swarm_hand_over_to_participants() -> None:
    triage = Agent(name="triage", model=ScriptedModel([call("handoff_to_geo")]), handoffs=["geo"])
    geo = Agent(name="geo", model=ScriptedModel(['{"name": "Lyon"}']), output_type=City)
    result = await Swarm([triage, geo], max_turns=2).run(task="Where?")
    assert [message.type for message in result.messages][-2:] == ["HandoffMessage", "StructuredMessage[City]"]


async def test_sub_agents_act_as_an_agent() -> None:
    model = ScriptedModel(["Found."])
    manager = AgentTeamManager(Agent(name="reader", model=model, instructions="Read."), session=Session())
    agent_id = await manager.spawn("Read the log")
    (state,) = await manager.wait([agent_id])
    await manager.aclose()
    assert state["state"] == "completed"
    assert model.requests[0].messages[0].content == "Read."


async def test_a_cancellation_token_of_a_team_stops_an_agent_too() -> None:
    token = CancellationToken()
    async with Agent(model="demo").stream("count to 1000", should_stop=token) as turn:
        async for event in turn:
            if event.type == "token":
                token.cancel()
    with pytest.raises(TurnError, match="stopped"):
        _ = turn.result
