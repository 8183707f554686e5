"""Tasks whose runs are turns of stored sessions, or part of another turn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import AutoApproveConfirmGate, ConfirmAnswer, UserMessage, open_hub
from agenticx.core import Agent, AgentExecutor, GuideRailContext, GuideRailVerdict, Task
from agenticx.errors import ModelError, SessionBusy, SessionNotFound
from agenticx.messages import AssistantMessage, ToolMessage
from agenticx.runtime import AgentRuntime, Budget, ConfirmGate, Session
from agenticx.sessions import MemoryStore, Store, read_log_pages, transcript
from agenticx.settings import Settings, load_settings
from agenticx.subagents import session_tools
from agenticx.testing import ScriptedModel, call, check_grammar, collect, fail, hang, outline, say, usage
from agenticx.tools import tool
from tests.support.endings import ending_text
from tests.support.forked import ROOT, Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = pytest.mark.anyio


@tool(risk="write")
def pay(invoice: int, context_variables: dict[str, Any]) -> str:
    """Pay an invoice."""
    return f"invoice {invoice} is paid by {context_variables['customer']}"


billing = Agent(name="Billing", instructions="You do invoices.", tools=(pay,))
PAYING = [[call("pay", {"invoice": 7}), usage(20, 4)], [say("Paid."), usage(30, 2)]]
TASK = Task(description="Pay 7.")
ANN = {"customer": "Ann"}
YES = AutoApproveConfirmGate()


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home", "workspace_root": folder}, environ={})


class ByTask(ScriptedModel):
    """A model that plays the script of a sub-agent for its task, `Look.`, else that of the agent."""

    def __init__(self, agent: ScriptedModel, subagent: ScriptedModel) -> None:
        super().__init__([])
        self._agent, self._subagent = agent, subagent

    def stream(self, request: Any) -> Any:
        is_task = request.messages[-1].content == "Look."
        return (self._subagent if is_task else self._agent).stream(request)


async def envelopes(store: Store, session_id: str) -> list[dict[str, Any]]:
    return [json.loads(event.frame_json) async for page in read_log_pages(store.log, session_id) for event in page]


# --- a store of the executor's own ------------------------------------------------------------------------------------


async def test_a_run_is_a_turn_of_a_stored_session_and_its_attempt_a_turn_below_it(tmp_path: Path) -> None:
    store, model = MemoryStore(), ScriptedModel(PAYING)
    executor = AgentExecutor(model, store=store, settings=settings_in(tmp_path), confirm_gate=YES)
    result = await executor.arun(billing, TASK, context_variables=ANN)
    await executor.aclose()
    assert (result.success, result.result, result.context_variables) == (True, "Paid.", ANN)
    assert (result.stats.rounds, result.stats.tool_calls) == (2, 1)
    assert result.stats.usage == {"input_tokens": 50, "output_tokens": 6}
    check_grammar(result.events)
    assert result.session_id is not None
    stored = await envelopes(store, result.session_id)
    check_grammar(stored)
    began = [event for event in stored if event["type"] == "turn_started"]
    assert [event["agent_id"] for event in began] == ["meta", "Billing"]
    usages = [event["data"] for event in stored if event["type"] == "usage"]
    assert [data["organization_id"] for data in usages] == ["default-org"] * 2
    assert began[1]["data"]["parent_turn_id"] == began[0]["turn_id"]
    assert [row.agent_id for row in await store.catalog.usage(session_id=result.session_id)] == ["Billing"]
    pages = [event async for page in read_log_pages(store.log, result.session_id) for event in page]
    assert [message["content"] for message in transcript(pages)] == ["Pay 7.", "Paid."]


async def test_the_calls_of_the_latest_tasks_are_sent_and_those_of_older_ones_left_out(tmp_path: Path) -> None:
    @tool(risk="read")
    def read(number: int) -> str:
        """Read a part."""
        return f"{number}: {'x' * 10_000}"

    store, agent = MemoryStore(), Agent(name="Reader", tools=(read,))
    model = ScriptedModel([reply for number in range(6) for reply in (call("read", {"number": number}), "Read.")])
    first = AgentExecutor(model, store=store, settings=settings_in(tmp_path))
    session_id = (await first.arun(agent, Task(description="Part 0"))).session_id
    await first.aclose()
    executor = AgentExecutor(model, store=store, session=session_id, settings=settings_in(tmp_path))
    for number in range(1, 6):
        await executor.arun(agent, Task(description=f"Part {number}"))
    await executor.aclose()
    sent = model.requests[-2].messages
    assert [message.content for message in sent if isinstance(message, UserMessage)] == [f"Part {n}" for n in range(6)]
    results = [message.content[0] for message in sent if isinstance(message, ToolMessage)]
    assert results == ["2", "3", "4"]


async def test_what_an_agent_was_told_of_its_sub_agent_is_part_of_the_next_tasks(tmp_path: Path) -> None:
    store = MemoryStore()
    spawns = call("spawn_subagent", {"task": "Look.", "name": "scout"})
    model = ScriptedModel([spawns, call("wait_subagents"), "It is red.", "Red.", "Still red."])
    scout = ScriptedModel(["Red."])
    agent = Agent(name="Lead", tools=tuple(session_tools()))
    executor = AgentExecutor(ByTask(model, scout), store=store, settings=settings_in(tmp_path))
    session_id = (await executor.arun(agent, Task(description="Find out."))).session_id
    await executor.aclose()
    executor = AgentExecutor(ByTask(model, scout), store=store, session=session_id, settings=settings_in(tmp_path))
    for text in ("And?", "Sure?"):
        assert (await executor.arun(agent, Task(description=text))).success
    await executor.aclose()
    told = ending_text("scout-1 completed", "Red.")
    assert [message.content for message in model.requests[2].messages][-1] == told
    later = [[message.content for message in request.messages] for request in model.requests[3:]]
    assert later[0][-3:] == [told, "It is red.", "And?"]
    assert later[1][-5:] == [told, "It is red.", "And?", "Red.", "Sure?"]


async def test_half_a_surrogate_pair_in_a_task_is_replaced(tmp_path: Path) -> None:
    url, model = f"sqlite:///{tmp_path}/runs.db", ScriptedModel([say("Fine.")])
    executor = AgentExecutor(model, store=url, settings=settings_in(tmp_path))
    assert (await executor.arun(Agent(), Task(description="half \ud83d of it"))).result == "Fine."
    await executor.aclose()
    assert model.requests[0].messages[-1].content == "half \ufffd of it"


async def test_a_later_executor_continues_a_stored_session(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/runs.db", settings_in(tmp_path)
    first = AgentExecutor(ScriptedModel(PAYING), store=url, settings=settings, confirm_gate=YES)
    session_id = (await first.arun(billing, TASK, context_variables=ANN)).session_id
    await first.aclose()
    model = ScriptedModel(["Number 7."])
    second = AgentExecutor(model, store=url, session=session_id, settings=settings)
    result = await second.arun(billing, Task(description="Which one?"))
    await second.aclose()
    assert (result.session_id, result.result, result.context_variables) == (session_id, "Number 7.", ANN)
    contents = [message.content for message in model.requests[0].messages][1:]
    assert contents == ["Pay 7.", "", "invoice 7 is paid by Ann", "Paid.", "Which one?"]


def test_a_blocking_run_closes_its_store_each_time(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    executor = AgentExecutor(model, store=f"sqlite:///{tmp_path}/runs.db", settings=settings_in(tmp_path))
    results = [executor.run(Agent(), Task(description=text)) for text in ("First", "Second")]
    assert [result.result for result in results] == ["One.", "Two."]
    assert results[0].session_id != results[1].session_id


async def test_a_run_that_fails_ends_its_turn_with_the_code_of_the_attempt(tmp_path: Path) -> None:
    store, model = MemoryStore(), ScriptedModel([fail(ModelError("no such key", code="provider.auth"))])
    executor = AgentExecutor(model, store=store, settings=settings_in(tmp_path))
    result = await executor.arun(billing, TASK)
    await executor.aclose()
    assert (result.success, result.error) == (False, "provider.auth: no such key")
    ends = [
        event["data"]["code"] for event in await envelopes(store, result.session_id or "") if event["data"].get("fatal")
    ]
    assert ends == ["provider.auth", "provider.auth"]


async def test_a_stored_run_that_is_stopped_is_a_failure_with_what_had_happened(tmp_path: Path) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Invoices")
        await hub.change(session.id, {"permission_mode": "auto"})
        model = ScriptedModel([PAYING[0], hang()])
        executor = AgentExecutor(model, session=session.id)
        running = asyncio.create_task(executor.arun(billing, TASK, context_variables=ANN))
        await wait_until(lambda: len(model.requests) == 2)
        await hub.stop(session.id)
        result = await running
    assert (result.success, (result.error or "").partition(":")[0]) == (False, "stopped")
    check_grammar(result.events)
    assert result.events[-1].type == "error"
    assert (result.stats.rounds, result.stats.tool_calls) == (2, 1)
    assert result.stats.usage == {"input_tokens": 20, "output_tokens": 4}
    assert result.stats.seconds > 0


class Refusing:
    """A guide rail that refuses each result."""

    async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
        return GuideRailVerdict("abort", reason="no")


async def test_a_run_that_is_stopped_in_its_second_attempt_says_so(tmp_path: Path) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Invoices")
        model = ScriptedModel(["one", hang()])
        executor = AgentExecutor(model, session=session.id, guide_rails=[Refusing()])
        running = asyncio.create_task(executor.arun(Agent(), TASK))
        await wait_until(lambda: len(model.requests) == 2)
        await hub.stop(session.id)
        result = await running
    assert ((result.error or "").partition(":")[0], result.stats.rounds) == ("stopped", 2)


async def test_leaving_the_stream_of_a_stored_run_stops_it(tmp_path: Path) -> None:
    store, model = MemoryStore(), ScriptedModel(PAYING)
    executor = AgentExecutor(model, store=store, settings=settings_in(tmp_path), confirm_gate=YES)
    stream = executor.stream(billing, TASK, context_variables=ANN)
    async for event in stream:
        if event.type == "tool_call":
            break
    await stream.aclose()
    (record,) = await store.catalog.sessions()
    ends = [event["data"]["code"] for event in await envelopes(store, record.id) if event["data"].get("fatal")]
    await executor.aclose()
    assert ends == ["stopped", "stopped"]


async def test_a_run_that_is_cancelled_at_any_step_has_ended_its_turn(tmp_path: Path) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        for steps in range(40):
            session = await hub.create(name="Invoices")
            executor = AgentExecutor(ScriptedModel([hang()]), session=session.id)
            running = asyncio.create_task(executor.arun(Agent(), TASK))
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert hub.running_turn_id(session.id) is None, steps


KILLED = """
import os, signal, sys
from agenticx.core import Agent, AgentExecutor, Task
from agenticx.testing import ScriptedModel, call

