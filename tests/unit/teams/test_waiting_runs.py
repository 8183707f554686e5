"""Runs of an application's own teams and tasks that wait for a person while their process ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx import QuestionAnswer, open_hub
from agenticx.core import Agent, AgentExecutor, Task
from agenticx.errors import SessionBusy
from agenticx.llms import ScriptedModel
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, QuestionClosed
from agenticx.sessions import Hub, TurnRequest
from agenticx.settings import load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TaskResult, UserProxyAgent
from agenticx.testing import call
from agenticx.tools import tool
from agenticx.tools.builtin import ask_user
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.teams.sessions import log_of

pytestmark = pytest.mark.anyio

MakeTeam = Callable[[str, list[ScriptedModel]], RoundRobinGroupChat]


@asynccontextmanager
async def reopened(folder: Path) -> AsyncIterator[Hub]:
    """Yield a hub over the store of `folder`, as that of the next process."""
    settings = load_settings({"home": folder / "home"}, environ={})
    url = f"sqlite:///{folder}/sessions.db"
    async with open_hub(url, model=ScriptedModel([]), tools=[], workspace=folder, settings=settings) as hub:
        yield hub


async def run_until_asked(folder: Path, make: MakeTeam, scripts: Sequence[Sequence[Any]], type_: str) -> str:
    """Run a team until it asks a person, close the hub, and return the session."""
    async with reopened(folder) as hub:
        session_id = (await hub.create(name="Talk")).id
        running = asyncio.create_task(
            make(session_id, [ScriptedModel(list(script)) for script in scripts]).run(task="Go")
        )
        await wait_for_event(hub.store, session_id, type_)
    with pytest.raises(asyncio.CancelledError):
        await running
    return session_id


def with_person(session_id: str, models: list[ScriptedModel]) -> RoundRobinGroupChat:
    members = [AssistantAgent("helper", models[0]), UserProxyAgent("person"), AssistantAgent("last", models[1])]
    return RoundRobinGroupChat(members, name="Team", max_turns=3, session=session_id)


def types(log: Sequence[dict[str, Any]], type_: str) -> int:
    return [event["type"] for event in log].count(type_)


def lines(result: TaskResult) -> list[str]:
    return [message.to_text() for message in result.messages]


@pytest.mark.parametrize("answered", ["before", "after"])
async def test_the_question_to_a_person_waits_for_the_next_run(tmp_path: Path, answered: str) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        turn_id = hub.running_turn_id(session_id)
        assert turn_id is not None
        if answered == "before":
            assert (await hub.answer(question.id, QuestionAnswer(answer="Large"))).answer == "Large"
            with pytest.raises(QuestionClosed):
                await hub.answer(question.id, QuestionAnswer(answer="Small"))
        models = [ScriptedModel([]), ScriptedModel(["Thanks."])]
        running = asyncio.create_task(with_person(session_id, models).run())
        if answered == "after":
            while (await hub.suspended_turn(session_id)) is not None:
                await asyncio.sleep(0)
            await hub.answer(question.id, QuestionAnswer(answer="Large"))
        result = await running
        assert lines(result)[-2:] == ["Large", "Thanks."]
        log = await log_of(hub, session_id)
        assert (types(log, "question_asked"), types(log, "question_answered")) == (1, 1)
        assert [event["turn_id"] for event in log if event["type"] == "final"][-1] == turn_id
        assert [event["data"]["speakers"][0] for event in log if event["type"] == "speaker_selected"] == [
            "helper", "person", "last"
        ]  # fmt: skip


async def test_a_question_of_a_model_waits_for_the_next_run_and_costs_no_second_call(tmp_path: Path) -> None:
    looks: list[str] = []

    @tool(risk="read")
    def look() -> str:
        """Look."""
        looks.append("look")
        return "seen"

    def make(session_id: str, models: list[ScriptedModel]) -> RoundRobinGroupChat:
        asker = AssistantAgent("asker", models[0], tools=[look, ask_user])
        return RoundRobinGroupChat([asker], max_turns=1, session=session_id)

    asks = [call("look"), call("ask_user", {"text": "Which size?"})]
    session_id = await run_until_asked(tmp_path, make, [asks], "question_asked")
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
    async with reopened(tmp_path) as hub:  # once more, without the application
        assert await hub.open_requests() == []
    async with reopened(tmp_path) as hub:
        result = await make(session_id, [model := ScriptedModel(["Large it is."])]).run()
        assert (lines(result)[-1], len(model.requests), looks) == ("Large it is.", 1, ["look"])
        assert [message.content for message in model.requests[0].messages if message.role == "tool"] == [
            "seen",
            "Large",
        ]
        log = await log_of(hub, session_id)
        assert (types(log, "question_asked"), types(log, "usage")) == (1, 3)


def three_deep(folder: Path) -> MakeTeam:
    @tool(risk="write")
    def note() -> str:
        """Note something."""
        with (folder / "notes").open("a") as file:
            file.write("noted\n")
        return "noted"

    def make(session_id: str, models: list[ScriptedModel]) -> RoundRobinGroupChat:
        inner = RoundRobinGroupChat(
            [AssistantAgent("before", models[0]), AssistantAgent("writer", models[1], tools=[note])],
            name="inner",
            max_turns=2,
        )
        middle = RoundRobinGroupChat([inner], name="middle", max_turns=1)
        last = AssistantAgent("last", models[2])
        return RoundRobinGroupChat([middle, last], name="outer", max_turns=2, session=session_id)

    return make


@pytest.mark.parametrize("answered", ["before", "after"])
async def test_a_confirm_three_teams_deep_waits_for_the_next_run(tmp_path: Path, answered: str) -> None:
    make = three_deep(tmp_path)
    session_id = await run_until_asked(tmp_path, make, [["Ready."], [call("note")], []], "confirm_required")
    async with reopened(tmp_path) as hub:
        (confirm,) = await hub.open_requests()
        assert confirm.agent_path == ("meta", "middle", "inner", "writer")
        if answered == "before":
            await hub.answer(confirm.id, ConfirmAnswer(approved=True), digest=confirm.digest)
        models = [ScriptedModel([]), ScriptedModel(["Noted."]), ScriptedModel(["Bye."])]
        running = asyncio.create_task(make(session_id, models).run())
        if answered == "after":
            while (await hub.suspended_turn(session_id)) is not None:
                await asyncio.sleep(0)
            await hub.answer(confirm.id, ConfirmAnswer(approved=True), digest=confirm.digest)
        assert lines(await running)[-2:] == ["Noted.", "Bye."]
        assert (tmp_path / "notes").read_text() == "noted\n"
        log = await log_of(hub, session_id)
        assert (types(log, "confirm_required"), types(log, "error")) == (1, 0)
        assert [len(model.requests) for model in models] == [0, 1, 1]


async def test_a_stop_ends_a_turn_whose_application_has_not_come_back(tmp_path: Path) -> None:
    make = three_deep(tmp_path)
    session_id = await run_until_asked(tmp_path, make, [["Ready."], [call("note")], []], "confirm_required")
    async with reopened(tmp_path) as hub:
        stopped = await hub.stop(session_id)
        assert stopped is not None
        await hub.wait_for_turn(session_id, stopped.id)
        log = await log_of(hub, session_id)
        assert [event["data"]["code"] for event in log if event["type"] == "error"] == ["stopped"] * 4
        assert [event["data"]["by"] for event in log if event["type"] == "confirm_response"] == ["stop"]
        assert await hub.open_requests() == []
        models = [ScriptedModel([]), ScriptedModel(["Not noted."]), ScriptedModel(["Bye."])]
        assert lines(await make(session_id, models).run())[-2:] == ["Not noted.", "Bye."]


async def test_the_session_is_busy_until_the_application_comes_back(tmp_path: Path) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        with pytest.raises(SessionBusy, match=str(hub.running_turn_id(session_id))):
            await hub.submit(session_id, TurnRequest(input="Hello"))
        assert (await hub.submit(session_id, TurnRequest(input="To all.", when_busy="steer"))).state == "steered"
        assert (await hub.submit(session_id, TurnRequest(input="Then this.", when_busy="queue"))).state == "queued"
        (question,) = await hub.open_requests()
    async with reopened(tmp_path) as hub:
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        models = [ScriptedModel([]), ScriptedModel(["Thanks."])]
        result = await with_person(session_id, models).run()
        assert lines(result)[-2:] == ["Large", "Thanks."]
        assert models[1].requests[0].messages[-1].content == "To all."
        assert (await wait_for_event(hub.store, session_id, "steered"))["text"] == "To all."
        log = await wait_for_turn_end(hub.store, session_id, ends=5)
        started = [json.loads(event.frame_json)["data"] for event in log if event.type == "turn_started"]
        assert started[-1]["input"] == "Then this."


async def test_an_interrupting_message_ends_a_turn_whose_application_has_not_come_back(tmp_path: Path) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        submission = await hub.submit(session_id, TurnRequest(input="Hello", when_busy="interrupt"))
        assert submission.state == "started"
        assert await hub.open_requests() == []


async def test_a_new_task_ends_the_turn_that_waits(tmp_path: Path) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        models = [ScriptedModel([]), ScriptedModel(["Thanks."])]
        running = asyncio.create_task(with_person(session_id, models).run(task="Another one."))
        while (asked := await hub.open_requests()) in ([], [question]):
            await asyncio.sleep(0)
        await hub.answer(asked[0].id, QuestionAnswer(answer="Blue"))
        await hub.stop(session_id)
        with pytest.raises(asyncio.CancelledError):
            await running
        log = await log_of(hub, session_id)
        assert [event["data"]["code"] for event in log if event["type"] == "error"][:2] == ["interrupted"] * 2
        with pytest.raises(QuestionClosed):
            await hub.answer(question.id, QuestionAnswer(answer="Large"))


async def test_another_team_without_a_task_leaves_the_turn_that_waits(tmp_path: Path) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        other = RoundRobinGroupChat([UserProxyAgent("person")], name="Other", max_turns=1, session=session_id)
        with pytest.raises(ValueError, match="no run of team 'Other'"):
            await other.run()
        assert len(await hub.open_requests()) == 1


async def test_a_team_that_is_still_in_memory_goes_on_with_its_question(tmp_path: Path) -> None:
    async with reopened(tmp_path) as hub:
        session_id = (await hub.create(name="Talk")).id
        team = with_person(session_id, [ScriptedModel(["Which size?"]), ScriptedModel(["Thanks."])])
        running = asyncio.create_task(team.run(task="Go"))
        await wait_for_event(hub.store, session_id, "question_asked")
    with pytest.raises(asyncio.CancelledError):
        await running
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        assert lines(await team.run())[-2:] == ["Large", "Thanks."]
        assert types(await log_of(hub, session_id), "question_asked") == 1


async def test_a_run_that_went_on_waits_again_after_another_restart(tmp_path: Path) -> None:
    session_id = await run_until_asked(tmp_path, with_person, [["Which size?"], []], "question_asked")
    async with reopened(tmp_path) as hub:
        running = asyncio.create_task(with_person(session_id, [ScriptedModel([]), ScriptedModel([])]).run())
        while (await hub.suspended_turn(session_id)) is not None:
            await asyncio.sleep(0)
        while not hub.gate.pending_questions():
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        result = await with_person(session_id, [ScriptedModel([]), ScriptedModel(["Thanks."])]).run()
        assert lines(result)[-2:] == ["Large", "Thanks."]
        assert types(await log_of(hub, session_id), "question_asked") == 1


async def test_a_task_goes_on_with_the_answer_when_it_is_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(risk="write")
    def note(text: str) -> str:
        """Note something."""
        ran.append(text)
        return "noted"

    @tool(risk="read")
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    def make(model: ScriptedModel, gate: AsyncConfirmGate | None, **place: Any) -> AgentExecutor:
        return AgentExecutor(model, confirm_gate=gate, settings=load_settings({"home": tmp_path}, environ={}), **place)

    agent = Agent(name="clerk", tools=[look, note])
    store, gate = f"sqlite:///{tmp_path}/sessions.db", AsyncConfirmGate()
    async with reopened(tmp_path) as hub:
        session_id = (await hub.create(name="Talk")).id
    model = ScriptedModel([call("look"), call("note", {"text": "a"})])
    executor, asked = make(model, gate, store=store, session=session_id), asyncio.Event()

    async def run() -> None:
        async for event in executor.stream(agent, Task(description="Note it.")):
            if event.type == "confirm_required":
                asked.set()

    running = asyncio.create_task(run())
    await asked.wait()
    await executor.aclose()
    await running
    async with reopened(tmp_path) as hub:
        (confirm,) = await hub.open_requests()
        await hub.answer(confirm.id, ConfirmAnswer(approved=True), digest=confirm.digest)
    executor = make(model := ScriptedModel(["Done."]), gate, store=store, session=session_id)
    result = await executor.arun(agent, Task(description="Note it."))
    await executor.aclose()
    assert (result.result, ran, len(model.requests)) == ("Done.", ["look", "a"], 1)


async def test_a_task_in_a_session_of_an_open_hub_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    agent, task = Agent(name="clerk", tools=[ask_user]), Task(description="Ask.")
    async with reopened(tmp_path) as hub:
        session_id = (await hub.create(name="Talk")).id
        model = ScriptedModel([call("ask_user", {"text": "Which size?"})])
        executor = AgentExecutor(model, session=session_id, settings=settings)
        running = asyncio.create_task(executor.arun(agent, task))
        await wait_for_event(hub.store, session_id, "question_asked")
    assert ((await running).error or "").startswith("interrupted: ")
    async with reopened(tmp_path) as hub:
        (question,) = await hub.open_requests()
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        executor = AgentExecutor(model := ScriptedModel(["Done."]), session=session_id, settings=settings)
        assert ((await executor.arun(agent, task)).result, len(model.requests)) == ("Done.", 1)
        assert types(await log_of(hub, session_id), "turn_started") == 2
