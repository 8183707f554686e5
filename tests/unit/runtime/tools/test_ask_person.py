"""Questions that the work of a turn asks: answered, expired and stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenticx import AgenticXError
from agenticx.llms import ScriptedModel
from agenticx.runtime import (
    AgentRuntime,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    QuestionAnswer,
    RuntimeEvent,
    Session,
    StopSignal,
    Turn,
    TurnContext,
    ask_person,
)
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, collect, outline
from agenticx.tools import tool
from tests.support.jumping_clock import LoopClock
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

OUTSIDE = "ask_person must be called by the work of a turn that runs"


async def ask_for_colour(_turn: Turn) -> str:
    answer = await ask_person("Which colour?", ["red", "blue"])
    return f"{answer.answer or 'none'} by {answer.by}"


def runtime(gate: Any, **settings: Any) -> AgentRuntime:
    return AgentRuntime(ScriptedModel([]), gate, settings=load_settings(settings), clock=LoopClock())


async def run(gate: Any, context: TurnContext, stop: StopSignal | None = None, **settings: Any) -> list[RuntimeEvent]:
    """Run a turn with the work of `context` and return its events, whose order is checked."""
    events = await collect(runtime(gate, **settings).run_turn("Paint", Session(), stop, context=context))
    check_grammar(events)
    return events


async def asked(gate: AsyncConfirmGate) -> str:
    """Return the id of the question, once it waits."""
    async with asyncio.timeout(PATIENCE):
        while not gate.pending_questions():
            await asyncio.sleep(0)
    return gate.pending_questions()[0].id


async def test_work_gets_the_answer_of_the_person_it_asks() -> None:
    gate = AsyncConfirmGate()
    turn = asyncio.create_task(run(gate, TurnContext(work=ask_for_colour)))
    gate.answer_question(await asked(gate), "green")
    events = await turn
    assert outline(events) == ["turn_started", "question_asked", "question_answered", "token", "final"]
    assert {**events[1].data, "id": "", "expires_at": ""} == {
        "id": "", "text": "Which colour?", "options": ["red", "blue"], "expires_at": ""
    }  # fmt: skip
    assert events[-1].data["text"] == "green by user"


async def test_a_question_below_a_turn_names_the_agents_and_counts_in_no_time_limit() -> None:
    gate = AsyncConfirmGate()

    async def work(turn: Turn) -> str:
        below = TurnContext(parent=turn, work=ask_for_colour, work_seconds=0.05)
        return (await runtime(gate).run("go", agent_id="human", context=below)).text

    turn = asyncio.create_task(run(gate, TurnContext(work=work, work_seconds=0.05)))
    id_ = await asked(gate)
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, gate.answer_question, id_, "blue")
    events = await turn
    assert [event.data["agent_path"] for event in events if event.type == "question_asked"] == [["meta", "human"]]
    assert events[-1].data["text"] == "blue by user"


async def test_a_question_without_an_answer_says_why() -> None:
    expired = await run(AsyncConfirmGate(), TurnContext(work=ask_for_colour), question_timeout_seconds=60)
    refused = await run(AutoApproveConfirmGate(), TurnContext(work=ask_for_colour))
    assert [events[-1].data["text"] for events in (expired, refused)] == ["none by timeout", "none by policy"]


async def test_a_stop_closes_the_question_and_ends_the_turn() -> None:
    gate, stop = AsyncConfirmGate(), StopSignal()
    turn = asyncio.create_task(run(gate, TurnContext(work=ask_for_colour), stop))
    await asked(gate)
    stop.set()
    events = await turn
    assert [event.data["by"] for event in events if event.type == "question_answered"] == ["stop"]
    assert (events[-1].data["code"], gate.pending_questions()) == ("stopped", [])


async def test_only_the_work_of_a_turn_that_runs_can_ask() -> None:
    with pytest.raises(AgenticXError, match=OUTSIDE):
        await ask_person("Which colour?")
    refused: list[str] = []

    @tool(risk="read")
    async def look() -> QuestionAnswer:
        """Look."""
        try:
            return await ask_person("Which colour?")
        except AgenticXError as exc:
            refused.append(str(exc))
            raise

    model = ScriptedModel([call("look"), "Done."])
    await AgentRuntime(model, AutoApproveConfirmGate(), tools=[look], settings=load_settings()).run("go")
    assert len(refused) == 1