def pay(invoice: int) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

billing = Agent(name="Billing", tools=[pay])
model = ScriptedModel([call("pay", {"invoice": 7})])
AgentExecutor(model, store=sys.argv[1]).run(billing, Task(description="Pay 7."))
"""


async def run_until_killed(program: str, url: str, environment: dict[str, str]) -> None:
    process = Process(PROGRAM, [program, url], cwd=ROOT, env=environment)
    _, error = await asyncio.to_thread(process.communicate, "", PATIENCE)
    assert process.returncode == -9, error


@pytest.mark.promise("F1")
async def test_after_a_kill_the_log_shows_the_call_that_had_begun_and_the_next_run_goes_on(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/runs.db", settings_in(tmp_path)
    environment = {"AGX_HOME": str(tmp_path / "home"), "AGX_WORKSPACE_ROOT": str(tmp_path)}
    await run_until_killed(KILLED, url, environment)
    model = ScriptedModel(["I do not know."])
    async with open_hub(url, model=ScriptedModel([]), settings=settings) as hub:
        (record,) = await hub.store.catalog.sessions()
        stored = await envelopes(hub.store, record.id)
    check_grammar(stored)
    assert [event["data"]["outcome"] for event in stored if event["type"] == "tool_result"] == ["unknown"]
    assert [event["data"]["code"] for event in stored if event["data"].get("fatal")] == ["interrupted", "interrupted"]
    executor = AgentExecutor(model, store=url, session=record.id, settings=settings)
    assert (await executor.arun(billing, Task(description="Is it paid?"))).result == "I do not know."
    await executor.aclose()
    begun, result = model.requests[0].messages[2:4]
    assert isinstance(begun, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert [(made.name, json.loads(made.arguments)) for made in begun.tool_calls] == [("pay", {"invoice": 7})]
    assert (result.name, result.outcome) == ("pay", "unknown")
    assert [message.content for message in model.requests[0].messages if message.role == "user"] == [
        "Pay 7.",
        "Is it paid?",
    ]


async def test_the_events_that_end_an_interrupted_run_are_those_of_the_agent_that_acted(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/runs.db", settings_in(tmp_path)
    handing_over = "def transfer():\n    return billing\n\nmodel = ScriptedModel([call('transfer'), "
    program = KILLED.replace("model = ScriptedModel([", handing_over)
    program = program.replace(".run(billing,", ".run(Agent(name='Triage', tools=[transfer]),")
    environment = {"AGX_HOME": str(tmp_path / "home"), "AGX_WORKSPACE_ROOT": str(tmp_path)}
    await run_until_killed(program, url, environment)
    async with open_hub(url, model=ScriptedModel([]), settings=settings) as hub:
        (record,) = await hub.store.catalog.sessions()
        stored = await envelopes(hub.store, record.id)
    check_grammar(stored)
    results = [(event["agent_id"], event["data"]["outcome"]) for event in stored if event["type"] == "tool_result"]
    assert results == [("Triage", "ok"), ("Billing", "unknown")]
    assert [event["agent_id"] for event in stored if event["data"].get("fatal")] == ["Billing", "meta"]


async def test_the_next_run_reads_what_a_run_without_an_answer_has_done_and_no_refused_answer(tmp_path: Path) -> None:
    session_id, read = "", list[str]()
    store, settings = MemoryStore(), settings_in(tmp_path)
    failing = [PAYING[0], fail(ModelError("no such key", code="provider.auth"))]
    for script, rails, text in (
        (failing, [], "Pay 7."),
        ([PAYING[0], say("A secret.")], [Refusing()], "Pay 7 again."),
        (["Hello."], [], "Hi"),
        (["Twice."], [], "Is it paid?"),
    ):
        model, agent = ScriptedModel(script), billing.model_copy(update={"max_retry_limit": 0})
        executor = AgentExecutor(
            model, store=store, session=session_id or None, guide_rails=rails, settings=settings, confirm_gate=YES
        )
        result = await executor.arun(agent, Task(description=text), context_variables=ANN)
        await executor.aclose()
        session_id = result.session_id or ""
        read = [message.content for message in model.requests[-1].messages[1:]]
    paid = ["", "invoice 7 is paid by Ann"]
    assert read == ["Pay 7.", *paid, "Pay 7 again.", *paid, "Hi", "Hello.", "Is it paid?"]


# --- a session of an open hub -----------------------------------------------------------------------------------------


async def test_a_run_in_a_session_of_an_open_hub_asks_its_user(tmp_path: Path) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Invoices")
        executor = AgentExecutor(ScriptedModel(PAYING), session=session.id)
        events: list[Any] = []
        async for event in executor.stream(billing, TASK, context_variables=ANN):
            events.append(event)
            if event.type == "confirm_required":
                assert event.data["context"]["tool"] == "pay"
                answer = ConfirmAnswer(approved=True)
                await hub.answer(event.data["id"], answer, digest=event.data["digest"])
        assert [event.data["agent_path"] for event in events if event.type == "confirm_required"] == [
            ["meta", "Billing"]
        ]
        assert events[-1].data["text"] == "Paid."
    with pytest.raises(SessionNotFound, match="no open hub has a session"):
        await executor.arun(billing, TASK)


@pytest.mark.parametrize("where", ["in memory", "in a hub"])
async def test_a_run_while_its_session_is_busy_fails_without_an_exception(tmp_path: Path, where: str) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = Session() if where == "in memory" else (await hub.create(name="Invoices")).id
        executor = AgentExecutor(ScriptedModel([hang()]), session=session)
        stream = executor.stream(billing, TASK)
        assert (await anext(stream)).type == "turn_started"
        result = await executor.arun(billing, Task(description="Pay 8."))
        with pytest.raises(SessionBusy, match="already runs"):
            await anext(executor.stream(billing, TASK))
        await stream.aclose()
    assert (result.success, result.result, result.events) == (False, "", ())
    assert (result.error or "").startswith("session_busy: session 'ses_")


async def test_a_run_that_is_refused_as_its_session_is_busy_changes_nothing_of_it() -> None:
    session = Session()
    stream = AgentExecutor(ScriptedModel([hang()]), session=session).stream(billing, TASK, context_variables=ANN)
    assert (await anext(stream)).type == "turn_started"
    other = AgentExecutor(ScriptedModel(), session=session)
    assert not (await other.arun(Agent(name="Other"), TASK, context_variables={"customer": "Bob"})).success
    assert (session.active_agent, session.state.context_variables) == ("Billing", ANN)
    await stream.aclose()


async def test_a_blocking_run_says_that_the_hub_of_its_session_is_on_another_event_loop(tmp_path: Path) -> None:
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings_in(tmp_path)) as hub:
        session = await hub.create(name="Invoices")
        executor = AgentExecutor(ScriptedModel(), session=session.id)
        with pytest.raises(SessionNotFound, match="a hub is open on another event loop"):
            await asyncio.to_thread(executor.run, billing, TASK)
        with pytest.raises(SessionNotFound, match="await `arun` there, instead of `run`"):
            executor.run(billing, TASK)


async def test_a_store_beside_a_session_in_memory_and_what_is_no_store_are_refused() -> None:
    with pytest.raises(ValueError, match="a session in memory is not stored"):
        AgentExecutor("demo", store=MemoryStore(), session=Session())
    with pytest.raises(TypeError, match="store must be a Store or a URL"):
        AgentExecutor("demo", store=5)  # pyright: ignore[reportArgumentType]


# --- runs that are part of a turn -------------------------------------------------------------------------------------


async def test_a_run_within_a_tool_is_a_turn_below_and_asks_the_gate_of_that_turn() -> None:
    model, answers = ScriptedModel(PAYING), list[str]()

    @tool(risk="read")
    async def delegate() -> str:
        """Have an invoice paid."""
        result = await AgentExecutor(model).arun(billing, TASK, context_variables=ANN)
        answers.append(result.result)
        return result.result

    class Asked(ConfirmGate):
        def request_confirm(self, question: str, context: Any) -> bool:
            answers.append(context["tool"])
            return True

    runtime = AgentRuntime(ScriptedModel([call("delegate"), "Done."]), Asked(), tools=[delegate])
    events = await collect(runtime.run_turn("Pay!"))
    check_grammar(events)
    assert answers == ["pay", "Paid."]
    assert [event.agent_id for event in events if event.type == "turn_started"] == ["meta", "Billing"]
    assert {event.agent_id for event in events if event.type == "usage"} == {"meta", "Billing"}


async def test_a_blocking_run_in_the_thread_of_a_tool_is_a_turn_below_too() -> None:
    executor = AgentExecutor(ScriptedModel(["Hello."]))

    @tool(risk="read")
    def delegate() -> str:
        """Ask another agent."""
        return executor.run(billing, Task(description="Hi")).result

    runtime = AgentRuntime(ScriptedModel([call("delegate"), "Done."]), tools=[delegate])
    events = await collect(runtime.run_turn("Go"))
    check_grammar(events)
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["Hello."]
    assert [event.agent_id for event in events if event.type == "turn_started"] == ["meta", "Billing"]


async def test_a_run_on_an_event_loop_of_its_own_is_no_part_of_the_turn_whose_tool_started_it() -> None:
    executor = AgentExecutor(ScriptedModel(["Hello."]))

    @tool(risk="read")
    def delegate() -> str:
        """Ask another agent."""
        return asyncio.run(executor.arun(billing, Task(description="Hi"))).result

    runtime = AgentRuntime(ScriptedModel([call("delegate"), "Done."]), tools=[delegate])
    events = await collect(runtime.run_turn("Go"))
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["Hello."]
    assert [event.agent_id for event in events if event.type == "turn_started"] == ["meta"]


async def test_a_chat_within_a_tool_is_a_turn_below() -> None:
    executor = AgentExecutor(ScriptedModel(["Hello."]))

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent."""
        return (await executor.achat(billing, [{"role": "user", "content": "Hi"}])).messages[-1]["content"]

    runtime = AgentRuntime(ScriptedModel([call("ask"), "Done."]), tools=[ask])
    events = await collect(runtime.run_turn("Go"))
    check_grammar(events)
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["Hello."]
    assert [event.agent_id for event in events if event.type == "turn_started"] == ["meta", "Billing"]


# --- guide rails ------------------------------------------------------------------------------------------------------


class Polite:
    """A guide rail that asks a model."""

    async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
        answer = await context.ask(f"Is this polite? {text}", name="Polite")
        return GuideRailVerdict("pass") if answer == "yes" else GuideRailVerdict("abort", reason=answer)


ANSWERS = [
    [say("Pay!"), usage(10, 2)],
    [say("no"), usage(5, 1)],
    [say("Please pay."), usage(12, 3)],
    [say("yes"), usage(5, 1)],
]


@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "stored"])
async def test_the_model_of_a_guide_rail_counts_in_the_usage_and_the_budget_of_the_run(
    tmp_path: Path, is_stored: bool
) -> None:
    store, budget = MemoryStore() if is_stored else None, Budget(tokens=100_000)
    executor = AgentExecutor(
        ScriptedModel(ANSWERS), guide_rails=[Polite()], budget=budget, store=store, settings=settings_in(tmp_path)
    )
    result = await executor.arun(Agent(name="Writer"), Task(description="Ask for money."))
    await executor.aclose()
    assert (result.success, result.result) == (True, "Please pay.")
    assert result.stats.usage == {"input_tokens": 32, "output_tokens": 7}
    assert (result.stats.rounds, budget.spent.tokens) == (2, 39)
    used = [event.agent_id for event in result.events if event.type == "usage"]
    assert used == ["Writer", "Polite", "Writer", "Polite"]
    check_grammar(result.events)
    if store is not None:
        rows = await store.catalog.usage(session_id=result.session_id)
        assert {row.agent_id: row.counts.input_tokens for row in rows} == {"Writer": 22, "Polite": 10}


async def test_a_guide_rail_whose_model_cannot_be_afforded_refuses_the_result() -> None:
    agent, budget = Agent(name="Writer", max_retry_limit=0), Budget(tokens=6_000)
    model = ScriptedModel([[say("Pay!"), usage(5_900, 95)]])
    result = await AgentExecutor(model, guide_rails=[Polite()], budget=budget).arun(agent, TASK)
    assert not result.success
    assert "budget" in (result.error or "")
    assert outline(result.events)[-1] == "error"


async def test_the_calls_of_all_attempts_of_a_run_without_an_answer_are_known_to_the_next_one(tmp_path: Path) -> None:
    class Refuses:
        async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
            return GuideRailVerdict("abort", reason="no")

    store, script = MemoryStore(), [call("pay", {"invoice": 1}), "One.", call("pay", {"invoice": 2}), "Two."]
    executor = AgentExecutor(
        ScriptedModel(script),
        store=store,
        settings=settings_in(tmp_path),
        guide_rails=[Refuses()],
        confirm_gate=YES,
    )
    agent = Agent(name="Billing", tools=(pay,), max_retry_limit=1)
    result = await executor.arun(agent, TASK, context_variables=ANN)
    await executor.aclose()
    assert not result.success
    model = ScriptedModel(["Both are paid."])
    executor = AgentExecutor(model, store=store, session=result.session_id, settings=settings_in(tmp_path))
    assert (await executor.arun(agent, TASK)).success
    await executor.aclose()
    told = [message.content for message in model.requests[0].messages if isinstance(message, ToolMessage)]
    assert told == ["invoice 1 is paid by Ann", "invoice 2 is paid by Ann"]
